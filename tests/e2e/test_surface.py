# SPDX-License-Identifier: Apache-2.0
"""The rest of the surface: signed tokens, metrics, events, operators' routes, audit, reload."""

import base64
import hashlib
import hmac
import json
import secrets
import signal
import time

from harness import TOKEN, check, equal, wait_for

CONTROL = "control-secret-0123456789abcdef0123456789"


def sign(scope, body=b"", task="t", workspace="w", execution=None, key=CONTROL, lives=300, **claims):
    payload = {"v": 1, "scope": scope, "workspace_id": workspace, "task_id": task,
               "body_sha256": hashlib.sha256(body).hexdigest(), "expires_at": int(time.time()) + lives,
               "nonce": secrets.token_hex(16), **claims}
    if execution:
        payload["execution_id"] = execution
    text = base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=")
    mac = hmac.new(key.encode(), text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def body_of(command, task="t", workspace="w"):
    return json.dumps({"workspace_id": workspace, "task_id": task, "command": {"command_body": command}}).encode()


def post(b, body, token, **query):
    return b.request("POST", "/sandbox/executions", body, token=token, headers={"Content-Type": "application/json"},
                     **query)


def identity(task="t", workspace="w"):
    return {"X-Agentarea-Workspace-ID": workspace, "X-Agentarea-Task-ID": task}


def test_signed_tokens(make):
    b = make(env={"SANDBOX_CONTROL_AUTH_SECRET": CONTROL}).start()
    body = body_of("echo once")
    token = sign("execution.create", body)
    record = post(b, body, token, wait="30s").expect(200).json
    again = post(b, body, token, wait="30s").expect(200).json
    equal(again["id"], record["id"], "a replayed create gives the same record")
    post(b, body_of("echo twice"), token).expect_error(401, "unauthorized")
    b.restart()
    equal(post(b, body, token, wait="30s").expect(200).json["id"], record["id"], "after a restart")

    for broken in (sign("execution.create", body, key="another-secret-0123456789abcdef0123456789"),
                   sign("execution.create", body, lives=-1), sign("execution.create", body, lives=90000),
                   sign("execution.create", body, v=2), sign("execution.create", body, nonce="short"),
                   sign("execution.create", body, execution=record["id"]), sign("execution.create", b"other"),
                   sign("execution.create", body, extra=1), token + "A", "." + token, token.replace(".", "..")):
        post(b, body, broken).expect_error(401, "unauthorized")
    post(b, body, sign("execution.create", body, task="u")).expect_error(403, "workspace_scope_mismatch")
    post(b, body, sign("execution.create", body, workspace="x")).expect_error(403, "workspace_scope_mismatch")
    post(b, body, sign("execution.read", body, execution=record["id"])).expect_error(403, "forbidden")

    path = f"/sandbox/executions/{record['id']}"
    reader = sign("execution.read", execution=record["id"])
    for _ in range(2):
        equal(b.get(path, token=reader, headers=identity()).expect(200).json["id"], record["id"])
    equal(b.get(path + "/stdout", token=reader, headers=identity()).expect(200).body, b"once\n")
    b.get(path, token=reader).expect_error(401)
    b.get(path, token=reader, headers=identity("u")).expect_error(401)
    b.get("/sandbox/executions", token=reader, headers=identity()).expect_error(403, "forbidden")
    other = sign("execution.read", execution=record["id"], task="u")
    b.get(path, token=other, headers=identity("u")).expect_error(404, "not_found")
    b.get("/sandbox/sessions", token=reader, workspace_id="w").expect_error(401)

    cancel = sign("execution.cancel", execution=record["id"])
    b.request("DELETE", path, token=cancel, headers=identity()).expect(200)
    b.request("DELETE", path, token=cancel, headers=identity()).expect_error(401, "unauthorized")
    check("control-secret" not in b.log(), "the secret is not in the log")


def test_no_control_secret_takes_no_signed_token(make):
    b = make().start()
    body = body_of("true")
    post(b, body, sign("execution.create", body)).expect_error(401, "unauthorized")


def metrics(b):
    answer = b.get("/metrics").expect(200)
    check(answer.headers["content-type"].startswith("text/plain; version=0.0.4"), answer.headers)
    values = {}
    for line in answer.text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            check(name not in values, "twice:", name)
            values[name] = float(value)
    return values


def test_metrics(make):
    b = make(tokens=[("all", TOKEN, ["execution.create", "execution.read", "session.delete", "metrics"], ["*"]),
                     ("files", "files-token-0123456789abcdef0123456789", ["file.read"], ["*"])]).start()
    b.sh("t", "echo hello")
    b.sh("t", "exit 3", code=3)
    b.get("/sandbox/executions/sexec_0123456789abcdef01234567").expect(404)
    b.teardown("t", wait="10s").expect(204)
    b.get("/metrics", token="files-token-0123456789abcdef0123456789").expect_error(403, "forbidden")
    b.get("/metrics", token=None).expect_error(401)
    m = metrics(b)
    equal(m["berth_executions_accepted_total"], 2)
    equal(m['berth_executions_ended_total{ending="exit"}'], 2)
    equal(m['berth_session_provisions_total{outcome="ok"}'], 1)
    equal(m['berth_session_releases_total{outcome="ok"}'], 1)
    equal(m['berth_http_requests_total{route="GET /sandbox/executions/:id",status="404"}'], 1)
    equal(m['berth_sessions{target="mock"}'], 0)
    equal(m['berth_execution_duration_seconds_count'], 2)
    check(m["berth_store_steps_total"] >= m["berth_store_groups_total"] > 0)
    check(m['berth_target_calls_total{target="mock"}'] > 3)
    check(m["process_resident_memory_bytes"] > 1 << 20 and m["process_threads"] > 10 and m["process_open_fds"] > 5)
    check(metrics(b)['berth_http_requests_total{route="GET /metrics",status="200"}'] >= 1)
