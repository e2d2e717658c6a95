# SPDX-License-Identifier: Apache-2.0
"""What was found by attacking the daemon where the rows of the other files do not look: endings in the instant of a teardown,
damaged state, a full sandbox, a provider that fails every start, stops with stuck calls, readers across restarts."""

import http.client
import json
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import harness
import stored
from harness import TOKEN, Skipped, check, equal, in_parallel, settled, wait_for

FAST = 'gc: { interval = "200ms"; };\n'


def threads_for(seconds, *functions):
    """Runs each function(random) again and again for so long; raises the first failure."""
    end = time.monotonic() + seconds

    def again(i):
        rnd = random.Random(i)
        while time.monotonic() < end:
            functions[i](rnd)

    in_parallel(len(functions), again)


# ---- files ----

def test_what_a_command_does_to_files_breaks_no_list_and_blames_no_credential(make):
    b = make(conf=FAST).start()
    b.sh("t", "echo x >f && mkdir d && cd d && for i in 1 2 3 4 5 6; do n=$(printf %0200d $i); mkdir $n && cd $n && echo x >f; done")
    listed = b.get("/sandbox/files", workspace_id="w", task_id="t", list="").expect(200).json["paths"]
    equal(len(listed), 6, "the files whose paths can be told")
    check(all(len(path) <= 1024 for path in listed), "a path that is longer than the limit")
    where = {"workspace_id": "w", "task_id": "t"}
    for reason, code in ("access", "FORBIDDEN"), ("read_only", "FORBIDDEN"), ("path_too_long", "INVALID"):
        b.mock.faults(f"file_read code={code} reason={reason}", f"file_list code={code} reason={reason}")
        for answer in b.get_file("t", "f"), b.get("/sandbox/files", list="", **where):
            equal(answer.expect_error(400, "invalid_request").json["details"]["reason"], reason)
    b.mock.faults("file_read code=FORBIDDEN reason=token")
    b.get_file("t", "f").expect_error(502, "provider_auth")
    b.mock.faults()
    settled(b)


# ---- teardown against everything ----

def test_commands_that_start_while_their_session_is_destroyed(make):
    """A shell whose script went away before it was opened exits 2 by itself: that is no exit of the command."""
    b = make(conf=FAST).start()
    marks = b.dir / "marks"
    marks.mkdir()
    odd, numbers = [], iter(range(1 << 30))

    def command(rnd):
        mark = marks / str(next(numbers))
        answer = b.create(f"t{rnd.randrange(3)}", f"echo x >> {mark}; echo hi; sleep 0.0{rnd.randrange(9)}")
        if answer.status != 202:
            return
        record = b.finish(answer.json["id"])
        ran = len(mark.read_text().split()) if mark.exists() else 0
        exited = record["status"] == "completed"
        if ran > 1 or exited and (ran, record["result"]["exit_code"], b.output(record["id"])) != (1, 0, b"hi\n"):
            odd.append((record["id"], record["status"], record.get("ending"), ran))
        elif not exited and record["status"] != "cancelled" and record.get("reason") != "session_lost":
            odd.append((record["id"], record["status"], record.get("reason")))

    def destroy(rnd):
        b.teardown(f"t{rnd.randrange(3)}", force="true" if rnd.random() < 0.8 else None)
        threading.Event().wait(rnd.random() * 0.05)

    threads_for(5, *[command] * 8, destroy, destroy)
    equal(odd, [], "wrong endings")
    for number in range(3):
        b.teardown(f"t{number}", wait="10s").expect(204)
    equal(b.processes(), [], "processes")
    settled(b)


def test_a_command_may_remove_its_script_but_not_its_traces(make):
    b = make(conf=FAST).start()
    b.sh("t", 'rm "$0"; exit 3', code=3)
    began = time.monotonic()
    record = b.run("t", 'rm -rf "${0%/*/*/*}"; exit 3')
    equal((record["status"], record["reason"]), ("failed", "session_lost"))
    check(time.monotonic() - began < 5 * harness.PATIENCE, "it is told at once")
    equal(b.sh("t", "echo next"), b"next\n")
    settled(b)


# ---- damaged state ----

