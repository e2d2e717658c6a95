# SPDX-License-Identifier: Apache-2.0
"""Commands: what the supervisor promises, seen through the wire."""

import concurrent.futures
import hashlib
import json
import os
import signal
import subprocess
import time

from client import PATIENCE, Connection, Cut, frames_of, must, wait_for


def whole(conn, headers):
    return frames_of(b"".join(conn.chunks(headers)))


def ending_of(frames):
    return [json.loads(payload) for kind, payload in frames if kind == "X"][0]


def test_endings(make):
    x = make()
    for script, kind, value in (("exit 0", "exit", 0), ("exit 3", "exit", 3), ("exit 124", "exit", 124), ("exit 137", "exit", 137),
                                ("kill -9 $$", "signal", 9), ("kill -TERM $$", "signal", 15)):
        ending = x.execute(script).ok().ending
        must(ending["kind"] == kind and ending["exit_code" if kind == "exit" else "signal"] == value, f"{script}: {ending}")
        must(ending["quiescent"] == "yes" and ending["survivors"] == 0, ending)
        must(set(ending) == {"kind", "exit_code", "signal", "survivors", "quiescent", "duration_ms", "stdout_dropped", "stderr_dropped",
                             "reason"}, ending)
    must(x.execute("sleep 100", timeout_ms=100, kill_grace_ms=0).ending["kind"] == "timeout", "no timeout")
    ending = x.execute("trap 'exit 7' TERM; sleep 100 & wait", timeout_ms=100).ending
    must(ending["kind"] == "timeout" and ending["quiescent"] == "yes", ending)


def test_refused(make):
    x = make()
    x.execute("true", cwd="none").fails("invalid", "cwd")
    x.execute("true", cwd="../..").fails("invalid", "cwd")
    x.execute("true", cwd="/").fails("invalid", "cwd")
    os.symlink("/tmp", x.root / "out")
    x.execute("true", cwd="out").fails("invalid", "cwd")
    x.execute("true", env=[("1A", "x")]).fails("invalid", "env")
    x.execute("true", env=[("A", "x" * 140000)]).fails("invalid", "env")
    x.execute("true", execution="-x").fails("unauthenticated", "token")


def test_bytes(make):
    """Every byte value, both streams, standard input, environment."""
    x = make()
    every = bytes(range(256)) * 300
    reply = x.execute("cat; cat <&3 >&2; printf %s \"$V\" > v", stdin=every).ok()
    must(reply.stream("O") == every, "standard input and output")
    value = bytes(range(1, 256))
    x.execute('printf %s "$V" > v', env=[("V", value), ("W", "")]).ok()
    must((x.root / "v").read_bytes() == value, "the environment's bytes")
    reply = x.execute("seq 1 200000; seq 1 200000 >&2").ok()
    lines = "".join(f"{n}\n" for n in range(1, 200001)).encode()
    must(reply.stream("O") == lines and reply.stream("E") == lines, "long output")
    must(x.execute("cat").ok().stream("O") == b"", "standard input is not empty")
    large = os.urandom(3 << 20)
    must(x.execute("sha256sum", stdin=large).ok().stream("O").startswith(hashlib.sha256(large).hexdigest().encode()), "a large input")
    must(x.execute("sha256sum", stdin=large, change={"signed": True}).ok().stream("O").startswith(
        hashlib.sha256(large).hexdigest().encode()), "a large input, signed at its end")


def test_environment(make):
    """The image's, without the executor's own; the command's on top."""
    x = make(env={"FROM_IMAGE": "yes", "BERTH_EXECUTOR_MAX_OPERATIONS": "64", "bad-name": "x"})
    out = x.execute("env", env=[("MINE", "1"), ("FROM_IMAGE", "no")]).ok().stream("O").decode().splitlines()
    must("MINE=1" in out and "FROM_IMAGE=no" in out and f"HOME={x.root}" in out, out)
    must(not [line for line in out if line.startswith(("BERTH_", "bad-name"))], out)
    must([line for line in out if line.startswith("PATH=")], out)


