# SPDX-License-Identifier: Apache-2.0
"""The API server: routes, authentication, lists, watches, changes, and the proxy to pods."""

import asyncio
import base64
import json
import re
import time
import uuid

from . import faults, http
from .store import Refused, Selector, Store, encode, now

ROUTE = re.compile(r"^/(?:api/v1|apis/(?P<group>[^/]+)/(?P<version>[^/]+))/namespaces/(?P<ns>[^/]+)/(?P<resource>[a-z]+)"
                   r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+)(?P<rest>/.*)?)?)?$")
KINDS = {"pods": ("v1", "Pod"), "events": ("v1", "Event"),
         "sandboxclaims": ("extensions.agents.x-k8s.io/v1beta1", "SandboxClaim"),
         "sandboxwarmpools": ("extensions.agents.x-k8s.io/v1beta1", "SandboxWarmPool"),
         "sandboxes": ("agents.x-k8s.io/v1beta1", "Sandbox")}
JSON = [("Content-Type", "application/json")]
FORBIDDEN_VOLUMES = {"hostPath", "nfs", "iscsi", "gcePersistentDisk", "awsElasticBlockStore"}


class Api:
    def __init__(self):
        self.store, self.faults = Store(), faults.Faults()
        self.tokens = {"fake-token"}  # accepted; None in it: anybody
        self.namespaces = {"sandboxes"}
        self.terminating = set()
        self.runtime_classes = {"gvisor"}
        self.groups = {"", "extensions.agents.x-k8s.io", "agents.x-k8s.io"}
        self.pod_quota = None  # the most pods of a namespace
        self.bookmark_seconds = 1.0
        self.piece = None  # split what a watch sends into pieces of so many bytes
        self.cut_watches = 0  # raised to close every running watch
        self.requests = []  # (method, target) of everything that came
        self.stale = None  # what resourceVersion=0 is answered with
        self.watchers = 0
        self.admit = []  # called with (resource, object) before a create; may raise Refused
        self.node = None
        self.proxy_down = False

    # ---- one request ----
    async def handle(self, request):
        self.requests.append((request.method, request.target))
        try:
            if await self.faults.strike(request, "before"):
                return
            status, body = await self.dispatch(request)
            if request.answered or await self.faults.strike(request, "after"):
                return
            await http.answer(request, status, encode(body) if isinstance(body, dict) else body, JSON)
        except Refused as refused:
            await http.answer(request, refused.code, refused.status, refused.headers)

    def authenticate(self, request):
        word, _, token = request.headers.get("authorization", "").partition(" ")
        if None not in self.tokens and (word != "Bearer" or token not in self.tokens):
            raise Refused(401, "Unauthorized", "Unauthorized")

    async def dispatch(self, request):
        self.authenticate(request)
        if request.path == "/version":
            return 200, {"major": "1", "minor": "35", "gitVersion": "v1.35.0-fake"}
        match = re.match(r"^/apis/([^/]+)(?:/v1beta1)?$", request.path)
        if match and match[1] in self.groups:
            return 200, {"kind": "APIGroup", "apiVersion": "v1", "name": match[1],
                         "versions": [{"groupVersion": f"{match[1]}/v1beta1", "version": "v1beta1"}]}
        match = ROUTE.match(request.path)
        if not match or match["resource"] not in KINDS or (match["group"] or "") not in self.groups:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return await self.route(request, match)

    async def route(self, request, match):
        resource, ns, name = match["resource"], match["ns"], match["name"]
        if match["sub"] == "proxy":
            await self.proxy(request, ns, name, match["rest"] or "/")
            return 200, {}
        if match["sub"]:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if name is None and request.method == "GET":
            if request.query.get("watch") in ("1", "true"):
                await self.watch(request, resource, ns)
                return 200, {}
            return self.list(request, resource, ns)
        if name is None and request.method == "POST":
            return self.create(resource, ns, await request.json(), "dryRun" in request.query)
        if name is None:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if request.method == "GET":
            return 200, self.store.get(resource, ns, name)
        if request.method == "PATCH":
            if request.headers.get("content-type") != "application/merge-patch+json":
                raise Refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            return 200, self.store.patch(resource, ns, name, await request.json())
        if request.method == "DELETE":
            return self.delete(resource, ns, name, await request.json() or {})
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    # ---- list and watch ----
    def list(self, request, resource, ns):
        query = request.query
        selector = Selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        start, version = "", self.store.version
        if query.get("continue"):
            try:
                given, start = json.loads(base64.urlsafe_b64decode(query["continue"]))
            except ValueError:
                raise Refused(400, "BadRequest", "continue key is not valid")
            version = given
            if given < self.store.lost_pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list result.")
        items = self.store.select(resource, ns, selector)
        if query.get("resourceVersion") == "0" and self.stale is not None:
            items = self.stale
        items = [i for i in items if i["metadata"]["name"] > start]
        meta = {"resourceVersion": str(version)}
        limit = int(query.get("limit") or 0)
        if limit and len(items) > limit:
            items = items[:limit]
            token = json.dumps([version, items[-1]["metadata"]["name"]]).encode()
            meta["continue"] = base64.urlsafe_b64encode(token).decode()
        api_version, kind = KINDS[resource]
        head = json.dumps({"kind": kind + "List", "apiVersion": api_version, "metadata": meta}).encode()
        return 200, head[:-1] + b', "items": [' + b", ".join(map(encode, items)) + b"]}"

    async def send_events(self, stream, events):
        data = b"".join(b'{"type": "%s", "object": %s}\n' % (e["type"].encode(), encode(e["object"])) for e in events)
        step = self.piece or max(len(data), 1)
        for at in range(0, len(data), step):
            await stream.send(data[at:at + step])

    async def watch(self, request, resource, ns):
        query, store = request.query, self.store
        selector = Selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        version = int(query.get("resourceVersion") or 0)
        if version and version < store.forgotten and query.get("gone") != "event":
            if not getattr(self, "gone_as_event", True):
                raise Refused(410, "Expired", f"too old resource version: {version} ({store.forgotten})")
        stream = http.Stream(request)
        end = time.monotonic() + int(query.get("timeoutSeconds") or 1800)
        mark = time.monotonic() + self.bookmark_seconds
        cut, self.watchers = self.cut_watches, self.watchers + 1
        try:
            while time.monotonic() < end:
                if self.cut_watches != cut:
                    raise http.Cut
                if version and version < store.forgotten:
                    gone = Refused(410, "Expired", f"too old resource version: {version} ({store.forgotten})")
                    await self.send_events(stream, [{"type": "ERROR", "object": gone.status}])
                    break
                batch = list(store.events_after(version, resource, ns, selector))
                version = batch[-1][0] if batch else version
                await self.send_events(stream, [{"type": t, "object": o} for _, t, o in batch if t])
                if time.monotonic() >= mark and query.get("allowWatchBookmarks") == "true":
                    mark = time.monotonic() + self.bookmark_seconds
                    version = max(version, store.version)
                    await self.send_events(stream, [{"type": "BOOKMARK", "object": {
                        "kind": KINDS[resource][1], "metadata": {"resourceVersion": str(version)}}}])
                await store.news(0.1)
            await stream.end()
        finally:
            self.watchers -= 1

    # ---- create and delete ----
    def check_pod(self, pod):
        spec = pod.get("spec") or {}
        ns, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if self.pod_quota is not None and len(self.store.select("pods", ns, Selector())) >= self.pod_quota:
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: sandbox-quota, requested: pods=1, used: '
                          f"pods={self.pod_quota}, limited: pods={self.pod_quota}")
        runtime = spec.get("runtimeClassName")
        if runtime and runtime not in self.runtime_classes:
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: pod rejected: RuntimeClass "{runtime}" not found')
        wrong = []
        security = spec.get("securityContext") or {}
        for container in spec.get("containers", []) + spec.get("initContainers", []):
            own = container.get("securityContext") or {}
            if own.get("allowPrivilegeEscalation") is not False:
                wrong.append("allowPrivilegeEscalation != false")
            if "ALL" not in (own.get("capabilities") or {}).get("drop", []):
                wrong.append("unrestricted capabilities")
        if security.get("runAsNonRoot") is not True:
            wrong.append("runAsNonRoot != true")
        if (security.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
            wrong.append("seccompProfile")
        if any(FORBIDDEN_VOLUMES & set(v) for v in spec.get("volumes", [])):
            wrong.append("restricted volume types")
        if wrong:
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: violates PodSecurity "restricted:latest": {", ".join(wrong)}')

    def create(self, resource, ns, obj, dry=False):
        if ns not in self.namespaces:
            raise Refused(404, "NotFound", f'namespaces "{ns}" not found')
        if ns in self.terminating:
            raise Refused(403, "Forbidden", f'{resource} is forbidden: unable to create new content in namespace {ns} because it is '
                          "being terminated", causes=[{"reason": "NamespaceTerminating"}])
        obj.setdefault("metadata", {})["namespace"] = ns
        for admit in self.admit:
            admit(resource, obj)
        if resource == "pods":
            self.store.check(resource, obj)
            if (resource, ns, obj["metadata"]["name"]) not in self.store.objects:
                self.check_pod(obj)
            obj["status"] = {"phase": "Pending", "qosClass": "Guaranteed"}
        if dry:
            obj["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=now())
            return 201, obj
        return 201, self.store.create(resource, ns, obj)

    def delete(self, resource, ns, name, options):
        obj = self.store.get(resource, ns, name)
        want = options.get("preconditions") or {}
        for key, have in (("uid", obj["metadata"]["uid"]), ("resourceVersion", obj["metadata"]["resourceVersion"])):
            if want.get(key) not in (None, have):
                raise Refused(409, "Conflict", f"Precondition failed: {key} in precondition: {want[key]}, {key} in object meta: {have}")
        if resource != "pods":
            return 200, self.store.remove(resource, ns, name)
        grace = options.get("gracePeriodSeconds")
        grace = obj["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            grace = 0
        if grace == 0:
            return 200, self.store.remove(resource, ns, name)

        def mark(pod):
            have = pod["metadata"].get("deletionGracePeriodSeconds")
            pod["metadata"].setdefault("deletionTimestamp", now())
            pod["metadata"]["deletionGracePeriodSeconds"] = grace if have is None else min(have, grace)
        return 200, self.store.update(resource, ns, name, mark)

    # ---- the proxy to pods ----
    async def proxy(self, request, ns, target, rest):
        name, _, port = target.partition(":")
        pod = self.store.get("pods", ns, name)
        ip = pod.get("status", {}).get("podIP")
        try:
            if not ip or self.proxy_down:
                raise OSError("no route to host")
            reader, writer = await asyncio.open_connection(ip, int(port or 80), limit=1 << 20)
        except OSError as error:
            raise Refused(503, "ServiceUnavailable", f"error trying to reach service: dial tcp {ip}:{port}: {error}")
        try:
            await self.relay(request, rest, reader, writer)
        finally:
            writer.transport.abort()

    async def relay(self, request, rest, reader, writer):
        """The client's credential for us is none of the pod's business."""
        head = f"{request.method} {rest} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n"
        dropped = ("host", "connection", "authorization", "transfer-encoding", "content-length", "expect")
        head += "".join(f"{k}: {v}\r\n" for k, v in request.headers.items() if k not in dropped)
        chunked = not request.drained and "content-length" not in request.headers
        if not request.drained:
            head += "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {request.headers['content-length']}\r\n"
        writer.write(head.encode("latin-1") + b"\r\n")
        up = asyncio.ensure_future(self.upload(request, writer, chunked))
        gone = asyncio.ensure_future(self.hang_up(request, up, writer))
        try:
            while True:
                piece = await reader.read(65536)
                if not piece:
                    break
                request.answered = True
                request.writer.write(piece)
                await request.writer.drain()
        finally:
            up.cancel()
            gone.cancel()
        raise http.Cut  # the pod's connection has ended with its answer, and so does ours

    async def upload(self, request, writer, chunked):
        async for piece in request.pieces():
            writer.write(b"%x\r\n" % len(piece) + piece + b"\r\n" if chunked else piece)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")

    async def hang_up(self, request, up, writer):
        """A client that goes away takes its request along."""
        try:
            await up
            if not await request.reader.read(1):
                writer.transport.abort()
        except (asyncio.CancelledError, ConnectionError, http.Cut, asyncio.IncompleteReadError):
            writer.transport.abort()
