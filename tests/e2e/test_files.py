# SPDX-License-Identifier: Apache-2.0
"""Files of a session (rows F1 to F4)."""

import base64
import hashlib
import os
import random
import socket
import time

import harness
from harness import check, equal, memory_grows_by_less_than, settled, wait_for


def test_F1_bytes_are_exact(make):
    b = make().start()
    cases = {"all": bytes(range(256)), "empty": b"", "crlf": b"a\r\nb\r\n", "random": os.urandom(64 << 20)}
    for name, data in cases.items():
        digest = hashlib.sha256(data).hexdigest()
        equal(b.put_file("t", f"d/{name}", data, sha256=digest, size=len(data)).expect(200).json, {"Path": f"d/{name}", "Size": len(data)})
        equal(b.sh("t", f"sha256sum d/{name} | cut -d' ' -f1").decode().strip(), digest, name)
        answer = b.get_file("t", f"d/{name}").expect(200)
        equal(hashlib.sha256(answer.body).hexdigest(), digest, name)
        equal(answer.headers["content-length"], str(len(data)))
    small = b"\x00\xffinline\r\n"
    b.request("PUT", "/sandbox/files", {"workspace_id": "w", "task_id": "t", "path": "inline",
                                        "content_base64": base64.b64encode(small).decode()}).expect(200)
    equal(base64.b64decode(b.get("/sandbox/files", workspace_id="w", task_id="t", path="inline").json["content_base64"]), small)
    listed = b.get("/sandbox/files", workspace_id="w", task_id="t", list="d").expect(200).json["paths"]
    equal(sorted(listed), ["d/all", "d/crlf", "d/empty", "d/random"])
    b.put_file("t", "exe", b"#!/bin/sh\necho ran\n", mode="0755").expect(200)
    equal(b.sh("t", "./exe"), b"ran\n")
    equal(b.get_file("t", "exe").headers["x-agentarea-file-mode"].lstrip("0"), "755")


def test_F1_the_largest_inline_file_however_it_is_written(make):
    """Some encoders write every slash as "\\/", some every plus as "\\u002B": the limit is of the file, not of its spelling."""
    b = make().start()
    data = random.Random(1).randbytes(16 << 20)
    text = base64.b64encode(data).decode()
    spelled = text.replace("/", "\\/").replace("+", "\\u002B")
    body = '{"workspace_id":"w","task_id":"t","path":"large","content_base64":"' + spelled + '"}'
    answer = b.request("PUT", "/sandbox/files", body.encode(), headers={"Content-Type": "application/json"})
    equal(answer.expect(200).json["size"], len(data))
    equal(b.sh("t", "sha256sum <large").split()[0].decode(), hashlib.sha256(data).hexdigest())


def test_F2_symlinks_never_escape(make):
    b = make().start()
    outside = b.dir / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    b.sh("t", f"ln -s {outside} l1; ln -s /proc/1 l2; ln -s .. l3; ln -s / l4; ln -s {outside}/secret l5; ln -s good.txt ok; echo good > good.txt")
    for path in ("l1/secret", "l2/cmdline", "l3/x", f"l4{outside}/secret", "l5"):
        b.get_file("t", path).expect(400, 404, 502)
        check(b.put_file("t", path, b"overwritten").status != 200 or path == "l5", path)
        b.get("/sandbox/files", workspace_id="w", task_id="t", path=path).expect(400, 404, 502)
        for field in ("stdin_ref", "env_ref"):
            record = b.run("t", "cat; env", **{field: path})
            equal((record["status"], record["reason"], b.output(record["id"])), ("failed", field, b""), path)
        if path != "l5":  # which is moved and removed itself
            for a, c in ((path, "taken"), ("good.txt", path)):
                b.request("POST", "/sandbox/files/move", {"workspace_id": "w", "task_id": "t", "from": a, "to": c}).expect(400)
        b.request("DELETE", "/sandbox/files", workspace_id="w", task_id="t", path=path)
    equal(b.run("t", "true", cwd="l1")["reason"], "cwd")
    b.get("/sandbox/files", workspace_id="w", task_id="t", list="l1").expect(400, 404, 502)
    equal((outside / "secret").read_text(), "secret", "host files are untouched")
    equal(sorted(os.listdir(outside)), ["secret"])
    equal(b.get_file("t", "ok").expect(200).body, b"good\n")


