# SPDX-License-Identifier: Apache-2.0
"""A redis-server of the tests' own: an append-only file, no eviction, a socket in its folder, nothing on the network."""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time


class RedisError(Exception):
    pass


def read_answer(stream):
    line = stream.readline()
    kind, text = line[:1], line[1:].rstrip()
    if kind == b"+":
        return text
    if kind == b":":
        return int(text)
    if kind == b"$":
        return None if text == b"-1" else stream.read(int(text) + 2)[:-2]
    if kind == b"*":
        return None if text == b"-1" else [read_answer(stream) for _ in range(int(text))]
    raise RedisError(text.decode() or "the connection was closed")


class RedisServer:
    def __init__(self, *words):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="berth-redis-"))
        self.socket = self.dir / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.words, self.proc = words, None

    def start(self):
        with open(self.dir / "redis.log", "ab") as log:
            self.proc = subprocess.Popen(
                ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.dir), "--appendonly", "yes",
                 "--maxmemory-policy", "noeviction", "--save", "", *self.words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)
        end = time.monotonic() + 60
        while True:
            try:
                if self.call("PING") == b"PONG":
                    return self
            except (OSError, RedisError):
                pass
            if self.proc.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"redis-server does not run: {(self.dir / 'redis.log').read_text()[-800:]}")
            time.sleep(0.01)

    def call(self, *words):
        """One command on a connection of its own; the answer as bytes, int, list or None."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(self.socket))
            words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return read_answer(s.makefile("rb"))

    @contextlib.contextmanager
    def subscribed(self, channel):
        """What is published there from now on."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(self.socket))
            s.sendall(b"SUBSCRIBE %s\r\n" % channel.encode())
            stream = s.makefile("rb")
            read_answer(stream)
            yield (read_answer(stream)[2] for _ in iter(int, 1))

    def kill(self):
        if self.proc is not None:
            self.proc.kill()
            self.proc.wait()
            self.proc = None
            self.socket.unlink(missing_ok=True)

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
