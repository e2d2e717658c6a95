# SPDX-License-Identifier: Apache-2.0
"""Durable executions and auth on one host (rows Q3 to Q8)."""

import contextlib
import json
import random
import signal
import sqlite3
import time

import harness
import stored
from counting import events_of, kinds_of, status_after
from harness import TOKEN, check, equal, in_parallel, settled, wait_for


def check_history(b, record):
    kinds = kinds_of(events_of(b).get(record["id"], []))
    equal(status_after(kinds), record["status"], f"what the events lead to: {kinds}")


@harness.only_sqlite("a copy of the database is put in its place")
def test_a_state_from_before_the_end(make):
    """A backup of a daemon that runs is restored: what has ended since, and was forgotten, costs nobody the session."""
    b = make().start()
    b.put_file("t", "kept", b"kept").expect(200, 201, 204)
    other = b.create("t", "while [ ! -e gate ]; do sleep 0.05; done; echo goes on").expect(202).json["id"]
    made = b.create("t", "while [ ! -e first ]; do sleep 0.05; done; echo x >> ran").expect(202).json["id"]
    wait_for(lambda: all(b.record(i)["status"] == "running" for i in (made, other)), 10, "both to run")
    (session,) = b.mock.sessions()
    with contextlib.closing(sqlite3.connect(b.state / "berth.db")) as db, contextlib.closing(sqlite3.connect(b.dir / "copy.db")) as copy:
        db.backup(copy)
    b.put_file("t", "first", b"").expect(200, 201, 204)
    equal(b.finish(made)["status"], "completed")
    # The sandbox drops the command's files after that, but for the mark that it started.
    (folder,) = b.mock.root.glob(f"**/{made}")
    wait_for(lambda: [path.name for path in folder.iterdir()] == ["started"], 10, "the command to be forgotten")
    b.kill9()
    for end in ("-wal", "-shm"):
        (b.state / f"berth.db{end}").unlink(missing_ok=True)
    (b.dir / "copy.db").rename(b.state / "berth.db")
    b.start()
    record = b.finish(made)
    equal((record["status"], record["reason"]), ("failed", "forgotten"), record)
    b.put_file("t", "gate", b"").expect(200, 201, 204)
    equal(b.finish(other)["status"], "completed")
    equal(b.output(other), b"goes on\n")
    equal(b.sh("t", "cat kept ran"), b"keptx\n", "the files, and one run")
    equal(list(b.mock.sessions()), [session], "the session")


def test_Q3_long_command_across_a_killed_host(make):
    b = make(conf='execution: { claim_ttl = "1s"; };\nlease: { operation_ttl = "1s"; };').start()
    made = b.create("t", "echo x >> ran; i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 9").expect(202).json["id"]
    wait_for(lambda: b.get(f"/sandbox/executions/{made}/stdout", follow=None).status in (200, 206) or b.record(made)["status"] == "running", 10, "run")
    wait_for(lambda: b.sh("t", "cat ran 2>/dev/null || true"), 10, "it started")
    b.kill9()
    time.sleep(1.5)  # past the claim
    b.start()
    record = b.finish(made)
    equal((record["status"], record["result"]["exit_code"]), ("completed", 9), record.get("error"))
    equal(b.output(made), b"".join(b"%d\n" % i for i in range(50)))
    equal(b.sh("t", "cat ran"), b"x\n", "runs")
    check(record["attempt"] >= 2, "another claim:", record["attempt"])
    settled(b)


def test_Q4_garbage_messages(make):
    b = make().start()
    b.sh("t", "true")
    b.stop()
    good = {"specversion": "1.0", "type": "com.agentarea.sandbox.execution.requested", "source": "x", "id": "evt_" + "0" * 24,
            "data": {"execution_id": "sexec_" + "0" * 24, "status": "queued"}}
    garbage = ["", "not json", "{}", "[]", json.dumps({**good, "data": {}}), json.dumps({**good, "specversion": "9.0"}),
               json.dumps({**good, "type": "other", "subject": "named"}), json.dumps(good), "x" * (10 << 20)]
    for number, text in enumerate(garbage):
        stored.append(b, "requests", f"garbage{number}", text)
    b.start()
    equal(b.sh("t", "echo moves"), b"moves\n", "good messages keep moving")
    wait_for(lambda: len(stored.entries(b, "dead")) >= len(garbage) - 1, 15, "garbage to become dead letters")
    if stored.on_redis(b):
        equal(b.redis.call("KEYS", f"{b.store_name}:of:dead:*"), [], "what would outlive a stream that somebody deletes")
        b.redis.call("DEL", f"{b.store_name}.dead")
        equal(b.get("/admin/deadletters").expect(200).json["items"], [])
    settled(b)


