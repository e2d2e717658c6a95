# SPDX-License-Identifier: Apache-2.0
"""Claims of warm pods: what one costs in requests, how many a host does per second on an API server that is faster than it needs
(tests/peers/kube_fast), and how long one takes on a real one (claim_real.py)."""

import datetime
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from parts import PROGRAMS, TOKEN, daemon, free_port, harness, wrk

PEERS = harness.ROOT / "tests" / "peers"
sys.path.insert(0, str(PEERS))
import kube_rules  # noqa: E402

POOL = 300  # as many as the burst of the goal
CLIENTS = 32
NAMESPACE = "sandboxes"
CONF = 'runner: { concurrency = 1000; };\nlease: { idle = "1h"; };\n'
# Every claim is one command to begin with; the pods of the fast server do not run any.
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: bench
clusters:
- name: bench
  cluster:
    server: {url}
contexts:
- name: bench
  context:
    cluster: bench
    user: bench
    namespace: {namespace}
users:
- name: bench
  user:
    token: bench
"""


class FastKube:
    """tests/peers/kube_fast, built where the other programs of the benches are."""

    def __init__(self, stack):
        if not shutil.which("go"):
            raise SystemExit("bench claim: there is no Go toolchain to build tests/peers/kube_fast with")
        program = PROGRAMS / "kube_fast"
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=PEERS / "kube_fast", check=True)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-kube-"))
        stack.callback(shutil.rmtree, self.dir, ignore_errors=True)
        self.pod_port = free_port()
        self.proc = subprocess.Popen([str(program), "--executor-port", str(self.pod_port)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        stack.callback(self.close)
        self.url = self.proc.stdout.readline().split()[1]
        self.kubeconfig = self.dir / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG.format(url=self.url, namespace=NAMESPACE))
        kube_rules.hold(self.kubeconfig, NAMESPACE)

    def close(self):
        self.proc.stdin.close()
        self.proc.wait()

    def ask(self, path):
        connection = http.client.HTTPConnection(self.url.split("//")[1])
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def names(self):
        items = self.ask(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return [p["metadata"]["name"] for p in items if "berth.dev/pool" in p["metadata"]["labels"]]

    def rate(self, seconds):
        """What it does by itself, on the path of a claim's look."""
        pods = f"{self.url}/api/v1/namespaces/{NAMESPACE}/pods"
        return wrk(f"{pods}/{self.names()[0]}", seconds, token=False)[0]


def signing_key(folder):
    path = folder / "signing.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)], check=True, capture_output=True)
    path.chmod(0o600)
    return path


def use_cluster(berth, target, **settings):
    """Kubernetes as the daemon's only target."""
    for path in (berth.dir / "providers.d").iterdir():
        path.unlink()
    settings = {"network_policy": "true", **settings}
    values = " ".join(f'{k} = {json.dumps(v) if isinstance(v, int) else json.dumps(str(v))};' for k, v in settings.items())
    (berth.dir / "providers.d" / "10-kube.conf").write_text(
        f'provider = "kubernetes";\nname = "kube";\n{target}\nconfig: {{ {values} }};\n')


def ready_in_pool(berth):
    return berth.log().count("a warm session is ready")


class Claims:
    """Claims that the daemon reports from here on."""

    LINE = re.compile(r'ts=(\S+) .*msg="a session is live".* how=(\w+) ms=(\d+)')

    def __init__(self, berth):
        self.berth, self.start, self.begin = berth, len(berth.log()), time.time()

    def found(self):
        return [(at, int(ms)) for at, how, ms in self.LINE.findall(self.berth.log()[self.start:]) if how == "warm"]

    def milliseconds(self):
        return [ms for _, ms in self.found()]

    def seconds(self):
        """From here on until the last of them was live."""
        last = max(at for at, _ in self.found())
        return datetime.datetime.fromisoformat(last.replace("Z", "+00:00")).timestamp() - self.begin


