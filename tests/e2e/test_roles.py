# SPDX-License-Identifier: Apache-2.0
"""Hosts that share the work by roles: one that accepts, one that runs, one that collects. Runs with any --store."""

import contextlib
import re
import shutil
import time

import stored
from fleet import id_of
from harness import PATIENCE, check, equal, only_sqlite, settled, wait_for
from redis_server import RedisServer

SHORT = ('lease: { operation_ttl = "3s"; owner_ttl = "3s"; idle = "%s"; };\ngc: { interval = "1s"; };\n'
         'execution: { claim_ttl = "%s"; queue_timeout = "%s"; };\n')


@contextlib.contextmanager
def split(make, *roles, idle="15m", claim="3s", queue="5m", conf=""):
    """A started host for each word of roles, over one Redis, one provider and one folder of objects."""
    redis = RedisServer().start()
    try:
        hosts = [make(redis=redis) for _ in roles]
        for host, role in zip(hosts, roles):
            host.fleet_of, host.mock = hosts[0].dir.name, hosts[0].mock
            (host.dir / "providers.d" / "10-mock.conf").unlink()
            host.conf_text = (f'roles = "{role}";\nobjects: {{ path = "{hosts[0].dir}/objects"; }};\n'
                              + SHORT % (idle, claim, queue) + conf)
            host.write_conf()
            if host is not hosts[0]:
                shutil.copy(hosts[0].state / "state.key", host.state / "state.key")
            host.start()
        yield hosts
    finally:
        redis.close()


def ended_here(host):
    text = host.get("/metrics").expect(200).body.decode()
    return sum(int(n) for n in re.findall(r"^berth_executions_ended_total\{[^}]*\} (\d+)$", text, re.M))


@only_sqlite("a database of one process is what refuses")
def test_refusals_at_start(make):
    b = make()
    for roles, why in (("api", "SQLite has one process only"), ("api,gc", '"api,gc" is none'), (" ", "is empty")):
        b.env["BERTH_ROLES"] = roles
        b.start(expect_exit=78)
        check("roles: " in b.log() and why in b.log(), b.log()[-500:])
    del b.env["BERTH_ROLES"]
    b.conf_text = 'roles = "gc runner api";\n'
    b.write_conf()
    b.start()
    equal(b.sh("t", "echo all three"), b"all three\n")


def test_three_hosts_of_one_role_each(make):
    with split(make, "api", "runner", "gc", idle="2s") as (api, runner, gc):
        for host in (runner, gc):
            equal(host.get("/health").status, 200)
            equal(host.get("/ready").expect(200).json["status"], "ready")
            host.create("t", "true").expect_error(421, "misdirected_request")
            host.get("/admin/hosts").expect_error(421, "misdirected_request")
        hosts = api.get("/admin/hosts").expect(200).json
        equal((hosts["total"], sorted(h["roles"] for h in hosts["items"])), (3, ["api", "gc", "runner"]))
        check("runner" in api.ctl("hosts", text=True).stdout)

        # Several commands of a task, waited for, read live, cancelled: on the host that runs none of them.
        record = api.create("t", "echo 1 >> ran; echo out; echo err >&2; exit 3", wait="30s").expect(200).json
        equal((record["status"], record["result"]["exit_code"]), ("completed", 3))
        equal((api.output(record["id"]), api.output(record["id"], "stderr")), (b"out\n", b"err\n"))
        equal(api.sh("t", "cat ran"), b"1\n")
        live = api.create("t", "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over").expect(202).json["id"]
        wait_for(lambda: api.output(live) == b"begun\n", 20, "the output of a running command")
        doomed = api.create("t", "sleep 300").expect(202).json["id"]
        wait_for(lambda: api.record(doomed)["status"] == "running", 20, "the second command to run")
        api.request("DELETE", f"/sandbox/executions/{doomed}").expect(200, 202)
        equal(api.finish(doomed)["status"], "cancelled")
        api.put_file("t", "go", b"").expect(200, 201, 204)
        equal(api.finish(live)["status"], "completed")
        equal(api.output(live), b"begun\nover\n")
        equal([ended_here(h) for h in (api, runner, gc)], [0, 4, 0])
        # A file makes its sandbox from the host that is asked for it.
        api.put_file("files", "f", b"data").expect(200, 201, 204)
        equal(api.get_file("files", "f").body, b"data")

        # What is quiet is collected by the third, although only the first two touched it.
        wait_for(lambda: not api.mock.sessions(), 30, "the idle sandboxes to go")
        equal(api.task("t").json["stage"], "reclaimed")
        # A teardown is asked of the first, and the third hears of it at once.
        equal(api.sh("t", "echo again"), b"again\n")
        api.teardown("t", wait="20s").expect(200, 204)
        wait_for(lambda: not api.mock.sessions(), 20, "the sandbox to go")
        settled(api)