def test_limits_of_output(make):
    x = make()
    reply = x.execute("seq 1 100000; echo error >&2", stdout_max=1000, stderr_max=3).ok()
    text = "".join(f"{n}\n" for n in range(1, 100001)).encode()
    must(reply.stream("O") == text[:1000] and reply.ending["stdout_dropped"] == len(text) - 1000, reply.ending)
    must(reply.stream("E") == b"err" and reply.ending["stderr_dropped"] == 3, reply.ending)


def test_once(make):
    """The same id again starts nothing: not the same attempt, not a later one, not at once from many clients."""
    x = make()
    execution = x.new_id()
    x.execute("echo x >> ran", execution).ok()
    x.execute("echo x >> ran", execution).fails("conflict", "started", 409)
    x.execute("echo x >> ran", execution, attempt=2).fails("conflict", "started", 409)
    x.execute("echo x >> ran", execution, attempt=1).fails("conflict", "stale_attempt", 409)
    execution = x.new_id()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(lambda n: x.execute("echo y >> ran", execution, attempt=1 + n % 3).code, range(12)))
    must(codes.count("ok") == 1 and set(codes) == {"ok", "conflict"}, codes)
    must((x.root / "ran").read_text().count("\n") == 2, (x.root / "ran").read_text())
    x.restart()
    x.execute("echo x >> ran", execution, attempt=3).fails("conflict")


def test_poison(make):
    """reattach of what never began forbids it for ever, also to a request that is on its way."""
    x = make()
    execution = x.new_id()
    x.reattach(execution, attempt=2).fails("not_started", "not_started", 404)
    x.execute("echo > ran", execution, attempt=2).fails("conflict", "poisoned", 409)
    x.execute("echo > ran", execution, attempt=1).fails("conflict", "stale_attempt", 409)
    x.restart()
    x.execute("echo > ran", execution, attempt=2).fails("conflict", "poisoned", 409)
    must(not (x.root / "ran").exists(), "it ran")
    x.execute("echo > ran", execution, attempt=3).ok()


def test_attempts(make):
    """A lower attempt cannot touch an execution once a higher one asked; restarts do not help it."""
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("echo begin; sleep 100", execution)
    follower = Connection(x.port)
    args = {"execution_id": execution, "attempt": 3, "stdout_offset": 0, "stderr_offset": 0}
    follower.send(x.request("/v1/reattach", args).raw())
    status, follow_headers = follower.head()
    must(status == 200, status)
    for _ in range(2):
        x.signal(execution, "KILL", attempt=1).fails("conflict", "stale_attempt", 409)
        x.signal(execution, "KILL", attempt=2).fails("conflict", "stale_attempt", 409)
        x.reattach(execution, attempt=2).fails("conflict", "stale_attempt", 409)
        x.ask("/v1/forget", {"execution_id": execution, "attempt": 1}).fails("conflict", "stale_attempt", 409)
        must(x.health()["ready"])
        x.restart()
    x.ask("/v1/forget", {"execution_id": execution}).fails("conflict", "running", 409)
    x.signal(execution, "KILL", attempt=3).ok()
    must(x.reattach(execution, attempt=3).ok().ending["kind"] == "cancelled", "not ended")
    x.ask("/v1/forget", {"execution_id": execution, "attempt": 2}).fails("conflict", "stale_attempt", 409)
    x.ask("/v1/forget", {"execution_id": execution, "attempt": 4}).ok()
    x.reattach(execution, attempt=3).fails("conflict", "stale_attempt")
    x.reattach(execution, attempt=4).fails("not_found", "forgotten")
    x.ask("/v1/forget", {"execution_id": execution}).ok()
    x.execute("true", execution, attempt=5).fails("conflict", "started")


def test_reattach_every_offset(make):
    """From every offset of a short output exactly the rest comes, while it runs and after."""
    x = make()
    execution = x.new_id()
    text, error = b"0123456789\0\n\xff", b"error!"
    conn, headers = x.begin("printf '0123456789\\000\\n\\377'; printf error! >&2; while [ ! -e go ]; do sleep 0.02; done; echo end", execution)
    want = text + b"end\n"

    def follow(offset):
        c = Connection(x.port)
        c.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": 1, "stdout_offset": offset,
                                          "stderr_offset": min(offset, len(error))}).raw())
        return offset, c

    followers = [follow(offset) for offset in range(len(text) + 1)]
    wait_for(lambda: x.health()["operations"] >= len(followers), "the followers are not in")
    (x.root / "go").touch()
    for offset, c in followers + [follow(offset) for offset in range(len(want) + 1)]:
        reply = c.reply().ok()
        must(reply.stream("O", offset) == want[offset:], f"from {offset}: {reply.stream('O', offset)!r}")
        must(reply.stream("E", min(offset, len(error))) == error[min(offset, len(error)):], f"stderr from {offset}")
        must(reply.ending["kind"] == "exit" and reply.ending["exit_code"] == 0, reply.ending)
    must(ending_of(whole(conn, headers))["exit_code"] == 0, "the first follower")


