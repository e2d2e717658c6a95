# SPDX-License-Identifier: Apache-2.0
"""The rest of the surface: signed tokens, metrics, events, operators' routes, audit, reload."""

import base64
import hashlib
import hmac
import http.client
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


def events_of(b, execution, last=None):
    headers = {"Last-Event-ID": last} if last else {}
    answer = b.get(f"/sandbox/executions/{execution}/events", headers=headers).expect(200)
    equal(answer.headers["content-type"], "text/event-stream")
    return parse_events(answer.text)


def parse_events(text):
    events = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if fields:
            events.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return events


def statuses(events):
    return [data["data"]["status"] for _, kind, data in events if kind == "status"]


def test_events_of_an_ended_execution(make):
    b = make().start()
    record = b.run("t", "echo hello; echo oops >&2")
    b.run("u", "echo other")
    events = events_of(b, record["id"])
    equal(statuses(events)[-1], "completed")
    equal(statuses(events)[0], "queued")
    equal(statuses(events).count("completed"), 1)
    outputs = [data for _, kind, data in events if kind == "output"]
    equal(outputs[-1], {"stdout_bytes": 6, "stderr_bytes": 5})
    ids = [int(number) for number, kind, _ in events if kind == "status"]
    check(ids == sorted(set(ids)), ids)
    check(all(data["subject"] == record["id"] for _, kind, data in events if kind == "status"), events)
    later = events_of(b, record["id"], last=str(ids[0]))
    equal([int(number) for number, kind, _ in later if kind == "status"], ids[1:])
    b.get(f"/sandbox/executions/{record['id']}/events", headers={"Last-Event-ID": str(ids[-1])}).expect(204)
    b.get(f"/sandbox/executions/{record['id']}/events", headers={"Last-Event-ID": "x"}).expect(400)
    b.get("/sandbox/executions/sexec_0123456789abcdef01234567/events").expect(404)


def test_events_live(make):
    b = make().start()
    gate = b.dir / "gate"
    record = b.create("t", f"echo started; while [ ! -e {gate} ]; do sleep 0.02; done; echo done").expect(202).json
    path = f"/sandbox/executions/{record['id']}/events"
    connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=60)
    connection.request("GET", path, headers={"Authorization": "Bearer " + TOKEN})
    response = connection.getresponse()
    equal(response.status, 200)
    text = ""
    while '"stdout_bytes":8' not in text:
        line = response.readline().decode()
        check(line, "the stream ended early:", text)
        text += line
    check("running" in statuses(parse_events(text + "\n\n")) or "started" in text, text)
    gate.touch()
    text += response.read().decode()
    connection.close()
    events = parse_events(text)
    equal(events[-1][1], "status")
    equal(statuses(events)[-1], "completed")
    equal([data for _, kind, data in events if kind == "output"][-1], {"stdout_bytes": 13, "stderr_bytes": 0})


def test_events_end_when_the_reader_goes_and_when_berthd_stops(make):
    b = make(conf='stop_grace = "500ms";').start()
    record = b.create("t", "sleep 60").expect(202).json
    wait_for(lambda: b.record(record["id"])["status"] == "running", what="running")
    path = f"/sandbox/executions/{record['id']}/events"

    def follow():
        connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=60)
        connection.request("GET", path, headers={"Authorization": "Bearer " + TOKEN})
        return connection, connection.getresponse()

    connection, response = follow()
    response.readline()
    connection.close()
    wait_for(lambda: "route=/sandbox/executions/:id/events" in b.log(), what="the follower's end")
    connection, response = follow()
    response.readline()
    equal(b.stop(), 0, "exit code")
    connection.close()
