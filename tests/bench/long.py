# SPDX-License-Identifier: Apache-2.0
"""10,000 commands at once at a provider that is reached by HTTP (tests/httpprov): timers of its server, so that neither processes nor
threads are theirs. They are created without waiting and end in a steady row; what is measured is the daemon in between."""

import asyncio
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import subprocess
import tempfile
import time

from parts import TOKEN, daemon, harness, wrk

COMMANDS = 10000
TASKS = 1000
ENDS_PER_S = 1000
HORIZONS_S = (45, 90, 180, 360)  # from the first create to the first end; the first in which all are created in time is kept
TIMEOUT_S = 600
SAMPLES = 1000  # ends that a client waits for
CREATORS = 8
SERVER_THREADS = 32  # its HTTP library goes through all suspended connections of a thread whenever one of them goes on
CONF = f"runner: {{ concurrency = {COMMANDS + 200}; queue_max = {2 * COMMANDS}; }};"


class Server:
    def __init__(self, stack):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-http-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, self.dir, ignore_errors=True)
        token, self.port_file = self.dir / "token", self.dir / "port"
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(24))
        program = harness.BUILD / "tests" / "httpprov" / "httpprov-server"
        self.proc = subprocess.Popen(
            [str(program), "--root", str(self.dir / "root"), "--helpers", str(harness.BUILD / "bin"), "--token-file", str(token),
             "--port-file", str(self.port_file), "--runtime", "null", "--threads", str(SERVER_THREADS)],
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        stack.callback(self.close)
        harness.wait_for(lambda: self.port_file.exists() and self.port_file.read_text().strip(), 20, "the HTTP provider's port")
        self.port = int(self.port_file.read_text())
        self.target = (f'provider = "httpprov";\nname = "remote";\nmax_operations = {2 * COMMANDS};\n'
                       f'config: {{ base_url = "http://127.0.0.1:{self.port}"; token = "file:{token}"; }};\n')

    def running(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/control/counters")
        counters = json.loads(connection.getresponse().read())
        connection.close()
        return counters["timers_running"]

    def close(self):
        self.proc.terminate()
        self.proc.wait()


def end_ms(first_end, i):
    return int((first_end + i / ENDS_PER_S) * 1000)


def create_all(port, first_end):
    """Their ids; the i-th ends at its place in the row that begins at that moment."""
    def create_some(worker):
        connection, made = http.client.HTTPConnection("127.0.0.1", port, timeout=60), {}
        head = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
        for i in range(worker, COMMANDS, CREATORS):
            body = {"workspace_id": "bench", "task_id": f"c1-{1 + i % TASKS}",
                    "command": {"command_body": f"#timer until={end_ms(first_end, i)} exit=0 out=100",
                                "timeout_seconds": TIMEOUT_S}}
            connection.request("POST", "/sandbox/executions", json.dumps(body), head)
            answer = connection.getresponse()
            text = answer.read()
            harness.check(answer.status == 202, "a create was answered with", answer.status, text)
            made[i] = json.loads(text)["id"]
        return made

    with concurrent.futures.ThreadPoolExecutor(CREATORS) as pool:
        made = {i: one for some in pool.map(create_some, range(CREATORS)) for i, one in some.items()}
    return [made[i] for i in range(COMMANDS)]


async def await_end(port, execution, end):
    """(seconds from the command's end at the provider until a client that waits for it has read that,
    seconds from the create until it began there)"""
    record = {"status": "running"}
    while record.get("status", "running") == "running":
        if "error" in record:  # so many begin to wait at once that the workers' queue is full for a moment
            harness.check(record["error"] == "queue_full", "a wait was refused:", record)
            await asyncio.sleep(0.02)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /sandbox/executions/{execution}?wait=60s HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\n"
                     "Connection: close\r\n\r\n".encode())
        answer = await reader.read()
        now = time.time()
        writer.close()
        record = json.loads(answer.partition(b"\r\n\r\n")[2])
    harness.check(record["status"] == "completed", "a command ended as", record)
    return now - end, end - record["result"]["execution_time_ms"] / 1000 - moment(record["created_at"])


def moment(text):
    seconds, milliseconds = re.fullmatch(r"(.*)\.(\d{3})Z", text).groups()
    return (time.mktime(time.strptime(seconds + " UTC", "%Y-%m-%dT%H:%M:%S %Z")) - time.timezone) + int(milliseconds) / 1000


async def await_ends(port, executions, first_end):
    samples = range(0, COMMANDS, COMMANDS // SAMPLES)
    return await asyncio.gather(*(await_end(port, executions[i], end_ms(first_end, i) / 1000) for i in samples))


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


def allow_descriptors(count):
    """For the server and the daemon, which refuses limits that could run out."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except ValueError:
        raise SystemExit(f"bench: long needs {count} descriptors, {hard} are allowed (ulimit -Hn)")


def long(options, stack):
    allow_descriptors(19999)
    server = Server(stack)
    berth = daemon(stack, "long", conf=CONF, plugin_dir=harness.BUILD / "tests" / "httpprov")
    (berth.dir / "providers.d" / "10-mock.conf").write_text(server.target)
    berth.start()
    short = "#timer ms=1 exit=0 out=100"
    harness.in_parallel(8, lambda worker: [berth.run(f"c1-{i}", short, workspace="bench") for i in range(1 + worker, TASKS + 1, 8)])

    horizons = list(HORIZONS_S)

    def all_running():
        """(ids, the moment of the first end), with all of them running and some seconds left."""
        while True:
            first_end = time.time() + horizons[0]
            made = create_all(berth.port, first_end)
            left = first_end - time.time()
            if left > 10 + options.seconds:
                harness.wait_for(lambda: server.running() == COMMANDS, left, "all commands to run at once")
                return made, first_end
            harness.check(len(horizons) > 1, COMMANDS, "creates took", horizons[0] - left, "s")
            horizons.pop(0)
            harness.wait_for(lambda: server.running() == 0, HORIZONS_S[-1], "these commands to end")

    def one_round(number):
        made, first_end = all_running()
        descriptors = len(os.listdir(f"/proc/{berth.proc.pid}/fd"))
        resident = berth.status("VmRSS")
        late = wrk(berth.url("/"), options.seconds, threads=1, connections=1, script="exec.lua", token=False,
                   arguments=(TOKEN, str(TASKS), "c1-", short), part="99%")[1]
        harness.check(time.time() < first_end, "the commands began to end before the short ones were measured")
        added, began = zip(*asyncio.run(await_ends(berth.port, made, first_end)))
        harness.wait_for(lambda: server.running() == 0, 60, "the last commands to end")
        return {"resident": (resident, None), "descriptors": (descriptors, None), "short_p99": (late, None),
                "added_p99": (p99(added) * 1000, None), "began_p99": (p99(began) * 1000, None)}
    return one_round
