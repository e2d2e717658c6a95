# SPDX-License-Identifier: Apache-2.0
"""The whole fake on one thread: API server, node, controller. Tests reach into it with call()."""

import asyncio
import base64
import pathlib
import shutil
import ssl
import subprocess
import tempfile
import threading

from . import http
from .api import Api
from .claims import Claims
from .node import Node


class Kube:
    def __init__(self, executor, directory=None, port=0, pod_port=8080, tls=None):
        """tls: (certificate file, key file), then https."""
        self.executor, self.port, self.pod_port, self.tls = str(executor), port, pod_port, tls
        base = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
        self.owned = directory is None
        self.dir = pathlib.Path(directory or tempfile.mkdtemp(prefix="kube-fake-", dir=base))
        self.ready, self.failure = threading.Event(), None
        self.thread = threading.Thread(target=self.main, daemon=True)

    # ---- the thread ----
    def main(self):
        try:
            asyncio.run(self.serve())
        except BaseException as failure:  # noqa: B902 - told to whoever waits
            self.failure = failure
            self.ready.set()

    async def serve(self):
        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        self.api = Api()
        self.node = Node(self.api, self.dir / "pods", self.executor, self.pod_port)
        self.claims = Claims(self.api)
        context = None
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
        server = await http.serve(self.api.handle, self.port, context)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.ended.wait()
        server.close()
        await self.node.close()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    # ---- from outside ----
    def start(self):
        self.thread.start()
        self.ready.wait(30)
        if self.failure:
            raise self.failure
        return self

    def close(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.ended.set)
            self.thread.join(60)
        if self.owned:
            shutil.rmtree(self.dir, ignore_errors=True)

    def call(self, function, *args):
        """Runs function(*args) on the fake's thread and returns its value; it may be a coroutine function."""
        async def run():
            value = function(*args)
            return await value if asyncio.iscoroutine(value) else value
        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def pods(self, ns="sandboxes"):
        """Name -> object, as of now."""
        return self.call(lambda: {k[2]: v for k, v in self.api.store.objects.items() if k[0] == "pods" and k[1] == ns})

    def pods_of(self, task, workspace="w"):
        found = self.pods().values()
        notes = [(p, p["metadata"].get("annotations", {})) for p in found]
        return [p for p, n in notes if n.get("berth.dev/task") == task and n.get("berth.dev/workspace") == workspace]

    def faults(self, *rules):
        return self.call(lambda: [self.api.faults.add(**rule) for rule in rules])

    def kubeconfig(self, token="fake-token", namespace="sandboxes", **user):
        """Writes one for this server and returns its path."""
        path = self.dir / "kubeconfig"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = "".join(f"    {k}: {v}\n" for k, v in ({"token": token} if not user else user).items())
        path.write_text(f"apiVersion: v1\nkind: Config\ncurrent-context: fake\nclusters:\n- name: fake\n  cluster:\n    server: {self.url}\n"
                        f"contexts:\n- name: fake\n  context:\n    cluster: fake\n    user: fake\n    namespace: {namespace}\n"
                        f"users:\n- name: fake\n  user:\n{fields}")
        return path

    def signing_key(self):
        path = self.dir / "signing.pem"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)], check=True, capture_output=True)
            path.chmod(0o600)
        return path

    def public_key(self):
        """The executor's side of the signing key, as BERTH_EXECUTOR_KEYS has it."""
        der = subprocess.run(["openssl", "pkey", "-in", str(self.signing_key()), "-pubout", "-outform", "DER"], check=True,
                             capture_output=True).stdout
        return "k1:" + base64.b64encode(der[-32:]).decode()

    def agent_sandbox(self, warm=2):
        """What an operator sets up for mode sandboxclaim: a template with our executor, and a pool of it."""
        self.claims.pod_spec = {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "executor", "image": "sandbox:1", "resources": {"limits": {"memory": "192Mi"}}, "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, "env": [
                    {"name": "BERTH_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                    {"name": "BERTH_EXECUTOR_KEYS", "value": self.public_key()}]}]}

        def make():
            self.api.store.create("sandboxwarmpools", "sandboxes", {"metadata": {"name": "pool"}, "spec": {"replicas": warm}})
            self.claims.fill("sandboxes", warm)
        self.call(make)

    def template(self):
        """A pod template as an operator would write it; the image is never pulled."""
        path = self.dir / "template.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kind: Pod\nmetadata:\n  labels: {team: tests}\nspec:\n  terminationGracePeriodSeconds: 1\n"
                        "  containers:\n  - name: executor\n    image: sandbox:1\n    securityContext: {runAsUser: 10001}\n"
                        "    resources: {limits: {memory: 192Mi}}\n")
        return path
