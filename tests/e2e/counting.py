# SPDX-License-Identifier: Apache-2.0
"""What is counted where daemons are killed, from outside of them:

  lost     accepted by the answer or by the store, but without a terminal state, with a wrong one, or without output or effect;
           or run without a record
  twice    commands whose own line stands more than once in their sandbox or in a file outside of all sandboxes
  illegal  executions whose published events no record could have gone through
  leaked   sessions that the provider still lists after everything was torn down, and processes left in them

The mock provider can reattach, so a command that nobody cancelled always ends completed, with its own code and bytes.
"""

import collections
import json
import threading

import harness
import stored

BIG = 40000  # bytes of output that become an object of their own
TERMINAL = ("completed", "failed", "cancelled")
# What an event makes of a record; no other pair of status and event may be published.
AFTER = {("none", "requested"): "queued", ("queued", "claimed"): "claimed", ("claimed", "claimed"): "claimed",
         ("claimed", "started"): "running", ("running", "claimed"): "running", ("running", "started"): "running",
         ("running", "progress"): "running", ("running", "completed"): "completed",
         **{(status, end): end for status in ("queued", "claimed", "running") for end in ("failed", "cancelled")}}


class Command:
    def __init__(self, workspace, task, key, rng):
        self.workspace, self.task, self.key = workspace, task, key
        self.code, self.seconds, self.big = rng.choice((0, 0, 1, 7, 124)), rng.choice((0, 0, 0.02, 0.1, 0.2)), rng.random() < 0.25
        self.id = None
        self.cancelled = False

    def script(self, outside):
        nap = f"sleep {self.seconds}; " if self.seconds else ""
        more = f"head -c {BIG} /dev/zero | tr '\\0' x; " if self.big else ""
        return (f"echo {self.key} >> ran; echo {self.key} >> {outside}; echo out {self.key}; {nap}{more}"
                f"echo err {self.key} >&2; exit {self.code}")

    def body(self, outside):
        return {"workspace_id": self.workspace, "task_id": self.task, "workflow_id": self.key,
                "command": {"command_body": self.script(outside), "timeout_seconds": 60}}

    def output(self, stream):
        return f"{stream} {self.key}\n".encode() + (b"x" * BIG if self.big and stream == "out" else b"")


def events_of(b):
    """Events by execution, in order, read from the store with an independent client."""
    found = {}
    for doc in stored.entries(b, "events"):
        event = json.loads(doc)
        found.setdefault(event["correlationid"], []).append(event)
    return found


def kinds_of(events):
    return [event["type"].rsplit(".", 1)[1] for event in events]


def status_after(kinds):
    """The record's status after these events; None when one of them is illegal."""
    status = "none"
    for kind in kinds:
        status = AFTER.get((status, kind))
    return status


def processes(b):
    """Processes that live in the provider's folder: (pid, command line)."""
    return [(pid, command) for pid, command in harness.processes_under(b.mock.root) if b.proc is None or pid != b.proc.pid]


class Counts:
    """The counts, and a sentence for each fault."""

    def __init__(self, outside):
        self.outside = outside
        self.counts = collections.Counter()
        self.faults = []
        self.lock = threading.Lock()

    def fault(self, what, text):
        with self.lock:
            self.counts[what] += 1
            self.faults.append(f"{what}: {text}")

    def judge_record(self, command, torn, record, output):
        """Whether it must have run; output(stream) reads what is stored of it."""
        status, may_end = record["status"], {"completed"}
        if command.cancelled or (command.workspace, command.task) in torn:
            may_end.add("cancelled")
        if status == "failed" and record.get("reason") == "session_lost" and (command.workspace, command.task) in torn:
            return False
        if status not in may_end:
            self.fault("lost", f"{command.key} {record['id']} is {status} {record.get('reason')} {record.get('error')}")
            return False
        if status == "cancelled":
            return False
        if record["result"]["exit_code"] != command.code:
            self.fault("lost", f"{command.key} exit code {record['result']['exit_code']}, expected {command.code}")
        for stream in ("out", "err"):
            got = output(f"std{stream}")
            if got != command.output(stream):
                self.fault("lost", f"{command.key} {record['id']} std{stream} {len(got)} bytes {got[:80]!r}")
        return True

    def judge_lines(self, commands, accepted, completed, mock):
        """What the commands themselves wrote; accepted: keys of those that have a record, completed: of those that must have run."""
        lines = collections.Counter(self.outside.read_text().split())
        for command in commands:
            if lines[command.key] > 1:
                self.fault("twice", f"{command.key} ran {lines[command.key]} times")
            if lines[command.key] and command.key not in accepted:
                self.fault("lost", f"{command.key} ran and has no record")
            if command.key in completed and not lines[command.key]:
                self.fault("lost", f"{command.key} is completed and has never run")
        for ref in mock.sessions():
            try:
                inside = collections.Counter((mock.work(ref) / "ran").read_text().split())
            except OSError:
                continue
            for key, times in inside.items():
                if times > 1:
                    self.fault("twice", f"{key} ran {times} times in its sandbox")

    def judge_events(self, ended, events):
        """ended: {execution: its terminal status}; events: what events_of gave."""
        for execution, status in ended.items():
            kinds = kinds_of(events.get(execution, []))
            if status_after(kinds) != status:
                self.fault("illegal", f"{execution} is {status} after {kinds}")
