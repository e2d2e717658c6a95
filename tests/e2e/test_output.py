# SPDX-License-Identifier: Apache-2.0
"""Output: every byte, in order, or a word that says what is missing (rows U)."""

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import time

import harness
from harness import Skipped, check, equal, in_parallel, memory_grows_by_less_than, settled, wait_for


def test_U1_cut_stream_is_never_exit_0(make):
    b = make()
    b.start()
    b.sh("t", "true")
    for cut in (0, 1, 5, 9, 10):
        b.mock.faults(f"execute nth=1 cut={cut}")
        record = b.run("t", "printf 0123456789")
        equal((record["status"], record["result"]["exit_code"]), ("completed", 0), "asked again and found")
        equal(b.output(record["id"]), b"0123456789", f"cut at {cut}")
    # A provider that does not know is believed after three times, but not one that shows more each time.
    b.mock.faults("execute cut=100", "reattach cut=100")
    record = b.run("t", "head -c 1000 /dev/zero | tr '\\0' x")
    equal((record["status"], b.output(record["id"])), ("completed", b"x" * 1000), "ten cuts")
    b.mock.faults("execute cut=5", "reattach code=UNKNOWN")
    record = b.run("t", "printf 0123456789")
    equal((record["status"], record["ending"]["kind"]), ("failed", "unknown"))
    b.mock.faults()
    settled(b)


def test_U2_large_outputs(make):
    b = make().start()
    b.sh("t", "true")
    cases = {"20 MB": "head -c 20000000 /dev/zero | tr '\\0' 'a'", "one line of 50 MB": "head -c 50000000 /dev/zero | tr '\\0' b; echo",
             "ten million lines": "yes '' | head -n 10000000", "burst": "head -c 4194304 /dev/urandom > f; cat f"}
    for name, command in cases.items():
        with memory_grows_by_less_than(12, b.proc.pid):
            record = b.run("t", f"({command}) | tee copy; sha256sum < copy > digest", timeout_seconds=120)
            equal(record["result"]["exit_code"], 0, name)
            output = b.output(record["id"])
            preview = b.get(f"/sandbox/executions/{record['id']}", preview=65536).expect(200).json["preview"]["stdout"]
        inside = b.sh("t", "cut -d' ' -f1 digest").decode().strip()
        equal(hashlib.sha256(output).hexdigest(), inside, name)
        equal(preview["bytes"], len(output), name)
        check(preview["omitted_bytes"] >= len(output) - 65536, name, preview["omitted_bytes"], "bytes are said to be left out")
        if name != "burst":  # which is no text
            shown = preview["head"].encode(), preview["tail"].encode()
            check(output.startswith(shown[0]) and output.endswith(shown[1]), name, "the preview is of this output")
            equal(preview["omitted_bytes"], len(output) - len(shown[0]) - len(shown[1]), name)


def test_U2_limits_truncate_and_say_so(make):
    b = make().start()
    record = b.run("t", "head -c 100000 /dev/zero; echo end >&2", stdout_max_bytes=1000)
    equal((record["result"]["exit_code"], record["result"]["stdout_truncated"]), (0, True))
    equal(len(b.output(record["id"])), 1000)
    equal(b.output(record["id"], "stderr"), b"end\n")
    preview = b.get(f"/sandbox/executions/{record['id']}", preview=100).expect(200).json["preview"]
    equal([preview[stream]["omitted_bytes"] for stream in ("stdout", "stderr")], [900, 0], "bytes left out of the preview")


def test_U3_odd_bytes(make):
    b = make().start()
    record = b.run("t", r"printf '\377\376\303\050\000\355\240\200'; printf '\377\000' >&2")
    equal(b.output(record["id"]), b"\xff\xfe\xc3\x28\x00\xed\xa0\x80")
    equal(b.output(record["id"], "stderr"), b"\xff\x00")
    body = b.get(f"/sandbox/executions/{record['id']}", preview=64).body
    json.loads(body.decode("utf-8"))


def test_U4_a_thousand_short_commands(make):
    b = make(conf='task: { concurrency = 16; };').start()
    b.sh("t", "true")

    def some(_):
        for _ in range(125):
            record = b.run("t", "printf x; exit 7")
            equal((record["result"]["exit_code"], b.output(record["id"])), (7, b"x"))
    in_parallel(8, some)


