# SPDX-License-Identifier: Apache-2.0
"""Claims on a real kube-apiserver: 45 a second for a while, then 300 at once, each beside the bare LIST and PATCH of the same run.

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

    def claim(self, name, meta):
        self.rules.get(name)  # the thread's connection, as warm as a daemon's
        begin = time.monotonic()
        self.rules.list(f"floor%3Dt-{name}")
        self.rules.patch(name, {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "labels": {"floor": f"t-{name}"}})
        return (time.monotonic() - begin) * 1000


def floors(cluster, count):
    """Milliseconds of each, at the same rate."""
    floor = Floor(cluster)
    pods = list(floor.prepare(count).items())
    steady = at_rate(lambda i: floor.claim(*pods[i]), count)
    cluster.kubectl("delete", "pods", "-n", real.NAMESPACE, "-l", "rules=yes", "--wait=false")
    return steady


def measure(cluster):
    floor = floors(cluster, min(STEADY, 100))
    with real.berth(cluster, conf=CONF, target=f"warm = {BURST};\n") as b:
        parts.seconds_until(lambda: ready_in_pool(b) >= BURST, 600, 0.5)
        claims = Claims(b)
        seconds, _ = burst(b, [f"b{i}" for i in range(BURST)], 64)
        at_once = claims.milliseconds()
        # The pool is full again before the next figure: the node's work is not the claim's.
        parts.seconds_until(lambda: ready_in_pool(b) >= 2 * BURST, 600, 0.5)
        claims = Claims(b)

        def one(number):
            connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=120)
            try:
                return first_command(connection, f"s{number}")
            finally:
                connection.close()
        commands = at_rate(one, STEADY)
        steady = claims.milliseconds()
    return {"p50": [percentile(steady, 0.5), percentile(floor, 0.5)], "p99": [percentile(steady, 0.99), percentile(floor, 0.99)],
            "command_p50": [percentile(commands, 0.5) * 1000, None], "burst": [seconds, None],
            "burst_p99": [percentile(at_once, 0.99), None], "burst_warm": [len(at_once), None]}


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
