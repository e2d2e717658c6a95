# SPDX-License-Identifier: Apache-2.0
"""The controller of agent-sandbox (v1beta1): gives claims a sandbox and its pod, and reports them as it does."""

import asyncio
import copy

from .store import Refused


class Claims:
    def __init__(self, api, pools=("pool",)):
        self.api, self.pools = api, set(pools)
        self.pod_spec = None  # the SandboxTemplate's podTemplate.spec
        self.allowed = {"sandbox.users.io"}  # label domains of additionalPodMetadata
        self.hold = False  # claims stay as they are
        self.warm = []  # names of sandboxes without claim
        self.serial = 0
        self.tasks = set()
        api.store.hooks.append(self.on_change)

    def spawn(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_change(self, key, before, after):
        resource, ns, name = key
        if resource == "sandboxclaims" and before is None:
            self.spawn(self.serve(key, after["metadata"]["uid"]))
        elif resource == "sandboxclaims" and after is None:
            self.spawn(self.drop(ns, before))
        elif resource == "pods" and after is not None:
            self.spawn(self.report(ns, name, after))

    # ---- sandboxes ----
    def make_sandbox(self, ns, name, labels, env=()):
        self.api.store.create("sandboxes", ns, {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
                                                "metadata": {"name": name, "labels": dict(labels)}, "spec": {}})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels)}, "spec": copy.deepcopy(self.pod_spec)}
        pod["spec"]["containers"][0].setdefault("env", []).extend(env)
        self.api.create("pods", ns, pod)

    def fill(self, ns, count):
        """Warm sandboxes of the pool."""
        for _ in range(count):
            self.serial += 1
            name = f"pool-{self.serial}"
            self.make_sandbox(ns, name, {"agents.x-k8s.io/pool": "pool"})
            self.warm.append(name)

    def claim_of(self, key, uid):
        claim = self.api.store.objects.get(key)
        return claim if claim and claim["metadata"]["uid"] == uid else None

    def set_status(self, key, uid, reason, ready=False, sandbox=None, message=""):
        if not self.claim_of(key, uid):
            return

        def change(claim):
            status = claim.setdefault("status", {})
            status["conditions"] = [{"type": "Ready", "status": "True" if ready else "False", "reason": reason, "message": message}]
            if sandbox:
                status["sandbox"] = sandbox
        self.api.store.update(*key, change)

    async def serve(self, key, uid):
        while self.hold:
            await asyncio.sleep(0.02)
        claim = self.claim_of(key, uid)
        if not claim:
            return
        ns, spec = key[1], claim["spec"]
        if spec["warmPoolRef"]["name"] not in self.pools:
            self.set_status(key, uid, "WarmPoolNotFound", message=f'pool {spec["warmPoolRef"]["name"]} not found')
            return
        labels = (spec.get("additionalPodMetadata") or {}).get("labels") or {}
        if any(label.partition("/")[0] not in self.allowed for label in labels):
            self.set_status(key, uid, "InvalidMetadata", message="label domain is not allowed")
            return
        await self.assign(key, uid, ns, {**labels, "agents.x-k8s.io/claim-uid": uid}, spec.get("env") or [])

    async def assign(self, key, uid, ns, labels, env):
        if self.warm and not env:  # an environment of its own forces a cold start
            name = self.warm.pop(0)
            self.api.store.patch("sandboxes", ns, name, {"metadata": {"labels": {**labels, "agents.x-k8s.io/pool": None}}})
            self.api.store.patch("pods", ns, name, {"metadata": {"labels": {**labels, "agents.x-k8s.io/pool": None}}})
        else:
            name = key[2]
            self.set_status(key, uid, "SandboxCreatePending")
            try:
                self.make_sandbox(ns, name, labels, env)
            except Refused as refused:
                self.set_status(key, uid, "ReconcilerError", message=str(refused))
                return
        self.set_status(key, uid, "SandboxNotReady", sandbox={"name": name, "podIPs": []})
        await self.report(ns, name, self.api.store.objects.get(("pods", ns, name)))

    async def report(self, ns, name, pod):
        """The pod's state in the sandbox, and in the claim that owns it."""
        if not pod or ("sandboxes", ns, name) not in self.api.store.objects:
            return
        status = pod.get("status", {})
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        ready = conditions.get("Ready", {}).get("status") == "True" and not pod["metadata"].get("deletionTimestamp")
        scheduled = conditions.get("PodScheduled")
        self.api.store.update("sandboxes", ns, name, lambda s: s.update(status={
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "reason": "PodReady" if ready else "DependenciesNotReady"},
                           *([scheduled] if scheduled else [])]}))
        for key, claim in list(self.api.store.objects.items()):
            if key[0] == "sandboxclaims" and claim.get("status", {}).get("sandbox", {}).get("name") == name:
                reason = "PodFailed" if status.get("phase") == "Failed" else "Ready" if ready else "SandboxNotReady"
                self.set_status(key, claim["metadata"]["uid"], reason, ready,
                                {"name": name, "podIPs": [i["ip"] for i in status.get("podIPs", [])]})

    async def drop(self, ns, claim):
        name = claim.get("status", {}).get("sandbox", {}).get("name")
        if not name:
            return
        for resource in ("sandboxes", "pods"):
            try:
                self.api.delete(resource, ns, name, {})
            except Refused:
                pass