def test_a_damaged_row_harms_its_task_only(make):
    b = make(conf=FAST).start()
    b.sh("bad", "true")
    b.sh("good", "echo kept > f")
    running = b.create("good", "sleep 1; echo done").json["id"]
    wait_for(lambda: b.record(running)["status"] == "running", 10, "the command to run")
    b.kill9()
    stored.damage(b, "tasks", "w/bad", b'{"state":')
    b.start()
    equal((b.finish(running)["status"], b.output(running)), ("completed", b"done\n"))
    equal(b.sh("good", "cat f"), b"kept\n")
    b.create("bad", "true", wait="5s").expect_error(500, "internal")
    b.teardown("bad").expect_error(500, "internal")
    items = b.get("/sandbox/sessions", workspace_id="w").expect(200).json["items"]
    equal([item["task_id"] for item in items], ["good"])
    check(not b.request("POST", "/admin/verify").expect(200).json["ok"], "its session is reported")
    check("w/bad" in b.log() and "cannot be read" in b.log(), "the log names the row")


def test_a_fence_from_nowhere_does_not_end_the_daemon(make):
    b = make(conf=FAST).start()
    b.sh("t", "true")
    b.kill9()
    row = json.loads(stored.doc(b, "tasks", "w/t"))
    stored.damage(b, "tasks", "w/t", json.dumps({**row, "fence": 2**63 - 1}).encode())
    b.start()
    b.teardown("t", force="true", wait="1s").expect(202, 500)
    equal(b.sh("other", "echo hi"), b"hi\n")


def test_a_running_command_whose_claim_is_damaged_still_ends(make):
    b = make(conf=FAST).start()
    b.sh("t", "true")
    running = b.create("t", "sleep 1; echo done").json["id"]
    wait_for(lambda: b.record(running)["status"] == "running", 10, "the command to run")
    b.kill9()
    stored.damage(b, "claims", running, b"null")
    b.start()
    equal((b.finish(running, 15)["status"], b.output(running)), ("completed", b"done\n"))


def test_an_output_that_is_missing_is_no_success(make):
    b = make().start()
    record = b.run("t", "head -c 100000 /dev/zero")
    (b.state / "objects" / "objects" / "executions" / record["id"] / "stdout").unlink()
    # For a moment after the end it is read where it was written.
    answer = wait_for(lambda: (a := b.get(f"/sandbox/executions/{record['id']}/stdout")).status != 200 and a, 10, "the spool's end")
    answer.expect_error(500, "internal")


# ---- the provider ----

def test_a_start_that_always_fails_is_not_tried_for_ever(make):
    b = make(conf=FAST).start()
    b.sh("t", "true")
    for code in ("UNKNOWN", "TIMEOUT", "CONFLICT"):
        b.mock.faults(f"execute code={code}")
        before = b.mock.count("execute")
        record = b.run("t", "echo x", limit=10)
        equal((record["status"], record["reason"]), ("failed", "injected"), code)
        check(b.mock.count("execute") - before <= 5, "starts:", b.mock.count("execute") - before)
    b.mock.faults("execute nth=1 code=UNKNOWN")
    equal(b.sh("t", "echo back"), b"back\n")
    settled(b)