def first_command(connection, task):
    """Asks for the first command of a task; seconds until its end is known."""
    body = json.dumps({"workspace_id": "bench", "task_id": task, "command": {"command_body": "true"}})
    begin = time.monotonic()
    connection.request("POST", "/sandbox/executions?wait=30s", body, {"Authorization": "Bearer " + TOKEN,
                                                                      "Content-Type": "application/json"})
    record = json.loads(connection.getresponse().read())
    while record.get("status") in ("queued", "claimed", "running"):
        connection.request("GET", f"/sandbox/executions/{record['id']}?wait=30s", headers={"Authorization": "Bearer " + TOKEN})
        record = json.loads(connection.getresponse().read())
    harness.check(record.get("status") == "completed", record)
    return time.monotonic() - begin


def burst(berth, tasks, clients=CLIENTS):
    """All at once; seconds in all, and of each."""
    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", berth.port, timeout=120)
        try:
            return [first_command(connection, task) for task in tasks[number::clients]]
        finally:
            connection.close()
    begin = time.monotonic()
    took = sum(harness.in_parallel(clients, client), [])
    return time.monotonic() - begin, took


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def claim_costs(before, after, pool, tasks):
    """Writes and reads of one claim: looks for the task, and what was asked of pods that stood ready when it began. Pods that were
    made meanwhile were also asked for by whoever filled the pool."""
    grown = {key: n - before["by"].get(key, 0) for key, n in after["by"].items()}

    def of_pool(method):
        return {key.split()[2]: n for key, n in grown.items() if n and key.startswith(method + " pod ") and key.split()[2] in pool}
    claimed = of_pool("PATCH")
    asked = sum(n for name, n in of_pool("GET").items() if name in claimed)
    return sum(claimed.values()) / len(claimed), grown.get("LIST task", 0) / tasks + asked / len(claimed)


def fast(options, stack):
    kube = FastKube(stack)
    berth = daemon(stack, "claim", memory=True, conf=CONF)
    use_cluster(berth, f"warm = {POOL};", kubeconfig=kube.kubeconfig, image="bench:1", executor_port=kube.pod_port,
                signing_key=f"file:{signing_key(kube.dir)}")
    berth.start()
    filled = POOL
    harness.wait_for(lambda: ready_in_pool(berth) >= filled, 120, "the pool to be full")

    def one_round(number):
        nonlocal filled
        tasks, pool, before = [f"r{number}-{i}" for i in range(POOL)], set(kube.names()), kube.ask("/counts")
        claims, spent = Claims(berth), berth.seconds()
        begin, seconds, _ = time.monotonic(), *burst(berth, tasks)
        whole, spent = spent, berth.seconds() - spent
        after = kube.ask("/counts")
        warm = len(claims.milliseconds())
        # What a claim leaves to be done: a pod in the place of each, whether it was made beside the claims or after them.
        meanwhile = ready_in_pool(berth) - filled
        filled += POOL
        harness.wait_for(lambda: ready_in_pool(berth) >= filled, 120, "the pool to be full again")
        refilled, whole = time.monotonic() - begin, berth.seconds() - whole
        writes, reads = claim_costs(before, after, pool, POOL)
        # A task that found the pool empty waits for a pod of its own, and its requests are not those of a claim.
        harness.check(warm == POOL, warm, "of", POOL, "tasks got a warm pod")
        for task in tasks:
            berth.teardown(task, "bench")
        return {"rate": (warm / seconds, None), "cpu": (spent / warm * 1000, None), "writes": (writes, None), "reads": (reads, None),
                "meanwhile": (meanwhile, None), "refilled": (refilled, None), "whole_cpu": (whole / warm * 1000, None),
                "server": (kube.rate(options.seconds), None)}
    return one_round


def real(options, stack):
    """In a network namespace of its own, where pods have real addresses: by claim_real.py."""
    def one_round(number):
        done = subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("claim_real.py"))], text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "BERTH_BUILD": str(harness.BUILD)})
        if done.returncode:
            raise SystemExit("bench claim-real: " + done.stdout.strip())
        return {metric: tuple(pair) for metric, pair in json.loads(done.stdout.splitlines()[-1]).items()}
    return one_round
