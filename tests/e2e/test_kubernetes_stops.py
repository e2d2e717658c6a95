# SPDX-License-Identifier: Apache-2.0
"""Stops of commands in pods, and the end of a pod, where something stands between the plugin and the executor."""

import os
import signal

import harness
from harness import check, equal, settled, wait_for
from test_kubernetes import clustered, count, task_pod

# Says nothing, so that only the plugin knows that it may run; TERM alone does not end it.
SILENT = "trap '' TERM; echo $$ > begun; while :; do sleep 0.05; done"


def begin(kube, b, script=SILENT, timeout=60):
    """A command in the task's pod that has begun: its record and its process."""
    uid = task_pod(kube, "t")["metadata"]["uid"]
    file = kube.node.dir / uid / "work" / "begun"
    file.unlink(missing_ok=True)
    record = b.create("t", script, timeout_seconds=timeout).expect(202).json
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), 30, "the command to begin")
    return record, int(file.read_text())


def cancel(b, record):
    b.request("DELETE", f"/sandbox/executions/{record['id']}").expect(200, 202)
    return b.finish(record["id"])


def stops_in_spite_of(kube, b, path, **fault):
    record, process = begin(kube, b)
    (rule,) = kube.faults(dict(method="POST", path=f":8080/proxy/v1/{path}", **fault))
    record = cancel(b, record)
    equal((record["status"], os.path.exists(f"/proc/{process}")), ("cancelled", False), f"{path} {fault}: {record}")
    equal(rule.hits, rule.times, f"{path} {fault}")


REFUSALS = (dict(status=429), dict(status=403), dict(status=401, times=2), dict(status=503), dict(status=404), dict(act="cut"))


@clustered
def test_a_stop_that_is_refused_on_its_way(make, kube):
    """What the API server says to the signal is none of the command, which is not over before it is."""
    b = make(reach="proxy").start()
    b.sh("t", "true")
    for fault in REFUSALS:
        stops_in_spite_of(kube, b, "signal", **fault)
    settled(b)


@clustered
def test_a_look_after_the_stop_that_is_refused_on_its_way(make, kube):
    b = make(reach="proxy").start()
    b.sh("t", "true")
    for fault in REFUSALS:
        stops_in_spite_of(kube, b, "reattach", **fault)
    settled(b)


@clustered
def test_a_stop_that_came_before_the_command_could_be_met(make, kube):
    """The executor has no command yet when the signal comes, and launches it then."""
    b = make(reach="proxy").start()
    b.sh("t", "true")
    uid = task_pod(kube, "t")["metadata"]["uid"]
    none = {"code": "not_found", "reason": "not_running", "retryable": False, "retry_after_ms": 0, "text": "the command does not run"}
    stops_in_spite_of(kube, b, "signal", status=404, body=none, headers=[("Berth-Executor", "1"), ("Berth-Pod-Uid", uid)])
    equal(count(kube, "POST", "/v1/signal"), 2, "signals")
    settled(b)


@clustered
def test_looks_that_are_cut_again_and_again(make, kube):
    """They say nothing of the command, however many they are."""
    b = make(reach="proxy").start()
    b.sh("t", "true")
    record, _ = begin(kube, b, "echo $$ > begun; while [ ! -e go ]; do sleep 0.05; done; echo done")
    b.kill9()
    rules = kube.faults(dict(method="POST", path="/v1/reattach", act="cut", times=3), dict(method="POST", path="/v1/reattach", status=503, times=3),
                        dict(method="POST", path="/v1/reattach", status=502, times=3))
    b.start()
    wait_for(lambda: all(rule.hits == rule.times for rule in rules), 60, "the looks that fail")
    b.put_file("t", "go", b"").expect(200, 201, 204)
    record = b.finish(record["id"])
    equal((record["status"], b.output(record["id"])), ("completed", b"done\n"), record.get("error"))


def login(kube, token):
    """A kubeconfig whose user is told by a program, which is asked again only when its token is refused; and the file it tells from."""
    program = kube.dir / "login"
    program.write_text('#!/bin/sh\necho run >> "$0.runs"\n'
                       'echo "{\\"kind\\": \\"ExecCredential\\", \\"status\\": {\\"token\\": \\"$(cat "$0.token")\\"}}"\n')
    program.chmod(0o700)
    file = program.with_name("login.token")
    file.write_text(token)
    kube.call(lambda: setattr(kube.api, "tokens", {token}))
    return kube.kubeconfig(exec=f"{{apiVersion: client.authentication.k8s.io/v1, command: {program}}}"), file


