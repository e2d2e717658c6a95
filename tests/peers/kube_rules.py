# SPDX-License-Identifier: Apache-2.0
"""What a claim rests on in an API server, asked of whatever serves: the real one, and both fakes, which are worth as much as they keep.

    kube_rules.py KUBECONFIG NAMESPACE
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kube_node import Api, Refused  # noqa: E402

MERGE = "application/merge-patch+json"


class Broken(AssertionError):
    pass


def must(condition, *what):
    if not condition:
        raise Broken(" ".join(str(w) for w in what))


class Rules:
    def __init__(self, kubeconfig, namespace):
        self.api = Api(kubeconfig)
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def refused(self, code, reason, *call):
        try:
            answer = self.api.call(*call)
        except Refused as refusal:
            told = refusal.body
            must((refusal.code, told.get("kind"), told.get("reason"), told.get("code")) == (code, "Status", reason, code), call[:2], told)
            return
        raise Broken(f"{call[:2]}: expected {code} {reason}, got {answer}")

    def create(self, name, **labels):
        # What the restricted profile of pod security demands.
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"rules": "yes", **labels}}, "spec": {
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "executor", "image": "rules:1", "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "resources": {"limits": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "1Gi"}}}]}}
        return self.api.call("POST", self.pods, pod)

    def get(self, name):
        return self.api.call("GET", f"{self.pods}/{name}")

    def patch(self, name, metadata):
        return self.api.call("PATCH", f"{self.pods}/{name}", {"metadata": metadata}, MERGE)

    def list(self, selector, more=""):
        return self.api.call("GET", f"{self.pods}?labelSelector={selector}{more}")

    def names(self, selector):
        return [pod["metadata"]["name"] for pod in self.list(selector)["items"]]

    def claim(self, name, labels):
        """As the provider does it: a refusal for the version means to look again."""
        for _ in range(50):
            meta = self.get(name)["metadata"]
            try:
                return self.patch(name, {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "labels": labels})
            except Refused as refusal:
                must(refusal.code == 409, refusal)
        raise Broken("fifty conflicts one after the other")

    # ---- the rules ----
    def names_are_given_once(self):
        meta = self.create("rules-once")["metadata"]
        must(all(meta.get(k) for k in ("uid", "resourceVersion", "creationTimestamp")), meta)
        must(self.get("rules-once")["metadata"]["uid"] == meta["uid"], "another uid")
        try:
            self.create("rules-once")
        except Refused as refusal:
            must((refusal.code, refusal.body.get("reason")) == (409, "AlreadyExists"), refusal.body)
        else:
            raise Broken("a second pod of the name")
        self.refused(404, "NotFound", "GET", f"{self.pods}/rules-none")

    def lists_select_and_page(self):
        for i in range(3):
            self.create(f"rules-list-{i}", part="list", number=str(i))
        must(self.names("part%3Dlist") == [f"rules-list-{i}" for i in range(3)], "by one label")
        must(self.names("part%3Dlist,number%3D1") == ["rules-list-1"], "by two")
        must(self.names("part%3Dlist,%21number") == [], "by an absent one")
        page, seen = self.list("part%3Dlist", "&limit=2"), []
        while True:
            seen += [pod["metadata"]["name"] for pod in page["items"]]
            must(page["metadata"]["resourceVersion"], "a list without a version")
            if not page["metadata"].get("continue"):
                break
            page = self.list("part%3Dlist", "&limit=2&continue=" + page["metadata"]["continue"].replace("=", "%3D"))
        must(seen == [f"rules-list-{i}" for i in range(3)], "pages", seen)

    def a_patch_holds_its_version(self):
        old = self.create("rules-patch", pool="a")["metadata"]
        claimed = self.claim("rules-patch", {"pool": None, "task": "t"})["metadata"]
        must("pool" not in claimed["labels"] and claimed["labels"]["task"] == "t", claimed["labels"])
        must(claimed["resourceVersion"] != old["resourceVersion"], "the version did not change")
        path, stale = f"{self.pods}/rules-patch", {"resourceVersion": old["resourceVersion"], "labels": {"task": "other"}}
        self.refused(409, "Conflict", "PATCH", path, {"metadata": stale}, MERGE)
        self.refused(409, "Conflict", "PATCH", path, {"metadata": {**stale, "uid": "0" * 8}}, MERGE)
        self.refused(422, "Invalid", "PATCH", path, {"metadata": {"uid": "0" * 8, "labels": {"task": "other"}}}, MERGE)
        self.refused(404, "NotFound", "PATCH", f"{self.pods}/rules-none", {"metadata": stale}, MERGE)
        must(self.get("rules-patch")["metadata"]["labels"]["task"] == "t", "a refused patch was done")
        must(self.names("pool%3Da") == [] and self.names("task%3Dt") == ["rules-patch"], "lists lag behind")

    def a_watch_shows_what_enters_and_leaves(self):
        version = self.list("part%3Dwatch")["metadata"]["resourceVersion"]
        self.create("rules-watch", part="watch")
        self.claim("rules-watch", {"part": None})
        seen = []
        for event in self.api.watch(self.pods + "?labelSelector=part%3Dwatch", version):
            if event["type"] != "BOOKMARK":
                must(event["object"]["metadata"]["name"] == "rules-watch", event)
                seen.append(event["type"])
            if seen[-1:] == ["DELETED"]:
                break
        must(seen[0] == "ADDED" and set(seen[1:-1]) <= {"MODIFIED"}, seen)
        must(self.get("rules-watch"), "DELETED is of the selection only")

    def a_deletion_holds_its_uid(self):
        meta = self.create("rules-delete")["metadata"]
        path = f"{self.pods}/rules-delete"

        def options(uid):
            return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        self.refused(409, "Conflict", "DELETE", path, options("0" * 8))
        self.api.call("DELETE", path, options(meta["uid"]))
        self.gone("rules-delete")
        self.refused(404, "NotFound", "DELETE", path, options(meta["uid"]))

    def gone(self, name, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                self.get(name)
            except Refused as refusal:
                must(refusal.code == 404, refusal)
                return
            must(time.monotonic() < end, name, "does not go")
            time.sleep(0.01)

    def clear(self):
        for pod in self.list("rules%3Dyes")["items"]:
            self.api.call("DELETE", f"{self.pods}/{pod['metadata']['name']}", {
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod["metadata"]["uid"]}})
            self.gone(pod["metadata"]["name"])


RULES = [Rules.names_are_given_once, Rules.lists_select_and_page, Rules.a_patch_holds_its_version,
         Rules.a_watch_shows_what_enters_and_leaves, Rules.a_deletion_holds_its_uid]


def hold(kubeconfig, namespace):
    """Every rule, on pods of its own; raises Broken with the first that does not hold."""
    rules = Rules(kubeconfig, namespace)
    for rule in RULES:
        try:
            rule(rules)
        except (Broken, Refused) as broken:
            raise Broken(f"{rule.__name__}: {broken}") from broken
        finally:
            rules.clear()


if __name__ == "__main__":
    hold(*sys.argv[1:])
