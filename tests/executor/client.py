# SPDX-License-Identifier: Apache-2.0
"""A client of berth-executor's protocol (docs/executor.md), written from that page, with sockets of its own so that it can lie."""

import base64
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BUILD = pathlib.Path(os.environ.get("BERTH_BUILD", "build/release")).resolve()
PRESET = os.environ.get("BERTH_PRESET", "release")
SANITIZED = PRESET in ("asan", "tsan")
PATIENCE = float(os.environ.get("BERTH_PATIENCE", "1"))
MAX = 2**63 - 1
# The static program is never sanitized; a sanitized build tests the dynamic one.
PROGRAM = BUILD / ("tests/executor/berth-executor-dynamic" if SANITIZED else "bin/berth-executor")
HELPER = BUILD / "bin/berth-supervise" if SANITIZED else None
SANITIZER = re.compile(r"ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:|ERROR: LeakSanitizer")


class Skipped(Exception):
    pass


class Cut(Exception):
    """The stream ended without its R."""


def must(condition, text="not so"):
    if not condition:
        raise AssertionError(text)


def wait_for(condition, text, limit=20.0):
    until = time.monotonic() + limit * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        must(time.monotonic() < until, f"not within {limit} s: {text}")
        time.sleep(0.005)


def b64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Key:
    def __init__(self, name="k1"):
        self.name = name
        self.private = Ed25519PrivateKey.generate()
        raw = self.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public = base64.b64encode(raw).decode()

    def sign(self, message):
        return self.private.sign(message)

    def entry(self):
        return f"{self.name}:{self.public}"


def frame(kind, payload=b""):
    return kind.encode() + b"\0\0\0" + struct.pack(">I", len(payload)) + payload


def frames_of(raw):
    """Every frame of a whole reply; the last must be R."""
    out, at = [], 0
    while at < len(raw):
        if len(raw) - at < 8:
            raise Cut()
        kind, zero, size = raw[at:at + 1].decode(), raw[at + 1:at + 4], struct.unpack(">I", raw[at + 4:at + 8])[0]
        must(zero == b"\0\0\0", "a frame's header has other bytes than zeros")
        if len(raw) - at - 8 < size:
            raise Cut()
        out.append((kind, raw[at + 8:at + 8 + size]))
        at += 8 + size
    if not out or out[-1][0] != "R":
        raise Cut()
    must(sum(kind == "R" for kind, _ in out) == 1, "more than one R")
    return out


class Reply:
    def __init__(self, status, headers, raw):
        self.status, self.headers, self.raw = status, headers, raw
        must(headers.get("berth-executor") == "1", f"no marker header: {headers}")
        self.frames = []
        if headers["content-type"] == "application/json":
            self.json = json.loads(raw)
            self.result = self.json if "code" in self.json else {"code": "ok", "reason": ""}
        else:
            must(headers["content-type"] == "application/vnd.berth.frames", headers)
            self.frames = frames_of(raw)
            self.result = json.loads(self.frames[-1][1])
        self.code, self.reason = self.result["code"], self.result["reason"]

    def stream(self, kind, start=0):
        """The bytes of a stream; each frame must follow on the one before."""
        out, at = [], start
        for name, payload in self.frames:
            if name == kind:
                offset = struct.unpack(">Q", payload[:8])[0]
                must(offset == at, f"{kind}: a frame at {offset}, expected at {at}")
                out.append(payload[8:])
                at += len(payload) - 8
        return b"".join(out)

    def items(self, kind):
        return [json.loads(payload) for name, payload in self.frames if name == kind]

    @property
    def ending(self):
        endings = self.items("X")
        must(len(endings) == 1, f"{len(endings)} endings, result {self.result}")
        return endings[0]

    def ok(self):
        must(self.code == "ok" and self.status == 200, f"{self.status} {self.result}")
        return self

    def fails(self, code, reason=None, status=None):
        must(self.code == code and (reason is None or self.reason == reason) and (status is None or self.status == status),
             f"expected {code} {reason} {status}, got {self.status} {self.result}")
        return self


