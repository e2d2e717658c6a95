#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node, a scheduler and a kubelet in one, as far as pods of Berth need them, for a kube-apiserver that has none.

    kube_node.py KUBECONFIG --executor PROGRAM --dir DIR [--network 10.201.0.0/16] [--name node-1]

Pods without a node are bound through the binding subresource. A bound pod gets an address of its own out of the network, which
must be local to this network namespace (`ip addr add 10.201.0.1/16 dev lo` makes all of it so), a real executor that listens on
that address, and the status that a kubelet writes. A pod with a deletionTimestamp loses its executor and then, as a kubelet
does it, its object.

The API server is the judge of what is sent: no client library stands between.
"""

import argparse
import base64
import concurrent.futures
import http.client
import ipaddress
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kube_fake.node import Group, memory_of, processes_of  # noqa: E402


class Refused(Exception):
    def __init__(self, code, body):
        super().__init__(f"{code}: {body.get('message', body)}")
        self.code = code
        self.body = body


def read_kubeconfig(path):
    """Only the flat form that our own servers write: server, certificate-authority-data, token."""
    text = pathlib.Path(path).read_text()
    found = {key: re.search(rf"^\s*{key}: (\S+)$", text, re.M) for key in ("server", "certificate-authority-data", "token")}
    server = urllib.parse.urlsplit(found["server"].group(1))
    ca = found["certificate-authority-data"]
    return server, base64.b64decode(ca.group(1)).decode() if ca else None, found["token"].group(1)


class Api:
    """One keep-alive connection per thread."""

    def __init__(self, kubeconfig):
        self.server, ca, self.token = read_kubeconfig(kubeconfig)
        self.tls = ssl.create_default_context(cadata=ca) if self.server.scheme == "https" else None
        self.local = threading.local()

    def connect(self, timeout=60):
        if self.tls:
            return http.client.HTTPSConnection(self.server.hostname, self.server.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.server.hostname, self.server.port, timeout=timeout)

    def headers(self, kind="application/json"):
        return {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json",
                "User-Agent": "berth-test-node"}

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body)
        for again in (True, False):
            connection = getattr(self.local, "connection", None)
            if not connection:
                connection = self.local.connection = self.connect()
            try:
                connection.request(method, path, data, self.headers(kind))
                response = connection.getresponse()
                answer = json.loads(response.read() or b"{}")
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                self.local.connection = None
                if not again:
                    raise
        if response.status >= 400:
            raise Refused(response.status, answer)
        return answer

    def watch(self, path, version):
        """Yields events until the server ends the watch."""
        connection = self.connect(timeout=330)
        query = urllib.parse.urlencode({"watch": 1, "resourceVersion": version, "allowWatchBookmarks": "true",
                                        "timeoutSeconds": 300})
        try:
            connection.request("GET", path + ("&" if "?" in path else "?") + query, headers=self.headers())
            response = connection.getresponse()
            if response.status >= 400:
                raise Refused(response.status, json.loads(response.read() or b"{}"))
            while line := response.readline():
                yield json.loads(line)
        finally:
            connection.close()


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def condition(kind):
    return {"type": kind, "status": "True", "lastTransitionTime": now()}


class Pod:
    """What the node does with one uid. Its steps run one after another."""

    def __init__(self, node, obj):
        self.node = node
        self.obj = obj
        self.lock = threading.Lock()
        self.process = None
        self.group = None
        self.address = None
        self.bound = self.started = self.gone = False

    def meta(self, key):
        return self.obj["metadata"].get(key)

    def path(self, sub=""):
        return f"/api/v1/namespaces/{self.meta('namespace')}/pods/{self.meta('name')}{sub}"

    def step(self, obj):
        with self.lock:
            self.obj = obj
            try:
                self.advance()
            except Refused as refused:
                if refused.code not in (404, 409):
                    raise

    def advance(self):
        if self.gone:
            return
        if self.meta("deletionTimestamp"):
            self.delete()
        elif not self.bound and not self.obj["spec"].get("nodeName"):
            self.bind()
        elif not self.started:
            self.start()

    def bind(self):
        self.bound = True
        self.node.api.call("POST", self.path("/binding"), {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.meta("name"), "uid": self.meta("uid")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node.name}})

    def start(self):
        if self.obj["spec"].get("nodeName") != self.node.name:
            return
        self.started = True
        self.address = self.node.take_address()
        self.process = self.node.run_executor(self)
        self.write_status(self.running())

    def running(self):
        containers = [{"name": c["name"], "image": c["image"], "imageID": "test://" + c["image"], "containerID": "test://1",
                       "ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": now()}}}
                      for c in self.obj["spec"]["containers"]]
        return {"phase": "Running", "hostIP": "192.0.2.10", "podIP": self.address, "podIPs": [{"ip": self.address}],
                "startTime": now(), "containerStatuses": containers,
                "conditions": [condition("PodScheduled"), condition("PodReadyToStartContainers"), condition("Initialized"),
                               condition("ContainersReady"), condition("Ready")]}

    def write_status(self, status):
        self.node.api.call("PATCH", self.path("/status"), {"metadata": {"uid": self.meta("uid")}, "status": status},
                           "application/strategic-merge-patch+json")

    def kill(self):
        if self.process:
            self.node.stop_executor(self)
            self.process = None

    def delete(self):
        self.gone = True
        self.kill()
        if self.address:
            self.node.give_address(self.address)
        self.node.api.call("DELETE", self.path(), {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                                                   "preconditions": {"uid": self.meta("uid")}})


class Node:
    def __init__(self, args):
        self.name = args.name
        self.api = Api(args.kubeconfig)
        self.executor = args.executor
        self.dir = pathlib.Path(args.dir)
        self.dir.mkdir(parents=True, exist_ok=True)
        hosts = ipaddress.ip_network(args.network).hosts()
        next(hosts)  # the interface's own
        self.addresses = queue.SimpleQueue()
        for host in hosts:
            self.addresses.put(str(host))
        self.pods = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(args.threads)

    def take_address(self):
        return self.addresses.get_nowait()

    def give_address(self, address):
        """To the end of the queue, so that an address is not given again at once; tests of reuse take a small network."""
        self.addresses.put(address)

    def run_executor(self, pod):
        container = pod.obj["spec"]["containers"][0]
        root = self.dir / pod.meta("uid")
        for name in ("work", "tmp"):
            (root / name).mkdir(parents=True)
        pod.group = Group(pod.meta("uid"), memory_of(pod.obj))
        environment = {"PATH": os.environ["PATH"], "HOME": str(root / "work"), "TMPDIR": str(root / "tmp")}
        for entry in container.get("env", []):
            environment[entry["name"]] = entry.get("value") or self.field(pod, entry)
        # The pod's own places would be those of a container.
        environment.update(BERTH_EXECUTOR_LISTEN=f"{pod.address}:8080", BERTH_EXECUTOR_ROOT=str(root / "work"),
                           BERTH_EXECUTOR_STATE=str(root / "state"))
        with open(root / "log", "ab") as log:
            return subprocess.Popen(pod.group.command(self.executor, "serve"), env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log, cwd=root / "work", start_new_session=True)

    def field(self, pod, entry):
        """The downward API, for the fields that our template uses."""
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        return {"metadata.uid": pod.meta("uid"), "metadata.name": pod.meta("name"), "metadata.namespace": pod.meta("namespace"),
                "status.podIP": pod.address}.get(path, "")

    def stop_executor(self, pod):
        """A container's death takes every process with it, those that left the executor's group too."""
        root = self.dir / pod.meta("uid")
        pod.process.kill()
        pod.process.wait()
        while left := self.processes(pod, root):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        while not pod.group.drop():
            time.sleep(0.01)
        shutil.rmtree(root, ignore_errors=True)

    def processes(self, pod, root):
        left = pod.group.processes()
        return processes_of(root) if left is None else left

    def take(self, obj):
        pod = self.pods.setdefault(obj["metadata"]["uid"], Pod(self, obj))
        self.pool.submit(pod.step, obj).add_done_callback(complain)

    def register(self):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": {"kubernetes.io/os": "linux"}}}
        try:
            self.api.call("POST", "/api/v1/nodes", body)
        except Refused as refused:
            if refused.code != 409:
                raise
        status = {"status": {"conditions": [condition("Ready")], "capacity": {"pods": "5000", "cpu": "1000", "memory": "1Ti"},
                             "allocatable": {"pods": "5000", "cpu": "1000", "memory": "1Ti"}}}
        self.api.call("PATCH", f"/api/v1/nodes/{self.name}/status", status, "application/strategic-merge-patch+json")

    def follow(self):
        """Lists, watches, and begins again whenever the watch is too old."""
        while True:
            listed = self.api.call("GET", "/api/v1/pods")
            for obj in listed["items"]:
                self.take(obj)
            self.follow_from(listed["metadata"]["resourceVersion"])

    def follow_from(self, version):
        while True:
            try:
                for event in self.api.watch("/api/v1/pods", version):
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self.take(event["object"])
                    elif event["type"] == "DELETED":
                        self.forget(event["object"])
            except Refused as refused:
                if refused.code == 410:
                    return
                raise
            except (http.client.HTTPException, OSError, json.JSONDecodeError):
                time.sleep(0.1)  # the server is being restarted

    def forget(self, obj):
        pod = self.pods.pop(obj["metadata"]["uid"], None)
        if pod:
            with pod.lock:
                pod.gone = True
                pod.kill()

    def close(self):
        for pod in list(self.pods.values()):
            pod.kill()


def complain(future):
    if future.exception():
        print("kube_node:", repr(future.exception()), file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig")
    parser.add_argument("--executor", required=True)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--network", default="10.201.0.0/16")
    parser.add_argument("--name", default="node-1")
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args()


def main():
    args = parse()
    node = Node(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        node.register()
        print("ready", flush=True)
        node.follow()
    finally:
        node.close()


if __name__ == "__main__":
    main()
