# SPDX-License-Identifier: Apache-2.0
"""One task, one session (rows O) and the life of a session (rows L, T) on one host."""

import datetime
import json
import os
import time

import harness
import stored
from harness import Failure, check, equal, in_parallel, settled, wait_for

FAST = 'gc: { interval = "200ms"; };\n'
# On a store that may be shared, what a dead daemon owned is taken over when its time is over, not at the next start.
OWNED = 'operation_ttl = "2s"; owner_ttl = "2s";'


def lease(idle="15m", active="2h", gc="200ms", more=""):
    return f'lease: {{ idle = "{idle}"; active = "{active}"; {more} }};\ngc: {{ interval = "{gc}"; }};\n'


def test_O1_64_first_requests_make_one_session(make):
    b = make(conf=FAST + 'task: { concurrency = 64; };').start()
    records = in_parallel(64, lambda i: b.run("t", f"echo {i}; echo $$ >> ran", timeout_seconds=60))
    for i, record in enumerate(records):
        equal(record["status"], "completed", f"execution {i}: {record.get('error')}")
        equal(b.output(record["id"]), f"{i}\n".encode())
    equal(len(b.sessions_of("t")), 1, "sessions of the task")
    equal(b.mock.count("provision"), 1, "creates")
    equal(len({r["incarnation"] for r in records}), 1, "incarnations")
    equal(len(b.sh("t", "cat ran").splitlines()), 64, "commands that ran in it")
    settled(b)


def test_O2_200_tasks_at_once_share_nothing(make):
    b = make(conf=FAST).start()
    records = in_parallel(200, lambda i: b.run(f"t{i}", "pwd", limit=180))
    for record in records:
        equal(record["status"], "completed", record.get("error"))
    roots = {b.output(r["id"]) for r in records}
    equal(len(roots), 200, "different workspaces")
    sessions = b.mock.sessions()
    equal(len({(s["workspace"], s["task"]) for s in sessions.values()}), len(sessions), "sessions per task")
    settled(b)


def test_O3_session_is_found_when_recording_it_failed(make):
    b = make(conf=FAST)
    b.failpoints("provision.created kill 1")
    b.start()
    try:
        b.create("t", "echo hi").expect(202)
    except OSError:
        pass
    b.wait_dead()
    check(any("provision.created" in hit for hit in b.failpoint_hits()), "the failpoint was hit")
    equal(len(b.sessions_of("t")), 1, "created before the kill")
    b.failpoints()
    b.start()
    equal(b.sh("t", "echo hi"), b"hi\n")
    equal(len(b.sessions_of("t")), 1, "sessions after the restart")
    equal(b.mock.count("provision"), 1, "creates")
    settled(b)


def test_O4_lost_reply_leaves_one_session(make):
    b = make(conf=FAST)
    b.mock.faults("provision nth=1 lost_reply")
    b.start()
    equal(b.sh("t", "echo hi"), b"hi\n")
    equal(len(b.sessions_of("t")), 1, "sessions")
    equal(b.mock.count("provision"), 1, "creates")
    settled(b)


def test_O4_lost_reply_and_killed_host(make):
    b = make(conf=lease(more=OWNED) + 'session: { starting = "4s"; };\n')
    b.mock.faults("provision nth=1 lost_reply delay=500ms")
    b.failpoints("provision.before kill 2")
    b.start()
    b.create("t", "echo hi").expect(202)
    wait_for(lambda: b.mock.count("provision"), 10, "the create")
    b.kill9()
    b.failpoints()
    b.start()
    equal(b.sh("t", "echo hi | tee kept"), b"hi\n")
    wait_for(lambda: len(b.sessions_of("t")) == 1, 10, "one session left")
    equal(b.sh("t", "cat kept"), b"hi\n", "the task uses the one that is left")
    settled(b)