def test_many_followers(make):
    """Each client that follows a command sees new output at once, though the supervisor wakes only one reader."""
    x = make()
    execution = x.new_id()
    first = x.begin("for n in 1 2 3 4 5 6; do while [ ! -e go-$n ]; do sleep 0.01; done; echo line-$n; done", execution)
    followers = [first]
    for _ in range(3):
        conn = Connection(x.port)
        conn.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": 1, "stdout_offset": 0, "stderr_offset": 0}).raw())
        followers.append((conn, conn.head()[1]))
    streams = [conn.chunks(headers) for conn, headers in followers]
    seen = [b""] * len(streams)
    start = time.monotonic()
    for n in range(1, 7):
        (x.root / f"go-{n}").touch()
        for i, stream in enumerate(streams):
            while b"line-%d\n" % n not in seen[i]:
                seen[i] += next(stream)
    must(time.monotonic() - start < 5 * PATIENCE, f"{time.monotonic() - start:.1f} s for six lines")


def test_whole_answer(make):
    """The answer to a short command is sent whole, that to a longer one begins while it runs."""
    x = make()

    def sent_whole():
        reply = x.execute("echo hello; echo world >&2")
        must("".join(kind for kind, _ in reply.frames) in ("SOEXR", "SEOXR"), reply.frames)
        return reply.headers.get("content-length")
    # One that takes longer than a moment, on a machine that is busy, is not short.
    wait_for(sent_whole, "no answer was sent whole")
    conn, headers = x.begin("while [ ! -e go ]; do sleep 0.01; done", x.new_id())
    chunks = conn.chunks(headers)
    must(next(chunks).startswith(b"S"), "it does not say that it runs")
    (x.root / "go").touch()
    must(b"exit" in b"".join(chunks), "its ending")


def test_detach(make):
    """A client that goes away leaves its command running, and its operation ends."""
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two", execution)
    conn.close()
    wait_for(lambda: x.health()["operations"] == 0, "the operation outlives its client")
    (x.root / "go").touch()
    must(x.reattach(execution).ok().stream("O") == b"one\ntwo\n", "the output")
    execution = x.new_id()
    conn, headers = x.begin("sleep 100", execution)
    conn.sock.shutdown(1)
    wait_for(lambda: x.health()["operations"] == 0, "half-closed and still followed")
    execution2 = x.new_id()
    conn, headers = x.begin("sleep 100", execution2)
    conn.send(b"GET /v1/health HTTP/1.1\r\n\r\n")
    wait_for(lambda: x.health()["operations"] == 0, "bytes in the middle of an answer")
    for name in (execution, execution2):
        x.signal(name, "KILL").ok()


def test_signal(make):
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.02; done", execution)
    wait_for(lambda: (x.state / "run" / execution / "1/stdout").exists(), "not up")
    x.signal(execution, "TERM", attempt=None).ok()
    frames = whole(conn, headers)
    must(ending_of(frames)["kind"] == "cancelled" and b"term" in b"".join(p for k, p in frames if k == "O"), frames)
    wait_for(lambda: x.signal(execution, "TERM").code != "ok", "the supervisor stays")
    x.signal(execution, "TERM").fails("not_found", "not_running", 404)
    x.signal(x.new_id(), "TERM").fails("not_found", None, 404)
    execution = x.new_id()
    conn, headers = x.begin("trap '' TERM; (trap '' TERM; setsid sleep 99 &) ; while :; do sleep 0.02; done", execution, kill_grace_ms=60000)
    x.signal(execution, "KILL").ok()
    must(ending_of(whole(conn, headers))["kind"] == "cancelled", "not killed")
    x.signal(execution, "HUP").fails("unsupported", "signal", 501)


