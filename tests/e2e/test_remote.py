# SPDX-License-Identifier: Apache-2.0
"""berthd with a provider that speaks HTTP, against the test server of tests/httpprov, whose sessions and commands live outside of both."""

import functools
import http.client
import json
import secrets
import signal
import subprocess

from harness import BUILD, check, equal, in_parallel, settled, wait_for

PROGRAMS = BUILD / "tests" / "httpprov"
FAST = 'gc: { interval = "100ms"; };\n'


class Remote:
    """The server. Its engine is the mock provider's, on the root that the harness looks at."""

    def __init__(self, berth):
        self.root, self.dir = berth.mock.root, berth.dir
        self.token = self.dir / "remote.token"
        self.token.write_text(secrets.token_hex(24) + "\n")
        self.token.chmod(0o600)
        self.process, self.port = None, 0

    def start(self):
        path = self.dir / "remote.port"
        path.unlink(missing_ok=True)
        with open(self.dir / "remote.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(PROGRAMS / "httpprov-server"), "--root", str(self.root), "--helpers", str(BUILD / "bin"), "--token-file", str(self.token),
                 "--port", str(self.port), "--port-file", str(path), "--kill-grace", "200ms"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: path.exists() or self.process.poll() is not None, 30, "the server to listen")
        check(path.exists(), "the server listens", (self.dir / "remote.log").read_text())
        self.port = int(path.read_text())

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill9()

    def counters(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/control/counters")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def remote(test):
    """Gives the test a daemon whose only target is a server of its own."""
    @functools.wraps(test)
    def run(make):
        b = make(conf=FAST, env={"BERTH_PLUGIN_DIR": str(PROGRAMS)})
        server = Remote(b)
        try:
            server.start()
            for path in (b.dir / "providers.d").iterdir():
                path.unlink()
            (b.dir / "providers.d" / "10-remote.conf").write_text(
                'provider = "httpprov";\nname = "remote";\nmax_operations = 1000;\n'
                f'config: {{ base_url = "http://127.0.0.1:{server.port}"; token = "file:{server.token}"; }};\n')
            test(b, server)
        finally:
            if b.proc is not None:  # before its provider
                b.kill9()
            server.close()
    return run


def waiting(b, task):
    """A command that says a, waits for the file go, says b, and ends with 7; once it has begun."""
    record = b.create(task, "echo x >> ran; echo a; until [ -e go ]; do sleep 0.05; done; echo b; exit 7", timeout_seconds=120).expect(202).json
    wait_for(lambda: b.output(record["id"]) == b"a\n", 30, "the command to begin")
    return record["id"]


def ended_once(b, task, execution):
    record = b.finish(execution)
    equal((record["status"], record["result"]["exit_code"]), ("completed", 7), record)
    equal(b.output(execution), b"a\nb\n")
    equal(b.sh(task, "cat ran"), b"x\n", "it ran once")


@remote
def test_a_task_over_http(b, server):
    b.start()
    equal(b.sh("t", "echo hello > f; cat f; echo err >&2"), b"hello\n")
    b.put_file("t", "in/data", b"\0\xff bytes").expect(200, 201, 204)
    equal(b.sh("t", "cat in/data"), b"\0\xff bytes")
    equal(b.get_file("t", "f").expect(200).body, b"hello\n")
    equal(b.run("t", "exit 124")["result"]["exit_code"], 124)
    calls = server.counters()["calls"]
    check(calls["provision"] == 1 and calls["execute"] == 3, "one session, three commands", calls)
    check(secrets_kept(b, server), "the token stands in the log")
    b.teardown("t", wait="20s").expect(200, 202, 204)
    wait_for(lambda: not b.mock.sessions(), 20, "the session to go")
    settled(b)


def secrets_kept(b, server):
    return server.token.read_text().strip() not in b.log()


@remote
def test_P4_the_providers_key_reaches_no_sandbox(b, server):
    b.start()
    key = server.token.read_text().strip()
    b.put_file("t", "f", b"x").expect(200, 201, 204)
    seen = b.sh("t", "cat /proc/$$/environ /proc/$PPID/environ /proc/$$/cmdline /proc/$PPID/cmdline | tr '\\0' '\\n'")
    check(b"BERTH_TASK_ID=t" in seen and key.encode() not in seen, "what a command finds of its start", seen)
    for place in (b.mock.root, b.state, f"/proc/{b.proc.pid}/cmdline", f"/proc/{b.proc.pid}/environ"):
        equal(subprocess.run(["grep", "-raqF", "--", key, str(place)]).returncode, 1, f"whether {place} holds the key")
    check(secrets_kept(b, server), "the token stands in the log")


@remote
def test_a_command_outlives_berthd(b, server):
    b.start()
    execution = waiting(b, "t")
    b.kill9()
    b.start()
    b.put_file("t", "go", b"").expect(200, 201, 204)
    ended_once(b, "t", execution)
    check(server.counters()["calls"]["stream"] >= 1, "it was taken up again")
    settled(b)


@remote
def test_a_command_outlives_its_server(b, server):
    b.start()
    execution = waiting(b, "t")
    server.kill9()
    (b.mock.work(next(iter(b.mock.sessions()))) / "go").touch()
    server.start()
    ended_once(b, "t", execution)
    settled(b)


@remote
def test_many_timers_at_once(b, server):
    """Commands without process or thread on the other side: each is one request that waits."""
    b.start()
    count = 120
    records = in_parallel(12, lambda i: [b.create(f"t{i}", f"#timer ms=1500 exit={k} out=100\n").expect(202).json["id"]
                                         for k in range(count // 12)])
    for ids in records:
        for k, execution in enumerate(ids):
            record = b.finish(execution)
            equal((record["status"], record["result"]["exit_code"], record["result"]["stdout_bytes"]), ("completed", k, 100), record)
    counters = server.counters()
    equal((counters["started"], counters["calls"]["execute"]), (count, count), "each was started once")
