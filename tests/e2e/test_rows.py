# SPDX-License-Identifier: Apache-2.0
"""Rows of the field failures that callers of the API see when a provider fails, or when they reach for what is another task's."""

import time

import harness
from harness import check, equal, in_parallel, settled, wait_for

FAST = 'gc: { interval = "200ms"; };\n'
NARROW = "narrow-token-0123456789abcdef0123456789ab"


def test_F7_nothing_of_another_task_can_be_reached(make):
    scopes = ["execution.create", "execution.read", "execution.cancel", "file.read", "file.write", "session.read", "session.delete"]
    b = make(conf=FAST, tokens=[("all", harness.TOKEN, scopes, ["*"]), ("narrow", NARROW, scopes, ["mine"])]).start()
    theirs = b.run("t", "echo private; head -c 100000 /dev/zero", workspace="theirs")
    b.put_file("t", "secret", b"A=private\0", workspace="theirs").expect(200)
    b.run("t", "true", workspace="mine")
    b.run("u", "true", workspace="mine")

    # References: another task's object keys and paths, as input of an own command.
    for reference in theirs["output_refs"] + ["../../theirs/t/secret", "/theirs/t/secret", "objects/" + theirs["output_refs"][0]]:
        for field in ("stdin_ref", "env_ref"):
            answer = b.create("t", "cat; env", workspace="mine", token=NARROW, wait="20s", **{field: reference})
            if answer.status == 400:
                continue
            record = answer.expect(200).json
            equal(record["status"], "failed", (field, reference))
            equal(b.output(record["id"]), b"", "it never ran")
    check(b"private" not in b.output(b.run("t", "cat secret ../*/secret 2>&1; true", workspace="mine")["id"]))

    # By id: word for word as an unknown one.
    none = theirs["id"][:-1] + ("0" if theirs["id"][-1] != "0" else "1")
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/stdout"), ("GET", "/stderr"), ("GET", "/events")):
        got, unknown = (b.request(method, f"/sandbox/executions/{i}{tail}", token=NARROW) for i in (theirs["id"], none))
        equal((got.status, got.json), (404, unknown.json), (method, tail))

    # By name: refused before anything is transferred.
    place = {"workspace_id": "theirs", "task_id": "t"}
    calls = b.mock.count("file_read")
    for method, route, query, body in (
            ("GET", "/sandbox/executions", place, None), ("GET", "/sandbox/sessions", {"workspace_id": "theirs"}, None),
            ("GET", "/sandbox/task/t", {"workspace_id": "theirs"}, None), ("DELETE", "/sandbox/task/t", {"workspace_id": "theirs"}, None),
            ("GET", "/sandbox/files", {**place, "path": "secret"}, None), ("GET", "/sandbox/files", {**place, "list": ""}, None),
            ("DELETE", "/sandbox/files", {**place, "path": "secret"}, None),
            ("PUT", "/sandbox/files", {}, {**place, "path": "x", "content_base64": ""}),
            ("POST", "/sandbox/files/move", {}, {**place, "from": "secret", "to": "x"}),
            ("GET", "/sandbox/file-content", {**place, "path": "secret"}, None),
            ("PUT", "/sandbox/file-content", {**place, "path": "secret"}, b"x"),
            ("POST", "/sandbox/executions", {}, {**place, "command": {"command_body": "true"}})):
        b.request(method, route, body, token=NARROW, **query).expect_error(403, "workspace_scope_mismatch")
    equal(b.mock.count("file_read"), calls, "nothing was read")
    equal(b.get_file("t", "secret", workspace="theirs").expect(200).body, b"A=private\0")


def test_F9_a_write_whose_session_leg_fails_says_so(make):
    b = make(conf=FAST).start()
    b.put_file("t", "f", b"before").expect(200)
    for fault, statuses in (("code=UNAVAILABLE reason=http_500", (503,)), ("code=UNKNOWN", (502,)), ("code=STORAGE_FULL", (507,)),
                            ("code=TIMEOUT", (504,)), ("code=FORBIDDEN", (502,)), ("code=SESSION_LOST", (410,))):
        b.mock.faults("file_write " + fault)
        b.put_file("t", "f", b"after").expect(*statuses)
        b.request("PUT", "/sandbox/files", {"workspace_id": "w", "task_id": "t", "path": "f", "content_base64": "YQ=="}).expect(*statuses)
        b.mock.faults()
        check(b.get_file("t", "f").expect(200, 404).body != b"after", "no half success", fault)
        b.put_file("t", "f", b"before").expect(200)
    b.mock.faults("file_write lost_reply")
    b.put_file("t", "f", b"after").expect(502)  # it may be there: never a success
    b.mock.faults()
    settled(b)


