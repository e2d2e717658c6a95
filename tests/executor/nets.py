# SPDX-License-Identifier: Apache-2.0
"""A sandbox with a network of its own: an executor in one network namespace, its owner in another, a cable between them.

What counts as inside is every address of the sandbox, so a test on one machine's loopback has no outside."""

import concurrent.futures
import ctypes
import os
import socket
import subprocess

from client import PATIENCE, Connection, Executor, Skipped, must, wait_for

NEWNET = 0x40000000
OUTER, INNER = ("10.98.7.1", "fd98:7::1"), ("10.98.7.2", "fd98:7::2")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise Skipped(f"no network namespaces here: {' '.join(words)}: {done.stderr.strip()}")


class Net:
    """A namespace, and a thread in it that makes sockets: they stay in it, whoever uses them."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.path = f"/proc/{self.holder.pid}/ns/net"
        try:
            wait_for(self.apart, "a namespace")
        except Skipped:
            self.close()
            raise
        self.pool = concurrent.futures.ThreadPoolExecutor(1, initializer=self.enter)

    def apart(self):
        if self.holder.poll() is not None:
            raise Skipped(f"no network namespaces here: {self.holder.stderr.read().decode().strip()}")
        return os.readlink(self.path) != os.readlink("/proc/self/ns/net")

    def enter(self):
        libc = ctypes.CDLL(None, use_errno=True)
        with open(self.path) as file:
            must(libc.setns(file.fileno(), NEWNET) == 0, f"setns: {os.strerror(ctypes.get_errno())}")

    def inside(self, *words):
        run("nsenter", "-t", str(self.holder.pid), "-n", *words)

    def socket(self, address, port, source="", receive=0, limit=30):
        """Connected; by link-local addresses with the scope of the cable's end."""
        def make():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            sock = socket.socket(family)
            sock.settimeout(limit * PATIENCE)
            if receive:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            scope = socket.if_nametoindex("cable") if address.startswith("fe80") else 0
            tail = (0, scope) if family == socket.AF_INET6 else ()
            if source:
                sock.bind((source, 0) + tail)
            sock.connect((address, port) + tail)
            return sock
        return self.pool.submit(make).result()

    def close(self):
        self.holder.stdin.close()
        self.holder.kill()
        self.holder.wait()
        self.holder.stderr.close()


class Sandbox(Executor):
    """An executor behind a cable; ask() and the like come from outside."""

    def __init__(self, name, listen="[::]:0", sysctl=(), **settings):
        if os.geteuid() != 0:
            raise Skipped("entering a network namespace needs root")
        self.nets = []
        try:
            self.nets = [Net(), Net()]
            self.lay(sysctl)
            self.address, self.listen = INNER[0], listen
            super().__init__(name=name, wrap=["nsenter", "-t", str(self.nets[1].holder.pid), "-n"], **settings)
        except BaseException:
            self.close_nets()
            raise

    def lay(self, sysctl):
        outer, inner = self.nets
        outer.inside("ip", "link", "add", "name", "cable", "type", "veth", "peer", "name", "cable", "netns", str(inner.holder.pid))
        for net, addresses in ((outer, OUTER), (inner, INNER)):
            for key in ("lo", "cable"):
                net.inside("ip", "link", "set", key, "up")
            net.inside("ip", "addr", "add", f"{addresses[0]}/24", "dev", "cable")
            net.inside("ip", "addr", "add", f"{addresses[1]}/64", "dev", "cable", "nodad")
        for line in sysctl:
            inner.inside("sh", "-c", f"echo {line.split('=')[1]} > /proc/sys/{line.split('=')[0].replace('.', '/')}")

    def command(self):
        return super().command() + ["--listen", self.listen]

    def link(self):
        return Connection(self.port, sock=self.outside())

    def outside(self, address=None, **more):
        return self.nets[0].socket(address or self.address, self.port, **more)

    def inside(self, address="127.0.0.1", source="", **more):
        return self.nets[1].socket(address, self.port, source, **more)

    def close_nets(self):
        for net in self.nets:
            net.close()

    def close(self, keep=False):
        if self.process and self.process.poll() is None:
            self.kill()
        super().close(keep)
        self.close_nets()


def in_sandbox(**settings):
    """A test that gets a Sandbox, which closes itself."""
    def wrap(function):
        def test(make):
            x = Sandbox(function.__name__[5:], **settings)
            try:
                function(x)
                must(not x.report(), x.report())
            finally:
                x.close()
        test.__name__, test.__doc__ = function.__name__, function.__doc__
        return test
    return wrap