def test_O5_errors_of_find_are_never_absence(make):
    b = make(conf=FAST)
    expected = [("UNAUTHENTICATED", "provider_auth"), ("FORBIDDEN", "provider_auth"), ("RATE_LIMITED", "rate_limited"),
                ("UNAVAILABLE", "provider_unavailable"), ("TIMEOUT", "provider_timeout"), ("INTERNAL", "internal")]
    b.start()
    for number, (code, word) in enumerate(expected):
        b.mock.faults(f"find code={code}")
        answer = b.put_file(f"t{number}", "x", b"x")
        equal(answer.json["error"], word, code)
        equal(b.mock.count("provision"), 0, f"creates after {code}")
    b.mock.faults()
    settled(b)


def test_O6_exists_already_is_adopted(make):
    b = make(conf=FAST)
    # The create happened, but the provider says "exists already", as to the loser of a race.
    b.mock.faults("provision nth=1 lost_reply code=CONFLICT")
    b.start()
    equal(b.sh("t", "echo hi"), b"hi\n")
    equal(len(b.sessions_of("t")), 1)
    equal(b.mock.count("release"), 0, "deletes")
    settled(b)


def test_O7_overlapping_commands_keep_the_session(make):
    for idle in ("1s", "0s"):
        b = make(conf=lease(idle=idle, gc="100ms")).start()
        long = b.create("t", "sleep 4; echo long > f; cat f", timeout_seconds=60).expect(202).json["id"]
        wait_for(lambda: b.record(long)["status"] == "running", 20, "the long one to run")
        equal(b.sh("t", "echo short"), b"short\n")
        record = b.finish(long)
        equal((record["status"], b.output(long)), ("completed", b"long\n"), f"idle {idle}")
        equal(b.mock.count("provision"), 1, f"creates with idle {idle}")


def test_O8_running_before_the_executor_listens(make):
    b = make(conf=FAST)
    b.mock.faults("await_ready nth=1 ready_early=700ms")
    b.start()
    equal(b.sh("t", "echo hi"), b"hi\n")
    settled(b)


def test_L1_renewal_at_the_instant_of_expiry(make):
    b = make(conf=lease(idle="300ms", active="1s", gc="50ms", more='operation_ttl = "900ms";')).start()
    for turn in range(12):
        equal(b.sh("t", "sleep 0.2; echo $BERTH_TASK_ID"), b"t\n", f"turn {turn}")
        time.sleep(0.29)  # the point of the row: meet the expiry
        if turn == 6:
            b.restart()
    wait_for(lambda: not b.mock.sessions(), 10, "the idle session to go")
    settled(b)


def test_L2_teardown_while_provisioning_100_times(make):
    b = make(conf=FAST, mock='ready_delay = "2s";').start()
    created = b.create("t", "echo never").expect(202).json["id"]
    wait_for(lambda: b.sessions_of("t"), 10, "the session to exist")
    answers = in_parallel(100, lambda i: b.teardown("t", wait="0s").status)
    check(set(answers) <= {202, 204}, "accepted:", set(answers))
    wait_for(lambda: not b.sessions_of("t"), 15, "the late session to go")
    equal(b.mock.count("release"), 1, "provider deletes")
    equal(b.finish(created)["status"], "cancelled")
    equal(b.teardown("t").status, 204, "idempotent")
    settled(b)


def test_L3_killed_between_reclaiming_and_delete(make):
    for point in ("gc.reclaim.before", "release.before", "release.after", "release.confirmed.before"):
        b = make(conf=lease(idle="100ms", gc="100ms", more=OWNED))
        b.failpoints(f"{point} kill 1")
        b.start()
        b.create("t", "true", wait="10s")
        b.wait_dead()
        check(any(point in hit for hit in b.failpoint_hits()), point, "was hit")
        b.failpoints()
        b.start()
        wait_for(lambda: not b.mock.sessions(), 10, f"the session to go after {point}")
        settled(b)
        b.stop()


def test_L5_delete_fails_until_it_works(make):
    delete_fails(make, "release code=UNAVAILABLE reason=http_500")


def test_L5_delete_times_out_until_it_works(make):
    """The first one is done all the same; of the others nobody hears either."""
    delete_fails(make, "release code=TIMEOUT")


