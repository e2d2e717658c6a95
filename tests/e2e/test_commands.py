# SPDX-License-Identifier: Apache-2.0
"""Commands: endings, environment, refusals (rows C)."""

import json
import os
import time

import harness
import stored
from harness import check, equal, in_parallel, settled, wait_for


def quick(b, command, **fields):
    started = time.monotonic()
    record = b.run("t", command, **fields)
    return record, time.monotonic() - started


def test_C1_background_children_do_not_delay(make):
    b = make().start()
    b.sh("t", "true")
    for command, code, out in (("sleep 600 & echo hi", 0, b"hi\n"), ("(yes >&2 &); exit 3", 3, b""),
                               ("nohup sleep 600 >/dev/null 2>&1 & echo hi", 0, b"hi\n")):
        record, seconds = quick(b, command)
        equal((record["status"], record["result"]["exit_code"]), ("completed", code), command)
        equal(b.output(record["id"]), out, command)
        check(seconds < 2 * harness.PATIENCE, f"{command}: {seconds:.1f} s")
        check(record.get("survivors", 0) >= 1, command, "survivors are counted:", record)
    equal(b.processes(), [], "survivors are killed")


def test_C1_kept_descendants_live_on(make):
    b = make().start()
    command = ("i=0; (while :; do echo tick; echo t >> ticks; sleep 0.05; done) & echo hi")
    record, seconds = quick(b, command, keep_descendants=True)
    equal(record["result"]["exit_code"], 0)
    check(seconds < 2 * harness.PATIENCE, seconds)
    check(record["survivors"] >= 1, record)
    check(b.output(record["id"]).replace(b"tick\n", b"") == b"hi\n", "its own output only")
    before = int(b.sh("t", "wc -l < ticks"))
    wait_for(lambda: int(b.sh("t", "wc -l < ticks")) > before + 5, 10, "the child to live on, not killed by SIGPIPE")
    equal(b.teardown("t").status, 204)


def test_C2_timeout_takes_the_whole_tree(make):
    b = make().start()
    commands = ["sleep 300 & wait", "sh -c 'sleep 301' | cat", "setsid sh -c 'while :; do echo x >> late; sleep 0.05; done' & wait",
                "trap '' TERM; while :; do echo x >> late; sleep 0.05; done"]
    for command in commands:
        record = b.run("t", command, timeout_seconds=1)
        equal((record["status"], record["result"]["exit_code"], record["ending"]["kind"]), ("completed", 124, "timeout"), command)
        size = b.sh("t", "wc -c < late 2>/dev/null || echo 0")
        time.sleep(0.3)  # nothing may be written afterwards
        equal(b.sh("t", "wc -c < late 2>/dev/null || echo 0"), size, command)
        equal(b.processes(), [], command)
    settled(b)


def test_C3_no_standard_input_is_end_of_file(make):
    b = make().start()
    equal(b.sh("t", "cat; read x; echo \"[$x]\""), b"[]\n")
    b.put_file("t", "in.txt", b"line\n").expect(200)
    equal(b.sh("t", "cat", stdin_ref="in.txt"), b"line\n")


def test_C4_client_that_goes_away(make):
    import socket
    b = make().start()
    b.sh("t", "true")
    body = json.dumps({"workspace_id": "w", "task_id": "t", "command": {"command_body": "sleep 1; echo done"}}).encode()
    with socket.create_connection(("127.0.0.1", b.port)) as s:
        s.sendall(b"POST /sandbox/executions?wait=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "
                  + harness.TOKEN.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: len(b.get("/sandbox/executions", workspace_id="w").json["items"]) == 2, 10, "the record")
    item = b.get("/sandbox/executions", workspace_id="w").json["items"][0]
    equal(b.finish(item["id"])["status"], "completed")
    equal(b.output(item["id"]), b"done\n")


