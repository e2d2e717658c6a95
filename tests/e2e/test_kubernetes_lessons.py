# SPDX-License-Identifier: Apache-2.0
"""What other managers of sandboxes on Kubernetes got wrong, one test each, by its number in the list of docs/kubernetes.md."""

import copy
import re
import time

from harness import PATIENCE, check, equal, settled, wait_for
from test_kubernetes import CLAIMS, FAST, apply, claims, clustered, count, on_scripts, task_pod
from kube_fake.store import Refused

SHORT = FAST + 'session: { scheduling = "2s"; starting = "2s"; };\n'
LONG_ENOUGH_S = 2  # for twenty rounds of what must not happen


def free(kube):
    return [p for p in kube.pods().values() if "berth.dev/pool" in p["metadata"]["labels"]]


def warm(make, kube, number=1, **kw):
    """A daemon with that many warm pods."""
    b = make(target=f"warm = {number};", **kw).start()
    wait_for(lambda: len(free(kube)) >= number and b.log().count("a warm session is ready") >= number, 40, "warm pods")
    return b


def edit(kube, pod, change):
    """Somebody else writes to the pod."""
    meta = pod["metadata"]
    kube.call(kube.api.store.update, "pods", meta["namespace"], meta["name"], change)


def put(kube, name, like, **notes):
    """A pod by hand, like another one."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {k: v for k, v in copy.deepcopy(like["spec"]).items() if k != "nodeName"},
           "metadata": {"name": name, "labels": dict(like["metadata"]["labels"]), "annotations": {**like["metadata"]["annotations"], **notes}}}
    kube.call(kube.api.create, "pods", "sandboxes", pod)


def never(condition, what):
    """Watches for a while that something does not happen."""
    end = time.monotonic() + LONG_ENOUGH_S
    while time.monotonic() < end:
        check(not condition(), what)
        time.sleep(0.02)


@clustered
def test_F2_3_01_two_pods_of_one_task(make, kube):
    """One is kept, the others are deleted, whoever made them."""
    b = make().start()
    b.sh("t", "true")
    b.kill9()
    first = task_pod(kube, "t")
    put(kube, "berth-second", first, **{"berth.dev/intent": "1" * 32})
    wait_for(lambda: kube.pods()["berth-second"].get("status", {}).get("phase") == "Running", 30, "the second pod")
    # Its store is lost: it adopts, and what it does not adopt goes after an active lease.
    later = make(conf=SHORT + 'lease: { active = "2s"; idle = "1h"; };\n').start()
    equal(later.sh("t", "echo one"), b"one\n")
    wait_for(lambda: len(kube.pods_of("t")) == 1, 30, "the other pod to go")
    equal(later.sh("t", "echo still"), b"still\n")


@clustered
def test_F2_3_02_a_warm_pod_that_somebody_took(make, kube):
    """What carries another task stays that task's."""
    b = warm(make, kube)
    taken = free(kube)[0]

    def take(pod):
        pod["metadata"]["annotations"].update({"berth.dev/workspace": "w", "berth.dev/task": "other"})
        pod["metadata"]["labels"].pop("berth.dev/pool")
    edit(kube, taken, take)
    equal(b.sh("t", "echo own"), b"own\n")
    check(task_pod(kube, "t")["metadata"]["uid"] != taken["metadata"]["uid"], "the task has a pod of its own")
    equal(kube.pods()[taken["metadata"]["name"]]["metadata"]["annotations"]["berth.dev/task"], "other")


@clustered
def test_F2_3_03_killed_between_claim_and_note(make, kube):
    """The pod is claimed, and the host dies before it wrote that down."""
    b = make(target="warm = 1;")
    b.failpoints("assign.after kill 1")
    b.start()
    wait_for(lambda: free(kube) and "a warm session is ready" in b.log(), 40, "a warm pod")
    uid = free(kube)[0]["metadata"]["uid"]

    def ask():
        try:
            return b.create("t", "echo in", timeout_seconds=60, headers={"Idempotency-Key": "once"})
        except OSError:
            return None  # killed before it could answer
    answer = ask()
    b.wait_dead()
    equal(task_pod(kube, "t")["metadata"]["uid"], uid, "claimed")
    b.failpoints()
    b.start()
    record = (answer or ask()).expect(200, 202).json
    equal(b.finish(record["id"])["status"], "completed")
    equal(task_pod(kube, "t")["metadata"]["uid"], uid, "the same pod")
    settled(b)