def test_a_full_sandbox_refuses_and_keeps_its_files(make):
    b = make(conf=FAST)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(b.mock.root)], capture_output=True).returncode:
        raise Skipped("needs the right to mount")
    try:
        b.start()
        b.sh("t", "echo kept > f")
        full = b.mock.root / "full"
        with open(full, "wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2
        record = b.run("t", "echo x")
        equal((record["status"], record["reason"]), ("failed", "storage_full"))
        b.put_file("t", "g", bytes(100000)).expect_error(507, "provider_storage_full")
        full.unlink()
        equal(b.sh("t", "cat f"), b"kept\n")
        settled(b)
    finally:
        b.stop()
        harness.kill_under(b.mock.root)
        subprocess.run(["umount", "-l", str(b.mock.root)], check=True)


def test_a_stop_is_bounded_with_every_call_stuck(make):
    b = make(conf=FAST + 'stop_grace = "200ms";\n').start()
    b.sh("t", "true")
    b.mock.faults("* stall=60s")
    b.create("new", "true").expect(202)
    b.create("t", "true").expect(202)
    wait_for(lambda: b.mock.count("faults") >= 2, 10, "both calls to be stuck")
    began = time.monotonic()
    b.stop()
    check(time.monotonic() - began < 13 * harness.PATIENCE, f"the stop took {time.monotonic() - began:.1f} s")


# To be preloaded: a folder of objects that does not answer when it is put away.
HANGS = r'''
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
int rmdir(const char *path)
{
	while (strstr(path, "/.staging/"))
		pause();
	return ((int (*)(const char *))dlsym(RTLD_NEXT, "rmdir"))(path);
}
'''


def test_a_stop_does_not_wait_for_objects_that_do_not_answer(make):
    if harness.SANITIZED or not shutil.which("cc"):
        raise Skipped("the folder hangs by a preloaded library, which a compiler makes and sanitizers do not take")
    b = make(conf=FAST + 'stop_grace = "200ms";\n')
    library = b.dir / "hangs.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=HANGS, text=True, check=True)
    b.env["LD_PRELOAD"] = str(library)
    b.start()
    b.sh("t", "true")
    equal(b.stop(), 1)
    check('the part "objects" does not come back' in b.log(), b.log()[-500:])
    del b.env["LD_PRELOAD"]
    b.start()
    equal(b.sh("t", "echo on"), b"on\n")
    equal(b.stop(), 0)


def metric(b, name):
    for line in b.get("/metrics").expect(200).text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0


def test_a_transfer_does_not_wait_for_a_provider_that_hangs(make):
    """It hears the cancel, or it does not: the caller has an answer and the thread is free either way."""
    b = make(conf=FAST + 'files: { stall_timeout = "1s"; };\n').start()
    b.put_file("t", "f", b"content").expect(200)
    for fault, reason in (("file_read hang", "no_progress"), ("file_stat hang", "no_progress"),
                          ("file_write hang", "no_progress"), ("file_read stall=6s", "provider_stuck"),
                          ("file_write stall=6s", "provider_stuck")):
        b.mock.faults(fault)
        began = time.monotonic()
        answer = b.put_file("t", "g", b"x" * 100000) if "write" in fault else b.get_file("t", "f")
        answer.expect_error(504, "provider_timeout")
        equal(answer.json["details"]["reason"], reason, fault)
        check("retry-after" in answer.headers, "it says when to come back")
        check(time.monotonic() - began < 8 * harness.PATIENCE, fault, "took", time.monotonic() - began)
        wait_for(lambda: metric(b, "berth_http_workers_busy") <= 1, 10, "the worker to be free")
        wait_for(lambda: metric(b, 'berth_target_calls_running{target="mock"}') == 0, 20, "the call to be over")
        b.mock.faults()
        b.put_file("t", "f", b"content").expect(200)
        equal(b.get_file("t", "f").expect(200).body, b"content")
    settled(b)


def test_a_slow_client_is_not_taken_for_a_provider_that_hangs(make):
    b = make(conf=FAST + 'files: { stall_timeout = "500ms"; };\n').start()
    data = random.Random(2).randbytes(20 << 20)
    b.put_file("t", "f", data).expect(200)
    connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=60)
    connection.request("GET", "/sandbox/file-content?workspace_id=w&task_id=t&path=f",
                       headers={"Authorization": "Bearer " + TOKEN})
    response = connection.getresponse()
    got = b""
    while piece := response.read(4 << 20):
        got += piece
        threading.Event().wait(0.7)
    check(got == data, "every byte came")
    connection.close()


# ---- stops, freezes and restarts ----

def test_a_follower_sees_the_same_bytes_across_stops_and_kills(make):
    b = make(conf=FAST + 'stop_grace = "200ms";\nexecution: { claim_ttl = "2s"; };\n').start()
    running = b.create("t", "for i in $(seq 120); do echo line$i; sleep .03; done", timeout_seconds=60).json["id"]
    want = b"".join(b"line%d\n" % i for i in range(1, 121))
    seen = {}

    def follow(i):
        out, answered = b"", False
        while not answered:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=30)
                connection.request("GET", f"/sandbox/executions/{running}/stdout?follow=1&offset={len(out)}",
                                   headers={"Authorization": "Bearer " + TOKEN})
                response = connection.getresponse()
                while response.status == 200 and (piece := response.read1(1000)):
                    out += piece
                answered = response.status == 200
            except (OSError, http.client.HTTPException):
                threading.Event().wait(0.02)
        seen[i] = out

    readers = [threading.Thread(target=follow, args=(i,)) for i in range(4)]
    for reader in readers:
        reader.start()

    def so_far():
        """Where hosts share a store, nobody has a dead host's output until its claim is over."""
        answer = b.get(f"/sandbox/executions/{running}/stdout").expect(200, 206, *([503] if stored.on_redis(b) else []))
        return len(answer.body) if answer.status != 503 else 0

    for number in range(4):
        wait_for(lambda: so_far() >= 200 * (number + 1), 20, "more output")
        b.kill9() if number % 2 else b.stop()
        b.start()
    equal(b.finish(running)["status"], "completed")
    for reader in readers:
        reader.join(30)
    equal([out == want for out in seen.values()], [True] * 4, "every follower has every byte once")
    equal(b.output(running), want)


