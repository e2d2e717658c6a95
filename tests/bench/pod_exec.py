# SPDX-License-Identifier: Apache-2.0
"""What berthd adds to a command in a pod: the same command through berthd and by a bare client of the executor, which also is held
against posix_spawn (executor_bench.c). And what an executor that has nothing to do keeps in memory."""

import json
import os
import pathlib
import re
import subprocess
import sys

from claim import PEERS, use_cluster
from parts import PROGRAMS, TOKEN, daemon, harness, wrk

sys.path.insert(0, str(PEERS))
from kube_fake import Kube  # noqa: E402

COMMAND = "echo hello"


def memory_of(pid):
    """[(program, bytes of its own, bytes of its file)] of a process and its children that are not over."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = [memory_of(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    own = dict(re.findall(r"^(RssAnon|RssFile):\s+(\d+) kB$", status, re.M))
    mine = [(os.readlink(f"/proc/{pid}/exe"), int(own["RssAnon"]) * 1024, int(own["RssFile"]) * 1024)] if own else []
    return mine + sum(found, [])


def resident(pid):
    """Bytes of the executor and what stands by for it; a program's pages count once, however many run it."""
    found = memory_of(pid)
    return sum(own for _, own, _ in found) + sum(max(f for p, _, f in found if p == program) for program in {p for p, _, _ in found})


def direct(seconds):
    """The executor alone, by a client in C: {metric: line} of executor_bench."""
    done = subprocess.run([str(PROGRAMS / "executor_bench"), str(harness.BUILD / "bin" / "berth-executor"), "/dev/shm", str(seconds)],
                          capture_output=True, text=True)
    lines = {line["metric"]: line for line in map(json.loads, done.stdout.splitlines())}
    harness.check("echo_p50_1_client" in lines, "executor_bench:", done.stderr)
    return lines


def pod_exec(options, stack):
    kube = Kube(harness.BUILD / "bin" / "berth-executor").start()
    stack.callback(kube.close)
    berth = daemon(stack, "pod-exec", memory=True)
    use_cluster(berth, "", kubeconfig=kube.kubeconfig(), signing_key=f"file:{kube.signing_key()}", template=kube.template())
    berth.start()
    berth.run("c1-1", "true", workspace="bench")
    (process,) = kube.node.pods.values()

    def one_round(number):
        idle = resident(process.pid)
        alone = direct(max(1, options.seconds // 2))
        _, through = wrk(berth.url("/"), options.seconds, threads=1, connections=1, script="exec.lua", token=False,
                         arguments=(TOKEN, "1", "c1-", COMMAND))
        bare = alone["echo_p50_1_client"]["ours"]
        return {"added_p50": (through - bare, None), "p50": (through, bare), "resident": (idle, None),
                **{f"spawn_{name}": (1 / alone[f"{name}_p50_1_client"]["ours"], 1 / alone[f"{name}_p50_1_client"]["reference"])
                   for name in ("echo", "look")}}
    return one_round
