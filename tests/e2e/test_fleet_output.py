# SPDX-License-Identifier: Apache-2.0
"""What a host that lost a command still has of its output, when another host has told the command's end."""

import http.client
import os
import signal
import threading

import harness
from fleet import fleet
from harness import check, equal, wait_for

# The second host takes over after a second; the first one believes its provider after three answers.
CONF = 'execution: { claim_ttl = "1s"; };\nlease: { operation_ttl = "1s"; owner_ttl = "1s"; };\ngc: { interval = "500ms"; };'
SEEN = 90000  # bytes that the first host has when its stream breaks; more than a row holds
COMMAND = f"echo 1 >> ran; head -c 100000 /dev/zero | tr '\\0' a; while [ ! -e go ]; do sleep 0.1; done; head -c 50000 /dev/zero | tr '\\0' b"
WHOLE = b"a" * 100000 + b"b" * 50000


class Follower(threading.Thread):
    """Reads an output on one host until that host says that this was all."""
    def __init__(self, host, made):
        super().__init__(daemon=True)
        self.host, self.made, self.data = host, made, b""
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.host.port, timeout=120 * harness.PATIENCE)
        connection.request("GET", f"/sandbox/executions/{self.made}/stdout?follow=1", headers={"Authorization": "Bearer " + harness.TOKEN})
        response = connection.getresponse()
        while piece := response.read1(65536):
            self.data += piece
        connection.close()


def cut_off(make, point, action, judge):
    """The first host loses the stream, is told that nobody knows more, and is about to end the command with what it has; it is frozen
    there while the other one goes on to the command's own end, and comes back."""
    def armed(**kw):
        host = make(**kw)
        host.failpoints()
        return host

    with fleet(armed, conf=CONF) as (a, b):
        a.mock.faults(f"execute nth=1 cut={SEEN}", "reattach code=UNKNOWN", "send_signal code=UNAVAILABLE")
        a.failpoints(f"{point} {action}")
        made = a.create("t", COMMAND).expect(202).json["id"]
        follower = Follower(a, made)
        wait_for(lambda: any(hit.startswith(f"{point} ") for hit in a.failpoint_hits()), 60, "the first host to end it")
        wait_for(lambda: len(follower.data) == SEEN, 60, "its follower to have what there is")
        a.proc.send_signal(signal.SIGSTOP)
        a.mock.faults()
        wait_for(lambda: b.record(made)["attempt"] == 2, 30, "the other host to go on with it")
        b.put_file("t", "go", b"").expect(200, 201, 204)
        record = b.finish(made)
        equal((record["status"], record["attempt"], record["result"]["stdout_bytes"]), ("completed", 2, len(WHOLE)))
        check(b.output(made) == WHOLE, "the whole output is there")
        a.failpoints()
        (a.dir / "failpoints.go").touch()
        a.proc.send_signal(signal.SIGCONT)
        wait_for(lambda: "another host went on with an execution" in a.log(), 60, "the thawed host to notice")
        equal(b.record(made), record)
        for host in (a, b):
            check(host.output(made) == WHOLE, "the output is still the whole one")
        check("illegal transition" not in a.log() + b.log(), "an illegal transition")
        follower.join(60 * harness.PATIENCE)
        judge(a, made, record["result"]["stdout_ref"], follower.data)
        equal(b.sh("t", "cat ran"), b"1\n")


def objects_of(host, made):
    """By os.walk, which goes on where a folder is removed meanwhile."""
    root = host.dir / "objects" / "objects"
    return {os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root / "executions" / made) for name in names}


def test_a_former_owner_stores_nothing(make):
    """It tries again and again, until the other host has it."""
    def judge(host, made, ref, followed):
        wait_for(lambda: objects_of(host, made) == {ref}, 20, "nothing but the end's output to be there")

    cut_off(make, "exec.stored.before", "error", judge)


def test_a_former_owner_that_was_about_to_store_replaces_nothing(make):
    """It has looked, and the other host came between the look and the storing."""
    def judge(host, made, ref, followed):
        check(ref in objects_of(host, made), "the end's object is there:", objects_of(host, made))

    cut_off(make, "exec.stored.before", "pause", judge)


def test_a_former_owner_does_not_tell_its_followers_an_end(make):
    """They were reading there all the time, and get the rest from the other host."""
    def judge(host, made, ref, followed):
        check(followed == WHOLE, "the follower got", len(followed), "bytes")
        wait_for(lambda: objects_of(host, made) == {ref}, 20, "nothing but the end's output to be there")

    cut_off(make, "exec.ended", "pause", judge)
