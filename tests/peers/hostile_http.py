#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer that does to an HTTP client what peers do on a bad day. Every path is one misdeed; see the table at the end.

    hostile_http.py FOLDER

Listens on loopback and on FOLDER/peer.sock; with FOLDER/server.pem also with TLS (tls), with a certificate for another name
(wrong) and with client certificates required (mtls). Prints one line, "plain=PORT tls=PORT wrong=PORT mtls=PORT", and serves until standard
input ends. /stats tells what it saw; counters are by path.
"""
import collections
import hashlib
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
import urllib.parse

LOCK = threading.Condition()
SEEN = collections.Counter()
OPEN_GATES = set()
CONNECT_HEADS = []


def count(name, by=1):
    with LOCK:
        SEEN[name] += by
        LOCK.notify_all()


class Closed(Exception):
    pass


class Request:
    def __init__(self, head):
        line, *rest = head.split(b"\r\n")
        self.head = head
        self.method, self.target, _ = line.decode("latin-1").split(" ")
        self.headers = {}
        for header in rest:
            name, _, value = header.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        url = urllib.parse.urlsplit(self.target)
        if self.target.startswith("http"):
            count("absolute")
        self.path = url.path
        self.query = dict(urllib.parse.parse_qsl(url.query))

    def number(self, name, default=0):
        return int(self.query.get(name, default))


class Peer(socketserver.BaseRequestHandler):
    disable_nagle_algorithm = True

    def setup(self):
        self.buffer = b""
        self.drop_next = False
        count("connections")

    def fill(self):
        try:
            data = self.request.recv(65536)
        except OSError:
            data = b""
        if not data:
            raise Closed
        if data[:1] == b"\x16":
            count("tls_hello")  # to a port without TLS: it is never answered
        self.buffer += data

    def read_head(self):
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return Request(head)

    def take(self, size):
        while len(self.buffer) < size:
            self.fill()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def body(self, request):
        if request.headers.get("transfer-encoding") == "chunked":
            while True:
                while b"\r\n" not in self.buffer:
                    self.fill()
                line, _, self.buffer = self.buffer.partition(b"\r\n")
                size = int(line, 16)
                data = self.take(size)
                self.take(2)
                if not size:
                    return
                yield data
        left = int(request.headers.get("content-length", 0))
        while left:
            if not self.buffer:
                self.fill()
            data, self.buffer = self.buffer[:left], self.buffer[left:]
            left -= len(data)
            yield data

    def send(self, data):
        try:
            self.request.sendall(data)
        except OSError as error:
            raise Closed from error

    def answer(self, status, body=b"", *headers):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def wait_closed(self):
        while True:
            self.fill()
            self.buffer = b""

    def reset(self):
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Closed

    def handle(self):
        try:
            if isinstance(self.request, ssl.SSLSocket):
                self.request.do_handshake()
            while True:
                request = self.read_head()
                count(request.path)
                if self.drop_next:
                    raise Closed
                name = "do_" + request.path.strip("/").split("/")[0].replace("-", "_")
                if request.method == "CONNECT":
                    self.connect(request)
                else:
                    getattr(self, name, self.do_404)(request)
        except (Closed, OSError, ValueError):
            pass
        count("ended")

    def connect(self, request):
        with LOCK:
            CONNECT_HEADS.append(request.head)
        host, _, port = request.target.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port))) as far:
            self.send(b"HTTP/1.1 200 go\r\n\r\n")
            back = threading.Thread(target=self.relay, args=(far,), daemon=True)
            back.start()
            try:
                while True:
                    if not self.buffer:
                        self.fill()
                    far.sendall(self.buffer)
                    self.buffer = b""
            finally:
                far.shutdown(socket.SHUT_RDWR)
                back.join()

    def relay(self, far):
        try:
            while data := far.recv(65536):
                self.request.sendall(data)
            self.request.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    # ---- the misdeeds ----

    def do_404(self, request):
        self.answer("404 Not Found")

    def do_ok(self, request):
        for _ in self.body(request):
            pass
        self.answer("200 OK", b"fine", "X-Word: one", "X-Empty:", "x-word: two")

    def do_status(self, request):
        self.answer(f"{request.number('n')} Word", b"{}", *[f"{k}: {v}" for k, v in request.query.items() if k[0].isupper()])

    def do_echo(self, request):
        body = b"".join(self.body(request))
        self.answer("200 OK", request.head + b"\r\n\r\n" + body)

    def do_sink(self, request):
        size, digest = 0, hashlib.sha256()
        for data in self.body(request):
            size += len(data)
            digest.update(data)
        self.answer("200 OK", f"{size} {digest.hexdigest()}".encode())

    def do_no_read(self, request):
        with LOCK:
            LOCK.wait_for(lambda: "no-read" in OPEN_GATES)
        raise Closed

    def do_never(self, request):
        self.wait_closed()

    def do_hold(self, request):
        """Answers once /release of the same gate came."""
        with LOCK:
            SEEN["held"] += 1
            LOCK.notify_all()
            LOCK.wait_for(lambda: request.query["gate"] in OPEN_GATES)
        self.answer("200 OK", b"held")
        self.drop_next = "drop" in request.query

    def do_release(self, request):
        with LOCK:
            OPEN_GATES.add(request.query["gate"])
            LOCK.notify_all()
        self.answer("200 OK")

    def do_wait(self, request):
        """Answers once a counter has a value."""
        with LOCK:
            fine = LOCK.wait_for(lambda: SEEN[request.query["of"]] >= request.number("n"), timeout=60)
        self.answer("200 OK" if fine else "504 Too Late")

    def do_cut(self, request):
        """Fewer bytes than promised, or half a head."""
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {request.number('len')}\r\n\r\n".encode()
        self.send((head + b"x" * request.number("len"))[: request.number("at")])
        raise Closed

    def do_reset(self, request):
        self.reset()

    def do_big(self, request):
        left, block = request.number("bytes"), b"0123456789abcdef" * 65536
        length = "Transfer-Encoding: chunked" if "chunked" in request.query else f"Content-Length: {left}"
        self.send(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        while left:
            data = block[:left]
            left -= len(data)
            self.send(b"%x\r\n%s\r\n" % (len(data), data) if "chunked" in request.query else data)
            count("big_sent", len(data))
        if "chunked" in request.query:
            self.send(b"0\r\nX-Trailer: late\r\n\r\n")

    def do_headers(self, request):
        self.send(b"HTTP/1.1 200 OK\r\n")
        line = b"X-Fill: " + b"f" * request.number("width", 100) + b"\r\n"
        for _ in range(request.number("lines")):
            self.send(line)
        self.send(b"Content-Length: 0\r\n\r\n")

    def do_early(self, request):
        self.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </early>\r\n\r\n")
        self.answer("200 OK", b"late", "X-Word: final")

    def do_redirect(self, request):
        self.answer("302 Found", b"", f"Location: {request.query['to']}")

    def do_garbage(self, request):
        self.send(b"\x00\xff\x13garbage\r\n\r\n" * 20)
        raise Closed

    def do_old(self, request):
        self.send(b"no head, only bytes")
        raise Closed

    def do_dribble(self, request):
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            self.send(b"d")
            time.sleep(1)

    def do_dribble_head(self, request):
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: 1\r\n" * 100:
            self.send(bytes([byte]))
            time.sleep(1)

    def do_then_close(self, request):
        """Says keep-alive and closes."""
        self.answer("200 OK", b"last")
        raise Closed

    def do_then_drop(self, request):
        """The next request on this connection is read and never answered."""
        self.answer("200 OK", b"last but one")
        self.drop_next = True

    def do_stats(self, request):
        with LOCK:
            lines = [f"{name}={value}" for name, value in sorted(SEEN.items())]
            lines += [f"connect_head={head!r}" for head in CONNECT_HEADS]
        self.answer("200 OK", "\n".join(lines).encode())


class Mixin(socketserver.ThreadingMixIn):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    tls = None

    def get_request(self):
        peer, address = super().get_request()
        if self.tls:
            peer = self.tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        return peer, address

    def handle_error(self, request, client_address):
        pass


class Tcp(Mixin, socketserver.TCPServer):
    allow_reuse_address = True


class Unix(Mixin, socketserver.UnixStreamServer):
    pass


def serve(server, tls=None):
    server.tls = tls
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def context(pem, ca=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pem)
    if ca:
        made.load_verify_locations(ca)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def main():
    folder = pathlib.Path(sys.argv[1])
    threading.stack_size(256 * 1024)
    local = ("127.0.0.1", 0)
    ports = {"plain": serve(Tcp(local, Peer)).server_address[1]}
    serve(Unix(str(folder / "peer.sock"), Peer))
    if (folder / "server.pem").exists():
        ports["tls"] = serve(Tcp(local, Peer), context(folder / "server.pem")).server_address[1]
        ports["wrong"] = serve(Tcp(local, Peer), context(folder / "wrong.pem")).server_address[1]
        ports["mtls"] = serve(Tcp(local, Peer), context(folder / "server.pem", folder / "ca.pem")).server_address[1]
    print(" ".join(f"{name}={port}" for name, port in ports.items()), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
