# SPDX-License-Identifier: Apache-2.0
"""Just enough HTTP/1.1 for one server: keep-alive, lengths and chunks in both directions, answers that are streamed."""

import asyncio
import json
import urllib.parse

REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
           409: "Conflict", 410: "Gone", 415: "Unsupported Media Type", 422: "Unprocessable Entity", 429: "Too Many Requests",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class Cut(Exception):
    """Ends the connection where it stands."""


class Request:
    def __init__(self, method, target, headers, reader, writer):
        self.method, self.target, self.headers = method, target, headers
        self.reader, self.writer = reader, writer
        url = urllib.parse.urlsplit(target)
        self.raw_path = url.path
        self.path = urllib.parse.unquote(url.path)
        self.query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query, keep_blank_values=True).items()}
        self.drained = "content-length" not in headers and headers.get("transfer-encoding", "").lower() != "chunked"
        self.answered = False

    async def pieces(self):
        """The body, as it comes."""
        if self.drained:
            return
        self.drained = True
        if self.headers.get("expect", "").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "content-length" in self.headers:
            left = int(self.headers["content-length"])
            while left:
                piece = await self.reader.read(min(left, 65536))
                if not piece:
                    raise Cut
                left -= len(piece)
                yield piece
            return
        while True:
            line = await self.reader.readline()
            size = int(line.split(b";")[0], 16) if line.strip() else -1
            if size < 0:
                raise Cut
            if size == 0:
                while (await self.reader.readline()).strip():
                    pass
                return
            piece = await self.reader.readexactly(size)
            await self.reader.readline()
            yield piece

    async def body(self):
        return b"".join([piece async for piece in self.pieces()])

    async def json(self):
        return json.loads(await self.body() or b"null")


async def read_request(reader, writer):
    line = await reader.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split()
    headers = {}
    while True:
        line = (await reader.readline()).decode("latin-1").strip()
        if not line:
            break
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Request(method, target, headers, reader, writer)


async def answer(request, status, body, headers=()):
    """A whole answer; dictionaries become JSON."""
    if isinstance(body, (dict, list)):
        body, headers = json.dumps(body).encode(), [("Content-Type", "application/json"), *headers]
    async for _ in request.pieces():
        pass
    head = f"HTTP/1.1 {status} {REASONS.get(status, '-')}\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{k}: {v}\r\n" for k, v in headers)
    request.writer.write(head.encode("latin-1") + b"\r\n" + (b"" if request.method == "HEAD" else body))
    request.answered = True
    await request.writer.drain()


class Stream:
    """A chunked answer."""

    def __init__(self, request, status=200, headers=(("Content-Type", "application/json"),)):
        self.request = request
        head = f"HTTP/1.1 {status} {REASONS.get(status, '-')}\r\nTransfer-Encoding: chunked\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in headers)
        request.writer.write(head.encode("latin-1") + b"\r\n")
        request.answered = True

    async def send(self, data):
        if data:
            self.request.writer.write(b"%x\r\n" % len(data) + data + b"\r\n")
            await self.request.writer.drain()

    async def end(self):
        self.request.writer.write(b"0\r\n\r\n")
        await self.request.writer.drain()


async def serve(handler, port=0, ssl=None):
    async def connection(reader, writer):
        try:
            while True:
                request = await read_request(reader, writer)
                if request is None:
                    break
                await handler(request)
                async for _ in request.pieces():
                    pass
                if request.headers.get("connection", "").lower() == "close":
                    break
        except (Cut, ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    return await asyncio.start_server(connection, "127.0.0.1", port, ssl=ssl, limit=1 << 20, backlog=512)