def delete_fails(make, fault):
    b = make(conf=FAST)
    b.mock.faults(fault)
    b.start()
    b.sh("t", "true")
    equal(b.teardown("t", wait="1s").status, 202, "not reported as done")
    wait_for(lambda: b.mock.count("release") >= 3, 20, "it is tried again")
    task = b.task("t").json
    equal(task["state"], "releasing")
    check(task["release"]["tries"] >= 1, "visible:", task)
    equal(len(b.sessions_of("t")), 1)
    b.mock.faults()
    wait_for(lambda: not b.sessions_of("t"), 20, "gone once the provider answers")
    wait_for(lambda: b.teardown("t").status == 204, 10, "reported as done")
    settled(b)


def test_L6_nothing_of_one_task_is_seen_by_the_next(make):
    b = make(conf=FAST).start()
    b.sh("a", "echo secret > f; echo s > $HOME/h; echo s > $TMPDIR/t; export LEAK=1; sleep 300 >/dev/null 2>&1 &",
         keep_descendants=True)
    a_home = b.sh("a", "echo $HOME $TMPDIR $PWD").split()
    equal(b.teardown("a").status, 204)
    equal(b.sh("b", "ls -A . $HOME $TMPDIR | grep -v : | grep . | wc -l; echo ${LEAK:-none}").split(), [b"0", b"none"])
    for path in a_home:
        # Of a pod it is the node that tidies up, and that is after its last process.
        wait_for(lambda p=path: not os.path.exists(p), 10, f"{path} to go")
    equal([c for c in b.processes() if "sleep" in c], [], "the process of task a is gone")
    settled(b)


def test_L7_session_that_never_gets_ready(make):
    b = make(conf=FAST)
    b.mock.faults("await_ready code=INVALID reason=image_pull")
    b.start()
    record = b.run("t", "echo never")
    equal((record["status"], record["reason"]), ("failed", "image_pull"))
    wait_for(lambda: not b.mock.sessions(), 10, "the dead session to go")
    answer = b.put_file("t2", "x", b"x").expect_error(502, "provider_error")
    equal(answer.json["details"]["reason"], "image_pull")
    b.mock.faults()
    settled(b)


def test_L7_never_ready_is_bounded(make):
    b = make(conf=FAST + 'session: { scheduling = "1s"; starting = "1s"; };', mock='ready_delay = "1h";').start()
    record = b.run("t", "echo never", limit=30)
    equal(record["status"], "failed", record)
    check(record["reason"] in ("provider_timeout", "starting_timeout", "timeout"), record["reason"])
    wait_for(lambda: not b.mock.sessions(), 10, "the session to go")
    settled(b)


def test_L8_session_deleted_behind_the_back(make):
    b = make(conf=FAST).start()
    first = b.run("t", "echo one")
    b.mock.faults("execute nth=1 vanish")
    lost = b.run("t", "echo lost >> ran; echo lost")
    equal((lost["status"], lost["reason"]), ("failed", "session_lost"))
    b.mock.faults()
    second = b.run("t", "ls; echo two")
    equal(second["status"], "completed")
    check(second["incarnation"] > first["incarnation"], "a later incarnation")
    equal(b.output(second["id"]), b"two\n")
    settled(b)


def test_L9_reads_do_not_keep_a_session(make):
    b = make(conf=lease(idle="1500ms", gc="100ms")).start()
    record = b.run("t", "true")
    end = time.monotonic() + 30 * harness.PATIENCE
    while b.mock.sessions():
        for path in ("/health", "/ready", "/metrics", f"/sandbox/executions/{record['id']}", "/sandbox/sessions?workspace_id=w",
                     "/sandbox/task/t?workspace_id=w", "/sandbox/executions?workspace_id=w"):
            b.get(path).expect(200)
        if time.monotonic() > end:
            raise Failure("reads kept the session alive")
    settled(b)


def test_T1_silent_command_longer_than_its_lease(make):
    b = make(conf=lease(idle="1s", active="2s", gc="100ms", more='operation_ttl = "2s";')).start()
    record = b.run("t", "sleep 8; exit 7", timeout_seconds=60)
    equal((record["status"], record["result"]["exit_code"]), ("completed", 7))
    equal(b.mock.count("provision"), 1)