def test_tree(make):
    """Nothing outlives a command, setsid or not, unless it was asked to stay; then it can still be killed."""
    x = make()
    reply = x.execute("(setsid sleep 1000 & echo $! > pid); (sleep 1000 &) ; exit 4").ok()
    must(reply.ending["survivors"] == 2 and reply.ending["quiescent"] == "yes" and reply.ending["exit_code"] == 4, reply.ending)
    pid = int((x.root / "pid").read_text())
    must(not os.path.exists(f"/proc/{pid}"), "it lives")
    execution = x.new_id()
    reply = x.execute("setsid sleep 1000 & echo $! > pid", execution, keep_descendants=True).ok()
    must(reply.ending["survivors"] >= 1, reply.ending)
    pid = int((x.root / "pid").read_text())
    must(os.path.exists(f"/proc/{pid}"), "it did not stay")
    x.signal(execution, "KILL").ok()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "it still lives")


def test_supervisor_killed(make):
    """Then nobody knows the ending, and that is what is said; what it left can be killed."""
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("echo out; setsid sleep 1000 & echo $! > pid; sleep 1000", execution)
    wait_for(lambda: (x.root / "pid").exists() and (x.root / "pid").read_text().strip(), "not up")
    started = dict(line.split("=", 1) for line in (x.state / "run" / execution / "started").read_text().splitlines())
    os.kill(int(started["pid"]), signal.SIGKILL)
    frames = whole(conn, headers)
    must(ending_of(frames)["kind"] == "unknown" and ending_of(frames)["reason"] == "supervisor_lost", frames)
    must(x.reattach(execution).ok().ending["kind"] == "unknown", "another story the second time")
    x.signal(execution, "KILL")
    wait_for(lambda: not os.path.exists(f"/proc/{started['leader']}") or
             open(f"/proc/{started['leader']}/stat").read().split(") ")[1][0] == "Z", "the leader lives")


def test_executor_killed(make):
    """kill -9 of the executor under running commands: they run on; the next one follows them from any offset, or tells their endings."""
    x = make()
    names = [x.new_id() for _ in range(4)]
    scripts = ["i=0; while [ ! -e go ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo last; exit 6", "exit 9", "sleep 0.2; echo late",
               "kill -9 $$"]
    conns = [x.begin(script, name) for script, name in zip(scripts, names)]
    wait_for(lambda: (x.state / "run" / names[1] / "1/status").exists() and (x.state / "run" / names[0] / "1/stdout").exists(), "not up")
    part = b""
    for piece in conns[0][0].chunks(conns[0][1]):
        part += piece
        if b"line 3" in part:
            break
    x.kill()
    for conn, headers in conns[:1]:
        try:
            while True:
                conn.more()
        except (Cut, ConnectionError):
            pass
    time.sleep(0.05)  # output goes on without anybody listening
    x.start()
    (x.root / "go").touch()
    reply = x.reattach(names[0], stdout=5).ok()
    out = reply.stream("O", 5)
    whole_file = (x.state / "run" / names[0] / "1/stdout").read_bytes()
    must(out == whole_file[5:] and out.endswith(b"last\n") and reply.ending["exit_code"] == 6, reply.ending)
    must(x.reattach(names[1]).ok().ending["exit_code"] == 9, "the ending of one that had ended")
    must(x.reattach(names[2]).ok().stream("O") == b"late\n", "one that ended meanwhile")
    must(x.reattach(names[3]).ok().ending["signal"] == 9, "a signal")
    for name in names:
        x.execute("echo again > again", name).fails("conflict", "started")
    must(not (x.root / "again").exists(), "a command ran twice")


