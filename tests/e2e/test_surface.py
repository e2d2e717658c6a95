# SPDX-License-Identifier: Apache-2.0
"""The rest of the surface: signed tokens, metrics, events, operators' routes, audit, reload."""

import base64
import hashlib
import hmac
import http.client
import json
import re
import resource
import secrets
import shutil
import signal
import subprocess
import time

import stored
from harness import BUILD, TOKEN, check, equal, wait_for

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
    # Where the store is shared, what a killed host had goes on when its claim is over.
    b = make(env={"SANDBOX_CONTROL_AUTH_SECRET": CONTROL}, conf='execution: { claim_ttl = "2s"; };').start()
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
    nonce = "a nonce of one cancel"
    first, second = (post(b, text, sign("execution.create", text)).expect(202).json["id"] for text in (body_of("sleep 600"), body_of("sleep 601")))
    cancel = sign("execution.cancel", execution=first, nonce=nonce)
    b.request("DELETE", f"/sandbox/executions/{first}", token=cancel, headers=identity()).expect(200, 202)
    b.restart()
    again = b.request("DELETE", f"/sandbox/executions/{first}", token=cancel, headers=identity(), wait="30s").expect(200).json
    equal(again["status"], "cancelled", "whose answer was lost may ask again")
    other = sign("execution.cancel", execution=second, nonce=nonce)
    b.request("DELETE", f"/sandbox/executions/{second}", token=other, headers=identity()).expect_error(401, "unauthorized")
    post(b, body, sign("execution.create", body, nonce=nonce)).expect_error(401, "unauthorized")
    b.request("DELETE", f"/sandbox/executions/{second}", token=sign("execution.cancel", execution=second), headers=identity(), wait="30s").expect(200)
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


def test_a_lost_output_hides_no_end(make):
    b = make().start()
    record = b.run("t", "head -c 100000 /dev/zero")
    lost = [path for path in (b.state / "objects").rglob("*") if path.is_file() and path.stat().st_size == 100000]
    equal(len(lost), 1)
    lost[0].unlink()
    b.get(f"/sandbox/executions/{record['id']}/stdout").expect(500)
    events = events_of(b, record["id"])
    equal(statuses(events)[-1], "completed")
    equal([data for _, kind, data in events if kind == "output"][-1], {"stdout_bytes": 100000, "stderr_bytes": 0})
    done = b.ctl("events", record["id"])
    check(done.returncode == 0 and b"completed" in done.stdout, done)


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
    check("completed" not in statuses(parse_events(text + "\n\n")), text)
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


def test_operators_routes(make):
    b = make(conf='gc: { interval = "1s"; };').start()
    providers = b.get("/admin/providers").expect(200).json
    equal([(p["name"], p["targets"]) for p in providers["items"]], [("mock", ["mock"])])
    check("threadsafe" in providers["items"][0]["capabilities"], providers)
    hosts = b.get("/admin/hosts").expect(200).json
    equal(hosts["total"], 1)
    equal(hosts["items"][0]["pid"], b.proc.pid)

    b.sh("t", "true")
    equal(b.request("POST", "/admin/targets/mock/drain").expect(200).json, {"name": "mock", "drained": True})
    b.restart()
    equal(b.get("/admin/targets").expect(200).json["items"][0]["drained"], True)
    b.sh("t", "true")  # a live session goes on
    b.create("new", "true").expect_error(422, "no_eligible_target")
    b.request("POST", "/admin/targets/mock/undrain").expect(200)
    b.sh("new", "true")
    b.request("POST", "/admin/targets/other/drain").expect_error(404, "not_found")

    b.request("POST", "/admin/recover").expect(204)
    for method, route in (("POST", "/sandbox/artifacts"), ("GET", "/sandbox/artifacts"), ("GET", "/sandbox/artifacts/a"),
                          ("POST", "/sandbox/workspace/commit"), ("GET", "/sandbox/workspace/log"),
                          ("GET", "/sandbox/workspace/diff"), ("POST", "/sandbox/workspace/restore"),
                          ("POST", "/sandbox/workspace/hydrate")):
        b.request(method, route).expect_error(501, "unsupported")
        b.request(method, route, token=None).expect_error(401, "unauthorized")


