# SPDX-License-Identifier: Apache-2.0
"""Objects and their history: what etcd and the API machinery are to a client."""

import asyncio
import bisect
import copy
import datetime
import json
import re
import uuid

LABEL = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


class Refused(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, code, reason, message, headers=(), **details):
        super().__init__(message)
        self.code, self.headers = code, list(headers)
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                       "reason": reason, "code": code}
        if details:
            self.status["details"] = details


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def merge(target, patch):
    """RFC 7396."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge(target[key] if isinstance(target.get(key), dict) else {}, value)
        else:
            target[key] = value
    return target


class Committed(dict):
    """An object as it stands; nobody changes it any more. Its JSON is made once, however often it is sent."""

    text = None


def encode(obj):
    if not isinstance(obj, Committed):
        return json.dumps(obj).encode()
    if obj.text is None:
        obj.text = json.dumps(obj).encode()
    return obj.text


class Selector:
    def __init__(self, labels="", fields=""):
        self.tests = [self.term(t.strip()) for t in labels.split(",") if t.strip()]
        for term in fields.split(","):
            if term.strip():
                path, _, value = term.partition("=")
                self.tests.append(lambda o, p=path.strip("=!"), v=value.strip("="): self.at(o, p) == v)

    @staticmethod
    def at(obj, path):
        for part in path.split("."):
            obj = obj.get(part, {}) if isinstance(obj, dict) else {}
        return obj if isinstance(obj, str) else ""

    @staticmethod
    def labels(obj):
        return obj["metadata"].get("labels") or {}

    def term(self, text):
        if text.startswith("!"):
            return lambda o: text[1:] not in self.labels(o)
        if "!=" in text:
            key, value = text.split("!=")
            return lambda o: self.labels(o).get(key) != value
        if "=" in text:
            key, value = text.replace("==", "=").split("=")
            return lambda o: self.labels(o).get(key) == value
        return lambda o: text in self.labels(o)

    def fits(self, obj):
        return obj is not None and all(test(obj) for test in self.tests)


class Store:
    def __init__(self):
        self.objects = {}  # (resource, namespace, name) -> object
        self.version = 1000
        self.history = []  # (version, key, before, after)
        self.forgotten = 0  # versions up to this one cannot be watched from
        self.lost_pages = 0  # continue tokens given before this version are expired
        self.waiters = set()  # futures, done by the next change
        self.hooks = []  # called with (key, before, after) for each change

    # ---- writing ----
    def commit(self, key, before, after):
        self.version += 1
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
            self.objects[key] = after = Committed(after)
        else:
            before = Committed(copy.deepcopy(dict(before)))
            before["metadata"]["resourceVersion"] = str(self.version)
            self.objects.pop(key, None)
        self.history.append((self.version, key, before, after))
        for hook in self.hooks:
            hook(key, before, after)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        return after

    async def news(self, seconds):
        """Until the next change, or so long. A cancel always comes through, which asyncio.wait_for does not promise."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self.waiters.add(waiter)
        timer = loop.call_later(seconds, lambda: waiter.done() or waiter.set_result(None))
        try:
            await waiter
        finally:
            timer.cancel()
            self.waiters.discard(waiter)

    def get(self, resource, ns, name):
        found = self.objects.get((resource, ns, name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found', name=name, kind=resource)
        return found

    def check(self, resource, obj):
        name = obj["metadata"].get("name", "")
        causes = []
        if not NAME.match(name) or len(name) > 253:
            causes.append(f"metadata.name: Invalid value: {name!r}")
        for key, value in (obj["metadata"].get("labels") or {}).items():
            if not KEY.match(key) or len(key.split("/")[-1]) > 63:
                causes.append(f"metadata.labels: Invalid value: {key!r}")
            if not isinstance(value, str) or len(value) > 63 or not LABEL.match(value):
                causes.append(f"metadata.labels: Invalid value: {value!r}")
        for key, value in (obj["metadata"].get("annotations") or {}).items():
            if not KEY.match(key) or not isinstance(value, str):
                causes.append(f"metadata.annotations: Invalid value: {key!r}")
        if causes:
            raise Refused(422, "Invalid", f'{resource} "{name}" is invalid: {"; ".join(causes)}', name=name,
                          causes=[{"reason": "FieldValueInvalid", "message": c, "field": c.split(":")[0]} for c in causes])

    def create(self, resource, ns, obj):
        obj = copy.deepcopy(obj)
        meta = obj.setdefault("metadata", {})
        meta["namespace"] = ns
        self.check(resource, obj)
        key = (resource, ns, meta["name"])
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{resource} "{meta["name"]}" already exists', name=meta["name"], kind=resource)
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=now(), generation=1)
        return self.commit(key, None, obj)

    def update(self, resource, ns, name, change):
        """change(copy) edits it in place."""
        before = self.get(resource, ns, name)
        after = copy.deepcopy(dict(before))
        change(after)
        return before if after == before else self.commit((resource, ns, name), before, after)

    def patch(self, resource, ns, name, patch):
        before = self.get(resource, ns, name)
        meta = patch.get("metadata") or {}
        if meta.get("resourceVersion") not in (None, before["metadata"]["resourceVersion"]):
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
                          "please apply your changes to the latest version and try again", name=name)
        if meta.get("uid") not in (None, before["metadata"]["uid"]):
            raise Refused(422, "Invalid", f'{resource} "{name}" is invalid: metadata.uid: Invalid value: "{meta["uid"]}": field is immutable',
                          name=name)

        def change(obj):
            keep = {k: obj["metadata"].get(k) for k in ("uid", "creationTimestamp", "resourceVersion", "name", "namespace")}
            merge(obj, patch)
            obj["metadata"].update(keep)
            self.check(resource, obj)
        return self.update(resource, ns, name, change)

    def remove(self, resource, ns, name):
        before = self.get(resource, ns, name)
        self.commit((resource, ns, name), before, None)
        return before

    # ---- reading ----
    def select(self, resource, ns, selector):
        keys = sorted(k for k in self.objects if k[0] == resource and (not ns or k[1] == ns))
        return [self.objects[k] for k in keys if selector.fits(self.objects[k])]

    def events_after(self, version, resource, ns, selector):
        """What a watch sends: transitions of the selector included."""
        first = bisect.bisect_right(self.history, version, key=lambda entry: entry[0])
        for at, key, before, after in self.history[first:]:
            if key[0] != resource or (ns and key[1] != ns):
                continue
            was, is_ = selector.fits(before), selector.fits(after)
            if is_:
                yield at, "MODIFIED" if was else "ADDED", after
            elif was:
                gone = copy.deepcopy(dict(after or before))
                gone["metadata"]["resourceVersion"] = str(at)
                yield at, "DELETED", gone
            else:
                yield at, None, None

    def forget(self):
        """Compaction: every version so far is too old to watch from or to page on."""
        self.version += 1
        self.forgotten = self.lost_pages = self.version
        self.history = []