class Connection:
    def __init__(self, port, limit=60, sock=None):
        self.sock = sock or socket.create_connection(("127.0.0.1", port), timeout=limit * PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""

    def close(self):
        self.sock.close()

    def send(self, raw):
        self.sock.sendall(raw)

    def more(self):
        raw = self.sock.recv(262144)
        if not raw:
            raise Cut()
        self.buf += raw

    def line(self):
        while b"\r\n" not in self.buf:
            self.more()
        line, self.buf = self.buf.split(b"\r\n", 1)
        return line.decode()

    def exactly(self, size):
        pieces, have = [self.buf], len(self.buf)
        while have < size:
            raw = self.sock.recv(262144)
            if not raw:
                raise Cut()
            pieces.append(raw)
            have += len(raw)
        whole = b"".join(pieces)
        self.buf = whole[size:]
        return whole[:size]

    def head(self):
        status = int(self.line().split(" ")[1])
        headers = {}
        while line := self.line():
            name, value = line.split(": ", 1)
            must(name.lower() not in headers, f"header {name} twice")
            headers[name.lower()] = value
        return status, headers

    def chunks(self, headers):
        """Pieces of a body, as they come."""
        if headers.get("transfer-encoding") != "chunked":
            yield self.exactly(int(headers["content-length"]))
            return
        while size := int(self.line(), 16):
            yield self.exactly(size)
            must(self.exactly(2) == b"\r\n", "a chunk's end")
        must(self.line() == "", "a trailer")

    def reply(self):
        status, headers = self.head()
        while status == 100:
            status, headers = self.head()
        return Reply(status, headers, b"".join(self.chunks(headers)))


class Request:
    """A signed request; every field can be replaced to see it refused."""

    def __init__(self, executor, path, args=None, frames=(), execution=None, **change):
        args = {} if args is None else args
        self.path = change.get("real_path", path)
        self.method = change.get("real_method", "POST")
        first = frame("A", change.get("args_raw", json.dumps(args).encode()))
        signed = change.get("signed", False)
        self.content = first + b"".join(frames)
        nonce = change.get("nonce", os.urandom(16).hex())
        key = change.get("key", executor.key)
        if signed:
            proof = b"berth-executor-body-v1\n" + bytes.fromhex(nonce) + hashlib.sha256(self.content).digest()
            self.body = self.content + frame("Z", change.get("body_signature", key.sign(proof)))
        else:
            self.body = self.content + frame("Z")
        lines = {
            "kid": key.name, "uid": executor.uid, "instance": executor.instance, "workspace": executor.workspace,
            "task": executor.task, "method": "POST", "path": path, "head": hashlib.sha256(first).hexdigest(),
            "body": "signed" if signed else hashlib.sha256(self.body).hexdigest(),
            "execution": args.get("execution_id", "-"), "attempt": str(args.get("attempt", 0)),
            "expires": str(int(time.time() * 1000) + 120000), "nonce": nonce,
        }
        lines.update(change.get("lines", {}))
        self.nonce = lines["nonce"]
        claims = change.get("claims", "".join(f"{value}\n" for value in lines.values()).encode())
        signature = change.get("signature", key.sign(b"berth-executor-token-v1\n" + claims))
        self.token = change.get("token", f"{b64(claims)}.{b64(signature)}")
        self.body = change.get("real_body", self.body)

    def head(self, length=None, more=""):
        length = len(self.body) if length is None else length
        size = "Transfer-Encoding: chunked" if length == "chunked" else f"Content-Length: {length}"
        return (f"{self.method} {self.path} HTTP/1.1\r\nHost: x\r\nBerth-Token: {self.token}\r\n{size}\r\n{more}\r\n").encode()

    def raw(self):
        return self.head() + self.body


class Executor:
    """A running executor, and what a client of it keeps."""

    def __init__(self, name="t", wrap=(), base=None, program=None, env=None, uid="7f0c-uid-1", flags=(), keys=None):
        where = "/dev/shm" if base is None and os.access("/dev/shm", os.W_OK) else base
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"berth-executor-{name}-", dir=where))
        self.root, self.state = self.dir / "work", self.dir / "state"
        self.key = Key()
        self.uid, self.workspace, self.task = uid, "team", "task-1"
        self.wrap, self.program, self.flags = list(wrap), program or PROGRAM, list(flags)
        self.more_env = {"BERTH_EXECUTOR_KEYS": keys or self.key.entry(), **(env or {})}
        self.process, self.port, self.instance = None, 0, ""
        self.numbers = itertools.count(1)  # next() of it is one step: tests ask from many threads
        self.errors = self.dir / "stderr"
        self.start()

    def command(self):
        command = self.wrap + [str(self.program), "serve", "--listen", "127.0.0.1:0", "--root", str(self.root), "--state", str(self.state),
                               "--pod-uid", self.uid]
        if HELPER and self.program == PROGRAM:
            command += ["--helper", str(HELPER)]
        return command + self.flags

    def start(self):
        env = {"PATH": os.environ["PATH"], **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}, **self.more_env}
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=env)
        line = self.process.stdout.readline().decode()
        must(line.startswith("listening on "), f"it did not start: {line!r} {self.errors.read_text(errors='replace')}")
        self.port = int(line.rsplit(":", 1)[1])
        self.instance = self.health()["instance"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        self.kill()
        self.start()

    def end(self, limit=60):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(limit * PATIENCE)
        self.process.stdout.close()
        return code

    def close(self, keep=False):
        if self.process and self.process.poll() is None:
            try:
                self.process.send_signal(signal.SIGTERM)
                self.process.send_signal(signal.SIGTERM)
                self.process.wait(20 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def report(self):
        text = self.errors.read_text(errors="replace") if self.errors.exists() else ""
        return text[text.find(SANITIZER.search(text)[0]):][:6000] if SANITIZER.search(text) else ""

    def link(self):
        return Connection(self.port)

    def health(self, raw=False):
        conn = self.link()
        conn.send(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        reply = conn.reply()
        conn.close()
        return reply if raw else reply.json

    def request(self, path, args=None, frames=(), **change):
        return Request(self, path, args, frames, **change)

    def ask(self, path, args=None, frames=(), conn=None, **change):
        own = conn is None
        conn = conn or self.link()
        try:
            request = self.request(path, args, frames, **change)
            conn.send(request.raw())
            reply = conn.reply()
            if reply.headers.get("berth-nonce"):
                must(reply.headers["berth-nonce"] == request.nonce, "the nonce of another request")
            must(reply.headers["berth-pod-uid"] == self.uid and reply.headers["berth-instance"] == self.instance, reply.headers)
            return reply
        finally:
            if own:
                conn.close()

    def new_id(self):
        return f"sexec_{os.getpid()}_{next(self.numbers)}"

    @staticmethod
    def execute_args(execution, attempt=1, **more):
        return {"execution_id": execution, "attempt": attempt, "cwd": ".", "timeout_ms": 60000, "stdout_max": MAX, "stderr_max": MAX, **more}

    def execute_frames(self, script, stdin=None, env=()):
        out = [frame("C", script if isinstance(script, bytes) else script.encode())]
        if env:
            out.append(frame("V", b"".join(k.encode() + b"=" + (v if isinstance(v, bytes) else v.encode()) + b"\0" for k, v in env)))
        for at in range(0, len(stdin or b""), 1 << 18):
            out.append(frame("D", stdin[at:at + (1 << 18)]))
        return out

    def execute(self, script, execution=None, attempt=1, stdin=None, env=(), conn=None, change=None, **more):
        if stdin is not None:
            more["has_stdin"] = True
        args = self.execute_args(execution or self.new_id(), attempt, **more)
        return self.ask("/v1/execute", args, self.execute_frames(script, stdin, env), conn, **(change or {}))

    def begin(self, script, execution, attempt=1, **more):
        """Starts a command and returns its connection, once it is known to run."""
        conn = self.link()
        args = self.execute_args(execution, attempt, **more)
        conn.send(self.request("/v1/execute", args, self.execute_frames(script)).raw())
        status, headers = conn.head()
        must(status == 200, status)
        return conn, headers

    def reattach(self, execution, attempt=1, stdout=0, stderr=0, **change):
        return self.ask("/v1/reattach", {"execution_id": execution, "attempt": attempt, "stdout_offset": stdout, "stderr_offset": stderr},
                        **change)

    def signal(self, execution, word="TERM", attempt=1):
        args = {"execution_id": execution, "signal": word}
        if attempt is not None:
            args["attempt"] = attempt
        return self.ask("/v1/signal", args)

    def write(self, path, content, mode=0o644, size=None, **change):
        pieces = [frame("D", content[at:at + (1 << 18)]) for at in range(0, len(content), 1 << 18)]
        return self.ask("/v1/file/write", {"path": path, "mode": mode, "size": len(content) if size is None else size}, pieces, **change)

    def read(self, path, offset=0, length=MAX):
        return self.ask("/v1/file/read", {"path": path, "offset": offset, "length": length})


if __name__ == "__main__":
    x = Executor("smoke")
    print(x.health(), file=sys.stderr)
    r = x.execute("echo hello; echo err >&2; exit 3")
    print(r.result, r.frames)
    print(x.close())
