# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, on demand: rules that meet requests by method and path, each a number of times."""

import asyncio
import re

from . import http


class Fault:
    """when: "before" the request is acted upon, or "after" it was committed (the reply is what is lost or false).
    act: "status" (answer with status, headers, body), "cut" (close without an answer), "hang" (never answer),
    "delay" (seconds, then go on)."""

    def __init__(self, method=".*", path=".*", when="before", act="status", times=1, status=500, body=None, headers=(),
                 seconds=0.0, skip=0):
        self.method, self.path = re.compile(method + "$"), re.compile(path)
        self.when, self.act, self.times, self.skip = when, act, times, skip
        self.status, self.body, self.headers, self.seconds = status, body, list(headers), seconds
        self.hits = 0

    def meets(self, request, when):
        if self.when != when or self.hits >= self.times:
            return False
        if not self.method.match(request.method) or not self.path.search(request.target):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    async def strike(self, request):
        """True: the request is answered, or its connection is to be closed."""
        if self.act == "delay":
            await asyncio.sleep(self.seconds)
            return False
        if self.act == "hang":
            await asyncio.sleep(3600)
        if self.act in ("cut", "hang"):
            raise http.Cut
        body = self.body
        if body is None:
            word = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 410: "Expired",
                    403: "Forbidden", 401: "Unauthorized"}.get(self.status, "Unknown")
            body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": word,
                    "message": f"fault {self.status}", "code": self.status}
            if self.status == 403:  # a right that is missing: others are refusals of what was sent
                body["message"] = 'pods is forbidden: User "fault" cannot do this'
        await http.answer(request, self.status, body, self.headers)
        return True


class Faults:
    def __init__(self):
        self.rules = []

    def add(self, **kw):
        fault = Fault(**kw)
        self.rules.append(fault)
        return fault

    def clear(self):
        self.rules = []

    async def strike(self, request, when):
        for fault in self.rules:
            if fault.meets(request, when) and await fault.strike(request):
                return True
        return False