def test_Q6_cancel_at_random_instants(make):
    rounds = 1000 if harness.FULL else 60
    b = make(conf='runner: { concurrency = 64; };').start()
    b.sh("t", "true")
    rng = random.Random(6)
    delays = [rng.uniform(0, 0.3) for _ in range(rounds)]

    def one(i):
        made = b.create(f"t{i % 8}", "sleep 0.2; echo done").expect(202).json["id"]
        time.sleep(delays[i])
        b.request("DELETE", f"/sandbox/executions/{made}").expect(200, 202)
        record = b.finish(made)
        again = b.record(made)
        equal((again["status"], again["revision"]), (record["status"], record["revision"]), "a terminal state never changes")
        return record

    records = []
    for start in range(0, rounds, 8):
        records += in_parallel(min(8, rounds - start), lambda i: one(start + i))
    for record in records:
        check(record["status"] in ("cancelled", "completed"), record["status"], record.get("error"))
        check_history(b, record)
    check("illegal transition" not in b.log(), "no illegal transition was tried")
    settled(b)


def test_Q7_cancel_in_every_state(make):
    b = make(conf='task: { concurrency = 1; };', mock='ready_delay = "1s";')
    b.start()
    # provisioning (claimed)
    made = b.create("p", "echo never > ran").expect(202).json["id"]
    b.request("DELETE", f"/sandbox/executions/{made}", wait="20s").expect(200, 202)
    equal(b.finish(made)["status"], "cancelled")
    equal(b.sh("p", "ls"), b"", "it never ran and the session is usable")
    # running, a tree that ignores TERM and has left its session
    b.sh("r", "true")
    made = b.create("r", "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do echo x >> late; sleep 0.05; done' & wait; sleep 1000").expect(202).json["id"]
    wait_for(lambda: b.record(made)["status"] == "running", 10, "running")
    wait_for(lambda: (b.mock.work(b.sessions_of("r")[0]) / "late").exists(), 10, "the tree to begin")
    # queued behind it
    behind = b.create("r", "echo never > ran").expect(202).json["id"]
    b.request("DELETE", f"/sandbox/executions/{behind}").expect(200, 202)
    equal(b.finish(behind)["status"], "cancelled")
    b.request("DELETE", f"/sandbox/executions/{made}").expect(200, 202)
    record = b.finish(made)
    equal((record["status"], record["ending"]["kind"]), ("cancelled", "cancelled"))
    size = b.sh("r", "wc -c < late")
    time.sleep(0.3)
    equal(b.sh("r", "wc -c < late; ls"), size + b"late\n", "the tree is gone")
    # terminal
    equal(b.request("DELETE", f"/sandbox/executions/{made}").expect(200).json["revision"], record["revision"])
    b.request("DELETE", "/sandbox/executions/sexec_" + "0" * 24).expect(404)
    settled(b)