def test_T2_frozen_host_goes_on(make):
    import signal
    b = make(conf=lease(idle="1s", active="2s", gc="100ms", more='operation_ttl = "1s";')).start()
    outside = b.dir / "outside"
    made = b.create("t", f"echo run >> {outside}; sleep 3; cat {outside}; exit 5").expect(202).json["id"]
    wait_for(lambda: b.record(made)["status"] == "running", 10, "it runs")
    b.proc.send_signal(signal.SIGSTOP)
    time.sleep(5)  # longer than the lease: the point of the row
    b.proc.send_signal(signal.SIGCONT)
    record = b.finish(made)
    if record["status"] == "completed":
        equal((record["result"]["exit_code"], b.output(made)), (5, b"run\n"))
    else:
        check(record["reason"] in ("session_lost", "lost_lease"), record)
    settled(b)
    equal(outside.read_text(), "run\n", "runs")


def test_T3_restart_keeps_files_and_background_processes(make):
    b = make(conf=FAST).start()
    b.sh("t", "echo kept > f; (while :; do date +%s%N > tick; sleep 0.1; done) >/dev/null 2>&1 &", keep_descendants=True)
    before = b.sessions_of("t")
    listed = [s["id"] for s in b.get("/sandbox/sessions", workspace_id="w").json["items"]]
    b.restart()
    equal(b.sessions_of("t"), before)
    equal([s["id"] for s in b.get("/sandbox/sessions", workspace_id="w").json["items"]], listed)
    equal(b.sh("t", "cat f"), b"kept\n")
    tick = b.sh("t", "cat tick")
    wait_for(lambda: b.sh("t", "cat tick") != tick, 10, "the background process to tick")
    b.stop()
    b.start()
    equal(b.sh("t", "cat f"), b"kept\n")
    settled(b)


def test_T4_ttl_values(make):
    good = {"1s": True, "24h": True, "1500ms": True}
    bad = ["0s", "-1s", "1000000000", "9223372036854775808", "9223372036854775807s", "", "soon"]
    for value in good:
        b = make(conf=lease(active=value, idle="1s"))
        b.start()
        b.stop()
    for value in bad:
        b = make(conf=lease(active=value))
        b.start(expect_exit=78)
        check("active" in b.log() and "berth.conf" in b.log(), "the place is named:", b.log()[-300:])
    b = make(conf='lease: { active = 0; };')
    b.start(expect_exit=78)
    b = make(conf='lease: { active = 9223372036854775808; };')
    b.start(expect_exit=78)
    for active in ("null", "-1", "1000000000"):
        b = make(conf=f"lease: {{\nactive = {active};\n}};")
        b.start(expect_exit=78)
        number = (b.dir / "berth.conf").read_text().split("active")[0].count("\n") + 1
        check(f"berth.conf:{number}: " in b.log(), "the line is named:", b.log())
    b = make(conf=lease(idle="0s"))
    b.start()
    b.sh("t", "true")
    wait_for(lambda: not b.mock.sessions(), 10, "released at once with idle 0")
    # What is in effect is told: of the configuration, and of a task.
    b = make(conf=lease(idle="90000ms", active="24h"))
    told = json.loads(b.ctl("config", "dump", "-c", str(b.dir / "berth.conf"), "--json").stdout)["lease"]
    equal((told["idle"], told["active"]), ("1m30s", "1d"))
    b.start()
    before = time.time()
    b.sh("t", "true")
    until = datetime.datetime.fromisoformat(wait_for(lambda: idle_until(b), 20, "the idle lease").replace("Z", "+00:00")).timestamp()
    check(before + 89 < until < time.time() + 91, "an idle lease of", until - before, "s from the command on")


def idle_until(b):
    task = b.task("t").json
    return task["stage"] == "idle" and task["lease_until"]


