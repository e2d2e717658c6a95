# SPDX-License-Identifier: Apache-2.0
"""Several daemons over one Redis and one provider: found, waited for, cancelled and continued on any of them."""

import json
import re
import signal
import threading
import time

import harness
import stored
from fleet import fleet, id_of, running_under
from harness import check, equal, wait_for
from redis_server import RedisServer

SHORT = 'execution: { claim_ttl = "1s"; };\nlease: { operation_ttl = "1s"; owner_ttl = "1s"; };\ngc: { interval = "500ms"; };'


def ended_here(host):
    """How many executions this host brought to their end."""
    text = host.get("/metrics").expect(200).body.decode()
    return sum(int(n) for n in re.findall(r"^berth_executions_ended_total\{[^}]*\} (\d+)$", text, re.M))


def test_any_host_waits_and_reads(make):
    with fleet(make) as (a, b):
        made = a.create("t", "sleep 1; echo mine > f; echo done; echo oops >&2; exit 3").expect(202).json["id"]
        record = b.finish(made)
        equal((record["status"], record["result"]["exit_code"]), ("completed", 3))
        equal(b.output(made), b"done\n")
        equal(b.output(made, "stderr"), b"oops\n")
        equal(a.record(made), b.record(made))
        # The next command of the task, asked of the other host, finds the same session.
        equal(b.sh("t", "cat f"), b"mine\n")
        equal(len(a.sessions_of("t")), 1)


def test_O1_64_first_requests_on_two_hosts_make_one_session(make):
    one_session(make, "cold", "")


def test_O1_64_first_requests_on_two_hosts_take_one_warm_session(make):
    one_session(make, "warm", "warm = 2;")


def one_session(make, how, target):
    with fleet(make, conf="task: { concurrency = 64; };", target=target) as hosts:
        pool = set()
        if target:
            pool = set(wait_for(lambda: len(hosts[0].mock.sessions()) == 2 and hosts[0].mock.sessions(), 60, "the pool"))
            wait_for(lambda: sum(h.log().count("a warm session is ready") for h in hosts) >= 2, 60, "the pool to be ready")
        records = harness.in_parallel(64, lambda i: hosts[i % 2].run("t", f"echo {i}; echo $$ >> ran", timeout_seconds=60))
        equal([hosts[0].output(r["id"]) for r in records], [b"%d\n" % i for i in range(64)], how)
        equal(len({r["incarnation"] for r in records}), 1, "incarnations")
        made, = hosts[0].sessions_of("t")
        check(not target or made in pool, "it is one of the pool's")
        equal(len(hosts[1].sh("t", "cat ran").splitlines()), 64, "commands that ran in it")
        check(target or hosts[0].mock.count("created") == 1, "creates")
        harness.settled(hosts[0])


def test_Q3_a_command_outlives_many_claims(make):
    """Neither host is harmed: nobody takes it over, and nobody runs it again."""
    with fleet(make, conf='execution: { claim_ttl = "1500ms"; };') as (a, b):
        made = a.create("t", "echo 1 >> ran; sleep 5; cat ran; exit 7").expect(202).json["id"]
        record = b.finish(made)
        equal((record["status"], record["result"]["exit_code"], record["attempt"]), ("completed", 7, 1))
        equal((b.output(made), b.sh("t", "cat ran")), (b"1\n", b"1\n"))


def test_a_cancel_reaches_the_owner(make):
    with fleet(make) as (a, b):
        made = a.create("t", "echo begun; sleep 100").expect(202).json["id"]
        wait_for(lambda: b.record(made)["status"] == "running", 20, "the command to run")
        start = time.monotonic()
        b.request("DELETE", f"/sandbox/executions/{made}").expect(200, 202)
        equal(b.finish(made)["status"], "cancelled")
        check(time.monotonic() - start < 5 * harness.PATIENCE, "a cancel took", time.monotonic() - start)
        equal(a.processes(), [])


def test_who_waits_looks_although_every_notice_is_lost(make):
    server = RedisServer().start()
    try:
        with fleet(make, server=server) as (a, b):
            server.call("ACL", "SETUSER", "default", "resetchannels")
            made = a.create("t", f"while [ ! -e {a.dir}/gate ]; do sleep 0.1; done").expect(202).json["id"]
            wait_for(lambda: b.record(made)["status"] == "running", 20, "the command to run")
            start = time.monotonic()
            threading.Timer(2, (a.dir / "gate").touch).start()
            record = b.get(f"/sandbox/executions/{made}", wait="60s").expect(200).json
            equal(record["status"], "completed")
            check(time.monotonic() - start < 40, "it waited to the end of its time")
    finally:
        server.close()