def test_U5_follow_resumes_by_offset(make):
    b = make().start()
    b.sh("t", "true")
    made = b.create("t", "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; sleep 1; echo end; exit 3").expect(202).json["id"]
    data, turns = b"", 0
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=30 * harness.PATIENCE)
        connection.request("GET", f"/sandbox/executions/{made}/stdout?follow=1&offset={len(data)}",
                           headers={"Authorization": "Bearer " + harness.TOKEN})
        response = connection.getresponse()
        equal(response.status, 200)
        piece = response.read1(37) if turns < 20 else response.read()
        data += piece
        turns += 1
        connection.close()  # dropped by a proxy, as it were
        if turns > 20 and not piece:
            break
        if turns == 21:
            break
    expected = b"".join(b"line %d\n" % i for i in range(60)) + b"end\n"
    equal(data, expected)
    record = b.finish(made)
    equal(record["result"]["exit_code"], 3)
    equal(b.get(f"/sandbox/executions/{made}/stdout", follow=1, offset=5).body, expected[5:])


def test_U5_follow_of_a_silent_command_is_quiet(make):
    b = make().start()
    b.sh("t", "true")
    made = b.create("t", "sleep 4; echo end").expect(202).json["id"]
    before = cpu(b.proc.pid)
    equal(b.get(f"/sandbox/executions/{made}/stdout", follow=1).body, b"end\n")
    check(cpu(b.proc.pid) - before < 1.0 * harness.PATIENCE, "the wait does not spin")


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_U6_slow_transfer_outlives_the_lease(make):
    import socket
    idle = int(2000 * harness.PATIENCE)  # between the requests below; the transfer itself takes four times the active lease
    b = make(conf=f'lease: {{ idle = "{idle}ms"; active = "1s"; operation_ttl = "1s"; }};\ngc: {{ interval = "100ms"; }};').start()
    size = 64 << 20
    b.sh("t", f"head -c {size} /dev/urandom > big; sha256sum big | cut -d' ' -f1 > digest")
    digest = b.sh("t", "cat digest").decode().strip()
    with socket.create_connection(("127.0.0.1", b.port), timeout=60 * harness.PATIENCE) as s:
        s.sendall(b"GET /sandbox/file-content?workspace_id=w&task_id=t&path=big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  b"Authorization: Bearer " + harness.TOKEN.encode() + b"\r\n\r\n")
        sha, got, head, paused = hashlib.sha256(), 0, b"", 0
        while b"\r\n\r\n" not in head:
            head += s.recv(4096)
        head, _, rest = head.partition(b"\r\n\r\n")
        sha.update(rest)
        got += len(rest)
        while True:
            if paused < 10 and got > (paused + 1) * size // 16:
                time.sleep(0.4)  # a slow reader: four times the lease in all
                paused += 1
            piece = s.recv(1 << 20)
            if not piece:
                break
            sha.update(piece)
            got += len(piece)
            if paused == 10:
                equal(b.mock.count("release"), 0, "the session while it is read from")
    equal((got, sha.hexdigest()), (size, digest))
    equal(b.mock.count("provision"), 1)


def test_U7_readable_after_teardown(make):
    b = make().start()
    record = b.run("t", "head -c 100000 /dev/zero | tr '\\0' z; echo err >&2")
    equal(b.teardown("t").status, 204)
    equal(b.record(record["id"])["status"], "completed")
    equal(len(b.output(record["id"])), 100000)
    equal(b.output(record["id"], "stderr"), b"err\n")
    b.restart()
    equal(len(b.output(record["id"])), 100000)
    part = b.get(f"/sandbox/executions/{record['id']}/stdout", headers={"Range": "bytes=10-19"}).expect(206)
    equal(part.body, b"z" * 10)
    b.get(f"/sandbox/executions/{record['id']}/stdout", headers={"Range": "bytes=200000-"}).expect(416)


def test_gaps_are_told(make):
    b = make()
    b.mock.faults("execute nth=1 gap=0-100")
    b.start()
    record = b.run("t", "printf x")
    check(record.get("output_lost"), "lost bytes are told:", record)


def test_output_flood_is_bounded(make):
    b = make(conf='execution: { output_max = "1MiB"; spool_max = "4MiB"; };')
    b.mock.faults("execute flood=50000000")
    b.start()
    record = b.run("t", "echo hi")
    equal((record["status"], record["result"]["stdout_truncated"]), ("completed", True))
    check(len(b.output(record["id"])) <= 1 << 20)
    check(sum(f.stat().st_size for f in b.state.rglob("*") if f.is_file()) < 64 << 20, "disk is bounded")


def small_disk(b, options):
    """A disk of its own for the objects, and with them for what commands write."""
    disk = b.dir / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"{options},mode=700", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        raise Skipped("needs the right to mount")
    return disk


def test_a_full_disk_delays_output_and_loses_none(make):
    """What the sandbox still has is not dropped for want of room here: it is read when there is room again."""
    b = make()
    disk = small_disk(b, "size=4m")
    try:
        conf = b.dir / "berth.conf"
        conf.write_text(conf.read_text() + f'objects: {{ path = "{disk}/objects"; }};\n')
        b.start()
        equal(b.sh("t", "echo one"), b"one\n")
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 4096)
        id = b.create("t", "seq 1 200000; echo done >&2; touch ended; exit 3", timeout_seconds=300).expect(202).json["id"]
        wait_for(lambda: "there is no room for a command's output; it is waited for" in b.log(), 30, "the reader to wait")
        ref, = b.sessions_of("t")
        wait_for((b.mock.work(ref) / "ended").exists, 30, "the command to end, for which nothing waits")
        equal(b.record(id)["status"], "running")
        # A cancel of another one, and its end, are not held up; nor is a stop of the daemon.
        other = b.create("t2", "sleep 60").expect(202).json["id"]
        wait_for(lambda: b.record(other)["status"] == "running", 20, "the other command")
        b.request("DELETE", f"/sandbox/executions/{other}").expect(200, 202)
        equal(b.finish(other)["status"], "cancelled")
        equal(b.stop(), 0)
        b.start()
        equal(b.record(id)["status"], "running")
        filler.unlink()
        record = b.finish(id)
        expected = b"".join(b"%d\n" % i for i in range(1, 200001))
        equal((record["status"], record["result"]["exit_code"]), ("completed", 3), record.get("error"))
        equal(record["result"]["stdout_truncated"], False)
        equal(record["result"]["stdout_sha256"], hashlib.sha256(expected).hexdigest())
        check(b.output(id) == expected, "every byte")
        equal(b.output(id, "stderr"), b"done\n")
        equal(b.stop(), 0)
    finally:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True)