def faked_clock(make, **kw):
    """A daemon whose wall clock is what the file says, and that file."""
    import glob
    libs = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not libs or "tsan" in str(harness.BUILD) or "asan" in str(harness.BUILD):
        raise harness.Skipped("the wall clock is faked by a preloaded library, which sanitizers do not take" if libs
                              else "libfaketime is not installed")
    b = make(**kw)
    clock = b.dir / "clock"
    clock.write_text("+0\n")
    b.faketime = {"LD_PRELOAD": libs[0], "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
                  "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return b.start(), clock


def test_T5_no_lease_is_immortal_when_the_wall_clock_goes_back(make):
    b, clock = faked_clock(make, conf=lease(idle="1s", active="1h", gc="100ms"))
    for jump in ("-1h", "+1h"):
        b.sh("t", "true")
        clock.write_text(jump + "\n")
        wait_for(lambda: not b.mock.sessions(), 20, f"the idle lease to end after {jump}")
    b.sh("t", "true")
    clock.write_text("-1h\n")
    b.restart()
    wait_for(lambda: not b.mock.sessions(), 20, "the idle lease to end after a restart two hours earlier on the wall")
    b.stop()


def test_T5_wall_clock_jumps(make):
    b, clock = faked_clock(make, conf=lease(idle="1h", active="1h", gc="100ms"))
    b.sh("t", "echo kept > f")
    for count, jump in enumerate(("+2h", "-2h", "+0"), 1):
        clock.write_text(jump + "\n")
        started = time.monotonic()
        record = b.run("t", "cat f; sleep 300", timeout_seconds=2)
        equal(record["ending"]["kind"], "timeout")
        check(time.monotonic() - started < 20 * harness.PATIENCE, "timeouts are not affected")
        equal(b.output(record["id"]), b"kept\n", f"after {jump}")
        if not stored.on_redis(b):  # whose own clock is the store's
            wait_for(lambda: b.log().count("the wall clock jumped") >= count, 20, f"the jump {jump} to be seen")
    clock.write_text("+2h\n")
    b.restart()
    equal(b.sh("t", "cat f"), b"kept\n", "after a restart two hours later on the wall")
    equal(b.mock.count("release"), 0)
    b.stop()


def test_ceiling_rotates_and_ends_what_still_runs(make):
    b = make(conf='session: { max_age = "14s"; };\nexecution: { timeout = "4s"; timeout_max = "8s"; completion_grace = "1s"; };\n'
                  + FAST).start()
    first = b.run("t", "echo one", timeout_seconds=2)
    time.sleep(8)  # the session grows old
    second = b.run("t", "echo two", timeout_seconds=8)
    equal(second["status"], "completed", second.get("error"))
    check(second["incarnation"] > first["incarnation"], "an operation that could outlast the session rotates it first")
    settled(b)


def test_region_rules_P7(make):
    b = make(conf=FAST, target='region = "us";')
    (b.dir / "providers.d" / "20-b.conf").write_text(f'provider = "mock"; name = "b"; region = "ap"; config: {{ root = "{b.dir}/b"; }};\n')
    b.start()
    for region in ("eu", "US", " us "):
        b.create("t", "true", region=region).expect_error(422, "no_eligible_target")
    equal(b.finish(b.create("t", "true", region="us").expect(202).json["id"])["status"], "completed")
    for region in ("ap", "US", " us "):  # though a target serves the first of them
        b.create("t", "true", region=region).expect_error(409, "region_conflict")
        b.put_file("t", "f", b"x", region=region).expect_error(409, "region_conflict")
    equal(len(b.get("/sandbox/executions", workspace_id="w").json["items"]), 1, "records")
    check(not (b.dir / "b" / "sessions").is_dir() or not os.listdir(b.dir / "b" / "sessions"), "sessions elsewhere")
    none = make(conf=FAST).start()
    none.create("t", "true", region="us").expect_error(422, "no_eligible_target")
    twice = make(conf=FAST, target='region = "us";')
    (twice.dir / "providers.d" / "20-b.conf").write_text('provider = "mock"; name = "b"; region = "us";\n')
    twice.start(expect_exit=78)
    check("us" in twice.log(), twice.log())