def test_a_cancel_waits_for_no_object(make):
    """The owner's objects take for ever to be written."""
    def armed():
        host = make()
        host.failpoints("exec.shown.before pause")
        return host
    with fleet(armed) as (a, b):
        made = a.create("t", "echo begun; sleep 1000").expect(202).json["id"]
        wait_for(lambda: a.failpoint_hits(), 30, "its output to be shown")
        b.request("DELETE", f"/sandbox/executions/{made}").expect(200, 202)
        equal(b.finish(made, limit=60)["status"], "cancelled")
        for host in (a, b):
            (host.dir / "failpoints.go").touch()


def test_a_dead_hosts_command_is_continued(make):
    with fleet(make, conf=SHORT) as (a, b):
        made = a.create("t", "echo 1 >> ran; echo before; sleep 8; echo after; exit 7").expect(202).json["id"]
        wait_for(lambda: b.output(made) == b"before\n", 20, "the command to be in its middle")
        a.kill9()
        wait_for(lambda: b.record(made)["attempt"] == 2, 10, "the other host to go on with it")
        record = b.finish(made, limit=90)
        equal((record["status"], record["result"]["exit_code"]), ("completed", 7))
        equal(b.output(made), b"before\nafter\n")
        equal(b.sh("t", "cat ran"), b"1\n")


def test_a_stopped_host_hands_its_commands_on(make):
    """At once, not when the claims would have ended: those live ten minutes here."""
    with fleet(make, conf='stop_grace = "200ms";\nexecution: { claim_ttl = "10m"; };\nrunner: { concurrency = 1; };') as (a, b):
        command = "echo 1 >> ran; echo before; while [ ! -e go ]; do sleep 0.1; done; echo after; exit 7"
        runs = a.create("t", command).expect(202).json["id"]
        wait_for(lambda: b.output(runs) == b"before\n", 20, "the command to be in its middle")
        equal(a.stop(), 0)
        wait_for(lambda: b.record(runs)["attempt"] == 2, 20, "the other host to go on with it")
        b.put_file("t", "go", b"").expect(200, 201, 204)
        record = b.finish(runs)
        equal((record["status"], record["result"]["exit_code"]), ("completed", 7))
        equal(b.output(runs), b"before\nafter\n")
        equal(b.sh("t", "cat ran"), b"1\n")


def test_a_host_that_stops_hears_and_shows_until_its_grace_is_over(make):
    with fleet(make, conf='stop_grace = "10m";') as (a, b):
        made = a.create("t", "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo more; sleep 1000").expect(202).json["id"]
        wait_for(lambda: b.output(made) == b"begun\n", 20, "the command to run")
        a.proc.send_signal(signal.SIGTERM)
        wait_for(lambda: "msg=stopping" in a.log(), 20, "the stop")
        b.put_file("t", "go", b"").expect(200, 201, 204)
        wait_for(lambda: b.output(made) == b"begun\nmore\n", 30, "what it wrote since to be shown")
        b.request("DELETE", f"/sandbox/executions/{made}").expect(202)
        record = b.finish(made, limit=60)
        equal((record["status"], record["attempt"]), ("cancelled", 1))
        equal(a.wait_dead(), 0)


def test_a_frozen_host_writes_nothing_over_its_successor(make):
    with fleet(make, conf=SHORT) as (a, b):
        made = a.create("t", "echo 1 >> ran; echo before; sleep 6; echo after; exit 7").expect(202).json["id"]
        wait_for(lambda: b.record(made)["status"] == "running", 20, "the command to run")
        a.proc.send_signal(signal.SIGSTOP)
        record = b.finish(made, limit=90)
        a.proc.send_signal(signal.SIGCONT)
        equal(a.output(made), b"before\nafter\n")  # and does not show what it had of it when it froze
        equal((record["status"], record["result"]["exit_code"], record["attempt"]), ("completed", 7, 2))
        equal(b.sh("t", "cat ran"), b"1\n")
        # The thawed one sees what the other wrote, and goes on serving.
        wait_for(lambda: a.record(made) == record, 30, "the thawed host to know the end")
        equal(a.sh("t", "echo again"), b"again\n")
        check("illegal transition" not in a.log() + b.log(), "an illegal transition")