def test_a_target_drained_by_its_file_cannot_be_opened(make):
    b = make().start()
    key = {"Idempotency-Key": "k"}
    first = b.create("t", "true", headers=key).expect(202).json["id"]
    equal(b.finish(first)["status"], "completed")
    (b.dir / "providers.d" / "10-mock.conf").write_text(b.mock.conf("drained = true;", b.mock_text))
    b.restart()
    b.request("POST", "/admin/targets/mock/undrain").expect_error(409, "conflict")
    equal(b.create("t", "true", headers=key).expect(200, 202).json["id"], first, "what the key made")
    b.sh("t", "true")  # a live session goes on
    b.create("new", "true").expect_error(422, "no_eligible_target")
    b.teardown("t")
    equal(b.create("t", "true", headers=key).expect(200, 202).json["id"], first, "also when its session is gone")
    b.create("t", "true").expect_error(422, "no_eligible_target")


def test_runtime_manifest(make):
    b = make().start()
    b.get("/runtime/manifest", token=None).expect_error(503, "runtime_manifest_unavailable")
    b.stop()
    text = '{"runtimes": [ ],\n  "as it": "stands"}\n'
    (b.dir / "manifest.json").write_text(text)
    b.conf_text = f'runtime: {{ manifest = "{b.dir}/manifest.json"; }};'
    b.write_conf()
    b.start()
    answer = b.get("/runtime/manifest", token=None).expect(200)
    equal(answer.text, text)
    equal(answer.headers["content-type"], "application/json")
    (b.dir / "manifest.json").unlink()
    check(str(b.dir) not in b.get("/runtime/manifest").expect_error(503, "runtime_manifest_unavailable").text)


def put_message(b, subject, doc):
    """Into the request stream, as another program would."""
    stored.append(b, "requests", subject, doc)


def test_dead_letters(make):
    b = make(conf='gc: { interval = "1s"; };').start()
    record = b.run("t", "true")
    b.stop()
    put_message(b, "s1", b"not json")
    put_message(b, "s2", json.dumps({"specversion": "1.0", "type": "com.agentarea.sandbox.execution.requested",
                                     "data": {"execution_id": "sexec_0123456789abcdef01234567"}}).encode())
    b.start()

    def letters():
        return b.get("/admin/deadletters").expect(200).json

    listed = wait_for(lambda: letters()["total"] == 2 and letters(), what="two dead letters")
    equal([x["letter"]["reason"] for x in listed["items"]], ["bad_json", "no_record"])
    first, second = (x["id"] for x in listed["items"])
    page = b.get("/admin/deadletters", limit=1).expect(200).json
    equal(page["items"][0]["id"], first)
    equal(b.get("/admin/deadletters", limit=1, cursor=page["next_cursor"]).expect(200).json["items"][0]["id"], second)
    equal(b.get(f"/admin/deadletters/{second}").expect(200).json["letter"]["reason"], "no_record")
    b.request("POST", f"/admin/deadletters/{first}").expect_error(409, "conflict")
    b.request("POST", f"/admin/deadletters/{second}").expect_error(409, "conflict")
    b.request("DELETE", f"/admin/deadletters/{first}").expect(204)
    b.request("DELETE", f"/admin/deadletters/{first}").expect_error(404, "not_found")
    b.get("/admin/deadletters/x").expect_error(400)
    b.get("/admin/deadletters/0").expect_error(404)
    equal([x["id"] for x in letters()["items"]], [second])
    check(record["status"] == "completed")


def test_a_dead_letter_of_an_open_execution_goes_back(make):
    b = make(conf='gc: { interval = "1s"; };').start()
    record = b.create("t", f"while [ ! -e {b.dir}/gate ]; do sleep 0.02; done").expect(202).json
    # Where the store is shared, a sandbox that is being made when its host dies is looked for longer than this test lasts.
    wait_for(lambda: b.record(record["id"])["status"] == "running", what="running")
    message = json.dumps({"specversion": "1.0", "type": "com.agentarea.sandbox.execution.requested",
                          "data": {"execution_id": record["id"]}})
    b.kill9()
    stored.append(b, "dead", record["id"], json.dumps(
        {"reason": "test", "subject": record["id"], "seq": 1, "size": len(message), "event": message}).encode())
    b.start()
    letter = b.get("/admin/deadletters").expect(200).json["items"][0]["id"]
    b.request("POST", f"/admin/deadletters/{letter}").expect(204)
    equal(b.get("/admin/deadletters").expect(200).json["total"], 0)
    (b.dir / "gate").touch()
    equal(b.finish(record["id"])["status"], "completed")


