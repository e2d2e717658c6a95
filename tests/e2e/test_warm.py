# SPDX-License-Identifier: Apache-2.0
"""Warm pools, the orphan sweep and a lost store on one host: rows O1, O2 (warm), L4, L6, Q2, and kills at every step."""

import random
import re
import shutil
import time

import harness
import stored
from harness import check, equal, in_parallel, settled, wait_for

FAST = 'gc: { interval = "100ms"; };\n'
# On a store that may be shared, what a dead daemon owned, and a create that it may have sent, are waited for until their time is over.
SHORT = FAST + 'lease: { operation_ttl = "2s"; owner_ttl = "2s"; };\nexecution: { claim_ttl = "2s"; };\nsession: { starting = "4s"; };\n'
# What nobody knows is old enough after seven minutes by default; those planted below are an hour old.
KILLS = ("warm.created", "warm.reserved", "assign.before", "assign.after")
ROUNDS, ROUNDS_FULL = 3, 25


def warm_sessions(b):
    return {ref for ref, s in b.mock.sessions().items() if not s.get("task")}


def verified(b):
    answer = b.request("POST", "/admin/verify").expect(200).json
    return answer, {t["name"]: t for t in answer["targets"]}


def filled(b, count, seconds=60, told=True):
    """The pool is full; told: each of it is ready by the daemon's own word, which a kill may have taken."""
    def full():
        answer, targets = verified(b)
        ready = set(re.findall(r'msg="a warm session is ready".* ref=(\S+)', b.log()))
        return (answer["ok"] and targets["mock"]["warm"] == count and len(warm_sessions(b)) == count
                and (not told or warm_sessions(b) <= ready))
    wait_for(full, seconds, f"a pool of {count}")


def counts_agree(b):
    """Provider sessions = bindings + warm entries, now and by the provider's own files."""
    def same():
        answer, targets = verified(b)
        t = targets["mock"]
        return answer["ok"] and t["provider_sessions"] == t["bindings"] + t["warm"] == len(b.mock.sessions())
    wait_for(same, 30, "sessions = bindings + warm")


def test_O1_64_first_requests_take_one_warm_session(make):
    b = make(conf=FAST + "task: { concurrency = 64; };", target="warm = 2;").start()
    filled(b, 2)
    before = warm_sessions(b)
    records = in_parallel(64, lambda i: b.run("t", f"echo {i}; echo $$ >> ran", timeout_seconds=60))
    for i, record in enumerate(records):
        equal(record["status"], "completed", f"execution {i}: {record.get('error')}")
        equal(b.output(record["id"]), f"{i}\n".encode())
    equal(len(b.sessions_of("t")), 1, "sessions of the task")
    check(b.sessions_of("t")[0] in before, "it is one of the pool's")
    equal(len({r["incarnation"] for r in records}), 1, "incarnations")
    equal(len(b.sh("t", "cat ran").splitlines()), 64, "commands that ran in it")
    filled(b, 2)
    equal(len(b.mock.sessions()), 3, "the task's and the pool's")


