# SPDX-License-Identifier: Apache-2.0
"""One real berthd per test: its files, its processes, and the mock provider's own view of what lives.

Nothing here sleeps for a fixed time to wait for something: wait_for() polls a condition with a limit.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BERTH_BUILD", ROOT / "build" / "release")).resolve()  # daemons start elsewhere
TOKEN = "e2e-token-0123456789abcdef0123456789abcdef"
# Sanitized daemons are slower; every limit below is multiplied by this.
PATIENCE = float(os.environ.get("BERTH_PATIENCE", "1"))



def is_sanitized():
    cache = BUILD / "CMakeCache.txt"
    return cache.exists() and bool(re.search(r"^BERTH_SANITIZE:\w+=.+$", cache.read_text(), re.M))


SANITIZED = is_sanitized()
# Sanitizers take the signals of a crash for reports of their own, unless told to leave them; the child that probes a plugin is
# judged by the signal.
SIGNALS = {name: os.environ[name] + "".join(f":handle_{signal}=0" for signal in ("segv", "abort", "sigbus", "sigfpe", "sigill"))
           for name in ("ASAN_OPTIONS", "TSAN_OPTIONS") if name in os.environ}

# What sanitizers write into a log.
REPORT = re.compile("^.*(ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:)", re.M)

FULL = False  # set by run.py --full: the long matrices
STORE = os.environ.get("BERTH_STORE", "sqlite")
TARGET = os.environ.get("BERTH_TARGET", "mock")  # or kubernetes: the daemons' only target, see pod_target.py
REDIS = None  # the server that all daemons of a run share, set by run.py when STORE is redis


class Failure(AssertionError):
    pass


class Refused(Failure):
    """503 where another answer was expected: nothing was begun, or what was begun is found in the store."""


class Skipped(Exception):
    """Raised by a test that cannot run here; the reason is printed."""


def only_sqlite(why):
    """Marks a test that cannot run on another store, and says why."""
    def mark(function):
        function.only_sqlite = why
        return function
    return mark


def check(condition, *what):
    if not condition:
        raise Failure(" ".join(str(w) for w in what) or "condition is false")


def equal(got, expected, what=""):
    if got != expected:
        raise Failure(f"{what}: got {got!r}, expected {expected!r}")


def wait_for(condition, seconds=20, what="condition"):
    """Polls until condition() is truthy and returns its value."""
    end = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"timed out after {seconds * PATIENCE:g} s waiting for {what}")
        time.sleep(0.01)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    def expect(self, *statuses):
        if self.status not in statuses:
            kind = Refused if self.status == 503 else Failure
            raise kind(f"status {self.status}, expected {statuses}: {self.body[:400]!r}")
        return self

    def expect_error(self, status, word=None):
        self.expect(status)
        if word is not None:
            equal(self.json["error"], word, "error word")
        return self


class Mock:
    """What the mock provider itself says, read from its files (docs/mock.md)."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def sessions(self):
        base = self.root / "sessions"
        found = {}
        if base.is_dir():
            for entry in base.iterdir():
                try:
                    text = (entry / "session").read_text()
                except (FileNotFoundError, NotADirectoryError):
                    continue
                found[entry.name] = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return found

    def count(self, op):
        try:
            text = (self.root / "counters").read_text()
        except FileNotFoundError:
            return 0
        for line in text.splitlines():
            parts = line.replace("\0", "").split()
            if len(parts) == 2 and parts[0] == op:
                return int(parts[1])
        return 0

    def faults(self, *lines):
        path = self.root / "faults"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text("".join(line + "\n" for line in lines))
        temporary.rename(path)

    def work(self, ref):
        return self.root / "sessions" / ref / "work"

    def conf(self, target, settings):
        """The file of providers.d that makes it a daemon's target."""
        return f'provider = "mock";\nname = "mock";\n{target}\nconfig: {{ root = "{self.root}"; {settings} }};\n'

    def close(self):
        kill_under(self.root)
        for ref in self.sessions():
            drop_cgroup(ref)


