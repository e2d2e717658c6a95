# SPDX-License-Identifier: Apache-2.0
"""berthd with kubernetes.so as its only target, against the fake cluster of tests/peers/kube_fake with real executors in its pods."""

import fcntl
import functools
import os
import pathlib
import subprocess
import sys
import time

import harness
from harness import BUILD, PATIENCE, check, equal, in_parallel, settled, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from kube_fake import Kube  # noqa: E402
from kube_fake.node import SCRIPTS  # noqa: E402
import kube_rules  # noqa: E402

FAST = 'gc: { interval = "100ms"; };\n'


def clustered(test):
    """Gives the test a cluster of its own, and takes it away."""
    @functools.wraps(test)
    def run(make):
        kube = Kube(BUILD / "bin" / "berth-executor").start()
        made = []

        def cluster(**kw):
            made.append(berth_on(make, kube, **kw))
            return made[-1]
        try:
            test(cluster, kube)
        finally:
            for berth in made:
                berth.close(keep=True)  # before its provider; the runner takes the files
            kube.close()
    return run


def settings(kube, **more):
    values = {"kubeconfig": more.get("kubeconfig") or kube.kubeconfig(), "signing_key": f"file:{kube.signing_key()}", "template": kube.template(),
              "network_policy": "true", "kill_grace": "200ms", **more}
    return " ".join(f'{k} = "{v}";' for k, v in values.items() if v is not None)


def berth_on(make, kube, conf=FAST, target="", **more):
    b = make(conf=conf)
    for path in (b.dir / "providers.d").iterdir():
        path.unlink()
    (b.dir / "providers.d" / "10-kube.conf").write_text(
        f'provider = "kubernetes";\nname = "kube";\n{target}\nconfig: {{ {settings(kube, **more)} }};\n')
    return b


def task_pod(kube, task):
    pods = [p for p in kube.pods_of(task) if not p["metadata"].get("deletionTimestamp")]
    equal(len(pods), 1, f"pods of {task}")
    return pods[0]


def count(kube, method, part=""):
    """Requests; what only tried the template is left out, unless it is asked for."""
    return sum(1 for m, target in kube.api.requests if m == method and part in target and ("dryRun" in part or "dryRun" not in target))


def apply(kube, pod, script):
    meta = pod["metadata"]
    kube.call(kube.node.apply, ("pods", meta["namespace"], meta["name"]), meta["uid"], script)


def on_scripts(kube, script):
    """Every new pod follows the script; None: it runs."""
    kube.call(lambda: kube.node.scripts.__setitem__(slice(None), [lambda pod: script]))


def test_the_fake_keeps_the_rules_of_the_real_one(make):
    kube = Kube(BUILD / "bin" / "berth-executor").start()
    try:
        kube_rules.hold(kube.kubeconfig(), "sandboxes")
    finally:
        kube.close()


# ---- the ordinary way ----

@clustered
def test_a_task_runs_in_its_pod(make, kube):
    b = make().start()
    equal(b.sh("t", "echo hello > f; cat f; echo err >&2"), b"hello\n")
    equal(b.sh("t", "cat f"), b"hello\n", "the same pod")
    b.put_file("t", "in/data", b"\0\xff bytes").expect(200, 201, 204)
    equal(b.sh("t", "cat in/data"), b"\0\xff bytes")
    equal(b.get_file("t", "f").expect(200).body, b"hello\n")
    pod = task_pod(kube, "t")
    labels, notes, spec = pod["metadata"]["labels"], pod["metadata"]["annotations"], pod["spec"]
    equal((labels["berth.dev/task"], labels["berth.dev/workspace"], labels["team"]), ("t", "w", "tests"))
    equal((notes["berth.dev/task"], notes["berth.dev/deployment"]), ("t", "e2e"))
    equal((spec["automountServiceAccountToken"], spec["enableServiceLinks"], spec["restartPolicy"]), (False, False, "Never"))
    check(spec["activeDeadlineSeconds"] > 3600, "a backstop")
    check(count(kube, "POST", "/pods") == 1, "one create")
    b.teardown("t", wait="20s").expect(200, 202, 204)
    wait_for(lambda: not kube.pods(), 20, "the pod to go")
    settled(b)


def left_in_pod(kube, uid):
    """Folders of commands that the executor has not forgotten."""
    return list((kube.node.dir / uid / "state").glob("run/*/1"))


@clustered
def test_ended_commands_are_forgotten(make, kube):
    """By the next command, or after a while by a request of its own."""
    b = make().start()
    b.sh("t", "echo first")
    (uid,) = kube.node.pods
    for number in range(40):
        equal(b.sh("t", f"echo {number}"), f"{number}\n".encode())
    check(len(left_in_pod(kube, uid)) < 20, "commands take along what is to be forgotten: ", left_in_pod(kube, uid))
    wait_for(lambda: not left_in_pod(kube, uid), 20, "the last commands to be forgotten")
    equal(b.sh("t", "echo again"), b"again\n")
    wait_for(lambda: not left_in_pod(kube, uid), 20, "one more")
    in_parallel(8, lambda n: [equal(b.sh("t", f"echo {n}"), f"{n}\n".encode()) for _ in range(8)])
    wait_for(lambda: not left_in_pod(kube, uid), 20, "those that ran at once")