@clustered
def test_F2_3_05_a_warm_pod_that_is_not_ready_any_more(make, kube):
    b = warm(make, kube)
    sick = free(kube)[0]

    def break_it(pod):
        for condition in pod["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "False"
    edit(kube, sick, break_it)
    equal(b.sh("t", "echo in"), b"in\n")
    check(task_pod(kube, "t")["metadata"]["uid"] != sick["metadata"]["uid"], "another pod")
    settled(b)


@clustered
def test_F2_3_06_a_warm_pod_on_a_node_that_drains(make, kube):
    b = warm(make, kube)
    going = free(kube)[0]["metadata"]
    kube.call(lambda: kube.node.deaf.add(going["uid"]))
    kube.call(lambda: kube.api.delete("pods", "sandboxes", going["name"], {}))
    equal(b.sh("t", "echo in"), b"in\n")
    check(task_pod(kube, "t")["metadata"]["uid"] != going["uid"], "another pod")
    kube.call(lambda: kube.node.deaf.clear())
    settled(b)


@clustered
def test_F2_3_08_ready_and_being_deleted(make, kube):
    """Its executor answers, and it is Ready; nobody builds on it any more."""
    b = make().start()
    b.sh("t", "touch old")
    old = task_pod(kube, "t")["metadata"]
    kube.call(lambda: kube.node.deaf.add(old["uid"]))
    kube.call(lambda: kube.api.delete("pods", "sandboxes", old["name"], {}))
    wait_for(lambda: b.run("t", "test ! -e old && touch new")["status"] == "completed"
             and [p for p in kube.pods_of("t") if p["metadata"]["uid"] != old["uid"]], 30, "a new pod")
    equal(b.sh("t", "ls"), b"new\n")
    kube.call(lambda: kube.node.deaf.clear())
    settled(b)


@clustered
def test_F2_3_09_a_failed_pod_does_not_stay(make, kube):
    b = make().start()
    b.sh("t", "true")
    old = task_pod(kube, "t")
    apply(kube, old, "evicted")
    record = b.run("t", "true")
    if record["status"] == "failed":  # whoever asks first is told that the files are gone
        check(record["reason"] in ("evicted", "session_lost"), record["reason"])
    equal(b.sh("t", "echo anew"), b"anew\n")
    wait_for(lambda: [p["metadata"]["uid"] for p in kube.pods_of("t")] != [old["metadata"]["uid"]] and len(kube.pods_of("t")) == 1, 20,
             "the evicted pod to go")
    settled(b)


@clustered
def test_F2_3_10_never_ready_ends_and_leaves_nothing(make, kube):
    b = make(conf=SHORT).start()
    on_scripts(kube, "container_creating")
    record = b.run("t", "true", timeout_seconds=60)
    equal((record["status"], record["reason"]), ("failed", "deadline"), record.get("error"))
    wait_for(lambda: not kube.pods(), 20, "the pod to go")
    settled(b)


@clustered
def test_F2_3_12_a_pool_that_cannot_be_filled(make, kube):
    """Pods that cannot become ready are counted like others: no more of them are made."""
    on_scripts(kube, "unschedulable")
    b = make(target="warm = 3;").start()
    wait_for(lambda: len(kube.pods()) == 3, 20, "three pods")
    never(lambda: len(kube.pods()) > 3, "more pods than the pool has room for")
    equal(count(kube, "POST", "/pods"), 3, "creates")
    b.stop()


@clustered
def test_F2_3_13_gated_pods_keep_their_place(make, kube):
    """A pod that waits in a queue of its own is not taken for a stuck one."""
    on_scripts(kube, "scheduling_gated")
    b = make(target="warm = 2;").start()
    wait_for(lambda: len(kube.pods()) == 2, 20, "two pods")
    waits = {p["metadata"]["uid"] for p in kube.pods().values()}
    never(lambda: {p["metadata"]["uid"] for p in kube.pods().values()} != waits, "a gated pod was replaced")
    equal(count(kube, "DELETE"), 0, "deletions")
    b.stop()


@clustered
def test_F2_3_15_conflicts_cost_milliseconds(make, kube):
    """Another writer's version is looked at again at once: no backoff as for failures."""
    b = warm(make, kube)
    kube.faults(dict(method="PATCH", path="/pods/", status=409, times=8, body={
        "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "the object has been modified"}))
    b.sh("t", "true")
    line = next(x for x in b.log().splitlines() if 'msg="a session is live"' in x)
    took = int(line.rsplit("ms=", 1)[1].split()[0])
    check("how=warm" in line and took < 1000 * PATIENCE, line)
    equal(count(kube, "PATCH", "/pods/"), 9, "patches")


@clustered
def test_F2_3_17_a_pod_in_use_is_not_safe_to_evict(make, kube):
    template = kube.dir / "evictable.yaml"
    template.write_text(kube.template().read_text().replace(
        "metadata:\n", 'metadata:\n  annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "true"}\n'))
    b = make(target="warm = 1;", template=template).start()
    wait_for(lambda: free(kube) and "a warm session is ready" in b.log(), 40, "a warm pod")
    note = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    equal(free(kube)[0]["metadata"]["annotations"][note], "true", "while it is warm")
    b.sh("claimed", "true")
    on_scripts(kube, None)
    equal(task_pod(kube, "claimed")["metadata"]["annotations"][note], "false", "claimed")
    cold = make(template=template).start()
    cold.sh("made", "true")
    equal(task_pod(kube, "made")["metadata"]["annotations"][note], "false", "made for a task")


@clustered
def test_F2_3_18_a_claim_that_was_deleted(make, kube):
    """It is made anew at once, not after a wait for what is gone."""
    kube.agent_sandbox(warm=2)
    b = make(**CLAIMS).start()
    b.sh("t", "touch old")
    (name, claim), = claims(kube).items()
    kube.call(lambda: kube.api.delete("sandboxclaims", "sandboxes", name, {}))
    begin = time.monotonic()
    wait_for(lambda: b.run("t", "test ! -e old")["status"] == "completed", 20, "a new session")
    check(time.monotonic() - begin < 15 * PATIENCE, "it took", time.monotonic() - begin)
    check(all(c["metadata"]["uid"] != claim["metadata"]["uid"] for c in claims(kube).values()), "a new claim")
    settled(b)


def watched(kube, version):
    """The watch of claims goes on behind that version: what it saw until then was acted upon."""
    marks = (re.search(r"/sandboxclaims\?watch=1.*resourceVersion=(\d+)", target) for _, target in kube.api.requests)
    if any(mark and int(mark[1]) >= version for mark in marks):
        return True
    kube.call(lambda: setattr(kube.api, "cut_watches", kube.api.cut_watches + 1))
    return False


@clustered
def test_F2_3_18_a_claim_that_was_deleted_while_its_pod_still_answers(make, kube):
    """Its node is away, so that the pod stays for long: no command begins in it any more."""
    kube.agent_sandbox(warm=2)
    b = make(**CLAIMS).start()
    b.sh("t", "touch old")
    (name, claim), = claims(kube).items()
    pod = kube.pods()[claim["status"]["sandbox"]["name"]]["metadata"]
    kube.call(lambda: kube.node.deaf.add(pod["uid"]))
    version = kube.call(lambda: (kube.api.delete("sandboxclaims", "sandboxes", name, {}), kube.api.store.version)[1])
    wait_for(lambda: watched(kube, version), 30, "the watch to tell of the deletion")
    record = b.run("t", "touch new")
    check(record["status"] != "completed" or claims(kube), "it ran in the pod of a claim that is gone")
    wait_for(lambda: b.run("t", "touch new")["status"] == "completed", 20, "a new session")
    equal(b.sh("t", "ls"), b"new\n")
    kube.call(lambda: kube.node.deaf.clear())
    settled(b)


@clustered
def test_F2_3_20_a_deletion_that_fails_is_tried_again(make, kube):
    b = make().start()
    b.sh("t", "true")
    faults = kube.faults(dict(method="DELETE", path="/pods/", status=403, times=2), dict(method="DELETE", path="/pods/", status=500, times=7))
    b.teardown("t", wait="1s")
    wait_for(lambda: not kube.pods(), 60, "the pod to go all the same")
    equal([f.hits for f in faults], [2, 7], "refusals")
    settled(b)


@clustered
def test_F2_3_20_a_create_that_is_not_wanted_any_more(make, kube):
    """The task goes while its pod is being made: the pod goes too."""
    b = make().start()
    on_scripts(kube, "container_creating")
    record = b.create("t", "true", timeout_seconds=60).expect(202).json
    wait_for(kube.pods, 20, "its pod")
    b.teardown("t", force="true", wait="1s")
    wait_for(lambda: not kube.pods(), 30, "the pod to go")
    check(b.finish(record["id"])["status"] != "completed")
    settled(b)


@clustered
def test_F2_3_21_the_name_of_a_pod_with_another_uid(make, kube):
    """(inspect_k8s 193) What has the name now is somebody else's, whatever it says."""
    b = make().start()
    b.sh("t", "touch old")
    old = task_pod(kube, "t")

    def replace():
        kube.api.delete("pods", "sandboxes", old["metadata"]["name"], {"gracePeriodSeconds": 0})
    kube.call(replace)
    put(kube, old["metadata"]["name"], old, **{"berth.dev/deployment": "other"})
    wait_for(lambda: b.run("t", "test ! -e old")["status"] == "completed", 30, "a pod of its own")
    pods = kube.pods_of("t")
    equal(len([p for p in pods if p["metadata"]["annotations"]["berth.dev/deployment"] == "e2e"]), 1, "pods of ours")
    check(old["metadata"]["name"] in kube.pods(), "the other's is left alone")


@clustered
def test_F2_3_22_a_pod_that_was_left_over(make, kube):
    """(openkruise 756) A dead pod of an earlier life has the task's name."""
    make().start().sh("t", "true")
    left = task_pod(kube, "t")
    apply(kube, left, "crashed")
    later = make().start()
    equal(later.sh("t", "echo anew"), b"anew\n")
    wait_for(lambda: len(kube.pods_of("t")) == 1, 30, "what was left to go")
    check(task_pod(kube, "t")["metadata"]["uid"] != left["metadata"]["uid"], "another pod")


@clustered
def test_F2_3_23_ready_before_it_listens(make, kube):
    """(agentcube 64) Running, Ready, and refusing connections: it is dialled until it answers."""
    kube.call(lambda: setattr(kube.node, "late_s", 1.0))
    b = make().start()
    equal(b.sh("t", "echo up"), b"up\n")
    equal(count(kube, "POST", "/pods"), 1, "creates")


@clustered
def test_F2_3_24_the_address_of_a_failed_pod(make, kube):
    """(sandbox0 754) It keeps its address, which is another pod's by now: nothing is sent there."""
    b = make().start()
    b.sh("t", "true")
    old = task_pod(kube, "t")
    b.sh("u", "true")
    other = task_pod(kube, "u")
    apply(kube, old, "evicted")
    edit(kube, old, lambda pod: pod["status"].update(podIP=other["status"]["podIP"]))
    wait_for(lambda: b.run("t", "touch mine")["status"] == "completed", 30, "a session of its own")
    equal(b.sh("u", "ls"), b"", "the other's files")
    settled(b)


@clustered
def test_a_node_that_rejects_its_pod_is_not_the_end(make, kube):
    """Another pod is made, once; the first is deleted."""
    for word in ("out_of_cpu", "node_affinity"):
        seen = []

        def first_only(pod, word=word, seen=seen):
            seen.append(pod["metadata"]["uid"])
            return word if len(seen) == 1 else None
        kube.call(lambda: kube.node.scripts.__setitem__(slice(None), [first_only]))
        b = make().start()
        equal(b.sh(word.replace("_", "-"), "echo here"), b"here\n", word)
        wait_for(lambda: len(kube.pods_of(word.replace("_", "-"))) == 1, 20, "the rejected pod to go")
        equal(len(seen), 2, "pods made")
        b.stop()


@clustered
def test_events_say_why_a_pod_does_not_start(make, kube):
    """What no status tells stands in the error; one list, and none where the right is missing."""
    b = make(conf=SHORT).start()
    on_scripts(kube, "container_creating")

    def tell(key, before, after):
        if key[0] != "pods" or before is not None:
            return
        for number, (kind, reason, message) in enumerate((("Normal", "Scheduled", "assigned to node-1"),
                                                          ("Warning", "FailedMount", 'secret "login" not found'))):
            kube.api.store.create("events", "sandboxes", {
                "metadata": {"name": f"{key[2]}.{number}"}, "type": kind, "reason": reason, "message": message,
                "involvedObject": {"kind": "Pod", "name": key[2], "uid": after["metadata"]["uid"]}, "lastTimestamp": f"2026-01-0{number + 1}T00:00:00Z"})
    kube.call(kube.api.store.hooks.append, tell)
    record = b.run("t", "true", timeout_seconds=60)
    equal((record["status"], record["reason"]), ("failed", "deadline"), record.get("error"))
    said = next(line for line in b.log().splitlines() if "a provisioning failed" in line)
    check("ContainerCreating" in said and 'FailedMount: secret' in said.replace('\\"', '"'), said)
    check("Scheduled" not in said, said)
    equal(count(kube, "GET", "/events"), 1, "lists")
    kube.faults(dict(method="GET", path="/events", status=403, times=9))
    record = b.run("u", "true", timeout_seconds=60)
    equal((record["status"], record["reason"]), ("failed", "deadline"), record.get("error"))


@clustered
def test_the_template_is_tried_when_the_target_opens(make, kube):
    refusals = (Refused(422, "Invalid", 'Pod "x" is invalid: spec.containers[0].image: Invalid value: "sandbox:1": not from here'),
                Refused(403, "Forbidden", 'pods "x" is forbidden: error looking up service account sandboxes/sandbox: not found'),
                Refused(403, "Forbidden", 'pods "x" is forbidden: failed quota: q: must specify limits.cpu'),
                Refused(403, "", 'admission webhook "w.example" denied the request: not from here'))
    for refusal in refusals:
        def deny(resource, obj):
            if resource == "pods":
                raise refusal
        kube.call(lambda: kube.api.admit.__setitem__(slice(None), [deny]))
        b = make()
        b.start(expect_exit=78)
        words = refusal.status["message"][-20:]
        check(words in b.log(), "the server's sentence:", words, b.log()[-500:])
    degraded = make(target="required = false;").start()
    check("a target is degraded" in degraded.log(), degraded.log()[-500:])
    kube.call(kube.api.admit.clear)
    for rule, words in ((dict(status=403), "could not be asked about the template"), (dict(status=500, times=9), "could not be checked now"),
                        (dict(act="cut", times=9), "could not be checked now")):
        kube.faults(dict(method="POST", path="dryRun=All", **rule))
        b = make().start()
        check(words in b.log(), words, b.log()[-500:])
        kube.call(kube.api.faults.clear)
        equal(b.sh("t", "echo works"), b"works\n")
        b.teardown("t", wait="20s")
    equal(count(kube, "POST", "/pods"), 3, "pods that were made")