def test_Q8_auth_matrix(make):
    other = "other-token-0123456789abcdef0123456789"
    files = "files-token-0123456789abcdef0123456789"
    b = make(tokens=[("all", TOKEN, ["execution.create", "execution.read", "session.read"], ["w"]),
                     ("other", other, ["execution.create", "execution.read", "execution.cancel"], ["w2"]),
                     ("files", files, ["file.read", "file.write"], ["*"])]).start()
    made = b.create("t", "true").expect(202).json["id"]
    b.finish(made)
    for token in (None, "", "short", TOKEN[:-1], TOKEN + "x", "e", "\xff"):
        headers = {"Authorization": "Bearer " + token} if token is not None else {}
        b.request("GET", f"/sandbox/executions/{made}", token=None, headers=headers).expect_error(401, "unauthorized")
    for value in ("Basic abc", "Bearer", TOKEN, "Bearer  " + TOKEN + " x"):
        b.request("GET", f"/sandbox/executions/{made}", token=None, headers={"Authorization": value}).expect_error(401)
    # No secret for a scope: nobody gets in.
    b.teardown("t").expect(401)
    # Another scope.
    b.get(f"/sandbox/executions/{made}", token=files).expect_error(403, "forbidden")
    # A workspace outside the token.
    b.create("t", "true", workspace="w", token=other).expect_error(403, "workspace_scope_mismatch")
    # By id outside the token: as an unknown id.
    unknown = b.get("/sandbox/executions/sexec_" + "0" * 24, token=other).expect_error(404, "not_found")
    hidden = b.get(f"/sandbox/executions/{made}", token=other).expect_error(404, "not_found")
    equal(hidden.json["message"].replace(made, "ID"), unknown.json["message"].replace("sexec_" + "0" * 24, "ID"))
    b.request("DELETE", f"/sandbox/executions/{made}", token=other).expect(404)
    b.get(f"/sandbox/executions/{made}/stdout", token=other).expect(404)
    check(b"431" in b.raw(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 60000 + b"\r\n\r\n")[:40], "oversized headers")
    equal(b.get("/health", token=None).status, 200)
    log = b.log()
    check(TOKEN not in log and other not in log, "no secret in the log")


def test_Q8_bad_secrets_refuse_the_start(make):
    for secret in ("tiny5", "changeme" * 8, "a" * 40):
        b = make(tokens=[("bad", secret, ["admin"], ["*"])])
        b.start(expect_exit=78)
        check("bad" in b.log() and secret not in b.log(), b.log())
    b = make()
    (b.dir / "all.token").chmod(0o644)
    b.start(expect_exit=78)
    check("all.token" in b.log(), b.log())
    b = make(env={"SANDBOX_CLEANUP_AUTH_SECRET": ""}, tokens=[("x", TOKEN, ["execution.create"], ["*"])]).start()
    b.teardown("t").expect(401)
    b = make(env={"SANDBOX_CLEANUP_AUTH_SECRET": "short"})
    b.start(expect_exit=78)
    check("SANDBOX_CLEANUP_AUTH_SECRET" in b.log(), b.log())
    secret = "cleanup-0123456789abcdef0123456789abcdef"
    b = make(env={"SANDBOX_CLEANUP_AUTH_SECRET": secret}, tokens=[("x", TOKEN, ["execution.create"], ["*"])]).start()
    b.request("DELETE", "/sandbox/task/t", token=secret, workspace_id="w").expect(204)