def make_provider(root):
    """What holds the sessions of one daemon, or of a fleet."""
    root.mkdir()
    if TARGET == "mock":
        return Mock(root)
    import pod_target  # it needs what stands above
    return pod_target.Pods()


class Berth:
    def __init__(self, name="e2e", mock="", conf="", target="", env=None, tokens=None, faketime=None, http="", redis=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"berth-{name}-"))
        self.state = self.dir / "state"
        self.state.mkdir(mode=0o700)
        self.env = dict(env or {})
        self.programs, self.plugins, self.helpers = BUILD / "bin", BUILD / "lib/berth/plugins", BUILD / "bin"
        self.proc = None
        self.crashes = 0  # that the test waited for
        self.port = None
        self.log_path = self.dir / "berthd.log"
        self.mock = make_provider(self.dir / "provider")
        self.tokens = tokens or [("all", TOKEN, ["execution.create", "execution.read", "execution.cancel", "file.read",
                                                "file.write", "artifact.read", "artifact.write", "session.read",
                                                "session.delete", "metrics", "admin"], ["*"])]
        self.conf_text, self.mock_text, self.target_text, self.http_text = conf, mock, target, http
        self.faketime = faketime
        self.redis = redis or REDIS  # a server of its own makes a daemon of the sqlite runs keep its state there, too
        self.fleet_of = None  # the name whose keys it shares
        self.write_conf()

    @property
    def store_name(self):
        """What its keys in Redis begin with."""
        return self.fleet_of or self.dir.name

    # ---- files ----
    def store_text(self):
        if not self.redis:
            return ""
        name = self.store_name
        return (f'store: {{ type = "redis"; }};\nredis: {{ url = "{self.redis.url}"; prefix = "{name}"; request_stream = "{name}.requests"; '
                f'event_stream = "{name}.events"; dead_stream = "{name}.dead"; }};\n')

    def write_conf(self):
        conf = self.dir / "berth.conf"
        groups = []
        for name, secret, scopes, workspaces in self.tokens:
            path = self.dir / f"{name}.token"
            path.write_text(secret + "\n")
            path.chmod(0o600)
            quoted = lambda words: ", ".join(f'"{w}"' for w in words)
            groups.append(f'{{ name = "{name}"; secret = "file:{path}"; scopes = [ {quoted(scopes)} ]; '
                          f'workspaces = [ {quoted(workspaces)} ]; }}')
        conf.write_text(
            f'deployment = "e2e";\nstate_dir = "{self.state}";\nplugin_dir = "{self.plugins}";\n'
            f'helper_dir = "{self.helpers}";\nhttp: {{ port = 0; {self.http_text} }};\nlog: {{ level = "debug"; }};\n'
            f'tokens = ( {", ".join(groups)} );\n{self.store_text()}{self.conf_text}\n')
        providers = self.dir / "providers.d"
        providers.mkdir(exist_ok=True)
        if not any(providers.iterdir()):
            (providers / "10-mock.conf").write_text(self.mock.conf(self.target_text, self.mock_text))
        return conf

    # ---- the process ----
    def start(self, wait=True, expect_exit=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOX_", "BERTH_", "REDIS_"))}
        env.update(self.env)
        if self.faketime:
            env.update(self.faketime)
        (self.state / "port").unlink(missing_ok=True)
        log = open(self.log_path, "ab")
        self.proc = subprocess.Popen([str(self.programs / "berthd"), "-c", str(self.dir / "berth.conf")],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd="/")
        log.close()
        if expect_exit is not None:
            equal(self.proc.wait(timeout=30 * PATIENCE), expect_exit, "exit code of berthd")
            self.proc = None
            return self
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        def ready():
            if self.proc.poll() is not None:
                raise Failure(f"berthd exited with {self.proc.returncode}: {self.log()[-2000:]}")
            try:
                self.port = int((self.state / "port").read_text())
                return self.request("GET", "/health").status == 200
            except (FileNotFoundError, ValueError, OSError, http.client.HTTPException):
                return False
        wait_for(ready, 30, "berthd to be ready")
        return self

    def kill9(self):
        self.proc.send_signal(signal.SIGKILL)
        equal(self.wait_dead(), -signal.SIGKILL, "what ended berthd before the kill")

    def wait_dead(self, seconds=30):
        try:
            code = self.proc.wait(timeout=seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure("berthd did not end")
        self.proc = None
        return code

    def wait_crash(self, number):
        """A crash that the test has made."""
        equal(self.wait_dead(), -number, "berthd's end")
        self.crashes += 1

    def stop(self):
        if self.proc is None:
            return None
        self.proc.terminate()
        return self.wait_dead()

    def restart(self):
        self.kill9()
        return self.start()

    def fault(self):
        """What no test may leave behind, whatever it looked at itself; empty when there is none."""
        log = self.log()
        report = REPORT.search(log)
        if report:
            return "sanitizer report\n" + log[report.start():][:6000]
        crashes = re.findall("^berthd: crash: .*", log, re.M)
        if len(crashes) != self.crashes:
            return f"{self.crashes} crashes were waited for, the log has: {crashes}"
        if self.proc is not None and self.proc.poll() is not None:
            return f"berthd ended with {self.proc.returncode}, which nothing waited for: {log[-2000:]}"
        return ""

    def close(self, keep=False):
        if self.proc is not None:
            self.proc.kill()
            self.proc.wait()
            self.proc = None
        self.mock.close()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def log(self):
        try:
            return self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # ---- HTTP ----
    def request(self, method, route, /, body=None, token=TOKEN, headers=None, timeout=120, **query):
        query = {k: v for k, v in query.items() if v is not None}
        if query:
            route += ("&" if "?" in route else "?") + urllib.parse.urlencode(query)
        head = dict(headers or {})
        if token is not None:
            head.setdefault("Authorization", "Bearer " + token)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            head.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * PATIENCE)
        try:
            connection.request(method, route, body=body, headers=head)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, route, /, **kw):
        return self.request("GET", route, **kw)

    def raw(self, data, timeout=10):
        """Sends bytes as they are; returns everything until the server closes or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.sendall(data)
            s.settimeout(timeout)
            out = b""
            try:
                while True:
                    piece = s.recv(65536)
                    if not piece:
                        break
                    out += piece
                    head, _, rest = out.partition(b"\r\n\r\n")
                    match = re.search(rb"(?i)content-length: *(\d+)", head)
                    if match and len(rest) >= int(match[1]):
                        break
            except (socket.timeout, ConnectionResetError):
                pass
            return out

    # ---- executions ----
    def create(self, task, command, workspace="w", wait=None, headers=None, token=TOKEN, region=None, **fields):
        body = {"workspace_id": workspace, "task_id": task, "command": {"command_body": command, **fields}}
        if region is not None:
            body["runtime"] = {"region": region}
        return self.request("POST", "/sandbox/executions", body, headers=headers, token=token, wait=wait)

    def run(self, task, command, workspace="w", limit=60, **fields):
        """Runs to the terminal record."""
        record = self.create(task, command, workspace, wait="30s", **fields).expect(200, 202).json
        return self.finish(record["id"], limit)

    def finish(self, execution_id, limit=60):
        end = time.monotonic() + limit * PATIENCE
        while True:
            record = self.get(f"/sandbox/executions/{execution_id}").expect(200).json
            if record["status"] in ("completed", "failed", "cancelled"):
                return record
            if time.monotonic() > end:
                raise Failure(f"execution {execution_id} still {record['status']} after {limit} s")
            try:
                self.get(f"/sandbox/executions/{execution_id}", wait="5s", revision=record["revision"])
            except OSError:
                time.sleep(0.05)

    def record(self, execution_id):
        return self.get(f"/sandbox/executions/{execution_id}").expect(200).json

    def output(self, execution_id, stream="stdout"):
        return self.get(f"/sandbox/executions/{execution_id}/{stream}").expect(200, 206).body

    def sh(self, task, command, code=0, **fields):
        """Runs, checks the exit code, returns stdout."""
        record = self.run(task, command, **fields)
        if record["status"] != "completed" or record["result"]["exit_code"] != code:
            raise Failure(f"{command!r}: {record['status']} {record.get('result')} {record.get('error')} "
                          f"stderr {self.output(record['id'], 'stderr')[-300:]!r}")
        return self.output(record["id"])

    def teardown(self, task, workspace="w", force=None, wait=None):
        return self.request("DELETE", f"/sandbox/task/{task}", workspace_id=workspace, force=force, wait=wait)

    def task(self, task, workspace="w"):
        return self.get(f"/sandbox/task/{task}", workspace_id=workspace)

    def put_file(self, task, path, data, workspace="w", mode="0644", **query):
        return self.request("PUT", "/sandbox/file-content", data, workspace_id=workspace, task_id=task, path=path,
                            mode=mode, **query)

    def get_file(self, task, path, workspace="w", **query):
        return self.get("/sandbox/file-content", workspace_id=workspace, task_id=task, path=path, **query)

    def processes(self):
        """Command lines of what runs in any session of this provider, supervisors and executors left out."""
        own = ("berth-supervise", "berth-executor")
        return [command for _, command in processes_under(self.mock.root) if not any(word in command for word in own)]

    def sessions_of(self, task, workspace="w"):
        return [ref for ref, s in self.mock.sessions().items()
                if s.get("workspace") == workspace and s.get("task") == task]

    def ctl(self, *args, stdin=None, timeout=120, env=None, text=False):
        environment = {**os.environ, "BERTH_ADDRESS": f"http://127.0.0.1:{self.port}", "BERTH_TOKEN": TOKEN, **(env or {})}
        return subprocess.run([str(BUILD / "bin" / "berthctl"), *args], input=stdin, capture_output=True,
                              timeout=timeout * PATIENCE, env=environment, text=text)

    # ---- failpoints ----
    def failpoints(self, *lines):
        """Arms failpoints for the next start (and while it runs)."""
        path = self.dir / "failpoints"
        path.write_text("".join(line + "\n" for line in lines))
        self.env["BERTH_FAILPOINTS"] = str(path)

    def failpoint_hits(self):
        try:
            return (self.dir / "failpoints.hit").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []


def memory(pid, name):
    """VmRSS or VmHWM of a process, in MiB."""
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith(name + ":"))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def memory_grows_by_less_than(mib, pid):
    """At any moment within, not only at its end. A sanitizer keeps what was freed."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = memory(pid, "VmRSS")
    yield
    grown = memory(pid, "VmHWM") - before
    check(SANITIZED or grown < mib, f"at most {grown:.1f} MiB more at one time")


