# SPDX-License-Identifier: Apache-2.0
"""Pods of a fake cluster in place of the mock's sessions: run.py --target kubernetes runs the tests that are about Berth, not about
the mock, with kubernetes.so as the daemons' only target. What only the mock can do is left out by name and reason."""

import pathlib
import sys

import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from kube_fake import Kube  # noqa: E402

# Beginnings of full names of tests, and why they do not apply; the first that fits is printed.
LEFT_OUT = [
    ("kubernetes", "has clusters of its own"),
    ("plugins.", "loads plugins of its own"),
    ("remote.", "is about the provider over HTTP"),
    ("ctl.config_and_providers_", "knows the mock by name"),
    ("ctl_tty.tables_fit_", "knows how long the mock's refs are"),
    ("commands.C13_", "counts children of the host, where the mock's commands are"),
    ("sessions.L1_renewal_", "reads a variable that the mock gives to commands"),
    ("surface.operators_routes", "knows the mock by name"),
    ("warm.orphans_are_swept", "plants sessions in the mock's folder"),
    ("warm.nothing_is_swept", "plants sessions in the mock's folder"),
    ("warm.Q2_", "plants sessions in the mock's folder"),
    ("warm.kill_at_assign_after", "wants its pool full within milliseconds"),
]


def why_not(name):
    return next((why for start, why in LEFT_OUT if name.startswith(start)), None)


class Pods:
    """The same questions as of the mock, answered by the cluster."""

    CREATES = ("POST", "/pods", "dryRun")
    COUNTED = {"created": CREATES, "provision": CREATES, "release": ("DELETE", "/pods/", None)}

    open = set()

    def __init__(self):
        self.kube = Kube(harness.BUILD / "bin" / "berth-executor").start()
        self.root = self.kube.dir / "pods"
        self.root.mkdir(exist_ok=True)
        Pods.open.add(self)

    def sessions(self):
        found = {}
        for pod in self.kube.pods().values():
            meta = pod["metadata"]
            notes = meta.get("annotations", {})
            if not meta.get("deletionTimestamp"):
                found[f"{meta['namespace']}/{meta['name']}/{meta['uid']}"] = {
                    "workspace": notes.get("berth.dev/workspace", ""), "task": notes.get("berth.dev/task", ""),
                    "intent": notes.get("berth.dev/intent", "")}
        return found

    def count(self, op):
        if op not in self.COUNTED:
            raise harness.Skipped(f"counts the mock's calls of {op}")
        method, part, without = self.COUNTED[op]
        return sum(1 for m, target in self.kube.api.requests if m == method and part in target and (not without or without not in target))

    def faults(self, *lines):
        if lines:
            raise harness.Skipped("uses faults of the mock")

    def work(self, ref):
        return self.root / ref.rsplit("/", 1)[1] / "work"

    def conf(self, target, settings):
        if settings:
            raise harness.Skipped("configures the mock")
        kube = self.kube
        return (f'provider = "kubernetes";\nname = "mock";\n{target}\nconfig: {{ kubeconfig = "{kube.kubeconfig()}"; '
                f'signing_key = "file:{kube.signing_key()}"; template = "{kube.template()}"; network_policy = true; kill_grace = "200ms"; }};\n')

    def close(self):
        self.kube.close()
        Pods.open.discard(self)


def close_all():
    """Those that no daemon used: of the further hosts of a fleet."""
    for pods in list(Pods.open):
        pods.close()