def audits(b):
    found = []
    for line in b.log().splitlines():
        if " audit=1 " in line:
            found.append(dict(part.split("=", 1) for part in line.split() if "=" in part))
    return found


OPERATOR = "operator-token-0123456789abcdef0123456789"


def test_audit(make):
    b = make(tokens=[("all", TOKEN, ["execution.create", "execution.read", "execution.cancel", "file.read", "file.write",
                                     "session.read", "session.delete", "metrics"], ["w"]),
                     ("operator", OPERATOR, ["admin"], ["*"])]).start()
    answered = []

    def audited(answer):
        """A streamed answer may arrive before its line is written: the next request waits, so that the order is known."""
        answered.append(answer)
        wait_for(lambda: len(audits(b)) >= len(answered), what="the audit line")
        return answer

    record = audited(b.create("t", "echo very-private-text", wait="20s").expect(200)).json
    audited(b.put_file("t", "a.txt", b"content-of-it").expect(200))
    audited(b.get_file("t", "a.txt").expect(200))
    audited(b.request("DELETE", f"/sandbox/executions/{record['id']}").expect(200))
    audited(b.create("t", "true", workspace="x").expect(403))
    audited(b.teardown("t", wait="10s").expect(204))
    audited(b.get("/admin/targets", token=OPERATOR).expect(200))
    audited(b.teardown("t", workspace="w").expect(204))
    audited(b.request("DELETE", "/sandbox/task/t", token="wrong").expect(401))
    lines = audits(b)
    seen = [(a["action"], a["workspace"], a["task"], a["status"]) for a in lines]
    none = '""'
    equal(seen, [("execution.create", "w", "t", "200"), ("file.put", "w", "t", "200"), ("file.get", "w", "t", "200"),
                 ("execution.cancel", "w", "t", "200"), ("execution.create", "x", "t", "403"),
                 ("task.delete", "w", "t", "204"), ("admin.targets", none, none, "200"),
                 ("task.delete", "w", "t", "204"), ("task.delete", none, none, "401")])
    equal([lines[0]["object"], lines[1]["object"], lines[3]["object"]], [record["id"], "a.txt", record["id"]])
    equal([lines[0]["identity"], lines[-1]["identity"]], ["all", none])
    check("very-private-text" not in b.log() and "content-of-it" not in b.log())


def test_traceparent(make):
    b = make().start()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    b.create("t", "true", wait="20s", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}).expect(200)
    wait_for(lambda: audits(b), what="the audit line")
    equal(audits(b)[0]["trace"], trace)
    b.create("t", "true", headers={"traceparent": "00-nonsense"}).expect(202)
    wait_for(lambda: len(audits(b)) == 2, what="the audit line")
    check(len(audits(b)[1]["trace"]) == 32 and audits(b)[1]["trace"] != trace)


def reload(b, word):
    before = b.log().count("msg=\"reload: ")
    b.proc.send_signal(signal.SIGHUP)
    wait_for(lambda: word in b.log()[0:] and b.log().count("msg=\"reload: ") > before, what="the reload")