def test_a_dead_hosts_session_is_taken_over_when_its_time_is_over(make):
    """By whoever waits for it, not in the next round of a collection that is far away."""
    seldom = SHORT.replace('interval = "500ms"', 'interval = "10m"')
    with fleet(make, conf=seldom, mock='ready_delay = "1s";') as (a, b):
        a.create("t", "true").expect(202)
        wait_for(lambda: a.sessions_of("t"), 20, "the session to be made")
        a.kill9()
        equal(b.run("t", "echo ran", limit=40)["status"], "completed")
        equal(len(b.sessions_of("t")), 1)


def test_a_dead_hosts_command_goes_before_those_that_wait_for_its_place(make):
    """One command at once in a task: the successor has claimed the next one, which waits for the one of the dead host to end."""
    with fleet(make, conf=SHORT + "task: { concurrency = 1; };") as (a, b):
        first = a.create("t", f"echo 1 >> ran; while [ ! -e {a.dir}/gate ]; do sleep 0.1; done; echo first").expect(202).json["id"]
        wait_for(lambda: b.record(first)["status"] == "running", 20, "the command to run")
        second = b.create("t", "cat ran; echo second").expect(202).json["id"]
        wait_for(lambda: b.record(second)["status"] == "claimed", 20, "the next one to be claimed")
        a.kill9()
        (a.dir / "gate").touch()
        equal([b.finish(i, 30)["status"] for i in (first, second)], ["completed"] * 2)
        equal((b.output(first), b.output(second)), (b"first\n", b"1\nsecond\n"))


def test_a_thawed_host_leaves_its_former_commands_alone(make):
    """It has lost them to a successor, under which they still run."""
    with fleet(make, conf=SHORT) as (a, b):
        made = a.create("t", "echo 1 >> ran; while [ ! -e go ]; do sleep 0.1; done; echo after; exit 7").expect(202).json["id"]
        wait_for(lambda: running_under(b, id_of(a)) == [made], 20, "the command to run")
        a.proc.send_signal(signal.SIGSTOP)
        wait_for(lambda: b.record(made)["attempt"] == 2, 30, "the other host to go on with it")
        wait_for(lambda: json.loads(stored.doc(b, "tasks", "w/t"))["ops"][0]["host"] == id_of(b), 20, "its session to be the other's")
        a.proc.send_signal(signal.SIGCONT)
        wait_for(lambda: "another host went on with an execution" in a.log(), 30, "the thawed host to notice")
        b.put_file("t", "go", b"").expect(200, 201, 204)
        record = b.finish(made)
        equal((record["status"], record.get("reason"), record["attempt"]), ("completed", None, 2))
        equal(record["result"]["exit_code"], 7)
        equal((b.output(made), b.sh("t", "cat ran")), (b"after\n", b"1\n"))


def test_an_end_that_was_stored_unheard_is_this_hosts_own(make):
    """Each try to store it is applied, and its answer lost: no other host has gone on with the command."""
    def make_armed(**kw):
        host = make(**kw)
        host.failpoints()
        return host

    with fleet(make_armed) as (a, b):
        made = a.create("t", "echo before; while [ ! -e go ]; do sleep 0.1; done; echo after").expect(202).json["id"]
        wait_for(lambda: b.output(made) == b"before\n", 20, "the command to be in its middle")
        a.failpoints("store.commit.after error")
        b.put_file("t", "go", b"").expect(200, 201, 204)
        wait_for(lambda: b.record(made)["status"] == "completed", 30, "the end to be stored")
        tries = a.log().count("the store did not take a step")
        wait_for(lambda: a.log().count("the store did not take a step") > tries + 1 or "another host" in a.log(), 30, "more tries")
        a.failpoints()
        wait_for(lambda: ended_here(a) == 1, 30, "the end to be counted")
        wait_for(lambda: a.mock.count("forget") == 1, 30, "the sandbox to be told to forget it")
        left = [p for p in a.dir.glob("objects/**/live/**/*") if p.is_file()]
        equal(left, [], "segments are left")
        check("another host" not in a.log(), "nobody went on with it")
        equal((a.output(made), b.output(made)), (b"before\nafter\n",) * 2)
        equal((ended_here(b), a.sh("t", "echo again")), (0, b"again\n"))


