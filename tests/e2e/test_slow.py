# SPDX-License-Identifier: Apache-2.0
"""Clients that take their time, one or thousands of them, and the others meanwhile."""

import resource
import selectors
import socket
import threading
import time

import harness
from harness import PATIENCE, TOKEN, Skipped, check, equal, wait_for

AUTH = f"Authorization: Bearer {TOKEN}\r\n".encode()
HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 10000
UPLOAD = (b"PUT /sandbox/file-content?workspace_id=w&task_id=t&path=slow HTTP/1.1\r\nHost: x\r\n" + AUTH +
          b"Content-Length: 1000000\r\n\r\n")
CREATE = b"POST /sandbox/executions HTTP/1.1\r\nHost: x\r\n" + AUTH + b"Content-Length: 50000\r\n\r\n"


def metric(b, name):
    answer = wait_for(lambda: (a := b.get("/metrics").expect(200, 503)).status == 200 and a, 60, "room for a scrape")
    for line in answer.text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0


def cut(b, limit):
    return metric(b, f'berth_http_connections_cut_total{{limit="{limit}"}}')


def dribble(b, first, data, seconds, pause=0.2):
    """Sends `first` at once, then one byte at a time, until the server answers or ends it; what it said."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", b.port), timeout=30) as s:
        s.sendall(first)
        s.settimeout(pause)
        for byte in data:
            try:
                s.sendall(bytes([byte]))
                said = s.recv(4000)
                check(time.monotonic() - began < seconds * PATIENCE, "cut after", time.monotonic() - began)
                return said
            except socket.timeout:
                check(time.monotonic() - began < seconds * PATIENCE, f"not cut after {seconds} s")
            except OSError:
                return b""
    raise harness.Failure("all bytes were taken")


def test_a_byte_now_and_then_is_cut_with_the_defaults(make):
    b = make().start()
    equal(dribble(b, b"", HEAD, 15), b"", "a slow head has no answer")
    equal(cut(b, "head"), 1)


def test_F4_an_upload_of_one_byte_a_second_is_refused(make):
    b = make(http='rate_window = "2s";').start()
    check(dribble(b, UPLOAD, b"x" * 1000, 12, 1).startswith(b"HTTP/1.1 408 "), "408")
    equal(b.get("/sandbox/files", workspace_id="w", task_id="t", list="").expect(200, 404).json.get("paths", []), [])
    check(dribble(b, CREATE, b" " * 1000, 12, 1).startswith(b"HTTP/1.1 408 "), "408")
    wait_for(lambda: metric(b, "berth_http_workers_busy") <= 1, 10, "the workers to be free")
    b.put_file("t", "f", b"whole").expect(200)
    equal(b.get_file("t", "f").expect(200).body, b"whole")


def test_readers_that_take_nothing_are_cut(make):
    b = make(http='rate_window = "2s";').start()
    b.put_file("t", "big", bytes(30 << 20)).expect(200)
    record = b.create("t", "head -c 30000000 /dev/zero; sleep 30").expect(202).json["id"]
    wait_for(lambda: b.record(record)["status"] == "running", 10, "the command to run")
    sockets = []
    for route in ("/sandbox/file-content?workspace_id=w&task_id=t&path=big",
                  f"/sandbox/executions/{record}/stdout?follow=1"):
        s = socket.create_connection(("127.0.0.1", b.port), timeout=30)
        s.sendall(f"GET {route} HTTP/1.1\r\nHost: x\r\n".encode() + AUTH + b"\r\n")
        sockets.append(s)
    wait_for(lambda: cut(b, "answer") == 2, 20, "both to be cut")
    wait_for(lambda: metric(b, "berth_http_requests_under_way") == 1, 10, "their requests to be over")
    for s in sockets:
        s.close()


def test_a_silent_follower_is_asked_whether_it_is_there(make):
    b = make().start()
    record = b.create("t", "sleep 30").expect(202).json["id"]
    with socket.create_connection(("127.0.0.1", b.port), timeout=60) as s:
        s.sendall(f"GET /sandbox/executions/{record}/stdout?follow=1 HTTP/1.1\r\nHost: x\r\n".encode() + AUTH + b"\r\n")
        s.recv(1000)
        ours = f":{b.port:04X} 0100007F:{s.getsockname()[1]:04X} 01 "

        def keepalive():  # the kernel's own list: timer 02 runs on the server's end of the connection
            lines = [line.split() for line in open("/proc/net/tcp") if ours in line]
            return lines and lines[0][5].startswith("02:")

        wait_for(keepalive, 10, "the keepalive timer")


def test_followers_that_wait_hold_no_window(make):
    """A window is 320 KiB, and all of it has been used."""
    if harness.SANITIZED:
        raise Skipped("a sanitizer keeps what was freed, and this counts the process's memory")
    count = 200
    b = make().start()
    gate = b.dir / "gate"
    record = b.create("t", f"head -c 2000000 /dev/zero; while [ ! -e {gate} ]; do sleep 0.1; done; echo end").expect(202).json["id"]
    wait_for(lambda: len(b.output(record)) == 2000000, 20, "its output")
    before = metric(b, "process_resident_memory_bytes")
    followers = []
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", b.port), timeout=60)
        s.sendall(f"GET /sandbox/executions/{record}/stdout?follow=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode() + AUTH + b"\r\n")
        got = 0
        while got < 2000000:
            got += len(s.recv(1 << 20))
        followers.append(s)
    wait_for(lambda: metric(b, "berth_http_workers_busy") <= 1, 20, "the workers to be free")
    used = metric(b, "process_resident_memory_bytes") - before
    check(used < count * 100_000, f"{used / count:.0f} bytes a follower")
    gate.touch()
    for s in followers:
        tail = b""
        while piece := s.recv(1 << 20):
            tail += piece
        check(tail.rstrip().endswith(b"0") and b"end\n" in tail, tail[-100:])
        s.close()


def test_thousands_of_slow_heads_harm_nobody(make):
    """More than the connections that are allowed, each with a byte now and then, again when they are cut."""
    count, limit = (10000, 4096) if harness.FULL else (1200, 256)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 2 * count:
        raise Skipped(f"needs {2 * count} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count, hard))
    b = make(http=f"connections = {limit};").start()
    b.sh("t", "true")
    before = metric(b, "process_resident_memory_bytes")
    stop, most = threading.Event(), [0]

    def attack():
        ready, sockets = selectors.DefaultSelector(), 0
        while not stop.is_set():
            while sockets < count:
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", b.port))
                ready.register(s, selectors.EVENT_WRITE, 0)
                sockets += 1
            most[0] = max(most[0], sockets)
            for key, _ in ready.select(0.5):
                try:
                    key.fileobj.send(HEAD[key.data:key.data + 1])
                    ready.modify(key.fileobj, selectors.EVENT_WRITE, key.data + 1)
                except OSError:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()
                    sockets -= 1
            stop.wait(0.2)
        for key in list(ready.get_map().values()):
            key.fileobj.close()

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        wait_for(lambda: cut(b, "full") > limit, 60, "slow connections to make room")
        for number in range(4):
            answer = b.create("t", f"echo {number}", wait="20s")
            if answer.status == 503:
                answer.expect_error(503, "queue_full")
                check("retry-after" in answer.headers, "it says when to come back")
            else:
                equal(b.output(answer.expect(200).json["id"]), f"{number}\n".encode())
        used = metric(b, "process_resident_memory_bytes") - before
        check(harness.SANITIZED or used < 64 << 20, f"{used / (1 << 20):.0f} MiB more for {most[0]} connections")
    finally:
        stop.set()
        attacker.join()
    wait_for(lambda: metric(b, "berth_http_connections") <= 2, 30, "all of them to be gone")