def test_a_freeze_longer_than_every_time_to_live(make):
    b = make(conf=FAST + 'lease: { operation_ttl = "1s"; owner_ttl = "1s"; };\nexecution: { claim_ttl = "1s"; };\n',
             mock='ready_delay = "1s";').start()
    b.sh("t", "true")
    running = b.create("t", "for i in 1 2 3 4; do echo $i; sleep 1; done", timeout_seconds=60).json["id"]
    wait_for(lambda: b.output(running), 10, "its first byte")
    new = b.create("new", "echo hi", timeout_seconds=60).json["id"]
    data = random.Random(1).randbytes(2000000)
    with socket.create_connection(("127.0.0.1", b.port), timeout=30) as upload:
        upload.sendall(f"PUT /sandbox/file-content?workspace_id=w&task_id=t&path=f HTTP/1.1\r\nHost: x\r\n"
                       f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data[:500000])
        wait_for(lambda: len(b.task("t").json["operations"]) == 2, 10, "command and upload to be operations")
        b.proc.send_signal(signal.SIGSTOP)
        threading.Event().wait(3)
        b.proc.send_signal(signal.SIGCONT)
        upload.sendall(data[500000:])
        answer = upload.recv(4000)
        check(answer.startswith(b"HTTP/1.1 200"), "the upload ends well:", answer)
    check(b.get_file("t", "f").expect(200).body == data, "and is whole")
    equal((b.finish(running)["status"], b.output(running)), ("completed", b"1\n2\n3\n4\n"))
    equal((b.finish(new)["status"], b.output(new)), ("completed", b"hi\n"))
    equal(b.mock.count("created"), 2, "sessions made")
    settled(b)


def test_one_record_for_a_key_across_a_kill(make):
    # Where hosts share a store, a create of the dead one is waited for as long as it may be on its way.
    b = make(conf=FAST + 'session: { starting = "10s"; };\n').start()
    for number in range(3):
        ids, ran = [], b.dir / f"ran{number}"
        end = time.monotonic() + 120 * harness.PATIENCE

        def create(i):
            while time.monotonic() < end:
                try:
                    answer = b.create("t", f"echo x >> {ran}", headers={"Idempotency-Key": f"k{number}"})
                except (OSError, http.client.HTTPException):
                    continue
                if answer.status != 503:
                    ids.append(answer.expect(200, 202).json["id"])
                    return

        creators = [threading.Thread(target=create, args=(i,)) for i in range(16)]
        for creator in creators:
            creator.start()
        wait_for(lambda: len(ids) > 4 * number, 10, "some answers")
        b.restart()
        for creator in creators:
            creator.join()
        equal((len(ids), len(set(ids))), (16, 1), "answers, records")
        equal(b.finish(ids[0])["status"], "completed")
        equal(ran.read_text(), "x\n")


# ---- secrets ----

def test_P4_no_secret_of_the_daemon_reaches_a_sandbox(make):
    secrets = {name: f"{name.lower()}-0123456789abcdef0123456789abcdef" for name in
               ("SANDBOX_FILE_AUTH_SECRET", "SANDBOX_CLEANUP_AUTH_SECRET", "BERTH_TOKEN", "AWS_SECRET_ACCESS_KEY")}
    b = make(env=secrets).start()
    seen = b.sh("t", "tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' '\\n' < /proc/$PPID/environ; cat /proc/$PPID/cmdline")
    for name, secret in [*secrets.items(), ("all", TOKEN)]:
        check(secret.encode() not in seen and name.encode() + b"=" not in seen, f"{name} in an environment")
        for place in (b.mock.root, b.state, b.log_path):
            equal(subprocess.run(["grep", "-rlF", "--", secret, str(place)], capture_output=True).stdout, b"",
                  f"files with {name}")