def test_C5_endings_are_told_apart(make):
    b = make(mock='memory_max = "64MiB";' if can_limit() else "").start()
    seen = {}
    for name, command, fields in (("timeout", "sleep 60", {"timeout_seconds": 1}), ("124", "exit 124", {}), ("137", "exit 137", {}),
                                  ("signal", "kill -9 $$", {})):
        record = b.run("t", command, **fields)
        seen[name] = (record["status"], record["result"]["exit_code"], record["ending"]["kind"])
    equal(seen, {"timeout": ("completed", 124, "timeout"), "124": ("completed", 124, "exit"), "137": ("completed", 137, "exit"),
                 "signal": ("completed", 137, "signal")})
    if not can_limit():
        raise harness.Skipped("out of memory: there is no writable memory cgroup here; the other four passed")
    record = b.run("t", "exec python3 -c 'x = bytearray(500000000)'", timeout_seconds=60)
    equal((record["status"], record["reason"]), ("failed", "oom"))


def can_limit():
    for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        if os.path.exists(path + "/memory.limit_in_bytes") or os.path.exists(path + "/cgroup.subtree_control"):
            return os.access(path, os.W_OK)
    return False


def test_C6_cwd(make):
    b = make().start()
    b.sh("t", "mkdir -p sub; mkdir -m 0 closed; echo f > file; ln -s / out; ln -s sub in")
    for cwd in ("/nope", "", "a/../b", "a" * 5000, "nul\0x", "./sub", "sub/"):
        answer = b.create("t", "pwd", cwd=cwd)
        answer.expect(400)
        check("cwd" in answer.json["message"], cwd[:20], answer.json)
    for cwd in ("missing", "file", "out") + (("closed",) if os.geteuid() else ()):  # to root nothing is closed
        record = b.run("t", "pwd", cwd=cwd)
        equal((record["status"], record.get("reason")), ("failed", "cwd"), cwd)
        check(record["error"].startswith(f"cwd '{cwd}': ") and "cwd is missing, not a directory" in record["error"], record["error"])
    check(b.sh("t", "pwd", cwd="sub").endswith(b"/sub\n"))
    check(b.sh("t", "pwd", cwd=".") == b.sh("t", "pwd"))


def test_C7_inline_payloads_are_refused_by_presence(make):
    b = make().start()
    for key in ("args", "env", "script", "input_files", "content_base64", "script_content", "script_name", "metadata", "image",
                "network", "isolation", "allowed", "locked"):
        for value in ("v", None, "", [], {}):
            body = {"workspace_id": "w", "task_id": "t", "command": {"command_body": "true"}, key: value}
            answer = b.request("POST", "/sandbox/executions", body).expect(400)
            check(key in answer.json["message"], key, answer.json)
            if key != "metadata":
                body = {"workspace_id": "w", "task_id": "t", "command": {"command_body": "true", key: value}}
                answer = b.request("POST", "/sandbox/executions", body).expect(400)
                check(key in answer.json["message"], key, answer.json)
    body = {"workspace_id": "w", "task_id": "t", "command": {"command_body": "true"}, "runtime": {"labels": None}}
    check("labels" in b.request("POST", "/sandbox/executions", body).expect(400).json["message"])
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"], [], "records")
    secret_word = "body-that-no-event-holds"
    b.sh("t", f"echo {secret_word}")
    b.stop()
    for stream in stored.STREAMS:
        for doc in stored.entries(b, stream):
            check(secret_word.encode() not in doc, "event", doc)


def test_C8_lost_session_is_never_run_again(make):
    b = make().start()
    counter = b.dir / "ran"
    b.sh("t", "true")
    made = b.create("t", f"echo x >> {counter}; sleep 30").expect(202).json["id"]
    wait_for(counter.exists, 10, "it runs")
    b.mock.faults("* vanish")
    b.request("GET", "/sandbox/files", workspace_id="w", task_id="t", path="x")
    b.mock.faults()
    record = b.finish(made)
    equal(record["status"], "failed")
    b.restart()
    b.sh("t", "true")
    equal(counter.read_text(), "x\n", "runs")
    settled(b)