def test_who_waits_elsewhere_is_told_that_one_gave_up_waiting(make):
    """It may be the next one's turn."""
    with fleet(make, conf="task: { concurrency = 1; };") as (a, b):
        a.create("t", f"while [ ! -e {a.dir}/gate ]; do sleep 0.1; done").expect(202)
        wait_for(lambda: a.processes(), 20, "the command to run")
        waits = b.create("t", "true").expect(202).json["id"]
        wait_for(lambda: b.record(waits)["status"] == "claimed", 20, "the next one to be claimed")
        with b.redis.subscribed(f"{b.store_name}:notices") as notices:
            b.request("DELETE", f"/sandbox/executions/{waits}").expect(200, 202)
            told = b""
            while waits.encode() not in told:
                told = next(notices)
        check(b"task:w/t" in told, "what was told", told)
        (a.dir / "gate").touch()


def test_output_is_followed_on_any_host(make):
    """Live, across the objects' boundary, and in the same bytes as afterwards."""
    with fleet(make) as (a, b):
        command = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo oops >&2; while [ ! -e go ]; do sleep 0.1; done; echo last"
        made = a.create("t", command).expect(202).json["id"]
        whole = b"first\n" + b"x" * 3000000 + b"\n"
        wait_for(lambda: b.output(made) == whole, 30, "the other host to show what was written")
        equal(b.output(made, "stderr"), b"oops\n")
        equal(b.record(made)["status"], "running")
        a.put_file("t", "go", b"").expect(200, 201, 204)
        equal(b.finish(made)["status"], "completed")
        equal(b.output(made), whole + b"last\n")
        equal(a.output(made), whole + b"last\n")
        left = [p for host in (a, b) for p in host.dir.glob("objects/**/live/**/*") if p.is_file()]
        equal(left, [], "segments are left")


def test_the_other_hosts_take_what_waits(make):
    """What a host has no room for runs where there is room."""
    with fleet(make, conf="runner: { concurrency = 2; };") as (a, b):
        made = [a.create(f"t{i}", "sleep 2; echo ok").expect(202).json["id"] for i in range(6)]
        records = [a.finish(i) for i in made]
        equal([r["status"] for r in records], ["completed"] * 6)
        equal([b.output(i) for i in made], [b"ok\n"] * 6)
        check(ended_here(a) and ended_here(b), "executions that ended on each host:", ended_here(a), ended_here(b))
        equal(ended_here(a) + ended_here(b), 6)


def queued_here(host):
    return int(re.search(r"^berth_executions_queued (\d+)$", host.get("/metrics").expect(200).body.decode(), re.M)[1])


def run_elsewhere(a, b, task):
    made = a.create(task, "true", workspace="w").expect(202).json["id"]
    equal(b.finish(made)["status"], "completed")
    wait_for(lambda: queued_here(a) == 0, 30, f"{task} to leave the line of the host that has no room for it")


def test_what_another_host_took_takes_no_place_in_line(make):
    """A workspace at its share of one host goes on at the others, and is refused only for what waits."""
    conf = "runner: { concurrency = 8; workspace_concurrency = 1; workspace_queue_max = 2; };"
    with fleet(make, conf=conf) as (a, b):
        held = a.create("long", f"while [ ! -e {a.dir}/gate ]; do sleep 0.1; done", workspace="w").expect(202).json["id"]
        wait_for(lambda: running_under(a, id_of(a)) == [held], 30, "the long one to run")
        for i in range(4):
            run_elsewhere(a, b, f"t{i}")
        (a.dir / "gate").touch()
        equal(a.finish(held)["status"], "completed")


def test_what_another_host_took_unheard_leaves_the_line_too(make):
    server = RedisServer().start()
    conf = 'execution: { claim_ttl = "1s"; };\nrunner: { workspace_concurrency = 1; };'
    try:
        with fleet(make, server=server, conf=conf) as (a, b):
            server.call("ACL", "SETUSER", "default", "resetchannels")
            held = a.create("long", f"while [ ! -e {a.dir}/gate ]; do sleep 0.1; done", workspace="w").expect(202).json["id"]
            wait_for(lambda: running_under(a, id_of(a)) == [held], 30, "the long one to run")
            run_elsewhere(a, b, "t")
            (a.dir / "gate").touch()
            equal(a.finish(held)["status"], "completed")
    finally:
        server.close()
