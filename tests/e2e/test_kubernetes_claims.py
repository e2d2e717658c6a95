# SPDX-License-Identifier: Apache-2.0
"""Several hosts over one Redis race for warm pods. What happened is counted by the API server, not by the hosts."""

import contextlib
import shutil
import time

import harness
import redis_server
from harness import check, equal, in_parallel, settled, wait_for
from test_kubernetes import clustered, count

ALONE = True  # hundreds of pods are hundreds of processes


class Witness:
    """Every change of every pod, as the API server commits it: who ever had it, and how many a task had at once."""

    def __init__(self, kube):
        self.kube = kube
        self.tasks_of = {}  # uid -> tasks that it ever carried
        self.pods_of = {}  # task -> uids that ever carried it
        self.at_once = {}  # task -> the most pods that carried it at one time
        self.holders = {}  # task -> uids now
        kube.call(kube.api.store.hooks.append, self.see)

    @staticmethod
    def task(pod):
        notes = (pod or {"metadata": {}})["metadata"].get("annotations", {})
        return (notes["berth.dev/workspace"], notes["berth.dev/task"]) if "berth.dev/task" in notes else None

    def see(self, key, before, after):
        if key[0] != "pods":
            return
        uid = (after or before)["metadata"]["uid"]
        was, now = self.task(before), self.task(after)
        if was and was != now:
            self.holders[was].discard(uid)
        if now:
            self.tasks_of.setdefault(uid, set()).add(now)
            self.pods_of.setdefault(now, set()).add(uid)
            holders = self.holders.setdefault(now, set())
            holders.add(uid)
            self.at_once[now] = max(self.at_once.get(now, 0), len(holders))


@contextlib.contextmanager
def hosts_on(cluster, kube, number, **kw):
    """Hosts with one store, one key of the state and one folder of objects."""
    with contextlib.ExitStack() as stack:
        server = harness.REDIS
        if not server:
            server = redis_server.RedisServer().start()
            stack.callback(server.close)
        made = []
        for _ in range(number):
            host = cluster(**kw)
            first = made[0] if made else host
            host.redis, host.fleet_of = server, first.dir.name
            host.conf_text = f'objects: {{ path = "{first.dir}/objects"; }};\n' + host.conf_text
            host.write_conf()
            if host is not first:
                shutil.copy(first.state / "state.key", host.state / "state.key")
            made.append(host.start())
        yield made


def free(kube):
    return [p for p in kube.pods().values() if "berth.dev/pool" in p["metadata"]["labels"] and not p["metadata"].get("deletionTimestamp")]


def ask(host, task):
    """Creates; a host whose store is busy says when to come again."""
    for _ in range(50):
        answer = host.create(task, "pwd", timeout_seconds=120)
        if answer.status != 503:
            return answer.expect(202).json["id"]
        time.sleep(answer.json["retry_after_ms"] / 1000)
    raise harness.Failure(f"{task}: {answer.body}")


def race(cluster, kube, tasks, warm):
    """`tasks` tasks at once over four hosts, each asked for by two of them; the pool holds `warm` pods before."""
    witness = Witness(kube)
    conf = 'gc: { interval = "2s"; };\nsession: { scheduling = "5m"; starting = "5m"; };\nlease: { idle = "1h"; };\nrunner: { concurrency = 1000; };\n'
    with hosts_on(cluster, kube, 4, conf=conf, target=f"warm = {warm};") as hosts:
        wait_for(lambda: sum(h.log().count("a warm session is ready") for h in hosts) >= warm, 60 + warm, f"{warm} warm pods")
        equal(len(free(kube)), warm, "pods of the pool")

        def worker(number):
            found = []
            for i in range(number, tasks, 32):
                made = [ask(hosts[(i + k) % 4], f"t{i}") for k in range(2)]
                found += [(hosts[(i + k) % 4], made[k], i) for k in range(2)]
            return [(i, host, made, host.finish(made, 300)) for host, made, i in found]

        homes = {}
        for i, host, made, record in sum(in_parallel(32, worker), []):
            equal(record["status"], "completed", record.get("error"))
            homes.setdefault(i, set()).add(host.output(made))
        equal(len(homes), tasks)
        check(all(len(h) == 1 for h in homes.values()), "commands of a task ran in several pods")
        equal(len(set.union(*homes.values())), tasks, "pods that commands saw")
        equal([t for t in witness.tasks_of.values() if len(t) > 1], [], "pods that had two tasks")
        equal([t for t, u in witness.pods_of.items() if len(u) > 1], [], "tasks that had two pods")
        equal(len(witness.pods_of), tasks, "tasks with a pod")
        # The pool is filled again meanwhile. Who finds none ready at its instant makes one.
        claimed = sum("a session is live" in line and "how=warm" in line for host in hosts for line in host.log().splitlines())
        check(claimed >= min(tasks, warm) * 3 // 4, "warm pods that were claimed:", claimed, "of", warm)
        in_parallel(32, lambda n: [hosts[(i + 3) % 4].teardown(f"t{i}", wait="60s").expect(200, 202, 204) for i in range(n, tasks, 32)])
        wait_for(lambda: all("berth.dev/pool" in p["metadata"]["labels"] for p in kube.pods().values()), 120, "the tasks' pods to go")
        wait_for(lambda: len(kube.pods()) == warm, 60 + warm, "the pool to be as full as before")
        settled(hosts[0], 60)
        print(f"     {tasks} tasks, pool of {warm}: {claimed} warm pods claimed, {count(kube, 'POST', '/pods')} pods made, "
              f"{count(kube, 'PATCH', '/pods/')} patches", flush=True)


def sizes(tasks):
    return tasks if harness.FULL else tasks // 10


@clustered
def test_four_hosts_race_for_a_pool_that_suffices(make, kube):
    race(make, kube, sizes(500), sizes(500))


@clustered
def test_four_hosts_race_for_a_pool_that_is_too_small(make, kube):
    race(make, kube, sizes(500), sizes(100))