def test_a_disk_that_is_full_at_the_end_loses_no_output(make):
    """The command has ended, and its output, which is here, has no place among the objects: that is waited for, too."""
    b = make(conf='execution: { completion_grace = "1s"; };')
    disk = small_disk(b, "size=64m,nr_inodes=60")
    try:
        conf = b.dir / "berth.conf"
        conf.write_text(conf.read_text() + f'objects: {{ path = "{disk}/objects"; }};\n')
        b.start()
        id = b.create("t", f"seq 1 50000; while [ ! -e {b.dir}/gate ]; do sleep 0.02; done").expect(202).json["id"]
        expected = b"".join(b"%d\n" % i for i in range(1, 50001))
        wait_for(lambda: list((disk / "objects").rglob("spool-*")), 30, "the output to be in a file")
        fillers = []
        with contextlib.suppress(OSError):
            while True:
                fillers.append(disk / f"filler-{len(fillers)}")
                fillers[-1].touch()
        (b.dir / "gate").touch()
        # Tries after 0.1, 0.2, 0.4 … seconds: the sixth is well past the grace.
        wait_for(lambda: b.log().count("cannot store an output, trying again") >= 6, 30, "tries to store it")
        equal(b.record(id)["status"], "running")
        for filler in fillers:
            filler.unlink(missing_ok=True)
        record = b.finish(id)
        equal((record["status"], record["result"]["exit_code"]), ("completed", 0), record.get("error"))
        equal(record["result"]["stdout_truncated"], False)
        check(b.output(id) == expected, "every byte")
        equal(b.stop(), 0)
    finally:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True)