def test_C9_environment_values(make):
    b = make().start()
    values = {"SPACES": b" a  b ", "QUOTES": b"'\"`", "SUB": b"$(id) ${HOME} `id`", "LINES": b"a\nb\n", "TAB": b"\t", "BIG": b"x" * 102400,
              "BYTES": b"\xff\xfe\xc3\x28", "_EMPTY": b""}
    b.put_file("t", "env", b"".join(k.encode() + b"=" + v + b"\0" for k, v in values.items())).expect(200)
    for name, value in values.items():
        equal(b.sh("t", f'printf %s "${name}"', env_ref="env"), value, name)
    for bad in (b"A;touch x=1\0", b"1A=1\0", b"=1\0", b"NOEQUALS\0", b"A B=1\0"):
        b.put_file("t", "bad", bad).expect(200)
        record = b.run("t", "true", env_ref="bad")
        equal((record["status"], record["reason"]), ("failed", "env_ref"), bad)
    equal(b.sh("t", "ls x 2>/dev/null | wc -l"), b"0\n", "nothing was evaluated")


def test_C10_odd_scripts_have_their_own_exit_code(make):
    b = make().start()
    cases = [("cat <<E\nhi\nE", 0, b"hi\n"), ("cat <<E\nhi", 0, b"hi\n"), ("echo 'open", 2, b""), ("echo a\n# comment", 0, b"a\n"),
             ("echo a \\", 0, b"a\n"), ("exec true", 0, b""), ("exec false", 1, b""), ("exit 300", 44, b"")]
    for command, code, out in cases:
        record = b.run("t", command)
        equal((record["status"], record["result"]["exit_code"]), ("completed", code), command)
        if code == 0:
            check(b.output(record["id"]).rstrip(b"\n\\ ") == out.rstrip(), command, b.output(record["id"]))
        equal(b.sh("t", "echo healthy"), b"healthy\n", command)


def test_C11_long_commands(make):
    b = make().start()
    for kib, accepted in ((127, True), (128, True), (129, True), (256, True), (257, False), (1024, False)):
        command = "true #".ljust(kib * 1024, "x")
        answer = b.create("t", command, wait="30s")
        if accepted:
            equal(b.finish(answer.expect(200, 202).json["id"])["result"]["exit_code"], 0, f"{kib} KiB")
        else:
            answer.expect_error(413, "payload_too_large")
            check("262144" in answer.json["message"], "the command's own limit is named", answer.json)


def test_C11_the_limit_holds_however_it_is_written(make):
    """JSON may write any character in six bytes: the limit is of the command, not of its spelling."""
    b = make().start()
    for command, width in (("true #".ljust(256 * 1024, "x"), 6), ("true #" + "\u00e9" * (128 * 1024 - 3), 6), ("true #" + "\t" * (256 * 1024 - 6), 6)):
        spelled = "".join(f"\\u{ord(c):04x}" for c in command)
        equal(len(spelled), width * len(command))
        body = '{"workspace_id":"w","task_id":"t","command":{"command_body":"' + spelled + '"}}'
        answer = b.request("POST", "/sandbox/executions", body.encode(), headers={"Content-Type": "application/json"}, wait="30s")
        equal(b.finish(answer.expect(200, 202).json["id"])["result"]["exit_code"], 0, command[:10])
    for size, limit in ((260 * 1024, "262144"), (400 * 1024, "1769472")):
        body = '{"workspace_id":"w","task_id":"t","command":{"command_body":"' + "\\u0078" * size + '"}}'
        answer = b.request("POST", "/sandbox/executions", body.encode(), headers={"Content-Type": "application/json"})
        check(limit in answer.expect_error(413, "payload_too_large").json["message"], answer.json)


def test_C12_fork_storm_under_a_limit(make):
    if not os.path.isdir("/sys/fs/cgroup/pids") and not os.path.exists("/sys/fs/cgroup/cgroup.subtree_control"):
        raise harness.Skipped("there is no pids cgroup here")
    b = make(mock="pids_max = 32;").start()
    record = b.run("t", "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; wait", timeout_seconds=20)
    check("pids_limit" in json.dumps(record), "the ending names the cause:", record)
    equal(b.sh("t", "echo healthy"), b"healthy\n")
    settled(b)


