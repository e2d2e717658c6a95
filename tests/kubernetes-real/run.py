#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kubernetes.so against a real kube-apiserver (tests/peers/kube-apiserver) with real executors in its pods.

Everything runs in a network namespace of its own whose addresses 10.201.0.0/16 are all local, so that pods have real addresses, which
the API server's proxy dials as it would in a cluster. Ends with "N passed, N failed, N skipped".
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "peers")]
import harness  # noqa: E402
import kube_rules  # noqa: E402
from harness import BUILD, PATIENCE, check, equal, in_parallel, settled, wait_for  # noqa: E402

NETWORK = "10.201.0.0/16"
NAMESPACE = "berth-sandboxes"
MANIFESTS = ROOT / "packaging" / "kubernetes"


def enter_namespace():
    """Goes on inside, where the variable says that it is done; returns why it cannot."""
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True)
    if tried.returncode:
        return tried.stderr.strip() or "unshare failed"
    os.environ["BERTH_IN_NAMESPACE"] = "1"
    inside = 'ip link set lo up && ip addr add 10.201.0.1/16 dev lo && exec "$@"'
    os.execvp("unshare", ["unshare", *flags, "sh", "-c", inside, "sh", sys.executable, *sys.argv])


class Cluster:
    def __init__(self, binaries):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="berth-kube-"))
        self.binaries = pathlib.Path(binaries)
        self.server = self.node = None

    def start(self):
        (self.dir / "api").mkdir()
        self.server = self.spawn("api.log", self.binaries / "kube-apiserver", self.dir / "api")
        wait_for(lambda: self.alive(self.server, "api.log") and (self.dir / "api" / "ready").exists(), 180, "the API server")
        self.kubeconfig = self.dir / "api" / "kubeconfig"
        # As an operator does it. A controller would make the default account, without which no pod is admitted.
        for path in sorted(MANIFESTS.glob("[0-2]*.yaml")):
            self.kubectl("apply", "-f", path)
        self.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
        self.node = self.spawn("node.log", sys.executable, ROOT / "tests/peers/kube_node.py", self.kubeconfig, "--executor",
                               BUILD / "bin" / "berth-executor", "--dir", self.dir / "pods", "--network", NETWORK)
        wait_for(lambda: self.alive(self.node, "node.log") and "ready" in (self.dir / "node.log").read_text(), 30, "the node")
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.dir / "signing.pem"], check=True,
                       capture_output=True)
        (self.dir / "signing.pem").chmod(0o600)
        return self

    def spawn(self, log, *command):
        with open(self.dir / log, "ab") as out:
            return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def alive(self, process, log):
        if process.poll() is not None:
            raise harness.Failure(f"{log}: exit {process.returncode}: {(self.dir / log).read_text()[-2000:]}")
        return True

    def try_kubectl(self, *words, stdin=None):
        return subprocess.run([self.binaries / "kubectl", "--kubeconfig", self.kubeconfig, *words], input=stdin,
                              capture_output=True, text=True)

    def kubectl(self, *words, stdin=None):
        done = self.try_kubectl(*words, stdin=stdin)
        check(done.returncode == 0, "kubectl", *words, done.stderr)
        return done.stdout

    def pods(self, selector=""):
        items = json.loads(self.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json"))["items"]
        return [pod for pod in items if not pod["metadata"].get("deletionTimestamp")]

    def settings(self, **more):
        # With the rights that the manifests give to berthd, and no more.
        values = {"kubeconfig": self.dir / "api" / "kubeconfig-berth", "namespace": NAMESPACE,
                  "signing_key": f"file:{self.dir}/signing.pem",
                  "image": "sandbox:1", "network_policy": "true", "kill_grace": "200ms", **more}
        return " ".join(f'{k} = "{v}";' for k, v in values.items())

    def target(self, **more):
        return f'provider = "kubernetes";\nname = "kube";\nconfig: {{ {self.settings(**more)} }};\n'

    def close(self):
        for process in (self.node, self.server):
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


@contextlib.contextmanager
def berth(cluster, conf="", target="", gc='gc: { interval = "200ms"; };\n', **settings):
    b = harness.Berth(name="kube", conf=gc + conf)
    for path in (b.dir / "providers.d").iterdir():
        path.unlink()
    (b.dir / "providers.d" / "10-kube.conf").write_text(target + cluster.target(**settings))
    try:
        yield b.start()
    except Exception:
        print("\n".join(b.log().splitlines()[-30:]))
        raise
    finally:
        b.close()


def no_pods(cluster):
    wait_for(lambda: not cluster.pods(), 60, "every pod to go")


# ---- tests ----

def test_a_task_has_one_pod(cluster):
    with berth(cluster) as b:
        equal(b.sh("t", "echo hello > f; cat f"), b"hello\n")
        equal(b.sh("t", "cat f"), b"hello\n", "the same pod")
        equal(len(cluster.pods()), 1)
        b.kill9()
        b.start()
        equal(b.sh("t", "cat f"), b"hello\n", "the same pod after a kill")
        b.teardown("t", wait="30s").expect(200, 202, 204)
        settled(b)
    no_pods(cluster)


def test_a_command_survives_its_host(cluster):
    with berth(cluster) as b:
        made = b.create("t", "echo 1 >> ran; echo a; sleep 4; echo b; exit 5").expect(202).json["id"]
        wait_for(lambda: b.record(made)["status"] == "running", 30, "the command to run")
        b.restart()
        record = b.finish(made)
        equal((record["status"], record["result"]["exit_code"]), ("completed", 5))
        equal(b.output(made), b"a\nb\n")
        equal(b.sh("t", "cat ran"), b"1\n")
        b.teardown("t", wait="30s")
    no_pods(cluster)


def test_through_the_servers_proxy(cluster):
    with berth(cluster, reach="proxy") as b:
        equal(b.sh("t", "head -c 3000000 /dev/zero | tr '\\0' x | wc -c").strip(), b"3000000")
        b.put_file("t", "data", bytes(range(256)) * 4096).expect(200, 201, 204)
        equal(b.get_file("t", "data").expect(200).body, bytes(range(256)) * 4096)
        b.teardown("t", wait="30s")
    no_pods(cluster)


def test_quota_is_told(cluster):
    cluster.kubectl("create", "quota", "few", "-n", NAMESPACE, "--hard=pods=1")
    # The quota controller's part: admission counts against the status.
    cluster.kubectl("patch", "quota", "few", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p",
                    json.dumps({"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}))
    try:
        with berth(cluster, conf='execution: { queue_timeout = "5s"; };\n') as b:
            b.sh("first", "true")
            record = b.run("second", "true", limit=60)
            equal(record["status"], "failed", record.get("error"))
            check(record["reason"] in ("quota", "quota_exceeded", "capacity_exhausted", "rate_limited"), record["reason"], record.get("error"))
            b.teardown("first", wait="30s")
    finally:
        cluster.kubectl("delete", "quota", "few", "-n", NAMESPACE)
    no_pods(cluster)


def test_warm_pods_are_claimed_once(cluster):
    """Tasks beyond the pool are created; none has two pods, no pod two tasks, none is left over."""
    tasks = 60
    with berth(cluster, target="warm = 20;\n", conf="runner: { concurrency = 64; };\n") as b:
        wait_for(lambda: len(cluster.pods()) >= 20, 120, "the warm pool")
        warm = {pod["metadata"]["uid"] for pod in cluster.pods()}
        homes = in_parallel(tasks, lambda i: b.sh(f"t{i}", "pwd"))
        equal(len(set(homes)), tasks, "every task has a pod of its own")
        claimed = {pod["metadata"]["uid"] for pod in cluster.pods("berth.dev/task")}
        equal(len(claimed), tasks, "pods that belong to a task")
        check(len(claimed & warm) >= 15, "warm pods that were claimed:", len(claimed & warm))
        in_parallel(tasks, lambda i: b.teardown(f"t{i}", wait="60s"))
        settled(b)
    for pod in cluster.pods():
        cluster.kubectl("delete", "pod", "-n", NAMESPACE, pod["metadata"]["name"], "--wait=false")
    no_pods(cluster)


def test_the_rules_of_the_fakes(cluster):
    """What both fakes keep is what the real server does."""
    kube_rules.hold(cluster.dir / "api" / "kubeconfig", NAMESPACE)


def test_the_template_is_tried_at_the_start(cluster):
    """By the server, with berthd's own rights: what admission refuses stops the start, with its sentence; a missing right does not."""
    def start(field, **more):
        template = cluster.dir / "refused.yaml"
        template.write_text(f"kind: Pod\nspec:\n  {field}\n  containers:\n  - {{name: executor, image: 'sandbox:1'}}\n")
        b = harness.Berth(name="kube")
        for path in (b.dir / "providers.d").iterdir():
            path.unlink()
        (b.dir / "providers.d" / "10-kube.conf").write_text(cluster.target(template=template))
        try:
            b.start(**more)
            return b.log()
        finally:
            b.close()
    for field, words in (("priorityClassName: none-such", "no PriorityClass with name none-such was found"),
                         ("serviceAccountName: none-such", "error looking up service account")):
        log = start(field, expect_exit=78)
        check(words in log, log[-800:])
    cluster.kubectl("patch", "role", "berthd", "-n", NAMESPACE, "--type=json", "-p", json.dumps(
        [{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "patch", "delete"]}]))
    try:
        log = start("serviceAccountName: sandbox")
        check("could not be asked about the template" in log and "cannot create resource" in log, log[-800:])
    finally:
        cluster.kubectl("apply", "-f", MANIFESTS / "10-rbac.yaml")
    equal(cluster.pods(), [])


def test_conformance(cluster):
    conf = cluster.dir / "target.conf"
    conf.write_text(cluster.target(memory="192MiB"))
    done = subprocess.run([str(BUILD / "bin" / "berth-conformance"), str(BUILD / "lib/berth/plugins/kubernetes.so"), "--config",
                           str(conf), "--gone", "10", "--patience", str(max(1, round(PATIENCE)))], capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, timeout=900 * PATIENCE)
    lines = done.stdout.splitlines()
    print("     ", *[line for line in lines if "passed" in line][-1:], *[line for line in lines if "# SKIP" in line])
    check(done.returncode == 0, "\n".join(x for x in lines if not x.startswith("ok")) + done.stderr[-2000:])
    no_pods(cluster)


def test_the_manifests_are_taken(cluster):
    """Those with the rights are applied for all tests; the server judges the others, and that its judgement says something."""
    for path in sorted(MANIFESTS.glob("[3-9]*.yaml")):
        cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", path)
    broken = (MANIFESTS / "40-berthd.yaml").read_text().replace("containers:", "containerz:")
    done = cluster.try_kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=broken)
    check(done.returncode != 0 and "containerz" in done.stderr, done.stderr)


def test_the_policies_let_each_reach_in(cluster):
    """reach = "pod" comes from berthd's pods, reach = "proxy" from the addresses of API servers; nobody else is let in."""
    ways = {}
    for policy in json.loads(cluster.kubectl("get", "networkpolicies", "-n", NAMESPACE, "-o", "json"))["items"]:
        for rule in policy["spec"].get("ingress") or []:
            equal((policy["spec"]["podSelector"], [p["port"] for p in rule["ports"]]), ({}, [8080]), policy["metadata"]["name"])
            ways[policy["metadata"]["name"]] = [sorted(peer) for peer in rule["from"]]
    equal(ways, {"executor-from-berthd": [["namespaceSelector", "podSelector"]], "executor-from-control-plane": [["ipBlock"]]})


def test_no_more_rights_than_the_manifests_give(cluster):
    for verb, what, namespace, allowed in (("create", "pods", NAMESPACE, "yes"), ("delete", "pods", NAMESPACE, "yes"),
                                           ("create", "pods", "default", "no"), ("get", "secrets", NAMESPACE, "no"),
                                           ("create", "pods --subresource=exec", NAMESPACE, "no"), ("get", "nodes", NAMESPACE, "no")):
        done = cluster.try_kubectl("--kubeconfig", str(cluster.dir / "api" / "kubeconfig-berth"), "auth", "can-i", verb, *what.split(), "-n",
                                   namespace)
        equal(done.stdout.strip().splitlines()[-1], allowed, f"{verb} {what} in {namespace}")


# ----

def cannot(why, is_failure):
    """One line that says what was not tested; with --full that is a failure."""
    print(f"{'FAIL' if is_failure else 'skip'} kubernetes-real: {why}")
    print(f"0 passed, {int(is_failure)} failed, {int(not is_failure)} skipped")
    return int(is_failure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    harness.FULL = args.full
    built = os.environ.get("BERTH_KUBE_APISERVER")
    if not built:  # before the namespace, in which there is no network to fetch modules from
        done = subprocess.run(["sh", str(ROOT / "tests/peers/kube-apiserver/build.sh")], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            return cannot({3: "there is no Go toolchain", 4: "Kubernetes' modules cannot be had"}.get(
                done.returncode, "the API server cannot be built"), args.full or done.returncode not in (3, 4))
        built = os.environ["BERTH_KUBE_APISERVER"] = done.stdout.strip()
    if "BERTH_IN_NAMESPACE" not in os.environ:
        return cannot("no network namespace can be made: " + enter_namespace(), args.full)
    tests = [(name[5:], f) for name, f in globals().items() if name.startswith("test_")]
    tests = [(n, f) for n, f in tests if not args.patterns or any(p in n for p in args.patterns)]
    passed = failed = 0
    cluster = Cluster(built)
    try:
        cluster.start()
        for name, function in tests:
            start = time.monotonic()
            try:
                function(cluster)
                passed += 1
                print(f"ok   kubernetes-real.{name} ({time.monotonic() - start:.1f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL kubernetes-real.{name} ({time.monotonic() - start:.1f} s)\n{traceback.format_exc()}", flush=True)
                print((cluster.dir / "node.log").read_text()[-1500:])
                for pod in cluster.pods():
                    cluster.try_kubectl("delete", "pod", "-n", NAMESPACE, pod["metadata"]["name"], "--wait=false")
    finally:
        cluster.close()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