def test_F2_symlink_swapped_during_open(make):
    b = make().start()
    outside = b.dir / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    b.sh("t", "mkdir real; echo inside > real/f")
    made = b.create("t", f"while :; do ln -sfn real x; ln -sfn {outside} x; done", timeout_seconds=60).expect(202).json["id"]
    wait_for(lambda: b.record(made)["status"] == "running", 10, "the swapper")
    for _ in range(200):
        answer = b.get_file("t", "x/f")
        check(answer.status != 200 or answer.body == b"inside\n", answer.body)
        b.put_file("t", "x/g", b"written")
        b.request("POST", "/sandbox/files/move", {"workspace_id": "w", "task_id": "t", "from": "x/g", "to": "x/h"})
        b.request("DELETE", "/sandbox/files", workspace_id="w", task_id="t", path="x/h")
    b.request("DELETE", f"/sandbox/executions/{made}", wait="20s").expect(200, 202)
    equal((outside / "f").read_text(), "secret")
    equal(os.listdir(outside), ["f"])


BAD_PATHS = ["../x", "..%2fx", "a/../../b", "//etc", "/etc/passwd", "\\..\\", "C:\\x", "a/", ".", "", "a//b", "./a", "a/./b",
             "n" * 256, "/".join(["d" * 200] * 21), "new\nline", "tab\t", "\x7f", "a/..", ".."]


def test_F3_one_path_rule_for_every_verb(make):
    b = make().start()
    b.sh("t", "true")
    for path in BAD_PATHS:
        if path == "..%2fx":
            continue  # decoded once it is "../x"; encoded twice it is a plain name
        q = dict(workspace_id="w", task_id="t")
        answers = [b.get("/sandbox/files", path=path, **q), b.get_file("t", path), b.put_file("t", path, b"x"),
                   b.request("DELETE", "/sandbox/files", path=path, **q),
                   b.request("POST", "/sandbox/files/move", {**q, "from": path, "to": "ok"}),
                   b.request("POST", "/sandbox/files/move", {**q, "from": "ok", "to": path}),
                   b.request("PUT", "/sandbox/files", {**q, "path": path, "content_base64": ""}),
                   b.create("t", "true", env_ref=path), b.create("t", "true", stdin_ref=path),
                   b.create("t", "true", artifact_paths=[path])]
        if path not in ("", "."):  # the root itself, for a list
            answers.append(b.get("/sandbox/files", list=path, **q))
        for number, answer in enumerate(answers):
            equal(answer.status, 400, f"{path[:30]!r}, verb {number}: {answer.body[:200]}")
    for word in ("..", "a/b", "-a", ".a", "a" * 129, "a b", "é", "a\n", ""):
        b.request("POST", "/sandbox/executions", {"workspace_id": "w", "task_id": word, "command": {"command_body": "true"}}).expect(400)
        b.request("POST", "/sandbox/executions", {"workspace_id": word, "task_id": "t", "command": {"command_body": "true"}}).expect(400)
    b.put_file("t", "-rf", b"dash").expect(200)
    equal(b.get_file("t", "-rf").body, b"dash")
    equal(b.sh("t", "ls"), b"-rf\n", "nothing odd was made")


def upload(b, head, pieces, path="up"):
    s = socket.create_connection(("127.0.0.1", b.port), timeout=30 * harness.PATIENCE)
    s.sendall(b"PUT /sandbox/file-content?workspace_id=w&task_id=t&mode=0644&path=" + path.encode() + b" HTTP/1.1\r\nHost: x\r\n"
              b"Authorization: Bearer " + harness.TOKEN.encode() + b"\r\n" + head + b"\r\n\r\n")
    for piece in pieces:
        s.sendall(piece)
    return s