@clustered
def test_what_could_not_be_forgotten_is_forgotten_later(make, kube):
    """Its lock was held when it was to go, by the next command and by a request of its own."""
    b = make().start()
    b.sh("t", "true")
    (uid,) = kube.node.pods
    wait_for(lambda: not left_in_pod(kube, uid), 20, "the first command to be forgotten")
    locked = b.create("t", "touch up; while [ ! -e go ]; do sleep 0.05; done").expect(200, 202).json["id"]
    wait_for((kube.node.dir / uid / "work/up").exists, 20, "the command to run")
    lock = os.open(left_in_pod(kube, uid)[0].parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (kube.node.dir / uid / "work/go").touch()
    equal(b.finish(locked)["status"], "completed")
    for _ in range(3):
        b.sh("t", "true")
    check(os.path.exists(f"/proc/self/fd/{lock}/1"), "it is left")
    os.close(lock)
    wait_for(lambda: not left_in_pod(kube, uid), 40, "it to be forgotten")


@clustered
def test_through_the_proxy(make, kube):
    b = make(reach="proxy").start()
    equal(b.sh("t", "echo via"), b"via\n")
    b.put_file("t", "big", b"x" * 3_000_000).expect(200, 201, 204)
    equal(b.sh("t", "wc -c < big").strip(), b"3000000")
    check(count(kube, "POST", ":8080/proxy/v1/execute") >= 2, "commands go through the API server")


@clustered
def test_one_pod_for_many_first_requests(make, kube):
    b = make().start()
    for record in in_parallel(16, lambda i: b.run("t", "echo $$ >> ran", timeout_seconds=60)):
        equal(record["status"], "completed", record.get("error"))
    task_pod(kube, "t")
    equal(count(kube, "POST", "/pods"), 1, "creates")
    equal(len(b.sh("t", "cat ran").splitlines()), 16)


@clustered
def test_a_command_that_is_refused_in_its_pod(make, kube):
    """The executor has launched it when it finds that there is no such folder: nothing ran, and that is said."""
    b = make().start()
    record = b.run("t", "pwd", cwd="missing")
    equal((record["status"], record["reason"]), ("failed", "cwd"), record.get("error"))


@clustered
def test_names_that_labels_cannot_hold(make, kube):
    b = make().start()
    tasks = ["T", "t", "h-x", "x" * 128, "x" * 127 + ".", "a_b.c-"]
    for task in tasks:
        equal(b.sh(task, "echo me > me; ls"), b"me\n", task)
    for task in tasks:
        pod = task_pod(kube, task)
        check(len(pod["metadata"]["labels"]["berth.dev/task"]) <= 63 and len(pod["metadata"]["name"]) <= 63, task)
    equal(len({p["metadata"]["name"] for p in kube.pods().values()}), len(tasks), "names")


@clustered
def test_kill_while_a_command_runs(make, kube):
    b = make().start()
    b.sh("t", "true")
    record = b.create("t", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two", timeout_seconds=60).expect(202).json
    wait_for(lambda: b.output(record["id"]) == b"one\n", 20, "its first line")
    b.restart()
    b.put_file("t", "go", b"").expect(200, 201, 204)
    record = b.finish(record["id"])
    equal((record["status"], b.output(record["id"])), ("completed", b"one\ntwo\n"), record.get("error"))
    equal(count(kube, "POST", "/pods"), 1, "creates")


@clustered
def test_cancel_ends_the_tree(make, kube):
    b = make().start()
    record = b.create("t", "setsid sh -c 'trap \"\" TERM; while :; do date >> tick; sleep 0.05; done' & "
                      "while [ ! -e tick ]; do sleep 0.01; done; echo up; wait",
                      timeout_seconds=60).expect(202).json
    wait_for(lambda: b.output(record["id"]) == b"up\n", 30, "its start")
    b.request("DELETE", f"/sandbox/executions/{record['id']}").expect(200, 202)
    equal(b.finish(record["id"])["status"], "cancelled")
    size = b.sh("t", "wc -c < tick")
    equal(b.sh("t", "sleep 0.3; wc -c < tick"), size, "nothing of it is left")


# ---- warm pods ----

def free(kube):
    return [p for p in kube.pods().values() if "berth.dev/pool" in p["metadata"]["labels"]]


@clustered
def test_a_warm_pod_that_is_evicted_is_replaced_before_the_next_round(make, kube):
    b = make(conf='gc: { interval = "1h"; };', target="warm = 1;").start()
    wait_for(lambda: len(free(kube)) == 1 and "a warm session is ready" in b.log(), 40, "a warm pod")
    old = free(kube)[0]["metadata"]
    kube.call(lambda: kube.api.delete("pods", "sandboxes", old["name"], {}))
    wait_for(lambda: b.log().count("a warm session is ready") == 2, 90, "another one")
    equal([p["metadata"]["uid"] == old["uid"] for p in free(kube)], [False], "warm pods that are the old one")


@clustered
def test_warm_pods_are_claimed_by_one_patch(make, kube):
    b = make(target="warm = 2;").start()
    wait_for(lambda: len(free(kube)) == 2 and b.log().count("a warm session is ready") >= 2, 40, "two warm pods")
    names = {p["metadata"]["name"] for p in free(kube)}
    before = count(kube, "PATCH", "/pods/")
    equal(b.sh("t", "echo in"), b"in\n")
    pod = task_pod(kube, "t")
    check(pod["metadata"]["name"] in names, "it is one of the pool's")
    check("berth.dev/pool" not in pod["metadata"]["labels"], "and no longer in it")
    equal(count(kube, "PATCH", "/pods/") - before, 1, "patches")
    wait_for(lambda: len(free(kube)) == 2, 40, "the pool to be filled again")
    settled(b)


@clustered
def test_a_claim_loses_to_another_writer_and_looks_again(make, kube):
    b = make(target="warm = 1;").start()
    wait_for(lambda: len(free(kube)) == 1 and "a warm session is ready" in b.log(), 40, "a warm pod")
    kube.faults(dict(method="PATCH", path="/pods/", status=409, times=2, body={
        "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "the object has been modified"}))
    equal(b.sh("t", "echo in"), b"in\n")
    task_pod(kube, "t")
    equal(count(kube, "PATCH", "/pods/"), 3, "patches of the same pod")


@clustered
def test_the_reply_to_a_claim_is_lost(make, kube):
    b = make(target="warm = 1;").start()
    wait_for(lambda: len(free(kube)) == 1 and "a warm session is ready" in b.log(), 40, "a warm pod")
    name = free(kube)[0]["metadata"]["name"]
    kube.faults(dict(method="PATCH", path="/pods/", when="after", act="cut"))
    equal(b.sh("t", "echo in"), b"in\n")
    equal(task_pod(kube, "t")["metadata"]["name"], name, "it stays with the pod that it claimed")
    settled(b)


# ---- the API server misbehaves ----

@clustered
def test_the_reply_to_a_create_is_lost(make, kube):
    b = make().start()
    for number, fault in enumerate((dict(when="after", act="cut"), dict(when="after", status=504), dict(when="before", act="cut"),
                                    dict(when="before", status=500), dict(when="before", status=503))):
        kube.faults(dict(method="POST", path="/pods$", **fault))
        equal(b.sh(f"t{number}", "echo made"), b"made\n", fault)
        task_pod(kube, f"t{number}")
    settled(b)


BUSY = dict(method="POST", path="/pods$", status=409, body={
    "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
    "message": 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'})


@clustered
def test_a_quota_that_others_write_to_is_no_name_that_is_taken(make, kube):
    b = make().start()
    kube.faults(BUSY)
    equal(b.sh("t", "echo made"), b"made\n")
    name = task_pod(kube, "t")["metadata"]["name"]
    check(name.startswith("berth-t"), "the task's own name:", name)
    settled(b)


@clustered
def test_a_pool_is_filled_under_a_quota_that_others_write_to(make, kube):
    kube.faults(dict(times=6, **BUSY))  # more often than one create is sent
    b = make(target="warm = 1;").start()
    wait_for(lambda: len(free(kube)) == 1 and "a warm session is ready" in b.log(), 30, "a warm pod")


@clustered
def test_throttled_and_failing_requests_are_repeated(make, kube):
    b = make().start()
    kube.faults(dict(path="/pods", status=429, headers=[("Retry-After", "1")], times=2),
                dict(method="GET", path="/pods", status=500, times=2, skip=1), dict(method="GET", path="/pods", act="cut", times=1, skip=3))
    equal(b.sh("t", "echo hello"), b"hello\n")
    equal(count(kube, "POST", "/pods") <= 3, True, "creates")
    task_pod(kube, "t")


@clustered
def test_a_token_that_is_rotated(make, kube):
    token = kube.dir / "token"
    token.write_text("first\n")
    kube.call(lambda: setattr(kube.api, "tokens", {"first"}))
    b = make(kubeconfig=kube.kubeconfig(tokenFile=token)).start()
    equal(b.sh("a", "echo 1"), b"1\n")
    new = token.with_suffix(".new")
    new.write_text("second\n")
    new.rename(token)
    kube.call(lambda: setattr(kube.api, "tokens", {"second"}))
    equal(b.sh("b", "echo 2"), b"2\n")
    kube.call(lambda: setattr(kube.api, "tokens", {"third"}))
    record = b.run("c", "echo 3")
    equal((record["status"], record["reason"]), ("failed", "unauthorized"))
    check("first" not in b.log() or "second" not in b.log(), "no token is logged")


@clustered
def test_a_program_that_prints_the_credential(make, kube):
    """Only where it is switched on; asked again when what it printed is refused."""
    program = kube.dir / "login"
    program.write_text('#!/bin/sh\necho run >> "$0.runs"\n[ "$WHO" = berth ] && [ -n "$KUBERNETES_EXEC_INFO" ] || exit 1\n'
                       'echo "{\\"kind\\": \\"ExecCredential\\", \\"status\\": {\\"token\\": \\"$(cat "$0.token")\\"}}"\n')
    program.chmod(0o700)
    token = program.with_name("login.token")
    token.write_text("printed")
    kube.call(lambda: setattr(kube.api, "tokens", {"printed"}))
    config = kube.kubeconfig(exec=f"{{apiVersion: client.authentication.k8s.io/v1, command: {program}, "
                                  "env: [{name: WHO, value: berth}]}")
    b = make(kubeconfig=config)
    b.start(expect_exit=78)
    check("exec_plugins" in b.log(), "it says which option")
    b = make(kubeconfig=config, exec_plugins="true").start()
    equal(b.sh("a", "echo 1"), b"1\n")
    runs = program.with_name("login.runs")
    equal(runs.read_text().count("run"), 1, "runs: what it printed is kept")
    token.write_text("another")
    kube.call(lambda: setattr(kube.api, "tokens", {"another"}))
    equal(b.sh("b", "echo 2"), b"2\n")
    check("printed" not in b.log() and "another" not in b.log(), "no token is logged")


@clustered
def test_a_page_that_expired_and_a_forgotten_version(make, kube):
    b = make().start()
    b.sh("t", "true")
    wait_for(lambda: kube.api.watchers, 20, "a watch")
    kube.call(kube.api.store.forget)
    wait_for(lambda: count(kube, "GET", "watch=1") >= 2, 20, "a second watch")
    kube.call(lambda: setattr(kube.api, "cut_watches", 1))
    kube.call(lambda: setattr(kube.api, "piece", 7))
    equal(b.sh("t2", "echo still"), b"still\n")
    settled(b)


@clustered
def test_a_pod_whose_predecessor_is_still_going(make, kube):
    b = make().start()
    b.sh("t", "echo old > f")
    old = task_pod(kube, "t")["metadata"]
    kube.call(lambda: kube.node.deaf.add(old["uid"]))  # its node is away
    b.teardown("t", wait="10s")
    equal(b.sh("t", "ls"), b"", "a new pod")
    check(task_pod(kube, "t")["metadata"]["uid"] != old["uid"], "of another uid")
    kube.call(lambda: kube.node.deaf.clear())
    wait_for(lambda: len(kube.pods_of("t")) == 1, 20, "the old one to go")
    settled(b)


@clustered
def test_a_stop_does_not_wait_for_the_watch(make, kube):
    b = make().start()
    b.sh("t", "true")
    wait_for(lambda: kube.api.watchers, 20, "a watch")
    began = time.monotonic()
    equal(b.stop(), 0, "exit code")
    check(time.monotonic() - began < 8 * PATIENCE, "the stop took", time.monotonic() - began)
    check("did not come back" not in b.log(), "close came back")
    equal(b.start().sh("t", "echo again"), b"again\n")


# ---- what pods say ----

# Script -> (execution's status or error word's reason, within which budget).
FATAL = {
    "invalid_image_name": "image_name", "err_image_never_pull": "image_pull", "image_inspect_error": "image_inspect",
    "create_container_error": "container_create", "run_container_error": "container_start", "post_start_hook_error": "container_start",
    "start_error": "container_start", "container_cannot_run": "container_start",
    "err_image_pull": "image_pull", "image_pull_back_off": "image_pull", "registry_unavailable": "image_pull",
    "create_container_config_error": "container_config", "crash_loop_back_off": "executor_crashed",
    "out_of_cpu": "node_rejected", "out_of_memory": "node_rejected", "out_of_pods": "node_rejected", "node_affinity": "node_rejected",
    "unexpected_admission": "node_rejected", "node_shutdown": "drained", "terminated": "drained", "evicted": "evicted",
    "deadline_exceeded": "expired", "preempted": "preempted", "drained": "drained", "taint_manager": "node_lost",
    "pod_gc": "node_lost", "by_kubelet": "evicted", "oom_killed": "oom", "crashed": "executor_crashed", "succeeded": "executor_ended",
}
# Waited for as long as the execution may wait; the log says why.
WAITED = {"unschedulable": "reason=unschedulable", "scheduling_gated": "reason=scheduling_gated", "no_scheduler": "code=provider_timeout",
          "container_creating": "code=provider_timeout"}


@clustered
def test_every_row_of_what_a_pod_may_say(make, kube):
    equal(set(SCRIPTS), set(FATAL) | set(WAITED), "scripts and expectations")
    b = make(conf=FAST + 'session: { scheduling = "2s"; starting = "2s"; };\n', pull_grace="300ms").start()
    kube.call(lambda: kube.node.scripts.append(
        lambda pod: pod["metadata"]["annotations"].get("berth.dev/task", "").replace("-", "_")))
    for name in WAITED:
        b.create(name.replace("_", "-"), "echo never", timeout_seconds=60).expect(202)
    names = sorted(FATAL)
    for start in range(0, len(names), 12):
        part = names[start:start + 12]
        for name, record in zip(part, in_parallel(len(part), lambda i: b.run(part[i].replace("_", "-"), "echo never", timeout_seconds=30))):
            equal((name, record["status"]), (name, "failed"), record)
            check(FATAL[name] in (record["reason"], *[w for line in b.log().splitlines() if f"task=w/{name.replace('_', '-')} " in line
                                                      for w in line.replace("=", " ").split()]), name, record["reason"], record.get("error"))
    for name, words in WAITED.items():
        wait_for(lambda: any(f"task=w/{name.replace('_', '-')} " in line and words in line for line in b.log().splitlines()), 30,
                 f"{name}: {words}")


# Word of the API -> reasons that come with it; every reason of FATAL stands here once.
WORDS = {
    "provider_error": {"image_name", "image_pull", "image_inspect", "container_config", "container_create", "container_start"},
    "session_gone": {"executor_crashed", "executor_ended", "node_rejected", "drained", "evicted", "expired", "preempted", "node_lost", "oom"},
}
WAITED_TOLD = {"unschedulable": ("capacity_exhausted", "unschedulable"), "scheduling_gated": ("capacity_exhausted", "scheduling_gated"),
               "no_scheduler": ("provider_timeout", "not_scheduled"), "container_creating": ("provider_timeout", "deadline")}


@clustered
def test_every_row_through_the_http_api(make, kube):
    """Word and details.reason, as who waits for the session hears them: of the task's first file."""
    b = make(conf=FAST + 'session: { scheduling = "2s"; starting = "2s"; };\n', pull_grace="300ms").start()
    kube.call(lambda: kube.node.scripts.append(
        lambda pod: pod["metadata"]["annotations"].get("berth.dev/task", "").replace("-", "_")))
    expected = {**WAITED_TOLD, **{name: (next(w for w, reasons in WORDS.items() if reason in reasons), reason)
                                  for name, reason in FATAL.items()}}
    names = sorted(SCRIPTS)

    def told(i):
        answer = b.put_file(names[i].replace("_", "-"), "f", b"x").json
        return names[i], (answer.get("error"), answer.get("details", {}).get("reason"))
    for start in range(0, len(names), 12):
        part = range(start, min(start + 12, len(names)))
        for name, words in in_parallel(len(part), lambda i: told(part[i])):
            equal(words, expected[name], name)


@clustered
def test_unschedulable_is_told_and_heals(make, kube):
    b = make().start()
    on_scripts(kube, "unschedulable")
    record = b.create("t", "echo scheduled", timeout_seconds=60).expect(202).json
    wait_for(lambda: b.task("t").expect(200).json.get("phase") == "unschedulable", 20, "the phase to be told")
    pod = task_pod(kube, "t")
    on_scripts(kube, None)
    key = ("pods", "sandboxes", pod["metadata"]["name"])
    kube.call(lambda: kube.node.spawn(kube.node.run(key, pod)))
    record = b.finish(record["id"])
    equal((record["status"], b.output(record["id"])), ("completed", b"scheduled\n"))
    equal(count(kube, "POST", "/pods"), 1, "it is the same pod")


@clustered
def test_a_pod_on_its_way_is_not_looked_at_for_each_of_its_steps(make, kube):
    b = make().start()
    on_scripts(kube, "container_creating")
    record = b.create("t", "echo ready", timeout_seconds=60).expect(202).json
    wait_for(lambda: kube.pods_of("t"), 20, "the pod")
    pod = task_pod(kube, "t")
    key, begin = ("pods", "sandboxes", pod["metadata"]["name"]), time.monotonic()
    for i in range(60):
        kube.call(kube.node.set_status, key, pod["metadata"]["uid"], {"message": f"step {i}"})
    on_scripts(kube, None)
    kube.call(lambda: kube.node.spawn(kube.node.run(key, pod)))
    record = b.finish(record["id"])
    equal((record["status"], b.output(record["id"])), ("completed", b"ready\n"))
    # One when it is ready, one for the command's begin, and those that time alone asks for.
    looks, seconds = count(kube, "GET", f"/pods/{key[2]}"), time.monotonic() - begin
    check(looks <= 3 + seconds / 0.25, looks, "looks in", seconds, "s")


@clustered
def test_refusals_of_a_create(make, kube):
    """A full namespace is waited for, and told apart from one that is going."""
    b = make(conf=FAST + 'session: { scheduling = "2s"; starting = "2s"; };\n').start()
    kube.call(lambda: setattr(kube.api, "pod_quota", 0))
    record = b.create("t", "echo room", timeout_seconds=60).expect(202).json
    wait_for(lambda: "code=quota reason=quota" in b.log(), 20, "the quota to be told")
    kube.call(lambda: setattr(kube.api, "pod_quota", None))
    equal((b.finish(record["id"])["status"], b.output(record["id"])), ("completed", b"room\n"))
    kube.call(lambda: kube.api.terminating.add("sandboxes"))
    record = b.run("t2", "echo back", timeout_seconds=30)
    equal((record["status"], record["reason"]), ("failed", "namespace_terminating"), record.get("error"))
    kube.call(lambda: kube.api.terminating.clear())
    equal(b.sh("t3", "echo back"), b"back\n")


@clustered
def test_a_runtime_class_that_the_cluster_does_not_have(make, kube):
    kata = dict(runtime_class="kata", runtime_isolation="microvm", target='isolation = "microvm";')
    b = make(**kata)
    b.start(expect_exit=78)
    check('RuntimeClass \\"kata\\" not found' in b.log() or 'RuntimeClass "kata" not found' in b.log(), "it says so at the start:", b.log())
    kube.call(lambda: kube.api.runtime_classes.add("kata"))
    b = make(**kata).start()
    kube.call(lambda: kube.api.runtime_classes.remove("kata"))
    record = b.run("t", "true", timeout_seconds=30)
    equal((record["status"], record["reason"]), ("failed", "runtime_class"), record.get("error"))
    equal(len(kube.pods()), 0)


@clustered
def test_a_pod_that_dies_under_a_command(make, kube):
    b = make().start()
    for script, reason in (("evicted", "evicted"), ("oom_killed", "oom"), ("preempted", "preempted")):
        task = script.replace("_", "-")
        b.sh(task, "echo here > f")
        record = b.create(task, "echo up; sleep 60", timeout_seconds=90).expect(202).json
        wait_for(lambda: b.output(record["id"]) == b"up\n", 20, "its start")
        old = task_pod(kube, task)
        apply(kube, old, script)
        record = b.finish(record["id"])
        equal(record["status"], "failed", script)
        check(record["reason"] in (reason, "session_lost"), script, record["reason"], record.get("error"))
        equal(b.sh(task, "ls"), b"", "a new pod, without the files")
        check(task_pod(kube, task)["metadata"]["uid"] != old["metadata"]["uid"])
    settled(b)


@clustered
def test_a_pod_that_is_deleted_from_outside(make, kube):
    b = make().start()
    b.sh("t", "true")
    old = task_pod(kube, "t")["metadata"]
    kube.call(lambda: kube.api.delete("pods", "sandboxes", old["name"], {}))
    wait_for(lambda: not kube.pods_of("t"), 20, "it to be gone")
    record = b.run("t", "echo anew")
    if record["status"] == "failed":  # the files are gone, which whoever asks has to be told
        equal(record["reason"], "session_lost", record.get("error"))
    equal(b.sh("t", "echo anew"), b"anew\n")
    settled(b)


@clustered
def test_a_foreign_pod_is_never_taken(make, kube):
    """The label says the task, the annotation another deployment: labels may be set by anybody."""
    def forge():
        kube.api.create("pods", "sandboxes", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forged", "labels": {
            "app.kubernetes.io/managed-by": "berth", "berth.dev/deployment": "e2e", "berth.dev/workspace": "w", "berth.dev/task": "t"},
            "annotations": {"berth.dev/deployment": "other", "berth.dev/workspace": "w", "berth.dev/task": "t",
                            "berth.dev/intent": "0" * 32}}, "spec": {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, "containers": []}})
    b = make().start()
    kube.call(forge)
    equal(b.sh("t", "echo mine"), b"mine\n")
    check("forged" in kube.pods(), "it is left alone")


# ---- agent-sandbox ----

CLAIMS = {"mode": "sandboxclaim", "warm_pool": "pool", "template": None}


def claims(kube):
    return kube.call(lambda: {k[2]: v for k, v in kube.api.store.objects.items() if k[0] == "sandboxclaims"})


@clustered
def test_claims_take_sandboxes_from_the_pool(make, kube):
    kube.agent_sandbox(warm=1)
    b = make(**CLAIMS).start()
    equal(b.sh("t", "echo warm > f; cat f"), b"warm\n")
    (name, claim), = claims(kube).items()
    equal(claim["metadata"]["annotations"]["berth.dev/task"], "t")
    equal((claim["spec"]["warmPoolRef"]["name"], claim["spec"]["lifecycle"]["shutdownPolicy"]), ("pool", "Delete"))
    equal(claim["status"]["sandbox"]["name"], "pool-1", "the pool's sandbox")
    equal(kube.pods()["pool-1"]["metadata"]["labels"]["sandbox.users.io/task-id"], "t")
    equal(b.sh("cold", "echo cold"), b"cold\n", "without a warm one")
    equal(count(kube, "POST", "/pods"), 0, "pods made by the provider itself")
    b.restart()
    equal(b.sh("t", "cat f"), b"warm\n", "after a kill")
    b.teardown("t", wait="20s").expect(200, 202, 204)
    wait_for(lambda: len(claims(kube)) == 1 and "pool-1" not in kube.pods(), 20, "claim and pod to go")
    settled(b)


@clustered
def test_one_claim_for_many_first_requests(make, kube):
    kube.agent_sandbox(warm=3)
    b = make(**CLAIMS).start()
    for record in in_parallel(12, lambda i: b.run("t", "echo $$ >> ran", timeout_seconds=60)):
        equal(record["status"], "completed", record.get("error"))
    equal((len(claims(kube)), len(b.sh("t", "cat ran").splitlines())), (1, 12))


@clustered
def test_what_claims_say(make, kube):
    kube.agent_sandbox(warm=0)
    b = make(conf=FAST + 'session: { scheduling = "2s"; starting = "2s"; };\n', **CLAIMS).start()
    kube.call(lambda: kube.claims.pools.clear())
    record = b.run("a", "true", timeout_seconds=30)
    equal((record["status"], record["reason"]), ("failed", "warm_pool"), record.get("error"))
    kube.call(lambda: kube.claims.pools.add("pool"))
    kube.call(lambda: kube.claims.allowed.clear())
    record = b.run("b", "true", timeout_seconds=30)
    equal((record["status"], record["reason"]), ("failed", "metadata"), record.get("error"))
    kube.call(lambda: kube.claims.allowed.add("sandbox.users.io"))
    on_scripts(kube, "invalid_image_name")
    record = b.run("c", "true", timeout_seconds=30)
    equal((record["status"], record["reason"]), ("failed", "image_name"), record.get("error"))
    wait_for(lambda: not claims(kube), 20, "claims of what failed to go")


@clustered
def test_a_pod_that_is_replaced_under_its_claim(make, kube):
    """The controller may make a drained pod anew under the same name: the files are gone, and that is said."""
    kube.agent_sandbox(warm=1)
    b = make(**CLAIMS).start()
    b.sh("t", "echo old > f")

    def replace():
        old = kube.api.store.objects[("pods", "sandboxes", "pool-1")]
        kube.api.delete("pods", "sandboxes", "pool-1", {"gracePeriodSeconds": 0})
        kube.api.create("pods", "sandboxes", {"metadata": {"name": "pool-1", "labels": old["metadata"]["labels"]},
                                              "spec": {k: v for k, v in old["spec"].items() if k != "nodeName"}})
    kube.call(replace)
    b.run("t", "cat f")
    wait_for(lambda: b.run("t", "test ! -e f && echo anew")["status"] == "completed", 30, "a new session")
    settled(b)


def put_claim(kube, name, task, like):
    """A claim by hand, as one of our own."""
    meta = like["metadata"]
    kube.call(lambda: kube.api.create("sandboxclaims", "sandboxes", {"spec": like["spec"], "metadata": {
        "name": name, "labels": {**meta["labels"], "berth.dev/task": task},
        "annotations": {**meta["annotations"], "berth.dev/task": task, "berth.dev/intent": "1" * 32}}}))


@clustered
def test_a_lost_store_takes_no_claim_along(make, kube):
    """A list of claims names no pod, so that each is asked; one that has none yet is an orphan once they are taken."""
    kube.agent_sandbox(warm=2)
    first = make(**CLAIMS).start()
    where = [first.sh(t, f"echo {t} > kept; pwd") for t in ("a", "b")]
    first.kill9()
    kube.call(lambda: setattr(kube.claims, "hold", True))
    put_claim(kube, "on-its-way", "c", next(iter(claims(kube).values())))
    mine = set(claims(kube)) - {"on-its-way"}
    kube.faults(dict(method="GET", path="/sandboxclaims/", status=403, times=10**6))
    later = make(conf=FAST + 'lease: { active = "2s"; idle = "1h"; };\nsession: { scheduling = "1s"; starting = "1s"; };\n', **CLAIMS).start()
    swept = lambda: later.log().rpartition("no orphan of a target is looked for")[2].count("could not be asked whether")
    wait_for(lambda: swept() >= 5, 60, "rounds in which orphans would be taken")
    equal(set(claims(kube)), mine | {"on-its-way"}, "claims while none can be asked")
    kube.call(kube.api.faults.clear)
    wait_for(lambda: "on-its-way" not in claims(kube), 60, "the sweep after the loss")
    equal(set(claims(kube)), mine, "claims with files")
    equal([later.sh(t, "cat kept; pwd") for t in ("a", "b")], [b"a\n" + where[0], b"b\n" + where[1]])
    settled(later)


@clustered
def test_a_pod_that_is_not_ready_when_its_store_is_lost(make, kube):
    """Its probe failed for a moment: it is looked at again, for as long as nothing is swept."""
    first = make().start()
    first.sh("t", "echo kept > f")
    first.kill9()
    meta = task_pod(kube, "t")["metadata"]

    def turn(ready):
        def change(pod):
            for condition in pod["status"]["conditions"]:
                condition["status"] = ready if condition["type"] == "Ready" else condition["status"]
        kube.call(kube.api.store.update, "pods", "sandboxes", meta["name"], change)
    turn("False")
    before = count(kube, "GET", "/pods?limit=250")
    later = make().start()
    wait_for(lambda: count(kube, "GET", "/pods?limit=250") >= before + 3, 30, "some rounds")
    turn("True")
    wait_for(lambda: "sessions of a lost store were adopted" in later.log(), 30, "the adoption")
    equal(later.sh("t", "cat f"), b"kept\n")


@clustered
def test_a_pod_whose_sidecar_ended_is_adopted(make, kube):
    """Kubernetes does not call it ready ever again; its executor is."""
    first = make().start()
    first.sh("t", "echo kept > f")
    first.kill9()

    def end_sidecar(pod):
        later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
        pod["status"]["conditions"] = [{**c, "status": "False", "lastTransitionTime": later} if c["type"].endswith("Ready") else c
                                       for c in pod["status"]["conditions"]]
        pod["status"]["containerStatuses"] += [{"name": "side", "restartCount": 0, "ready": False,
                                                "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]
    kube.call(kube.api.store.update, "pods", "sandboxes", task_pod(kube, "t")["metadata"]["name"], end_sidecar)
    later = make().start()
    wait_for(lambda: "sessions of a lost store were adopted" in later.log(), 30, "the adoption")
    equal(later.sh("t", "cat f"), b"kept\n")


@clustered
def test_nothing_is_made_where_nobody_vouches_for_its_network(make, kube):
    """Whether policies keep a pod off the internet no pod shows: it is the operator's word, in both modes."""
    kube.agent_sandbox(warm=0)
    for mode, label in (({}, "berth.dev/internet"), (CLAIMS, "sandbox.users.io/internet")):
        record = make(network_policy=None, **mode).start().run("refused", "true")
        equal((record["status"], record["reason"]), ("failed", "internet"), record)
        check("network_policy" in str(record["error"]) and "20-network.yaml" in str(record["error"]), record["error"])
        equal((kube.pods(), claims(kube)), ({}, {}), "nothing was made")
        told = {}
        for task, target, word in (("closed", "", "true"), ("open", "allow_internet = true;", None)):
            b = make(target=target, network_policy=word, **mode).start()
            b.sh(task, "true")
            told[task] = [p["metadata"]["labels"][label] for p in kube.pods().values()]
            b.teardown(task, wait="20s").expect(200, 202, 204)
            wait_for(lambda: not kube.pods(), 20, "the pod to go")
        equal(told, {"closed": ["denied"], "open": ["allowed"]}, label)


# ---- the kit ----

def conformance(kube, *more, **settings_more):
    conf = kube.dir / "target.conf"
    conf.write_text(f'provider = "kubernetes";\nname = "kubernetes";\nconfig : {{ {settings(kube, **settings_more)} }};\n')
    # What threads keep in caches of their own looks like a leak to the kit when there are many of them.
    env = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    done = subprocess.run([str(BUILD / "bin" / "berth-conformance"), str(BUILD / "lib/berth/plugins/kubernetes.so"), "--config",
                           str(conf), "--gone", "10", "--patience", str(max(1, round(PATIENCE))), *more], capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, timeout=600 * PATIENCE, env=env)
    check(done.returncode == 0, "\n".join(x for x in done.stdout.splitlines() if not x.startswith("ok")) + done.stderr[-2000:])


@clustered
def test_conformance(make, kube):
    conformance(kube)


@clustered
def test_conformance_through_the_proxy(make, kube):
    if not harness.FULL:
        raise harness.Skipped("with --full")
    conformance(kube, reach="proxy")


@clustered
def test_conformance_of_claims(make, kube):
    if not harness.FULL:
        raise harness.Skipped("with --full")
    kube.agent_sandbox(warm=2)
    conformance(kube, **CLAIMS)
