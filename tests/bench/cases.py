# SPDX-License-Identifier: Apache-2.0
"""The benches themselves. A case prepares everything on the stack and gives back a function for one round, which returns
{metric: (ours, reference or None)}."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from bindings import bindings  # noqa: F401 - cases of their own files
from claim import fast as claim, real as claim_real  # noqa: F401
from long import long  # noqa: F401
from pod_exec import pod_exec  # noqa: F401
from shared import exec_redis, recovery  # noqa: F401
from soak import soak  # noqa: F401
from parts import TOKEN, Nginx, curl, daemon, harness, in_turn, program, run_reference, wrk

NULL = 'runtime = "null";'
GIB = 1 << 30


def http(options, stack):
    berth, nginx = daemon(stack, "http", mock=NULL).start(), Nginx(stack)
    bodies = [subprocess.run(["curl", "-s", side.url("/health")], capture_output=True, check=True).stdout
              for side in (berth, nginx)]
    harness.equal(bodies[0], bodies[1], "the body of /health, of Berth and of nginx.conf")
    return lambda number: {"health": in_turn(number, lambda: wrk(berth.url("/health"), options.seconds)[0],
                                             lambda: wrk(nginx.url("/health"), options.seconds)[0])}


RECORDS = 10000


def make_records(berth):
    """Ids of executions; a record of a short command is 1.1 KiB as it is."""
    def create(i):
        body = {"workspace_id": "w", "task_id": f"t{i % 64}", "command": {"command_body": "true"}}
        return berth.request("POST", "/sandbox/executions", body, wait="30s").expect(200).json["id"]

    ids = []
    harness.in_parallel(8, lambda worker: ids.extend(create(i) for i in range(worker, RECORDS, 8)))
    size = len(berth.get(f"/sandbox/executions/{ids[0]}").expect(200).body)
    harness.check(size >= 1024, "a record has", size, "bytes only")
    return ids


def record(options, stack):
    berth, nginx = daemon(stack, "record", mock=NULL).start(), Nginx(stack)
    ids = berth.dir / "ids"
    ids.write_text("".join(i + "\n" for i in make_records(berth)))

    def load(side):
        return wrk(side.url("/"), options.seconds, script="record.lua", arguments=(TOKEN, str(ids)), token=False)[0]
    return lambda number: {"record": in_turn(number, lambda: load(berth), lambda: load(nginx))}


def run_commands(berth, seconds, command, tasks, threads=2, connections=64):
    return wrk(berth.url("/"), seconds, threads=threads, connections=connections, script="exec.lua", token=False,
               arguments=(TOKEN, str(tasks), f"c{connections}-", command))


def make_live(berth, tasks, connections, command):
    for i in range(1, tasks + 1):
        berth.run(f"c{connections}-{i}", command, workspace="bench")


def executions(options, stack):
    berth = daemon(stack, "exec", mock=NULL).start()
    quick = daemon(stack, "exec", memory=True, mock=NULL).start()
    make_live(berth, 64, 64, "true")
    make_live(berth, 1, 1, "true")
    make_live(quick, 1, 1, "true")

    def reference(clients):
        with tempfile.TemporaryDirectory(prefix="berth-bench-exec-") as folder:
            return run_reference("ref_exec", f"{folder}/db", clients, options.seconds)

    def alone(side):
        return run_commands(side, options.seconds, "true", 1, threads=1, connections=1)

    def counted():
        before = quick.metrics()
        _, half = alone(quick)
        after = quick.metrics()
        count = {key: after[key] - before[key] for key in ("berth_store_groups_total", "berth_executions_accepted_total")}
        return half, count["berth_store_groups_total"] / count["berth_executions_accepted_total"]

    def one_round(number):
        pair = in_turn(number, lambda: run_commands(berth, options.seconds, "true", 64)[0], lambda: reference(64))
        disk = in_turn(number, lambda: alone(berth)[0], lambda: reference(1))
        half, commits = counted()
        return {"executions": pair, "alone_on_disk": disk, "commits_per_execution": (commits, None),
                "alone_p50": (half, None)}
    return one_round


def process(options, stack):
    berth = daemon(stack, "process").start()
    make_live(berth, 8, 8, "true")
    return lambda number: {"commands": in_turn(number, lambda: run_commands(berth, options.seconds, "true", 8, 2, 8)[0],
                                               lambda: run_reference("ref_process", 8, options.seconds))}


def write_random(path, size):
    """Random bytes; the digest."""
    digest, block = hashlib.sha256(), os.urandom(1 << 20)
    with open(path, "wb") as out:
        for i in range(size >> 20):
            block = block[1:] + block[:1]
            out.write(block)
            digest.update(block)
    return digest.hexdigest()


def upload_reference(source, target, digest):
    server = subprocess.Popen([program("ref_upload"), str(target)], stdout=subprocess.PIPE, text=True)
    seconds = curl("-T", str(source), f"http://127.0.0.1:{int(server.stdout.readline())}/")
    harness.equal(server.stdout.read().strip(), digest, "the reference's digest")
    server.wait()
    target.unlink()
    return seconds


def files(options, stack):
    berth, nginx = daemon(stack, "files").start(), Nginx(stack)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-files-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    source, served = folder / "source", nginx.dir / "files" / "big"
    digest = write_random(source, GIB)
    shutil.copyfile(source, served)
    served.chmod(0o644)
    berth.put_file("t", "small", b"1").expect(200, 201)
    auth, mib = ("-H", "Authorization: Bearer " + TOKEN), GIB >> 20
    query = "/sandbox/file-content?workspace_id=w&task_id=t&path="
    copies = 0

    def up():
        nonlocal copies
        copies += 1
        work = berth.mock.work(berth.sessions_of("t")[0])
        seconds = curl(*auth, "-T", str(source), berth.url(f"{query}up{copies % 2}&mode=0644"))
        harness.check((work / f"up{copies % 2}").stat().st_size == GIB, "the uploaded file is not whole")
        (work / f"up{1 - copies % 2}").unlink(missing_ok=True)
        return mib / seconds

    def down():
        return mib / curl(*auth, berth.url(f"{query}up{copies % 2}"))

    def one_round(number):
        berth.forget_peak()
        found = {"up": in_turn(number, up, lambda: mib / upload_reference(source, folder / "target", digest))}
        found["down"] = in_turn(number, down, lambda: mib / curl(nginx.url("/files/big")))
        return {**found, "resident": (berth.status("VmHWM"), None)}
    return one_round