def test_C13_no_zombies_no_descriptors(make):
    b = make().start()
    b.sh("t", "true")
    descriptors = lambda: len(os.listdir(f"/proc/{b.proc.pid}/fd"))
    b.run("t", "for i in 1 2 3; do (true &); done")
    before = descriptors()
    b.sh("t", "i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done")
    for _ in range(20):
        b.sh("t", "(true &)")
    wait_for(lambda: not zombies(b.proc.pid), 10, "no zombies below the host")
    children = [command_of(p) for p in os.listdir("/proc") if p.isdigit() and stat_of(p)[1] == b.proc.pid]
    equal(children, ["berth-supervise attend"], "children of the host")  # the standing launcher alone
    wait_for(lambda: descriptors() <= before + 2, 15, "descriptors to stay flat")


def command_of(pid):
    return open(f"/proc/{pid}/cmdline").read().rstrip("\0").replace("\0", " ")


def stat_of(pid):
    """State and parent; of one that is gone, neither."""
    try:
        state, parent = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[:2]
        return state, int(parent)
    except (OSError, ValueError, IndexError):
        return "", 0


def zombies(ancestor):
    """Of all its descendants. A zombie has neither a folder nor arguments: its parent is all that tells whose it was."""
    stats = {int(p): stat_of(p) for p in os.listdir("/proc") if p.isdigit()}
    below, grown = {ancestor}, True
    while grown:
        more = {pid for pid, (_, parent) in stats.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return [pid for pid in below if stats.get(pid, ("", 0))[0] == "Z"]


def test_C14_nul_and_invalid_utf8(make):
    b = make().start()
    head = b'{"workspace_id":"w","task_id":"t","command":{"command_body":"true"}}'
    cases = [(head.replace(b'"true"', b'"tr\\u0000ue"'), "command_body"), (head.replace(b'"true"', b'"tr\xffue"'), "command_body"),
             (head.replace(b'"t"', b'"t\\u0000"'), "task_id"), (head.replace(b'"t"', b'"\xc3\x28"'), "task_id"),
             (head.replace(b'"command_body"', b'"cwd":"a\xff","command_body"'), "cwd"),
             (head.replace(b'"command_body"', b'"cwd":"a\\u0000b","command_body"'), "cwd")]
    for body, word in cases:
        answer = b.request("POST", "/sandbox/executions", body, headers={"Content-Type": "application/json"}).expect(400)
        check(word in answer.json["message"], body, answer.json)
    for path, word in (("/sandbox/task/a%00b?workspace_id=w", "id "), ("/sandbox/task/a%ff?workspace_id=w", "id "),
                       ("/sandbox/executions/a%00", "id "), ("/sandbox/files?workspace_id=w&task_id=t&path=a%00b", "path "),
                       ("/sandbox/files?workspace_id=w&task_id=t&path=a%ff", "path ")):
        check(b.get(path).expect(400).json["message"].startswith(word), path)
    equal(b.mock.count("provision"), 0)


def test_malformed_json_is_refused_with_its_place(make):
    b = make().start()
    good = '{"workspace_id":"w","task_id":"t","command":{"command_body":"true"}}'
    for body in ("", "{", "[]", "null", "1", good + "x", good.replace('"w"', "'w'"), good.replace('"w"', "NaN"),
                 good[:-1] + ',"task_id":"u"}', good.replace("true", "a\nb"), good.replace('"w"', "1"), "{" * 100,
                 good.replace('"t"', '"t","command_":1'), good.replace('"true"', '"true","timeout_seconds":1e99'),
                 good.replace('"true"', '"true","timeout_seconds":-1'), good.replace('"true"', '"true","timeout_seconds":"5"'),
                 good.replace('"true"', '"true","timeout_seconds":99999999')):
        b.request("POST", "/sandbox/executions", body.encode(), headers={"Content-Type": "application/json"}).expect_error(
            400, "invalid_request")
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"], [])


def test_idempotency_key(make):
    b = make().start()
    b.sh("t", "true")
    answers = in_parallel(8, lambda i: b.create("t", "echo x >> ran", wait="20s", headers={"Idempotency-Key": "k1"}).expect(200, 202).json)
    equal(len({a["id"] for a in answers}), 1, "records")
    equal(b.sh("t", "cat ran"), b"x\n")
    b.create("t", "echo other", headers={"Idempotency-Key": "k1"}).expect(409)
