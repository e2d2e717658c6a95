# SPDX-License-Identifier: Apache-2.0
"""What the benches are put together from: a daemon as users have it, nginx, wrk, and readings of /proc."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import harness  # noqa: E402

TOKEN = harness.TOKEN
PROGRAMS = harness.BUILD / "tests" / "bench"


class Daemon(harness.Berth):
    """A daemon with its defaults: the log as it is shipped, SQLite as it is shipped, a bearer token."""

    def __init__(self, name, plugin_dir=None, **options):
        self.plugin_dir = plugin_dir or harness.BUILD / "lib" / "berth" / "plugins"
        super().__init__(name, **options)

    def write_conf(self):
        path = super().write_conf()
        text = re.sub(r"^log: .*\n", "", path.read_text(), flags=re.M)
        path.write_text(re.sub(r"^plugin_dir = .*$", f'plugin_dir = "{self.plugin_dir}";', text, flags=re.M))
        return path

    def url(self, route):
        return f"http://127.0.0.1:{self.port}{route}"

    def metrics(self):
        """Samples without labels."""
        text = self.get("/metrics").expect(200).text
        return {name: float(value) for name, value in re.findall(r"^([a-z_]+) ([0-9.e+-]+)$", text, re.M)}

    def status(self, key):
        """A line of /proc/<pid>/status in bytes."""
        text = pathlib.Path(f"/proc/{self.proc.pid}/status").read_text()
        return int(re.search(rf"^{key}:\s+(\d+) kB$", text, re.M)[1]) * 1024

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.proc.pid}/clear_refs").write_text("5\n")

    def thread_seconds(self):
        """{name of a thread: seconds of processor time of all with that name}"""
        found = {}
        for task in pathlib.Path(f"/proc/{self.proc.pid}/task").iterdir():
            try:
                name = (task / "comm").read_text().strip()
                found[name] = found.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
            except FileNotFoundError:
                pass  # ended meanwhile
        return found

    def seconds(self):
        return seconds_of(self.proc.pid)


def seconds_of(pid):
    """Processor time of all threads of a process, those that have ended included."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def daemon(stack, name, memory=False, **options):
    """memory: all its files are in memory, where a flush costs nothing: what is left is the daemon's own time."""
    before = tempfile.tempdir
    if memory:
        tempfile.tempdir = "/dev/shm"
    try:
        berth = Daemon(f"bench-{name}", **options)
    finally:
        tempfile.tempdir = before
    stack.callback(berth.close)
    return berth


def program(name):
    path = PROGRAMS / name
    if not path.exists():
        raise SystemExit(f"bench: {path} was not built (target \"bench\")")
    return str(path)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nginx:
    def __init__(self, stack):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-nginx-"))
        stack.callback(shutil.rmtree, self.dir, ignore_errors=True)
        self.dir.chmod(0o755)  # its workers are another user when it is started by root
        (self.dir / "files").mkdir()
        self.port = free_port()
        conf = self.dir / "nginx.conf"
        conf.write_text((HERE / "nginx.conf").read_text().replace("@PORT@", str(self.port)).replace("@DIR@", str(self.dir)))
        self.proc = subprocess.Popen(["/usr/sbin/nginx", "-c", str(conf), "-e", str(self.dir / "nginx.error.log")],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        stack.callback(self.close)
        harness.wait_for(self.answers, 20, "nginx to answer")

    def answers(self):
        if self.proc.poll() is not None:
            raise harness.Failure("nginx ended: " + (self.dir / "nginx.error.log").read_text()[-500:])
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def url(self, route):
        return f"http://127.0.0.1:{self.port}{route}"

    def close(self):
        self.proc.terminate()
        self.proc.wait()


UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60000.0}


def wrk(url, seconds, threads=2, connections=64, script=None, arguments=(), token=True, part="50%"):
    """(requests per second, latency in ms of that part of them); any failed request is the end of the bench."""
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "30s"]
    if script:
        command += ["-s", str(HERE / script)]
    if token:
        command += ["-H", "Authorization: Bearer " + TOKEN]
    done = subprocess.run([*command, url, "--", *arguments], capture_output=True, text=True, check=False)
    out = done.stdout + done.stderr
    bad = re.search(r"Non-2xx|Socket errors|not completed: [1-9]", out)
    rate, half = re.search(r"Requests/sec:\s+([0-9.]+)", out), re.search(rf"{part}\s+([0-9.]+)(us|ms|s|m)\s", out)
    if done.returncode or bad or not rate or not half:
        raise harness.Failure(f"wrk {url}: {out[-1000:]}")
    return float(rate[1]), float(half[1]) * UNITS[half[2]]


def curl(*arguments):
    """One transfer; seconds. The body goes nowhere."""
    done = subprocess.run(["curl", "-sS", "-f", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise harness.Failure(f"curl: {done.stderr}")
    return float(done.stdout.split()[1])


def run_reference(name, *arguments):
    """A reference program that prints one number."""
    done = subprocess.run([program(name), *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise harness.Failure(f"{name}: {done.stderr}")
    return float(done.stdout)


def in_turn(number, ours, reference):
    """Both sides of one round; who is first changes from round to round."""
    if number % 2:
        second = reference()
        return ours(), second
    first = ours()
    return first, reference()


def seconds_until(condition, limit=60, every=0.002):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit:
            raise harness.Failure(f"not within {limit} s")
        time.sleep(every)
    return time.monotonic() - begin