def processes_under(root):
    """(pid, command line) of processes whose working folder or arguments lie under root. Zombies have neither."""
    root, found = str(root), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                cwd = os.readlink(f"/proc/{entry}/cwd")
                command = open(f"/proc/{entry}/cmdline", "rb").read().decode(errors="replace").replace("\0", " ").strip()
            except OSError:
                continue
            if cwd.startswith(root) or root in command:
                found.append((int(entry), command))
    return found


def kill_under(root):
    """Kills whatever a test left running."""
    for pid, _ in processes_under(root):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def drop_cgroup(ref):
    """The group that the mock made for a session with limits and that a killed daemon left."""
    for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"):
        group = f"{base}/{ref}"
        for _ in range(100):
            try:
                os.rmdir(group)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)  # until what was killed is reaped
            else:
                break


def in_parallel(count, function):
    """Runs function(0..count-1) on threads; returns results in order, raises the first failure."""
    results, failures = [None] * count, []

    def one(i):
        try:
            results[i] = function(i)
        except BaseException as failure:  # noqa: B902 - reported below
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def settled(berth, seconds=20):
    """Waits until the provider's live sessions equal the bindings: the pass rule of every test."""
    def same():
        answer = berth.request("POST", "/admin/verify")
        return answer.status == 200 and answer.json.get("ok")
    wait_for(same, seconds, "provider sessions = bindings")