def test_reload(make):
    b = make().start()
    new = "second-token-0123456789abcdef0123456789ab"
    b.get("/sandbox/sessions", token=new, workspace_id="w").expect(401)
    b.tokens = [("other", new, ["session.read", "execution.create", "execution.read", "metrics"], ["*"])]
    b.conf_text = 'lease: { idle = "5m"; }; runner: { queue_max = 7; };'
    b.write_conf()
    record = b.create("t", "echo goes on").expect(202).json
    reload(b, "reload: done")
    b.get("/sandbox/sessions", token=TOKEN, workspace_id="w").expect(401)
    b.get("/sandbox/sessions", token=new, workspace_id="w").expect(200)
    check('reload: option changed, it needs a restart" ' in b.log() and "key=lease.idle" in b.log(), "lease.idle is named")
    check("key=runner.queue_max" in b.log(), "runner.queue_max is named")
    equal(b.get("/ready", token=new).expect(200).json["queue"]["max"], 7)
    wait_for(lambda: b.get(f"/sandbox/executions/{record['id']}", token=new).json["status"] == "completed")
    told = b.log().count("reload: option applied")
    reload(b, "reload: done")
    equal(b.log().count("reload: option applied"), told, "what is in effect already is not told again")
    b.conf_text = 'lease: { idle = "5m"; };'
    b.write_conf()
    reload(b, "reload: done")
    equal(b.log().count("reload: option applied"), told + 1, "and what goes back is")

    conf = b.dir / "berth.conf"
    good = conf.read_text()
    conf.write_text(good + "\nnonsense = 1;\nrubbish = 2;\n")
    reload(b, "the former one stays")
    equal([b.log().count(f"{word}: is not a known key") for word in ("nonsense", "rubbish")], [1, 1], "it says why, once")
    b.get("/sandbox/sessions", token=new, workspace_id="w").expect(200)
    conf.write_text(good.replace('level = "debug"', 'level = "warn"'))
    reload(b, "key=log.level")
    size = len(b.log())
    b.get("/sandbox/sessions", token=new, workspace_id="w").expect(200)
    b.get("/health").expect(200)
    check("msg=request" not in b.log()[size:], "no line below the new level")


def test_ready_tells_of_missing_objects(make):
    b = make().start()
    big = b.run("t", "head -c 100000 /dev/zero")["id"]
    equal(b.get("/ready").expect(200).json["objects"], "ok")
    objects, away = b.state / "objects", b.state / "away"
    objects.rename(away)
    answer = b.get("/ready").expect_error(503, "store_unavailable").json
    equal((answer["details"]["reason"], answer["details"]["objects"]), ("objects_missing", "unavailable"))
    check(str(b.state) not in json.dumps(answer) and str(objects) in b.log(), "the place is for the log only")
    away.rename(objects)
    equal(b.get("/ready").expect(200).json["objects"], "ok")
    equal(len(b.output(big)), 100000)

    shutil.copytree(objects, away)
    shutil.rmtree(objects)
    b.get("/ready").expect_error(503, "store_unavailable")
    b.get(f"/sandbox/executions/{big}/stdout").expect_error(503, "store_unavailable")
    objects.mkdir(mode=0o700)
    b.get("/ready").expect_error(503, "store_unavailable")
    check("it has no id" in b.log(), "an empty folder may be where something is not mounted")
    objects.rmdir()
    away.rename(objects)
    equal(b.get("/ready").expect(200).json["objects"], "ok")
    equal(len(b.output(big)), 100000)
    equal(len(b.output(b.run("t", "head -c 100000 /dev/zero")["id"])), 100000)
    b.restart()
    equal(b.get("/ready").expect(200).json["objects"], "ok")


def test_ten_thousand_commands_need_less_than_20000_descriptors(make):
    """The start asks for what commands use; it says what it wants where that is not there."""
    b = make(conf="runner: { concurrency = 10000; };")

    def checked(limit):
        return subprocess.run([str(BUILD / "bin" / "berthd"), "-t", "-c", str(b.dir / "berth.conf")], capture_output=True,
                              text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    result = checked(20000)
    equal(result.returncode, 0, result.stderr)
    result = checked(10000)
    equal(result.returncode, 78)
    equal(result.stderr.splitlines()[0], "berthd: limits: http.connections = 4096 and runner.concurrency = 10000 need 14352 "
                                         "descriptors, 10000 are allowed (RLIMIT_NOFILE)")


def test_what_another_process_has_is_tried_again(make):
    """75, which a service manager tries again, and not 78, which it does not: the database, the port."""
    first = make().start()
    second = make()
    conf = (second.dir / "berth.conf").read_text()
    if not second.redis:
        (second.dir / "berth.conf").write_text(conf.replace(str(second.state), str(first.state)))
        second.start(expect_exit=75)
        check(f"berth.db is in use by berthd pid {first.proc.pid}" in second.log(), second.log())
    (second.dir / "berth.conf").write_text(re.sub(r"port = 0", f"port = {first.port}", conf))
    second.start(expect_exit=75)
    check("cannot listen" in second.log() and "Address already in use" in second.log(), second.log())
