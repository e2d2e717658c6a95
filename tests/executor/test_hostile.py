# SPDX-License-Identifier: Apache-2.0
"""Commands of the executor's own user that reach for its run directory and its helpers, to escape their owner: a cancel, health and
the output of others must get through all the same."""

import os
import time

from client import PATIENCE, Connection, frames_of, must, wait_for

LIMIT = 20


def up(x, name="up"):
    wait_for(lambda: (x.root / name).exists(), "the command is not up")


def in_time(limit, text, function, *args, **more):
    start = time.monotonic()
    value = function(*args, **more)
    must(time.monotonic() - start < limit * PATIENCE, f"{text}: it took {time.monotonic() - start:.1f} s")
    return value


def ending_of(conn, headers):
    """The ending by the frames of a running reply."""
    frames = frames_of(b"".join(conn.chunks(headers)))
    return b"".join(payload for kind, payload in frames if kind == "X")


def others_go_on(x, text):
    must(in_time(LIMIT, text, x.health)["ready"], text)
    must(in_time(LIMIT, text, x.execute, "echo other").ok().stream("O") == b"other\n", text)


def test_lock_held(make):
    """The directory's lock is taken by the command and never given back: it is cancelled and followed all the same."""
    x = make()
    execution = x.new_id()
    lock = f"exec 9<{x.state}/run/{execution}; flock 9; touch up; echo locked; sleep 1000"
    conn, headers = x.begin(lock, execution)
    up(x)
    follower = Connection(x.port)
    follower.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": 1, "stdout_offset": 0, "stderr_offset": 0}).raw())
    must(follower.head()[0] == 200, "it cannot be followed")
    # What does need the lock is refused after a while, and holds no thread for ever.
    in_time(LIMIT, "forget waits for the lock", x.ask, "/v1/forget", {"execution_id": execution, "attempt": 1})
    in_time(LIMIT, "a higher attempt waits for the lock", x.signal, execution, "TERM", attempt=2).fails("unavailable")
    others_go_on(x, "others wait for the lock")
    in_time(LIMIT, "cancel waits for the lock", x.signal, execution, "KILL").ok()
    must(b'"kind":"cancelled"' in in_time(LIMIT, "no ending", ending_of, conn, headers), "no ending")
    wait_for(lambda: x.health()["operations"] <= 1, "threads wait for the lock for ever")


def test_locks_held_at_the_end(make):
    """Ids that never started, whose locks the command holds, keep nobody from ending it when the pod goes."""
    x = make()
    conn, _ = x.begin(f"for i in $(seq 20); do mkdir {x.state}/run/x$i; flock {x.state}/run/x$i sh -c \"touch up-$i; sleep 1000\" & done; wait",
                      x.new_id(), kill_grace_ms=100)
    for i in range(20):
        up(x, f"up-{i + 1}")
    must(in_time(LIMIT, "the end waits for locks", x.end, 300) == 0, "its exit code")
    conn.close()


def test_pipes_for_files(make):
    """A FIFO in place of any file that is read or replaced: nobody waits for its other end."""
    x = make()
    for name in ("seen", "seen.tmp", "poison", "1/status", "1/stdout", "1/stderr", "1/env"):
        execution = x.new_id()
        place = f"{x.state}/run/{execution}/{name}"
        script = f"rm -f {place}; mkfifo {place}; touch up-{execution}; echo out; echo err >&2; sleep 1000"
        conn = Connection(x.port)
        conn.send(x.request("/v1/execute", x.execute_args(execution), x.execute_frames(script)).raw())
        up(x, f"up-{execution}")
        for attempt in (1, 2):
            in_time(LIMIT, f"reattach waits for {name}", follow_briefly, x, execution, attempt)
        others_go_on(x, f"others wait for {name}")
        replies = [in_time(LIMIT, f"cancel waits for {name}", x.signal, execution, "KILL", attempt) for attempt in (None, 1, 2, 3)]
        must(replies[0].code == "ok", f"{name}: {replies[0].result}")
        wait_for(lambda: not alive(x, execution), f"the supervisor does not end, for {name}")
        conn.close()
    wait_for(lambda: x.health()["operations"] == 0, "threads are left waiting")


def test_emptied_marks(make):
    """As the node's end or a command leaves them: nothing starts, asking again is not invited, and the tree can be ended."""
    x = make()
    for name in ("seen", "poison", "started"):
        execution = x.new_id()
        script = f"echo x >> ran; : > {x.state}/run/{execution}/{name}; echo $$ > pid; touch up-{execution}; sleep 1000 & wait"
        conn, headers = x.begin(script, execution)
        up(x, f"up-{execution}")
        for ask in (lambda: x.reattach(execution), lambda: x.execute("echo x >> ran", execution, attempt=2),
                    lambda: x.ask("/v1/forget", {"execution_id": execution, "attempt": 1})):
            reply = ask()
            reply.fails("unknown", "mark_damaged", 500)
            must(not reply.result["retryable"], reply.result)
        x.signal(execution, "KILL").ok()
        must(ending_of(conn, headers), f"{name}: no ending")
        wait_for(lambda: not os.path.exists(f"/proc/{(x.root / 'pid').read_text().strip()}"), f"the command lives on, for {name}")
        x.execute("echo x >> ran", execution, attempt=3).fails("unknown", "mark_damaged", 500)
    must((x.root / "ran").read_text() == "x\nx\nx\n", "one ran twice")