def test_P1_a_session_that_vanishes_is_replaced_once(make):
    b = make(conf=FAST).start()
    first = b.run("t", "echo x >> ran")
    b.mock.faults("execute nth=1 vanish")
    lost = b.run("t", "echo x >> ran")
    equal((lost["status"], lost["reason"], lost["ending"]["kind"]), ("failed", "session_lost", "session_lost"))
    b.mock.faults()
    created = b.mock.count("created")
    records = in_parallel(8, lambda i: b.run("t", f"echo {i}; cat ran 2>&1"))
    for record in records:
        equal(record["status"], "completed", record.get("error"))
        check(record["incarnation"] > first["incarnation"], "a later incarnation")
        check(b"x\n" not in b.output(record["id"]), "the lost command was not run again")
    equal(b.mock.count("created") - created, 1, "sessions made by all recoveries")
    settled(b)


def creates_tried(b):
    """{task: when a create of its was answered, in the provider's milliseconds}."""
    tried = {}
    for line in (b.mock.root / "calls.log").read_text().splitlines():
        at, op, _, task = line.split()[:4]
        if op == "provision":
            tried.setdefault(task, []).append(int(at))
    return tried


def test_P2_a_provider_that_limits_its_rate(make):
    """150 first requests: creates stay bounded, the time that it named is kept, everybody ends well or with the reason."""
    count = 150 if harness.FULL else 40
    b = make(conf=FAST + 'execution: { queue_timeout = "2m"; };').start()
    b.mock.faults(f"provision count={count} code=RATE_LIMITED retry_after=1s")
    ids = [b.create(f"t{i}", "true").expect(202).json["id"] for i in range(count)]
    wait_for(lambda: b.mock.count("provision") >= count, 30, "the first creates")
    answer = b.put_file("t0", "f", b"x", timeout=30)
    if answer.status != 200:
        answer.expect_error(429, "rate_limited")
        check(int(answer.headers["retry-after"]) >= 1 and answer.json["details"]["reason"], answer.text)
    for i in ids:
        record = b.finish(i, 100)
        check(record["status"] == "completed" or record["reason"], record)
        equal(record["status"], "completed", record.get("error"))
    waits = [later - former for times in creates_tried(b).values() for former, later in zip(times, times[1:])]
    equal(len(waits), count, "creates that were tried again")
    check(min(waits) >= 990, "the provider's time was kept:", min(waits))
    check(max(waits) - min(waits) >= 100, "not all at one time:", sorted(waits))
    check(b.mock.count("provision") <= 3 * count, "creates:", b.mock.count("provision"))
    settled(b)


def test_P3_a_wrong_key_is_told_at_once(make):
    b = make(conf=FAST).start()
    b.mock.faults("provision code=UNAUTHENTICATED reason=bad_key", "find code=UNAUTHENTICATED reason=bad_key")
    began = time.monotonic()
    b.put_file("t", "f", b"x").expect_error(502, "provider_auth")
    record = b.run("u", "true", limit=20)
    equal((record["status"], record["reason"], record.get("result")), ("failed", "bad_key", None))
    check(time.monotonic() - began < 10 * harness.PATIENCE, "at once")
    calls = b.mock.count("provision") + b.mock.count("find")
    check(calls <= 4, "no polling:", calls)
    equal(b.mock.sessions(), {}, "sessions")
    b.mock.faults()
    equal(b.sh("v", "echo works"), b"works\n")
    settled(b)


def test_P5_a_region_whose_target_is_down_is_not_served_by_another(make):
    b = make(conf=FAST, target='region = "b";')
    (b.dir / "providers.d" / "20-a.conf").write_text(
        'provider = "nothere";\nname = "a";\nregion = "a";\nrequired = false;\nconfig: { };\n')
    b.start()
    equal(b.get("/ready").expect(200).json["targets"], [{"name": "mock", "status": "ok"}, {"name": "a", "status": "degraded"}])
    answer = b.create("t", "echo ran", region="a", wait="20s")
    if answer.status == 200:
        record = answer.json
        equal(record["status"], "failed")
        check(record["reason"] and record["error"], record)
        equal(b.output(record["id"]), b"")
    else:
        answer.expect(422, 503)
        check(answer.json["message"], answer.text)
    b.put_file("t", "f", b"x", region="a").expect(422, 503)
    equal(b.mock.sessions(), {}, "nothing was made elsewhere")
    equal(b.finish(b.create("u", "true", region="b").expect(202).json["id"])["status"], "completed")
    equal([s["task"] for s in b.mock.sessions().values()], ["u"])


def test_P6_no_room_for_ever_and_for_a_while(make):
    b = make(conf=FAST + 'execution: { queue_timeout = "3s"; };').start()
    b.mock.faults("provision task=w/never code=CAPACITY reason=unschedulable retry_after=7s",
                  "await_ready task=w/later count=2 code=CAPACITY reason=unschedulable retry_after=200ms")
    answer = b.put_file("never", "f", b"x").expect_error(503, "capacity_exhausted")
    equal(answer.json["details"]["reason"], "unschedulable")
    check(0 < int(answer.headers["retry-after"]) <= 7, answer.headers)
    equal(b.sh("later", "echo came"), b"came\n", "while the provider makes room")
    equal(b.mock.count("created"), 1, "the pending session was kept")
    record = b.run("never", "true", limit=30)
    equal(record["status"], "failed")
    equal(record["reason"], "capacity_exhausted")
    check(record["retry_after_ms"] > 0, record)
    settled(b)