def test_killed_while_starting(make):
    """kill -9 at any moment of a start: afterwards the command has run once and its ending is known, or it will never run."""
    x = make()
    known = {"ok": 0, "not_started": 0}
    for n in range(25):
        execution = x.new_id()
        conn = Connection(x.port)
        raw = x.request("/v1/execute", x.execute_args(execution), x.execute_frames(f"echo x >> ran-{n}")).raw()
        conn.send(raw[:-1] if n % 5 == 0 else raw)
        time.sleep(0.0002 * (n % 12))
        x.restart()
        reply = x.reattach(execution)
        must(reply.code in known, f"{reply.result}")
        known[reply.code] += 1
        ran = (x.root / f"ran-{n}").read_text() if (x.root / f"ran-{n}").exists() else ""
        must(ran == ("x\n" if reply.code == "ok" else ""), f"{reply.code}, but {ran!r}")
        x.execute("true", execution).fails("conflict")
    must(known["ok"] and known["not_started"], f"the kills came all too early or too late: {known}")


def test_forget(make):
    x = make()
    execution = x.new_id()
    x.execute("echo secret", execution, env=[("TOKEN", "secret-value")]).ok()
    x.ask("/v1/forget", {"execution_id": execution, "attempt": 1}).ok()
    left = subprocess.run(["grep", "-r", "secret", str(x.state)], capture_output=True, text=True).stdout
    must(not left, left)
    x.reattach(execution).fails("not_found", "forgotten", 404)
    x.ask("/v1/forget", {"execution_id": execution, "attempt": 1}).ok()
    x.ask("/v1/forget", {"execution_id": x.new_id()}).ok()
    x.execute("true", execution, attempt=2).fails("conflict", "started")


def asked_to_forget(x, *commands):
    return [{"execution_id": command, "attempt": 1} for command in commands]


def test_forget_beside_another_command(make):
    """The next command takes along what is to be forgotten: while it runs, when it is refused, and by one request for all."""
    x = make()
    ids = [x.new_id() for _ in range(6)]
    for execution in ids:
        must(x.execute("echo out", execution).ok().result["forgotten"] == 0, "nothing was asked")
    conn, headers = x.begin("while [ ! -e go ]; do sleep 0.05; done", running := x.new_id(), forget=asked_to_forget(x, ids[0], ids[1]))
    for execution in ids[:2]:
        wait_for(lambda: x.reattach(execution).code == "not_found", "forgotten while the command runs")
    # Its own id, one that runs, one that is not known, and one whose attempt was overtaken.
    x.ask("/v1/reattach", {"execution_id": ids[2], "attempt": 3, "stdout_offset": 0, "stderr_offset": 0}).ok()
    own = x.new_id()
    reply = x.execute("true", own, forget=asked_to_forget(x, own, running, x.new_id(), ids[2], ids[3])).ok()
    must(reply.result["forgotten"] == 2 and reply.ending["kind"] == "exit", reply.result)
    x.reattach(own).ok()
    x.reattach(ids[2], attempt=3).ok()
    x.reattach(ids[3]).fails("not_found", "forgotten")
    (x.root / "go").touch()
    raw = b"".join(conn.chunks(headers))
    must(json.loads(frames_of(raw)[-1][1])["forgotten"] == 2, raw)
    # A refusal is one, and what stands beside it is done all the same.
    reply = x.execute("true", own, forget=asked_to_forget(x, ids[4])).fails("conflict", "started", 409)
    must(reply.result["forgotten"] == 1, reply.result)
    reply = x.ask("/v1/forget", {"execution_id": ids[5], "attempt": 1, "forget": asked_to_forget(x, own, running)}).ok()
    must(reply.result["forgotten"] == 2, reply.result)
    for execution in (ids[4], ids[5], own, running):
        x.reattach(execution).fails("not_found", "forgotten")


def test_forget_beside_waits_for_no_lock(make):
    """A command that holds the locks of others keeps them from being forgotten, and holds up nobody else."""
    x = make()
    ids = [x.new_id() for _ in range(16)]
    for execution in ids:
        x.execute("true", execution).ok()
    locks = "".join(f"exec {{fd}}<{x.state}/run/{execution}; flock $fd; " for execution in ids[:-1])
    conn, _ = x.begin(f"exec bash -c '{locks} touch up; sleep 1000'", x.new_id())
    wait_for((x.root / "up").exists, "the locks are not held")
    start = time.monotonic()
    for attempt in (1, 2):
        reply = x.execute("echo other", forget=[{"execution_id": execution, "attempt": attempt} for execution in ids]).ok()
        must(reply.stream("O") == b"other\n" and reply.result["forgotten"] == 1, reply.result)
    must(time.monotonic() - start < 20 * PATIENCE, f"it took {time.monotonic() - start:.1f} s")
    conn.close()


