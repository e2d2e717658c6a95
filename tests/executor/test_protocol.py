# SPDX-License-Identifier: Apache-2.0
"""The form of requests and answers: routes, frames, limits, connections."""

import json
import os
import socket
import struct
import subprocess
import time

from client import BUILD, PROGRAM, Connection, Cut, Skipped, frame, must, wait_for


def test_health(make):
    x = make()
    reply = x.health(raw=True)
    must(reply.status == 200 and reply.json["protocol"] == 1 and reply.json["ready"] and reply.json["root"] == str(x.root), reply.json)
    must(abs(reply.json["now_ms"] - time.time() * 1000) < 5000, "its clock is off")
    must(reply.headers["berth-pod-uid"] == x.uid and "berth-nonce" not in reply.headers, reply.headers)
    conn = Connection(x.port)
    conn.send(b"HEAD /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers = conn.head()
    must(status == 200 and int(headers["content-length"]) > 0, headers)
    must(conn.reply().status == 200, "a body came with HEAD")
    checked = x.ask("/v1/check", {}).ok()
    must(checked.json["instance"] == x.instance and checked.json["pinned"], checked.json)


def test_boot_and_instance(make):
    """A restart of the program alone is another instance of the same boot; a lost state directory is another boot."""
    x = make()
    before = x.health()
    x.restart()
    after = x.health()
    must(before["boot_id"] == after["boot_id"] and before["instance"] != after["instance"], (before, after))
    x.kill()
    subprocess.run(["rm", "-rf", str(x.state)], check=True)
    x.start()
    must(x.health()["boot_id"] != before["boot_id"], "the boot id survived the state directory")


def test_routes(make):
    x = make()
    conn = Connection(x.port)
    for line, status in (("GET / HTTP/1.1", 404), ("GET /v1/execute HTTP/1.1", 405), ("POST /v1/health HTTP/1.1", 405),
                         ("POST /v1/execute?x=1 HTTP/1.1", 404), ("POST /v1/%65xecute HTTP/1.1", 404), ("POST //v1/execute HTTP/1.1", 404),
                         ("POST /v1/execute/ HTTP/1.1", 404), ("POST /" + "a" * 4000 + " HTTP/1.1", 404), ("DELETE /v1/check HTTP/1.1", 405),
                         ("OPTIONS * HTTP/1.1", 404)):
        conn.send(f"{line}\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        reply = conn.reply()
        must(reply.status == status and reply.code == "invalid", f"{line[:60]}: {reply.status}")
    x.ask("/v1/check", {}, conn=conn).ok()


def test_bad_http(make):
    """Malformed requests get 400 and no second chance on their connection; the executor goes on."""
    x = make()
    for raw, status in ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400), (b"GET\r\n\r\n", 400), (b"GET / HTTP/1.0\r\n\r\n", 505),
                        (b"GET / HTTP/2.0\r\n\r\n", 505), (b"POST /v1/check HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
                        (b"POST /v1/check HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
                        (b"POST /v1/check HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
                        (b"POST /v1/check HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
                        (b"GET / HTTP/1.1\r\nA: b\r\n c\x00d\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 17000, 431),
                        (b"GET / HTTP/1.1\r\nExpect: tea\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 400)):
        conn = Connection(x.port)
        conn.send(raw)
        reply = conn.reply()
        must(reply.status == status and reply.headers.get("connection") == "close", f"{raw[:60]}: {reply.status}")
        try:
            conn.more()
            must(False, "the connection stayed open")
        except (Cut, ConnectionResetError):
            pass
    x.ask("/v1/check", {}).ok()


def test_dribble(make):
    """Requests that come byte by byte, chunked in any way, and several behind one another on one connection."""
    x = make()
    conn = Connection(x.port)
    for pieces in ("bytes", "chunks", "chunk-bytes"):
        request = x.request("/v1/execute", x.execute_args(x.new_id(), has_stdin=True), x.execute_frames("cat", b"some input"))
        raw = request.raw()
        if pieces == "chunks":
            raw = request.head("chunked") + b"".join(b"%x\r\n%s\r\n" % (len(request.body[at:at + 7]), request.body[at:at + 7])
                                                     for at in range(0, len(request.body), 7)) + b"0\r\n\r\n"
        elif pieces == "chunk-bytes":
            raw = request.head("chunked") + b"%X;ext=1\r\n%s\r\n0\r\nTrailer: 1\r\n\r\n" % (len(request.body), request.body)
        for at in range(0, len(raw), 1 if pieces == "bytes" else 13):
            conn.send(raw[at:at + (1 if pieces == "bytes" else 13)])
        must(conn.reply().ok().stream("O") == b"some input", pieces)


def test_expect_continue(make):
    x = make()
    request = x.request("/v1/file/write", {"path": "f", "mode": 420, "size": 5}, [frame("D", b"bytes")])
    conn = Connection(x.port)
    conn.send(request.head(more="Expect: 100-continue\r\n"))
    must(conn.head()[0] == 100, "no 100")
    conn.send(request.body)
    conn.reply().ok()
    # Refused before the body was asked for: it must not be waited for.
    request = x.request("/v1/file/write", {"path": "f", "mode": 420, "size": 5}, [frame("D", b"bytes")], lines={"uid": "wrong"})
    conn.send(request.head(more="Expect: 100-continue\r\n"))
    start = time.monotonic()
    conn.reply().fails("unauthenticated", "pod_uid", 401)
    must(time.monotonic() - start < 5, "it waited for a body that was not promised")


def bad_frames(x, text, body, code="invalid", reason="frame", **args):
    """A body whose token fits, but whose frames do not."""
    import hashlib
    head = hashlib.sha256(body[:8 + struct.unpack(">I", body[4:8])[0]] if len(body) >= 8 else b"").hexdigest()
    reply = x.ask(args.pop("path", "/v1/file/write"), args or None, real_body=body,
                  lines={"head": head, "body": hashlib.sha256(body).hexdigest(), "execution": args.get("execution_id", "-"),
                         "attempt": str(args.get("attempt", 0))})
    try:
        reply.fails(code, reason)
    except AssertionError as error:
        raise AssertionError(f"{text}: {error}") from None


def test_bad_frames(make):
    x = make()
    args = frame("A", json.dumps({"path": "f", "mode": 420, "size": 1}).encode())
    data, end = frame("D", b"x"), frame("Z")
    bad_frames(x, "nothing", b"")
    bad_frames(x, "half a header", args[:5])
    bad_frames(x, "no arguments", data + end)
    bad_frames(x, "no end", args + data)
    bad_frames(x, "cut in the data", args + data[:-1])
    bad_frames(x, "arguments twice", args + args + end)
    bad_frames(x, "bytes behind the end", args + data + end + b"x", "unauthenticated", "body")
    bad_frames(x, "a frame behind the end", args + data + end + end, "unauthenticated", "body")
    request = x.request("/v1/file/write", {"path": "f", "mode": 420, "size": 1}, [data])
    request.body += b"x"
    conn = Connection(x.port)
    conn.send(request.raw())
    conn.reply().fails("invalid", "frame", 400)
    bad_frames(x, "an end with payload", args + data + frame("Z", b"x"))
    bad_frames(x, "script in a write", args + frame("C", b"true") + data + end)
    bad_frames(x, "script behind data", args + data + frame("C", b"true") + end)
    bad_frames(x, "unknown type", args + frame("Q", b"x") + data + end)
    bad_frames(x, "type NUL", args + b"\0" * 8 + data + end)
    bad_frames(x, "not zero", args[:1] + b"\1" + args[2:] + end, reason="frame")
    bad_frames(x, "too large a frame", args + b"D\0\0\0\x00\x10\x00\x01" + b"x" * ((1 << 20) + 1) + end, reason="limit")
    bad_frames(x, "too large arguments", frame("A", b"{}" + b" " * 70000) + end, reason="limit")
    must(list(x.root.iterdir()) == [], "something was written")
    x.write("f", b"x").ok()


def test_bad_arguments(make):
    x = make()
    for text in ("", "null", "[]", "{", '{"path": "f"}', '{"path": "f", "mode": 420, "size": 1, "more": 1}', '{"path": 1, "mode": 420, "size": 1}',
                 '{"path": "f", "mode": "420", "size": 1}', '{"path": "f", "mode": 420, "size": -1}', '{"path": "f", "mode": 1.5, "size": 1}',
                 '{"path": "a\\u0000b", "mode": 420, "size": 1}', '{"path": null, "mode": 420, "size": 1}', '{"path": "f", "mode": 420, "size": 1} x',
                 '{"path": [[[[[[[1]]]]]]], "mode": 420, "size": 1}', "\x00", '{"path": "f", "mode": true, "size": 1}'):
        reply = x.ask("/v1/file/write", {}, [frame("D", b"x")], args_raw=text.encode()).fails("invalid", "arguments", 400)
        must(reply.result["text"], "no sentence")
    must("more" in x.ask("/v1/check", {"more": 1}).fails("invalid", "arguments").result["text"], "the key is not named")
    execution = x.new_id()
    for change in ({"attempt": 0}, {"timeout_ms": 0}, {"keep_descendants": 1}, {"has_stdin": "yes"}, {"stdout_max": -1}):
        args = {**x.execute_args(execution), **change}
        x.ask("/v1/execute", args, x.execute_frames("true")).fails("invalid", "arguments", 400)
    x.ask("/v1/execute", x.execute_args(execution), [frame("C", b"cat"), frame("D", b"x")]).fails("invalid", "frame", 400)
    x.ask("/v1/execute", x.execute_args(execution)).fails("invalid", "frame", 400)
    x.ask("/v1/execute", x.execute_args(execution), [frame("C", b"a\0b")]).fails("invalid", "script", 400)
    x.ask("/v1/execute", x.execute_args(execution), [frame("C", b"true"), frame("V", b"A=1")]).fails("invalid", "env", 400)
    x.ask("/v1/execute", x.execute_args(execution), [frame("C", b"true"), frame("V", b"A\0")]).fails("invalid", "env", 400)
    x.ask("/v1/execute", x.execute_args(execution), [frame("V", b"A=1\0"), frame("C", b"true")]).fails("invalid", "frame", 400)
    x.execute("true", execution).ok()


def test_limits(make):
    """A script of 1 MiB and an environment of 2 MiB are taken as a whole; a byte more is refused by name."""
    x = make()
    piece = b": " + b"x" * 1021 + b"\n"
    script = piece * 1023 + b"echo done" + b" " * (1024 - 9)
    must(len(script) == 1 << 20, len(script))
    must(x.execute(script).ok().stream("O") == b"done\n", "a script of 1 MiB")
    x.ask("/v1/execute", x.execute_args(x.new_id()), [frame("C", script), frame("C", b" ")]).fails("invalid", "limit", 400)
    env = [(f"V{i}", "v" * 100000) for i in range(20)]
    must(x.execute("echo ${#V0} ${#V19}", env=env).code in ("ok", "invalid"), "a large environment")
    x.ask("/v1/execute", x.execute_args(x.new_id()), [frame("C", b"true")] + [frame("V", b"A=" + b"x" * 99997 + b"\0")] * 21).fails(
        "invalid", "limit", 400)


def served(x):
    try:
        return x.ask("/v1/check", {}).code == "ok"
    except (Cut, ConnectionError, OSError):
        return False


def test_many_connections(make):
    """Idle connections do not keep others out; at the limit the newest is closed, and room comes back."""
    x = make()
    conns = [Connection(x.port) for _ in range(200)]
    x.ask("/v1/check", {}).ok()
    for conn in conns:
        conn.close()
    for _ in range(3):
        for conn in [Connection(x.port) for _ in range(700)]:
            conn.close()
    wait_for(lambda: served(x), "no answer after a flood of connections")


def test_busy(make):
    """At the limit of operations others are told so; an eighth stays for the calls that end commands."""
    x = make(flags=["--max-operations", "8"])
    running = []
    for _ in range(7):
        execution = x.new_id()
        running.append((execution, *x.begin("sleep 100", execution)))
    x.execute("true").fails("unavailable", "busy", 503)
    must(x.health()["operations"] == 7, x.health())
    x.write("f", b"x").ok()
    for execution, conn, headers in running:
        x.signal(execution, "KILL").ok()
        must(b'"kind":"cancelled"' in b"".join(conn.chunks(headers)), "no ending")
    wait_for(lambda: x.health()["operations"] == 0, "operations are left")
    x.execute("true").ok()


def test_arguments_of_the_program(make):
    x = make()
    env = {"PATH": os.environ["PATH"]}

    def run(*args, **more):
        done = subprocess.run([str(PROGRAM), *args], capture_output=True, text=True, env={**env, **more}, timeout=30)
        return done.returncode, done.stdout + done.stderr

    base = ["serve", "--listen", "127.0.0.1:0", "--root", str(x.root), "--state", str(x.dir / "s2")]
    must(run("serve", "--no-such", "1")[0] == 2, "an unknown flag")
    must(run("serve", "--root")[0] == 2, "a flag without a value")
    must(run("nonsense")[0] == 2, "an unknown command")
    must(run("version")[0] == 0, "version")
    for flags, more, word in (([], {}, "POD_UID"), (["--pod-uid", "u"], {}, "key"), (["--pod-uid", "u"], {"BERTH_EXECUTOR_KEYS": "k1:zzz"}, "entry 1"),
                              (["--pod-uid", "u", "--keys", "/no/such"], {}, "/no/such"), (["--pod-uid", "u v"], {}, "pod-uid"),
                              (["--pod-uid", "u", "--max-operations", "0"], {}, "max-operations")):
        code, text = run(*base, *flags, **more)
        must(code in (1, 2) and word in text and text.count("\n") == 1, f"{flags} {more}: {code} {text}")
    keys = {"BERTH_EXECUTOR_KEYS": x.key.entry()}
    for change, word in ((["--state", str(x.state)], "another executor"), (["--state", str(x.root / "s")], "inside the root"),
                         (["--listen", f"127.0.0.1:{x.port}"], "listen"), (["--listen", "nowhere:1"], "listen"), (["--root", "rel"], "absolute")):
        code, text = run(*base, "--pod-uid", "u", *change, **keys)
        must(code in (1, 2) and word in text, f"{change}: {code} {text}")


def test_install(make):
    x = make()
    target = x.dir / "bin"
    target.mkdir()
    for _ in range(2):
        subprocess.run([str(PROGRAM), "install", str(target)], check=True)
    copy = target / "berth-executor"
    must(copy.read_bytes() == PROGRAM.read_bytes() and copy.stat().st_mode & 0o777 == 0o755, "not the same program")
    must(os.listdir(target) == ["berth-executor"], os.listdir(target))
    done = subprocess.run([str(PROGRAM), "install", str(x.dir / "none")], capture_output=True, text=True)
    must(done.returncode == 1 and "none" in done.stderr, done)


def test_size_and_memory(make):
    """The static program needs nothing and is small; idle it holds little memory, after work too."""
    program = BUILD / "bin/berth-executor"
    stripped = subprocess.run(["sh", "-c", f"strip -o /dev/stdout '{program}' | wc -c"], capture_output=True, text=True, check=True)
    must(int(stripped.stdout) <= 2 << 20, f"{stripped.stdout} bytes stripped")
    out = subprocess.run(["file", "-b", str(program)], capture_output=True, text=True)
    must(out.returncode or "statically linked" in out.stdout, out.stdout)
    x = make(program=program)

    def resident():
        for line in open(f"/proc/{x.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1])

    must(resident() <= 4096, f"{resident()} KiB resident at start")
    for _ in range(50):
        x.execute("echo hello").ok()
    x.write("big", os.urandom(8 << 20)).ok()
    x.read("big").ok()
    running = []
    for _ in range(40):
        execution = x.new_id()
        running.append((execution, *x.begin("sleep 100", execution)))
    for execution, conn, headers in running:
        x.signal(execution, "KILL").ok()
        list(conn.chunks(headers))
    wait_for(lambda: resident() <= 4096, f"{resident()} KiB resident after work", 40)


def test_slow_head_is_closed_by_the_sweep(make):
    """Half a head does not hold a connection for ever (the limit is a minute; the long run waits for it)."""
    if os.environ.get("BERTH_FULL") != "1":
        raise Skipped("takes over a minute; --full runs it")
    x = make()
    conn = Connection(x.port, limit=120)
    conn.send(b"GET /v1/health HTTP/1.1\r\nHo")
    try:
        conn.more()
        must(False, "an answer to half a head")
    except (Cut, ConnectionResetError, socket.timeout) as gone:
        must(not isinstance(gone, socket.timeout), "still open after two minutes")