def status_of(s):
    data = b""
    while b"\r\n" not in data:
        piece = s.recv(4096)
        if not piece:
            break
        data += piece
    return int(data.split()[1]) if data else 0


def test_F4_uploads_that_misbehave(make):
    b = make(conf='files: { size_max = "40MiB"; };').start()
    b.sh("t", "true")
    with memory_grows_by_less_than(16, b.proc.pid):
        misbehave(b)
    settled(b)


def misbehave(b):
    for size in (120_000, 33 << 20):
        data = os.urandom(size)
        b.put_file("t", f"f{size}", data).expect(200)
        equal(b.sh("t", f"sha256sum f{size} | cut -d' ' -f1").decode().strip(), hashlib.sha256(data).hexdigest())
    # Over the limit: refused before all was read.
    s = upload(b, b"Content-Length: 50000000", [b"x" * 1000], "over")
    equal(status_of(s), 413)
    s.close()
    # Chunked without a length, good and over the limit.
    chunk = b"%x\r\n" % (1 << 20) + b"y" * (1 << 20) + b"\r\n"
    s = upload(b, b"Transfer-Encoding: chunked", [chunk] * 3 + [b"0\r\n\r\n"], "chunked")
    equal(status_of(s), 200)
    s.close()
    equal(b.sh("t", "wc -c < chunked"), b"3145728\n")
    try:
        s = upload(b, b"Transfer-Encoding: chunked", [chunk] * 60 + [b"0\r\n\r\n"], "chunked-over")
        equal(status_of(s), 413)
    except (BrokenPipeError, ConnectionResetError):
        pass
    # A lying digest, a lying size parameter.
    b.put_file("t", "lie", b"abc", sha256="0" * 64).expect(400)
    b.put_file("t", "lie", b"abc", size=4).expect(400)
    b.put_file("t", "lie", b"abc", sha256="XYZ").expect(400)
    # Aborted half-way, many times.
    for _ in range(10):
        s = upload(b, b"Content-Length: 1000000", [b"z" * 300_000], "aborted")
        s.close()
    # One byte at a time does not hold up others.
    s = upload(b, b"Content-Length: 20", [], "slow")
    for _ in range(20):
        s.sendall(b"s")
        started = time.monotonic()
        b.sh("u", "true")
        check(time.monotonic() - started < 5 * harness.PATIENCE, "other tasks are unaffected")
    equal(status_of(s), 200)
    s.close()
    wait_for(lambda: sorted(b.sh("t", "ls -A").split()) == sorted(
        [b"f120000", b"f34603008", b"chunked", b"slow"]), 15, "no partial file to be visible")


def test_files_of_unknown_and_expired_tasks(make):
    b = make(conf='lease: { idle = "200ms"; };\ngc: { interval = "100ms"; };').start()
    b.get_file("never", "x", ensure="false").expect_error(404, "not_found")
    b.get_file("never", "x").expect_error(404, "not_found")
    b.get("/sandbox/files", workspace_id="w", task_id="never", list=".").expect_error(404, "not_found")
    equal(b.mock.count("provision"), 0, "nothing was created")
    b.put_file("t", "f", b"x").expect(200)
    wait_for(lambda: not b.mock.sessions(), 10, "the idle lease to end")
    b.get_file("t", "f", ensure="false").expect_error(410, "sandbox_expired")
    b.get_file("t", "f").expect_error(404, "not_found")
    settled(b)


def test_move_and_remove(make):
    b = make().start()
    b.put_file("t", "a/b", b"x").expect(200)
    q = {"workspace_id": "w", "task_id": "t"}
    b.request("POST", "/sandbox/files/move", {**q, "from": "a/b", "to": "c/d"}).expect(200, 204)
    equal(b.get_file("t", "c/d").body, b"x")
    b.get_file("t", "a/b").expect(404)
    b.request("DELETE", "/sandbox/files", path="c/d", **q).expect(200, 204)
    b.get_file("t", "c/d").expect(404)
    b.request("DELETE", "/sandbox/files", path="c/d", **q).expect(404)