def follow_briefly(x, execution, attempt):
    """Whatever it answers at first; then it is left."""
    conn = Connection(x.port)
    conn.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": attempt, "stdout_offset": 0, "stderr_offset": 0}).raw())
    conn.head()
    conn.close()


def test_wake_flooded(make):
    """The command writes into its own wake-up FIFO without end: its output comes, a client that leaves is noticed, it can be cancelled."""
    x = make()
    execution = x.new_id()
    wake = f"{x.state}/run/{execution}/1/wake"
    conn, headers = x.begin(f"for n in 1 2 3 4; do cat /dev/zero > {wake} & done; touch up; echo flooding; sleep 1000", execution)
    up(x)
    leaving = [Connection(x.port) for _ in range(3)]
    for each in leaving:
        each.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": 1, "stdout_offset": 0, "stderr_offset": 0}).raw())
        must(each.head()[0] == 200, "it cannot be followed")
        each.close()
    wait_for(lambda: x.health()["operations"] == 1, "who left is not noticed")
    others_go_on(x, "others wait")
    in_time(LIMIT, "cancel waits", x.signal, execution, "KILL").ok()
    must(b'"kind":"cancelled"' in in_time(LIMIT, "no ending", ending_of, conn, headers), "no ending")


def test_supervisor_stopped(make):
    """The command stops its supervisor: a cancel wakes it, and so does a client that looks on past the time limit."""
    x = make()
    for word in ("TERM", "KILL"):
        execution = x.new_id()
        conn, headers = x.begin(f"touch up-{execution}; kill -STOP $PPID; sleep 1000", execution, kill_grace_ms=100)
        up(x, f"up-{execution}")
        wait_for(lambda: stopped(x, execution), "it is not stopped")
        in_time(LIMIT, "cancel waits", x.signal, execution, word).ok()
        must(b'"kind":"cancelled"' in in_time(LIMIT, f"no ending after {word}", ending_of, conn, headers), "no ending")


def test_supervisor_stopped_again_and_again(make):
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("touch up; while :; do kill -STOP $PPID; done", execution, kill_grace_ms=100)
    up(x)

    def cancelled():
        x.signal(execution, "KILL")
        return not (x.state / "run" / execution / "1").exists() or (x.state / "run" / execution / "1/status").exists()

    wait_for(cancelled, "it cannot be cancelled")
    conn.close()


TRACE = ("exec python3 -c \"import ctypes,os,time; ctypes.CDLL(None).ptrace(16,os.getppid(),0,0); open('{}','w'); "
         "time.sleep(1000)\"")


def test_supervisor_traced(make):
    """The command traces its supervisor, which then hears no signal: both words get through all the same, and so does the time limit."""
    x = make()
    for word in ("TERM", "KILL"):
        execution = x.new_id()
        conn, headers = x.begin(TRACE.format(f"up-{execution}"), execution, kill_grace_ms=100)
        up(x, f"up-{execution}")
        wait_for(lambda: supervisor(x, execution) == "t", "it is not traced")
        in_time(LIMIT, "cancel waits", x.signal, execution, word).ok()
        must(b'"kind":"cancelled"' in in_time(LIMIT, f"no ending after {word}", ending_of, conn, headers), "no ending")
        wait_for(lambda: not alive(x, execution), "the supervisor lives on")


def test_time_limit_of_one_that_is_held_up(make):
    x = make()
    for script in (TRACE.format("up"), "touch up; while :; do kill -STOP $PPID; done"):
        conn, headers = x.begin(script, x.new_id(), timeout_ms=1000)
        up(x)
        conn.sock.settimeout(60 * PATIENCE)
        must(b'"kind":"timeout"' in in_time(60, "the time limit is not kept", ending_of, conn, headers), "no ending")
        (x.root / "up").unlink()


def supervisor(x, execution):
    """Its state, by one letter; empty when it is gone."""
    started = dict(line.split("=", 1) for line in (x.state / "run" / execution / "started").read_text().splitlines())
    try:
        return open(f"/proc/{started['pid']}/stat").read().rsplit(") ", 1)[1][0]
    except OSError:
        return ""


def stopped(x, execution):
    return supervisor(x, execution) == "T"


def alive(x, execution):
    return supervisor(x, execution) not in ("", "Z", "X")


def test_time_limit_of_a_stopped_one(make):
    x = make()
    execution = x.new_id()
    conn, headers = x.begin("touch up; kill -STOP $PPID; sleep 1000", execution, timeout_ms=1000)
    up(x)
    conn.sock.settimeout(40 * PATIENCE)
    must(b'"kind":"timeout"' in in_time(40, "the time limit is not kept", ending_of, conn, headers), "no ending")