def test_a_runner_that_died_is_followed_by_another(make):
    with split(make, "api", "runner", "runner gc") as (api, first, second):
        command = "echo 1 >> ran; echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 7"
        made = [api.create(f"t{i}", command).expect(202).json["id"] for i in range(4)]
        wait_for(lambda: all(api.output(i) == b"before\n" for i in made), 30, "the commands to be in their middle")
        first.kill9()
        for i in range(4):
            api.put_file(f"t{i}", "go", b"").expect(200, 201, 204)
        for i, execution in enumerate(made):
            record = api.finish(execution, limit=90)
            equal((record["status"], record["result"]["exit_code"]), ("completed", 7), record.get("error"))
            equal(api.output(execution), b"before\nafter\n")
            equal(api.sh(f"t{i}", "cat ran"), b"1\n")
        check(ended_here(second) >= 4, "the other runner ended them")


def test_a_full_queue_is_told_by_a_host_that_runs_nothing(make):
    with split(make, "api", "runner gc", conf="runner: { concurrency = 1; queue_max = 3; };\n") as (api, runner):
        gate = api.dir / "gate"
        made = [api.create("t", f"while [ ! -e {gate} ]; do sleep 0.05; done").expect(202).json["id"]]

        last = time.monotonic()

        def filled():
            """What it knows of the runner, which has room for one, is up to two seconds old."""
            nonlocal last
            answer = api.create("t", "true")
            if answer.status == 202:
                made.append(answer.json["id"])
                last = time.monotonic()
            else:
                answer.expect_error(503, "queue_full")
            return time.monotonic() - last > 3 * PATIENCE

        wait_for(filled, 30, "the queue to be full, and to stay so")
        check(4 <= len(made) <= 5, "accepted:", len(made))
        equal(api.get("/ready").status, 503)
        gate.touch()
        for execution in made:
            equal(api.finish(execution)["status"], "completed")
        wait_for(lambda: api.get("/ready").status == 200, 20, "room in the queue")
        equal(api.sh("t", "echo room"), b"room\n")


def test_what_no_runner_takes_ends_in_time(make):
    with split(make, "api", "gc", queue="1s", claim="1s") as (api, _):
        made = api.create("t", "true").expect(202).json["id"]
        record = api.finish(made)
        equal((record["status"], record["reason"]), ("cancelled", "queue_expired"))
        wait_for(lambda: "no living host has a role" in api.log() and "role=runner" in api.log(), 20, "the lack to be told")
        equal(api.mock.sessions(), {})


def test_a_teardown_cancels_what_waits_on_other_hosts(make):
    with split(make, "api", "runner", "gc", conf="runner: { concurrency = 1; };\n") as (api, runner, _):
        gate = api.dir / "gate"
        runs = api.create("other", f"while [ ! -e {gate} ]; do sleep 0.05; done").expect(202).json["id"]
        wait_for(lambda: api.record(runs)["status"] == "running", 20, "the first command to run")
        waits = [api.create("t", "echo never > /dev/null").expect(202).json["id"] for _ in range(3)]
        api.teardown("t", wait="20s").expect(200, 204)
        for execution in waits:
            record = api.finish(execution, limit=10)
            equal((record["status"], record["reason"]), ("cancelled", "task_deleted"))
        equal(api.record(runs)["status"], "running")
        gate.touch()
        equal(api.finish(runs)["status"], "completed")


def test_hosts_that_come_and_go_are_forgotten(make):
    """By a host that goes on, not only by one that starts."""
    with split(make, "api runner", "gc", conf='task: { retention = "1s"; };\n') as (worker, gc):
        gone = id_of(worker)
        worker.kill9()
        check(gone.encode() in stored.rows(gc, "hosts"), "a host that has just died is not known any more")
        wait_for(lambda: gone.encode() not in stored.rows(gc, "hosts"), 30, "the dead host's row to go")
        equal(len(stored.rows(gc, "hosts")), 1)