def test_malformed_http_is_refused(make):
    b = make().start()
    auth = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
    for head in (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"Content-Length: 2\r\nContent-Length: 2\r\n",
                 b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"Host: y\r\n", b"Content-Length: -1\r\n", b"Content-Length: 1x\r\n"):
        answer = b.raw(b"POST /sandbox/executions HTTP/1.1\r\nHost: x\r\n" + auth + head + b"\r\n{}")
        check(b" 400 " in answer.split(b"\r\n")[0] or answer == b"", head, answer[:200])
    for line in (b"GET\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"FOO /health HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
        b.raw(line, timeout=2)
    b.get("/nope").expect_error(404, "not_found")
    check("GET" in b.request("POST", "/health").expect(405).headers["allow"])
    b.get("/sandbox/sessions?workspace_id=w&workspace_id=w2").expect(400)
    b.get("/sandbox/sessions?workspace_id=w&bogus=1").expect(400)
    equal(b.get("/health", token=None).status, 200)


def test_queue_deadline(make):
    b = make(conf='execution: { queue_timeout = "1s"; };\ntask: { concurrency = 1; };\ngc: { interval = "200ms"; };').start()
    b.sh("t", "true")
    long = b.create("t", "sleep 4").expect(202).json["id"]
    wait_for(lambda: b.record(long)["status"] == "running", 10)
    behind = b.create("t", "echo late").expect(202).json["id"]
    record = b.finish(behind)
    equal((record["status"], record["reason"]), ("cancelled", "queue_expired"))
    equal(b.finish(long)["status"], "completed")


def test_a_full_line_is_told_and_in_no_other_tasks_way(make):
    b = make(conf='runner: { queue_max = 3; };\ntask: { concurrency = 1; };').start()
    b.sh("t", "true")
    b.sh("u", "true")
    gate = b.dir / "gate"
    made = [b.create("t", f"while [ ! -e {gate} ]; do sleep 0.05; done").expect(202).json["id"]]
    wait_for(lambda: b.record(made[0])["status"] == "running", 10, "the first to run")
    made += [b.create("t", "true").expect(202).json["id"] for _ in range(3)]
    answer = b.create("t", "true").expect_error(503, "queue_full")
    check("retry-after" in answer.headers, answer.headers)
    equal(b.get("/ready").status, 503)
    equal(b.sh("u", "echo room"), b"room\n")
    b.create("t", "true").expect_error(503, "queue_full")
    gate.touch()
    for execution in made:
        equal(b.finish(execution)["status"], "completed")
    wait_for(lambda: b.get("/ready").status == 200, 10, "room in the queue")
    settled(b)


def started_before(b, made, others):
    """How many of the others began before it did."""
    start = b.record(made)["started_at"]
    return sum(b.record(other)["started_at"] < start for other in others)


def test_a_workspace_with_many_tasks_in_line_is_in_no_other_workspaces_way(make):
    b = make(conf="runner: { concurrency = 1; };").start()
    gate = b.dir / "gate"
    tasks = [("w1", f"t{i}") for i in range(50)] + [("w2", "t")]

    def create_all():
        return [b.create(task, "true", workspace=workspace).expect(202).json["id"] for workspace, task in tasks]

    for execution in create_all():  # their sessions are there from now on
        equal(b.finish(execution)["status"], "completed")
    first = b.create("t0", f"while [ ! -e {gate} ]; do sleep 0.05; done", workspace="w1").expect(202).json["id"]
    wait_for(lambda: b.record(first)["status"] == "running", 20, "the first to run")
    *many, one = create_all()
    gate.touch()
    for execution in (first, *many, one):
        equal(b.finish(execution)["status"], "completed")
    before = started_before(b, one, many)
    check(before <= 2, "of the other workspace's before it:", before)
    settled(b)


def test_a_workspace_has_its_share_of_slots_and_queue(make):
    conf = ("runner: { concurrency = 8; workspace_concurrency = 1; workspace_queue_max = %d; };\n"
            'execution: { claim_ttl = "3s"; };\nlease: { operation_ttl = "3s"; };')
    b = make(conf=conf % 2).start()
    gate = b.dir / "gate"
    made = [b.create("t", f"while [ ! -e {gate} ]; do sleep 0.05; done", workspace="w1").expect(202).json["id"]]
    wait_for(lambda: b.record(made[0])["status"] == "running", 20, "the first to run")
    made += [b.create(f"t{i}", "true", workspace="w1").expect(202).json["id"] for i in range(2)]
    answer = b.create("u", "true", workspace="w1").expect_error(503, "queue_full")
    check("retry-after" in answer.headers, answer.headers)
    check('"w1"' in answer.json["message"] and "runner.workspace_queue_max" in answer.json["message"], answer.json)
    equal(b.run("t", "true", workspace="w2")["status"], "completed", "another workspace's")
    equal(b.get("/ready").status, 200)
    equal([b.record(execution)["status"] for execution in made], ["running", "queued", "queued"])
    b.conf_text = conf % 3
    b.write_conf()
    b.proc.send_signal(signal.SIGHUP)
    wait_for(lambda: "reload: done" in b.log(), 20, "the reload")
    made.append(b.create("u", "true", workspace="w1").expect(202).json["id"])
    # What was accepted is not refused by the next daemon, whatever its limits are.
    b.conf_text = conf % 1
    b.write_conf()
    b.kill9()
    b.start()
    b.create("u", "true", workspace="w1").expect_error(503, "queue_full")
    gate.touch()
    for execution in made:
        equal(b.finish(execution)["status"], "completed")
    settled(b)


def test_capacity_waits_then_says_so(make):
    b = make(conf='execution: { queue_timeout = "2s"; };\ngc: { interval = "200ms"; };', target="max_sessions = 1;").start()
    b.sh("a", "true")
    record = b.run("b", "echo hi")
    equal((record["status"], record["reason"]), ("failed", "capacity_exhausted"))
    answer = b.put_file("b", "f", b"x").expect_error(503, "capacity_exhausted")
    check("retry-after" in answer.headers, answer.headers)
    made = b.create("c", "echo hi").expect(202).json["id"]
    equal(b.teardown("a").status, 204)
    equal(b.finish(made)["status"], "completed", "it waited for capacity")
    settled(b)