def revoke(kube, file, token):
    file.write_text(token)
    kube.call(lambda: setattr(kube.api, "tokens", {token}))


@clustered
def test_a_token_that_is_refused_on_the_way_to_the_executor(make, kube):
    """It is read again for what goes through the API server, too; standard input is sent once for all that."""
    config, file = login(kube, "first")
    b = make(conf="", reach="proxy", kubeconfig=config, exec_plugins="true").start()
    b.sh("t", "true")
    kube.faults(dict(method="GET", path="watch=1", act="hang", times=99), dict(method="GET", path=r"/pods(\?|/[^/:]*$)", status=403, times=99))
    kube.call(lambda: setattr(kube.api, "cut_watches", 1))
    revoke(kube, file, "second")
    equal(b.sh("t", "echo in"), b"in\n", "a command")
    revoke(kube, file, "third")
    b.put_file("t", "data", b"bytes").expect(200, 201, 204)
    equal(file.with_name("login.runs").read_text().count("run"), 3, "runs of the program")


@clustered
def test_a_token_that_is_refused_to_the_watch(make, kube):
    config, file = login(kube, "first")
    b = make(conf="", kubeconfig=config, exec_plugins="true").start()
    b.sh("t", "true")
    wait_for(lambda: kube.api.watchers, 20, "a watch")
    before = count(kube, "GET", "watch=1")
    revoke(kube, file, "second")
    kube.call(lambda: setattr(kube.api, "cut_watches", 1))
    wait_for(lambda: count(kube, "GET", "watch=1") == before + 2 and kube.api.watchers, 20, "the watch by another token, at once")


@clustered
def test_a_login_that_hangs_holds_up_no_command(make, kube):
    """What goes to the pod itself needs none: it is not behind those who wait for the program."""
    program, hang, here = (kube.dir / name for name in ("login", "login.hang", "login.here"))
    program.write_text('#!/bin/sh\necho $$ > "$0.here"\nwhile [ -e "$0.hang" ]; do sleep 0.05; done\n'
                       'echo "{\\"kind\\": \\"ExecCredential\\", \\"status\\": {\\"token\\": \\"fake-token\\", '
                       '\\"expirationTimestamp\\": \\"2020-01-01T00:00:00Z\\"}}"\n')
    program.chmod(0o700)
    config = kube.kubeconfig(exec=f"{{apiVersion: client.authentication.k8s.io/v1, command: {program}}}")
    b = make(kubeconfig=config, exec_plugins="true").start()
    b.sh("t", "true")
    hang.touch()
    here.unlink()
    other = b.create("u", "true", timeout_seconds=60).expect(202).json
    wait_for(lambda: here.exists() and here.read_text().endswith("\n"), 20, "the program to hang")
    process = int(here.read_text())
    for word in ("one", "two", "three"):
        equal(b.sh("t", f"echo {word}"), f"{word}\n".encode())
    check(os.path.exists(f"/proc/{process}"), "the commands waited until the program was killed")
    hang.unlink()
    equal(b.finish(other["id"])["status"], "completed")


@clustered
def test_an_executor_that_falls_silent(make, kube):
    """Its node is away, and nobody knows yet. The stream is given up after a minute, not the command."""
    if not harness.FULL:
        raise harness.Skipped("with --full: it takes a minute")
    b = make().start()
    b.sh("t", "true")
    uid = task_pod(kube, "t")["metadata"]["uid"]
    record, _ = begin(kube, b, "echo $$ > begun; echo up; while [ ! -e go ]; do sleep 0.05; done; echo done", timeout=300)
    wait_for(lambda: b.output(record["id"]) == b"up\n", 30, "its first line")
    executor = kube.call(lambda: kube.node.pods[uid].pid)
    os.kill(executor, signal.SIGSTOP)
    try:
        wait_for(lambda: "reason=idle_timeout" in b.log(), 90, "the silence to be noticed")
    finally:
        os.kill(executor, signal.SIGCONT)
    b.put_file("t", "go", b"").expect(200, 201, 204)
    record = b.finish(record["id"])
    equal((record["status"], b.output(record["id"])), ("completed", b"up\ndone\n"), record.get("error"))