def many_tasks(make, pool, tasks):
    b = make(conf=FAST, target=f"warm = {pool};").start()
    filled(b, pool, 120)
    records = in_parallel(tasks, lambda i: b.run(f"t{i}", "pwd", limit=180))
    for record in records:
        equal(record["status"], "completed", record.get("error"))
    equal(len({b.output(r["id"]) for r in records}), tasks, "different workspaces")
    sessions = b.mock.sessions()
    owners = [(s["workspace"], s["task"]) for s in sessions.values() if s.get("task")]
    equal(len(owners), tasks, "sessions with a task")
    equal(len(set(owners)), tasks, "sessions per task")
    # The pool is filled again meanwhile, so not all of them are of those that were there at the beginning.
    used = sum("a session is live" in line and "how=warm" in line for line in b.log().splitlines())
    check(used >= min(pool, tasks) * 3 // 4, f"{used} of {tasks} tasks took a warm session of a pool of {pool}")
    filled(b, pool, 120)
    counts_agree(b)


def test_O2_200_tasks_on_a_pool_of_200(make):
    many_tasks(make, *((200, 200) if harness.FULL else (60, 60)))


def test_O2_200_tasks_on_a_pool_of_50(make):
    many_tasks(make, *((50, 200) if harness.FULL else (15, 60)))


def test_L6_the_next_task_sees_nothing_on_a_pool_of_one(make):
    b = make(conf=FAST, target="warm = 1;").start()
    filled(b, 1)
    first = b.run("a", "echo secret > f; echo secret > ~/h; echo secret > $TMPDIR/t; export LEFT=secret; sleep 300 & echo ok",
                  keep_descendants=True)
    equal(first["status"], "completed", first.get("error"))
    equal(b.teardown("a", force="true", wait="20s").status, 204)
    filled(b, 1)
    told = b.sh("b", "ls -A . ~ $TMPDIR; echo left=$LEFT").decode()
    check("secret" not in told and "left=\n" in told, told)
    check(not [name for name in told.split() if name in ("f", "h", "t")], "files of the first task:", told)
    check(not [p for p in b.processes() if "sleep 300" in p], "its process is gone")
    filled(b, 1)
    equal(len(b.mock.sessions()), 2, "b's and the pool's")


def test_a_dead_pool_is_replaced_and_costs_nobody_anything(make):
    b = make(conf=FAST, target="warm = 3;").start()
    filled(b, 3)
    for ref in warm_sessions(b):
        shutil.rmtree(b.mock.root / "sessions" / ref, ignore_errors=True)
    equal(b.sh("t", "echo hi"), b"hi\n")
    filled(b, 3)
    counts_agree(b)


def test_assign_that_fails_or_answers_nothing(make):
    b = make(conf=FAST, target="warm = 2;").start()
    filled(b, 2)
    b.mock.faults("assign nth=1 lost_reply")
    equal(b.sh("lost", "echo hi"), b"hi\n")
    equal(len(b.sessions_of("lost")), 1)
    b.mock.faults("assign code=FORBIDDEN")
    equal(b.sh("refused", "echo hi"), b"hi\n")
    equal(len(b.sessions_of("refused")), 1)
    b.mock.faults("assign delay=50ms code=UNKNOWN")
    equal(b.sh("unknown", "echo hi"), b"hi\n")
    b.mock.faults()
    filled(b, 2)
    counts_agree(b)
    for task in ("lost", "refused", "unknown"):
        equal(b.teardown(task, force="true", wait="20s").status, 204)
    counts_agree(b)


def tries(b):
    """When a create was tried, in the provider's own milliseconds."""
    lines = (line.split() for line in (b.mock.root / "calls.log").read_text().splitlines())
    return [int(line[0]) for line in lines if line[1] == "provision"]


def test_creates_that_fail_back_off(make):
    b = make(conf=FAST, target="warm = 20;")
    b.mock.faults("provision code=QUOTA")
    b.start()
    wait_for(lambda: b.mock.count("provision") >= 20, 20, "the first tries")
    # The first twenty fail together, in the second that follows the first of them; then one at a time is tried, after one
    # second, two, four, each up to a quarter less.
    wait_for(lambda: len(tries(b)) >= 23, 30, "three more tries")
    times = tries(b)
    for number, former, least in ((20, 0, 740), (21, 20, 1490), (22, 21, 2990)):
        waited = times[number] - times[former]
        check(waited >= least, f"try {number + 1} came after {waited} ms, not {least}")
    b.mock.faults()
    filled(b, 20)


def kill_rounds(make, point):
    b = make(conf=SHORT, target="warm = 3;")
    rng = random.Random(point)
    b.failpoints()
    b.start()
    for number in range(ROUNDS_FULL if harness.FULL else ROUNDS):
        filled(b, 3, told=False)
        b.stop()
        if point == "warm.created":
            # Something has to be made: the pool is emptied behind the host's back.
            for ref in warm_sessions(b):
                shutil.rmtree(b.mock.root / "sessions" / ref, ignore_errors=True)
        b.failpoints(f"{point} kill {rng.randint(1, 3)}")
        b.start(wait=False)
        tasks = []

        def dies():
            """Each further task asks for a warm session; a pool that is filled slowly has none for some of them."""
            if b.proc.poll() is None and len(tasks) < 40:
                tasks.append(f"r{number}-{len(tasks)}")
                b.create(tasks[-1], "echo hi").expect(202)
            return b.proc.poll() is not None
        try:
            b.wait_ready()
            wait_for(dies, 30, "the kill")
        except (OSError, harness.http.client.HTTPException):
            pass  # it came in between
        except harness.Failure:
            check(b.proc.poll() is not None, "the kill did not come")
        b.wait_dead()
        check(any(hit.startswith(point + " ") for hit in b.failpoint_hits()), "the kill was reported:", b.failpoint_hits())
        b.failpoints()
        b.start()
        for task in tasks:
            equal(b.sh(task, "echo hi"), b"hi\n")
            equal(len(b.sessions_of(task)), 1, f"sessions of {task}")
        filled(b, 3, told=False)
        counts_agree(b)
        for task in tasks:
            equal(b.teardown(task, force="true", wait="20s").status, 204)
        counts_agree(b)
        equal(len(b.mock.sessions()), 3, "only the pool is left")


def define(point):
    def test(make):
        kill_rounds(make, point)
    test.__doc__ = f"kill -9 at {point} leaves sessions = bindings + warm"
    globals()["test_kill_at_" + point.replace(".", "_")] = test


for each in KILLS:
    define(each)


def plant(b, ref, task="", workspace="w", deployment="e2e", intent="0" * 32, age=3600):
    """A session that no row of this daemon knows."""
    some = next(iter(b.mock.sessions().values()))
    now = int(time.time() * 1000)
    folder = b.mock.root / "new" / ref
    folder.mkdir(parents=True)
    for name in ("work", "home", "tmp", "run"):
        (folder / name).mkdir()
    (folder / "session").write_text(
        f"berth-mock-session 1\nref={ref}\ndeployment={deployment}\nworkspace={workspace if task else ''}\ntask={task}\n"
        f"intent={intent}\nboot={some['boot']}\ncreated_ms={now - age * 1000}\nexpires_ms=0\nready_ms=0\ndeaf_ms=0\nvisible_ms=0\n")
    folder.rename(b.mock.root / "sessions" / ref)
    if task:
        index = b.mock.root / "by-task" / workspace / task
        index.mkdir(parents=True, exist_ok=True)
        (index / ref).touch()


def test_orphans_are_swept_and_another_deployment_is_not_L4(make):
    b = make(conf=FAST + 'lease: { active = "2s"; idle = "1s"; };').start()
    stays = b.sh("stays", "pwd")
    run = b.create("stays", "sleep 30").expect(202).json["id"]  # keeps its lease
    mine = b.sessions_of("stays")
    plant(b, "mock-00000000000000a1", task="unknown")
    plant(b, "mock-00000000000000a2", intent="a" * 32)
    plant(b, "mock-00000000000000a3", task="stays", intent="b" * 32)
    plant(b, "mock-00000000000000b1", task="unknown", deployment="other")
    plant(b, "mock-00000000000000b2", deployment="other")
    plant(b, "mock-00000000000000b3", task="stays", deployment="other")
    wait_for(lambda: not [ref for ref in b.mock.sessions() if "00000000000000a" in ref], 30, "the orphans to be gone")
    equal(b.sessions_of("stays").count(mine[0]), 1, "the task's own session")
    equal(b.sh("stays", "pwd"), stays)
    equal(sorted(ref for ref in b.mock.sessions() if "00000000000000b" in ref),
          [f"mock-00000000000000b{i}" for i in (1, 2, 3)], "sessions of the other deployment")
    settled(b)
    b.request("DELETE", f"/sandbox/executions/{run}").expect(200, 202)


def test_nothing_is_swept_while_a_list_fails(make):
    b = make(conf=FAST + 'lease: { active = "1s"; idle = "1s"; };').start()
    b.sh("t", "true")
    plant(b, "mock-00000000000000a1", task="unknown")
    b.mock.faults("list code=UNAVAILABLE")
    listed = b.mock.count("list")
    wait_for(lambda: b.mock.count("list") > listed + 15, 20, "rounds in which the list fails")
    check("mock-00000000000000a1" in b.mock.sessions(), "it is still there")
    b.mock.faults()
    wait_for(lambda: "mock-00000000000000a1" not in b.mock.sessions(), 20, "the orphan to be gone")


def test_Q2_a_lost_store_takes_no_session_along(make):
    b = make(conf=FAST).start()
    for i in range(5):
        b.sh(f"t{i}", f"echo {i} > kept")
    before = sorted(b.mock.sessions())
    b.stop()
    stored.lose(b)
    shutil.rmtree(b.state / "objects")
    b.start()
    wait_for(lambda: "sessions of a lost store were adopted" in b.log(), 20, "the adoption")
    check("adopted=5" in b.log(), "the count is logged")
    settled(b)
    equal(sorted(b.mock.sessions()), before, "sessions after the loss")
    equal(verified(b)[1]["mock"]["bindings"], 5)
    for i in range(5):
        equal(b.sh(f"t{i}", "cat kept"), f"{i}\n".encode())
    plant(b, "mock-00000000000000a1", task="unknown")
    swept = b.mock.count("release")
    rounds = lambda: b.log().count('msg="no orphan of a target is looked for: the store is new to it"')
    before_it = rounds()
    wait_for(lambda: rounds() >= before_it + 10, 30, "ten rounds of the sweep")
    equal(b.mock.count("release"), swept, "nothing is swept after the loss")
    equal(sorted(set(b.mock.sessions()) - {"mock-00000000000000a1"}), before)