def test_forget_lists_that_are_none(make):
    """Refused as a whole, before anything ran or was forgotten."""
    x = make()
    kept = x.new_id()
    x.execute("true", kept).ok()
    good = asked_to_forget(x, kept)
    for bad in ({}, "x", 1, good * 33, [kept], [{}], [{"execution_id": ""}], good + [{"execution_id": "../run"}], good + [{"execution_id": "."}],
                good + [{"execution_id": kept, "attempt": -1}], good + [{"execution_id": kept, "attempt": 2**32}],
                good + [{"execution_id": kept, "more": 1}], good + [{"execution_id": 1}], good + [None], good + [[]]):
        x.execute("touch ran", forget=bad).fails("invalid", "arguments", 400)
        x.ask("/v1/forget", {"execution_id": x.new_id(), "forget": bad}).fails("invalid", "arguments", 400)
    must(not (x.root / "ran").exists(), "it ran")
    x.reattach(kept).ok()
    x.execute("true", forget=good * 32).ok()
    x.reattach(kept).fails("not_found", "forgotten")


def test_heartbeat(make):
    """A silent command's stream shows life."""
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("while [ ! -e go ]; do sleep 0.1; done", execution)
    conn.sock.settimeout(40)
    seen = b""
    for piece in conn.chunks(headers):
        seen += piece
        if b"H\0\0\0\0\0\0\0" in seen:
            break
    must(b"H\0\0\0\0\0\0\0" in seen, "no heartbeat")
    (x.root / "go").touch()


def test_slow_reader(make):
    """A client that does not read holds up nobody but itself, and loses nothing."""
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("head -c 20000000 /dev/zero; echo end >&2; echo done > done", execution)
    wait_for(lambda: (x.root / "done").exists(), "the command waits for its reader")
    x.execute("true").ok()
    frames = whole(conn, headers)
    must(sum(len(p) - 8 for k, p in frames if k == "O") == 20000000 and ending_of(frames)["exit_code"] == 0, "bytes are missing")


def test_many_at_once(make):
    x = make()
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        replies = list(pool.map(lambda n: x.execute(f"sleep 0.1; echo {n}; exit {n % 100}"), range(100)))
    for n, reply in enumerate(replies):
        must(reply.ok().stream("O") == b"%d\n" % n and reply.ending["exit_code"] == n % 100, f"{n}: {reply.result}")


def test_sigterm(make):
    """A pod that is deleted: TERM to every tree, endings to those who follow, and the program ends."""
    x = make()
    one, two = x.new_id(), x.new_id()
    polite = x.begin("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done", one)
    stubborn = x.begin("trap '' TERM; echo up; while :; do sleep 0.02; done", two, kill_grace_ms=300)
    wait_for(lambda: (x.state / "run" / two / "1/stdout").exists(), "not up")
    x.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not x.health()["ready"], "health still says ready")
    frames = whole(*polite)
    must(ending_of(frames)["kind"] == "cancelled" and b"bye" in b"".join(p for k, p in frames if k == "O"), frames)
    must(ending_of(whole(*stubborn))["kind"] == "cancelled", "the stubborn one")
    must(x.process.wait(20) == 0, "its exit code")
    x.process.stdout.close()


def test_user(make):
    """Run by root, commands and files belong to the user that was set, who cannot reach the state."""
    if os.geteuid() != 0:
        return
    x = make(flags=["--uid", "12345", "--gid", "12346"])
    os.chmod(x.dir, 0o755)
    os.chown(x.root, 12345, 12346)
    reply = x.execute("id -u; id -g; cat ../state/executor; ls ../state/run; echo > made", env=[("A", "b")]).ok()
    must(reply.stream("O").startswith(b"12345\n12346\n") and b"run=" not in reply.stream("O"), reply.stream("O"))
    must(b"denied" in reply.stream("E"), reply.stream("E"))
    x.write("w/f", b"x").ok()
    for name in ("made", "w", "w/f"):
        st = (x.root / name).stat()
        must((st.st_uid, st.st_gid) == (12345, 12346), name)
