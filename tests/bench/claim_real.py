# SPDX-License-Identifier: Apache-2.0
"""Claims on a real kube-apiserver: 45 a second for a while, then 300 at once, each beside the bare LIST and PATCH of the same run.
First each from a pool that holds just these and is not filled again beside them (max_sessions is its size), which is what the floor
does too; then, as `…_refilled`, from one in which server, node and daemon make a new pod for each that is claimed, on the same processors.

Run by claim.py; prints {metric: [ours, reference]} as its last line. Inside is the cluster of tests/kubernetes-real: a network
namespace, the server, a node of our own, real executors."""

import http.client
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import parts  # noqa: E402
from claim import CONF, Claims, burst, first_command, percentile, ready_in_pool  # noqa: E402
from parts import harness  # noqa: E402

spec = importlib.util.spec_from_file_location("kubernetes_real", harness.ROOT / "tests" / "kubernetes-real" / "run.py")
real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
import kube_rules  # noqa: E402 - its folder is on the path by now

BURST = 300
BURST_CLIENTS = 64
RATE = 45
STEADY = int(os.environ.get("BERTH_BENCH_STEADY", "200"))  # claims at that rate


def at_rate(function, count):
    """function(number) at RATE a second on threads of their own; results in order."""
    begin = time.monotonic()

    def one(number):
        time.sleep(max(0, begin + number / RATE - time.monotonic()))
        return function(number)
    return harness.in_parallel(count, one)


class Floor:
    """What a claim cannot do without: a list for the task, and one patch. By a client with kept connections."""

    def __init__(self, cluster):
        self.rules = kube_rules.Rules(cluster.dir / "api" / "kubeconfig", real.NAMESPACE)

    def prepare(self, count):
        for i in range(count):
            self.rules.create(f"floor-{i}", floor="free")
        # Seldom: a list is work for the server that the node waits for.
        parts.seconds_until(lambda: all(p.get("status", {}).get("podIP") for p in self.rules.list("floor%3Dfree")["items"]), 300, 0.5)
        return {p["metadata"]["name"]: p["metadata"] for p in self.rules.list("floor%3Dfree")["items"]}

    def claim(self, name, meta, connect=True):
        if connect:
            self.rules.get(name)  # the thread's connection, as warm as a daemon's
        begin = time.monotonic()
        self.rules.list(f"floor%3Dt-{name}")
        self.rules.patch(name, {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "labels": {"floor": f"t-{name}"}})
        return (time.monotonic() - begin) * 1000


def floors(cluster, count):
    """Milliseconds of each at the same rate, and seconds of all of a burst, by as many clients."""
    floor = Floor(cluster)
    pods = list(floor.prepare(count + BURST).items())
    each, rest = at_rate(lambda i: floor.claim(*pods[i]), count), pods[count:]
    begin = time.monotonic()
    harness.in_parallel(BURST_CLIENTS, lambda i: [floor.claim(*pod, connect=False) for pod in rest[i::BURST_CLIENTS]])
    return each, time.monotonic() - begin


def settle(cluster):
    """Nothing of one phase is the next one's work."""
    cluster.kubectl("delete", "pods", "-n", real.NAMESPACE, "--all", "--wait=false")
    parts.seconds_until(lambda: not cluster.pods(), 300, 0.5)


def steady(berth, prefix):
    """Milliseconds of each claim, and seconds of each command, at RATE."""
    claims = Claims(berth)

    def one(number):
        connection = http.client.HTTPConnection("127.0.0.1", berth.port, timeout=120)
        try:
            return first_command(connection, f"{prefix}{number}")
        finally:
            connection.close()
    commands = at_rate(one, STEADY)
    found = claims.milliseconds()
    harness.check(len(found) == STEADY, len(found), "of", STEADY, "tasks got a warm pod")
    return found, commands


def at_once(berth, prefix):
    """Seconds until all are claimed and until all their commands have ended, and milliseconds of each claim."""
    claims = Claims(berth)
    commands, _ = burst(berth, [f"{prefix}{i}" for i in range(BURST)], BURST_CLIENTS)
    return claims.seconds(), commands, claims.milliseconds()


def fixed_pool(cluster, size):
    """A pool that holds all that is claimed, and is not filled again: max_sessions counts claimed and warm pods together."""
    return berth_on(cluster, f"warm = {size};\nmax_sessions = {size};\n")


def steady_fixed(cluster):
    with fixed_pool(cluster, STEADY) as b:
        parts.seconds_until(lambda: ready_in_pool(b) >= STEADY, 600, 0.5)
        spent = parts.seconds_of(b.proc.pid)
        claimed, commands = steady(b, "s")
        spent = (parts.seconds_of(b.proc.pid) - spent) / STEADY * 1000
        harness.check(ready_in_pool(b) == STEADY, "pods were made beside the claims")
    return {"p50": percentile(claimed, 0.5), "p99": percentile(claimed, 0.99), "cpu": spent,
            "command_p50": percentile(commands, 0.5) * 1000}


def burst_fixed(cluster):
    with fixed_pool(cluster, BURST) as b:
        parts.seconds_until(lambda: ready_in_pool(b) >= BURST, 600, 0.5)
        seconds, commands, each_ms = at_once(b, "b")
        harness.check(len(each_ms) == BURST, len(each_ms), "of", BURST, "tasks got a warm pod")
        harness.check(ready_in_pool(b) == BURST, "pods were made beside the claims")
    return {"burst": seconds, "burst_commands": commands, "burst_p99": percentile(each_ms, 0.99)}


def refilled_pool(cluster):
    with berth_on(cluster, f"warm = {BURST};\n") as b:
        parts.seconds_until(lambda: ready_in_pool(b) >= BURST, 600, 0.5)
        claimed, _ = steady(b, "s")
        # The pool is full again before the next figure.
        parts.seconds_until(lambda: ready_in_pool(b) >= BURST + STEADY, 600, 0.5)
        seconds, _, burst_ms = at_once(b, "b")
    return {"p50_refilled": percentile(claimed, 0.5), "p99_refilled": percentile(claimed, 0.99), "burst_refilled": seconds,
            "burst_warm": len(burst_ms)}


def berth_on(cluster, target):
    # As it is shipped: the tests' sweeps, five a second, each list the whole pool.
    return real.berth(cluster, conf=CONF, target=target, gc="")


def measure(cluster):
    floor, floor_burst = floors(cluster, min(STEADY, 100))
    found = {}
    for phase in (steady_fixed, burst_fixed, refilled_pool):
        settle(cluster)
        found |= phase(cluster)
    floored = {"p50": percentile(floor, 0.5), "p99": percentile(floor, 0.99), "burst": floor_burst}
    return {metric: [figure, floored.get(metric)] for metric, figure in found.items()}


def main():
    built = os.environ.get("BERTH_KUBE_APISERVER")
    if not built:
        done = subprocess.run(["sh", str(parts.harness.ROOT / "tests/peers/kube-apiserver/build.sh")], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print("the API server cannot be built")
            return 1
        os.environ["BERTH_KUBE_APISERVER"] = built = done.stdout.strip()
    if "BERTH_IN_NAMESPACE" not in os.environ:
        print("no network namespace can be made: " + real.enter_namespace())
        return 1
    cluster = real.Cluster(built)
    try:
        figures = measure(cluster.start())
    finally:
        cluster.close()
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
