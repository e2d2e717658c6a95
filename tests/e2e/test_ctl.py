# SPDX-License-Identifier: Apache-2.0
"""berthctl against the real daemon: commands, their output, their exit codes, what they say when something is wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import threading

import harness
import stored
from harness import check, equal, settled, wait_for

W = ("-w", "w")
CTL = str(harness.BUILD / "bin" / "berthctl")
BERTHD = str(harness.BUILD / "bin" / "berthd")


def environment(b, **more):
    return dict(os.environ, BERTH_ADDRESS=f"http://127.0.0.1:{b.port}", BERTH_TOKEN=harness.TOKEN, **more)


def spawn(b, *args, **kw):
    return subprocess.Popen([CTL, *args], env=environment(b), **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw})


def fix_port(b):
    conf = (b.dir / "berth.conf").read_text()
    check("port = 0;" in conf)
    (b.dir / "berth.conf").write_text(conf.replace("port = 0;", f"port = {b.port};"))


def test_exec_streams_and_passes_the_exit_code(make):
    b = make().start()
    done = b.ctl("exec", *W, "t", "echo out; echo err >&2; exit 7")
    equal((done.returncode, done.stdout, done.stderr), (7, b"out\n", b"err\n"))
    done = b.ctl("exec", *W, "t", "--", "printf", "%s|", "a b", "it's", "$HOME")
    equal((done.returncode, done.stdout), (0, b"a b|it's|$HOME|"))
    done = b.ctl("exec", *W, "t", "printf", "%s|", "--json", "-q")
    equal((done.returncode, done.stdout), (0, b"--json|-q|"), "what follows the command is its own")
    done = b.ctl("exec", *W, "t", "--timeout", "1s", "sleep 60")
    equal(done.returncode, 124)
    check(b"timeout" in done.stderr, done.stderr)
    done = b.ctl("exec", *W, "t", "kill -9 $$", text=True)
    equal((done.returncode, done.stderr), (137, "berthctl: the command was ended by signal 9 (SIGKILL)\n"))
    equal(b.ctl("exec", *W, "-q", "t", "kill -9 $$", text=True).stderr, "")
    done = b.ctl("exec", *W, "t", "--env-ref", "nosuch", "true", text=True)
    check(done.returncode == 125 and "failed: env_ref: there is no file nosuch" in done.stderr, "the place once:", done.stderr)
    done = b.ctl("exec", *W, "t", "--cwd", "nosuch", "true", text=True)
    check(done.returncode == 125 and "failed: cwd 'nosuch': " in done.stderr, done.stderr)
    equal(b.ctl("exec", *W, "t", "--cwd", "nope", "true").returncode, 125)
    done = b.ctl("exec", *W, "t", "--json", "echo hi")
    equal(json.loads(done.stdout)["status"], "completed")
    done = b.ctl("exec", *W, "t", "--script", "-", stdin=b"echo from stdin\n")
    equal(done.stdout, b"from stdin\n")
    equal(json.loads(b.ctl("--json", "-w", "w", "exec", "-d", "t", "true").stdout)["task_id"], "t")


def test_options_behind_the_command_are_hinted_at(make):
    b = make().start()
    word = "'--json' went to the command; options stand before COMMAND"
    done = b.ctl("exec", *W, "t", "exit 3", "--json", text=True)
    equal(done.returncode, 127)
    check(word in done.stderr, done.stderr)
    check("'-t'" in b.ctl("exec", *W, "t", "exit 3", "x", "-t", "5s", text=True).stderr)
    for args in (("t", "printf", "--json"), ("t", "--", "exit 3", "--json"), ("t", "exit 3", "--nothing")):
        check("options stand" not in b.ctl("exec", *W, *args, text=True).stderr, args)


def test_a_token_on_the_command_line_is_refused_and_not_printed(make):
    b = make().start()
    for args in (("sessions", "--token", "SECRET"), ("sessions", "--token=SECRET"), ("sessions", "--tok", "SECRET"),
                 ("--token", "SECRET", "sessions"), ("--token=SECRET", "sessions"), ("sessions", "--tokn=SECRET"), ("sessions", "--json=SECRET")):
        done = b.ctl(*args, text=True)
        equal((done.returncode, done.stdout), (2, ""), args)
        check("SECRET" not in done.stderr and "--" in done.stderr, args, done.stderr)
    check("BERTH_TOKEN" in b.ctl("sessions", "--token", "SECRET", text=True).stderr)


def test_exec_errors_of_its_own_are_125(make):
    b = make().start()
    for args, env in ((("t",), {}), (("--bogus", "t", "true"), {}), (("t", "--timeout", "soon", "true"), {}),
                      (("t", "true"), {"BERTH_ADDRESS": "http://127.0.0.1:1"}), (("t", "true"), {"BERTH_TOKEN": "x" * 40}),
                      (("no such task!", "true"), {}), (("t", "--script", "/nope"), {}), (("-i", "--stdin-ref", "x", "t", "cat"), {}),
                      (("t", "--env", "NOT_SET_ANYWHERE", "true"), {}), (("t", "true"), {"BERTH_CTL_CONF": "/nope"})):
        equal(b.ctl("exec", *W, *args, env=env).returncode, 125, args)
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"], [])


def test_exec_with_standard_input_and_variables(make):
    b = make().start()
    data = os.urandom(3 << 20)
    done = b.ctl("exec", *W, "-i", "t", "wc -c; cat >/dev/null", stdin=data)
    equal((done.returncode, done.stdout.strip()), (0, str(len(data)).encode()), done.stderr)
    local = b.dir / "in"
    local.write_bytes(b"skipped\nkept\n")
    with open(local, "rb") as file:
        file.seek(8)
        done = subprocess.run([CTL, "exec", *W, "-i", "t", "cat"], stdin=file, capture_output=True, env=environment(b))
    equal((done.returncode, done.stdout), (0, b"kept\n"), "a file is read from where it stands")
    done = b.ctl("exec", *W, "-i", "t", "cat", stdin=b"")
    equal((done.returncode, done.stdout), (0, b""))
    done = b.ctl("exec", *W, "-e", "A=1=2", "--env", "B=", "-e", "FROM_HERE", "t", 'echo "$A|$B|$FROM_HERE"', env={"FROM_HERE": "x y"})
    equal((done.returncode, done.stdout), (0, b"1=2||x y\n"), done.stderr)
    for word in ("A B=1", "1A=2", "=3"):
        done = b.ctl("exec", *W, "-e", word, "t", "true", text=True)
        equal((done.returncode, done.stderr.count("--env: '" + word.split("=")[0] + "' is not a name")), (125, 1), done.stderr)
    equal(b.sh("t", "ls -A"), b"", "what was sent first is gone")
    done = b.ctl("exec", *W, "-d", "-i", "t", "cat", stdin=b"later", text=False)
    check(b"stays in the workspace" in done.stderr, done.stderr)
    equal(b.finish(done.stdout.decode().strip())["result"]["exit_code"], 0)
    equal(b.ctl("logs", done.stdout.decode().strip()).stdout, b"later")
    name = b.sh("t", "ls -A").decode().strip()
    check(name.startswith(".berthctl-stdin-"), name)
    equal(b.sh("t", f"stat -c %a {name}"), b"600\n")


def test_exec_with_a_key_is_one_execution(make):
    b = make().start()
    first = b.ctl("exec", *W, "-d", "-i", "--idempotency-key", "k1", "t", "cat", stdin=b"a", text=False).stdout
    equal(b.ctl("exec", *W, "-d", "-i", "--idempotency-key", "k1", "t", "cat", stdin=b"a").stdout, first)
    equal(b.ctl("exec", *W, "-d", "--idempotency-key", "k1", "t", "other").returncode, 125)
    equal(len(b.get("/sandbox/executions", workspace_id="w").json["items"]), 1)


def test_exec_large_output_is_exact(make):
    b = make().start()
    done = b.ctl("exec", *W, "t", "head -c 5000000 /dev/zero | tr '\\0' x")
    equal((done.returncode, len(done.stdout), done.stdout.strip(b"x")), (0, 5000000, b""))


def test_output_that_was_cut_is_spoken_of(make):
    b = make(conf='execution: { output_max = "1KiB"; };').start()
    word = "stdout was cut at 1024 bytes, which is its limit; 976 bytes were dropped"
    done = b.ctl("exec", *W, "t", "head -c 2000 /dev/zero", text=True)
    equal((done.returncode, len(done.stdout)), (0, 1024))
    check(word in done.stderr, done.stderr)
    made = b.get("/sandbox/executions", workspace_id="w").json["items"][0]["id"]
    for command in (("logs",), ("logs", "-f"), ("logs", "--stdout"), ("logs", "-f", "--stdout")):
        check(word in b.ctl(*command, made, text=True).stderr, command)
    equal(b.ctl("logs", "--stderr", made, text=True).stderr, "", "that one is whole")
    equal(b.ctl("exec", *W, "t", "echo whole", text=True).stderr, "")


def test_exec_streams_while_it_runs(make):
    b = make().start()
    process = spawn(b, "exec", *W, "t", "echo first; sleep 600", stderr=subprocess.DEVNULL)
    equal(process.stdout.readline(), b"first\n")
    process.send_signal(signal.SIGTERM)
    equal(process.wait(timeout=60), 130)
    items = b.get("/sandbox/executions", workspace_id="w").json["items"]
    equal([i["status"] for i in items], ["cancelled"])
    settled(b)


def test_exec_second_interrupt_leaves(make):
    b = make(mock="kill_grace = \"30s\";").start()
    process = spawn(b, "exec", *W, "t", "trap '' TERM; echo first; while :; do sleep 0.1; done")
    equal(process.stdout.readline(), b"first\n")
    process.send_signal(signal.SIGINT)
    check(b"cancelling" in process.stderr.readline())
    process.send_signal(signal.SIGINT)
    equal(process.wait(timeout=20 * harness.PATIENCE), 130)
    check(b"left" in process.stderr.read())
    status = b.get("/sandbox/executions", workspace_id="w").json["items"][0]["status"]
    check(status in ("running", "cancelled"), status)


def test_exec_reader_that_goes_away_cancels(make):
    b = make().start()
    process = spawn(b, "exec", *W, "t", "yes")
    process.stdout.read(10)
    process.stdout.close()
    equal(process.wait(timeout=60 * harness.PATIENCE), 130)
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"][0]["status"], "cancelled")


def test_exec_survives_a_restart_of_the_daemon(make):
    b = make().start()
    process = spawn(b, "exec", *W, "t", "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 4")
    equal(process.stdout.readline(), b"0\n")
    b.kill9()
    fix_port(b)
    b.start()
    out, err = process.communicate(timeout=60 * harness.PATIENCE)
    equal((process.returncode, out), (4, b"".join(b"%d\n" % i for i in range(1, 40))), err)


def test_a_daemon_that_stays_away_is_spoken_of_once(make):
    b = make().start()
    process = spawn(b, "exec", *W, "t", f"echo first; while [ ! -e {b.dir}/gate ]; do sleep 0.05; done; exit 4")
    equal(process.stdout.readline(), b"first\n")
    b.kill9()
    equal(process.stderr.readline(), b"berthctl: berthd does not answer; trying again for 60 s\n")
    fix_port(b)
    b.start()
    (b.dir / "gate").touch()
    out, err = process.communicate(timeout=60 * harness.PATIENCE)
    equal((process.returncode, out, err), (4, b"", b""))


def test_exec_asks_once_when_the_answer_is_lost(make):
    b = make().start()
    lost = LosesFirstAnswer(b.port)
    done = b.ctl("exec", *W, "t", "echo once >>log; wc -l <log", env={"BERTH_ADDRESS": f"http://127.0.0.1:{lost.port}"})
    equal((done.returncode, done.stdout.strip()), (0, b"1"), done.stderr)
    check(lost.lost, "an answer was lost")
    equal(len(b.get("/sandbox/executions", workspace_id="w").json["items"]), 1)


def test_exec_at_what_is_no_berthd(make):
    """Something that takes a request and hangs up, as a TLS server does with plain HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up():
        while True:
            client, _ = listener.accept()
            client.recv(65536)
            client.close()

    threading.Thread(target=hang_up, daemon=True).start()
    done = make().ctl("exec", *W, "t", "true", env={"BERTH_ADDRESS": f"http://127.0.0.1:{listener.getsockname()[1]}"}, timeout=30, text=True)
    equal(done.returncode, 125)
    check("https://" in done.stderr and done.stderr.count("berthctl:") == 1, done.stderr)


def through(b, proxy, *args):
    return subprocess.Popen([CTL, *args], env=dict(environment(b), BERTH_ADDRESS=f"http://127.0.0.1:{proxy.port}"), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def test_exec_asks_again_when_the_answer_is_lost_and_then_refused(make):
    """What was lost may run: a daemon that says "later" meanwhile has not said what became of it."""
    b = make().start()
    proxy = LosesFirstAnswer(b.port, refuse={b"POST": 2})
    process = through(b, proxy, "exec", *W, "t", "echo once >>log; wc -l <log")
    out, err = process.communicate(timeout=60 * harness.PATIENCE)
    equal((process.returncode, out.strip(), proxy.refuse), (0, b"1", {b"POST": 0}), err)
    equal(len(b.get("/sandbox/executions", workspace_id="w").json["items"]), 1)


def test_a_cancel_that_is_refused_for_now_is_sent_again(make):
    b = make().start()
    for end in ("interrupt", "close"):
        proxy = LosesFirstAnswer(b.port, lost=True, refuse={b"DELETE": 2})
        process = through(b, proxy, "exec", *W, "t", "echo first; while :; do echo more; sleep 0.1; done")
        equal(process.stdout.readline(), b"first\n")
        if end == "interrupt":
            process.send_signal(signal.SIGINT)
            check(b"cancelling" in process.stderr.readline())
        else:
            process.stdout.close()
        equal(process.wait(timeout=60 * harness.PATIENCE), 130, process.stderr.read())
        equal(proxy.refuse, {b"DELETE": 0}, end)
        equal(b.get("/sandbox/executions", workspace_id="w").json["items"][0]["status"], "cancelled", end)


def test_leaving_does_not_claim_a_cancel_that_was_not_taken(make):
    b = make().start()
    proxy = LosesFirstAnswer(b.port, lost=True, refuse={b"DELETE": 10 ** 6})
    process = through(b, proxy, "exec", *W, "t", "echo first; exec sleep 600")
    equal(process.stdout.readline(), b"first\n")
    process.send_signal(signal.SIGINT)
    check(b"cancelling" in process.stderr.readline())
    word = process.stderr.readline()
    check(b"the cancel is not taken yet (status 503): the server is stopping; trying again" in word, word)
    check(10 ** 6 - proxy.refuse[b"DELETE"] < 20, "there are pauses between the tries", proxy.refuse)
    process.send_signal(signal.SIGINT)
    equal(process.wait(timeout=20 * harness.PATIENCE), 130)
    left = process.stderr.read()
    check(b"left; " in left and b"is being cancelled" not in left, left)
    made = b.get("/sandbox/executions", workspace_id="w").json["items"][0]
    equal(made["status"], "running")
    b.request("DELETE", f"/sandbox/executions/{made['id']}", wait="30s").expect(200)
    settled(b)


def test_a_retry_after_from_nowhere(make):
    """Whoever answers may be a proxy: any number of seconds is understood, a date and a negative one count as none."""
    b = make().start()
    for later, word in ((b"7", "try again in 7 s"), (b"9223372036854775807", "try again in 86400 s"), (b"-5", "try again later"),
                        (b"Fri, 01 Jan 2027 00:00:00 GMT", "try again later")):
        proxy = LosesFirstAnswer(b.port, refuse={b"GET": 1})
        proxy.later = later
        done = b.ctl("executions", *W, text=True, env={"BERTH_ADDRESS": f"http://127.0.0.1:{proxy.port}"})
        equal((done.returncode, word in done.stderr), (5, True), done.stderr)


REFUSAL = b'{"error":"shutting_down","message":"the server is stopping","retry_after_ms":1000}'


class LosesFirstAnswer:
    """A proxy that forwards whole connections, and cuts the first one that posts before its answer arrives. Then it answers so many
    requests with a word in their first line by itself, as a daemon does that stops."""

    def __init__(self, port, lost=False, refuse=None):
        self.target, self.lost, self.refuse, self.later = port, lost, refuse or {}, b"1"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.forward, args=(client,), daemon=True).start()

    def forward(self, client):
        server = socket.create_connection(("127.0.0.1", self.target))
        cut = threading.Event()

        def back():
            try:
                while data := server.recv(65536):
                    if cut.is_set():
                        break
                    client.sendall(data)
            except OSError:
                pass
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        threading.Thread(target=back, daemon=True).start()
        try:
            while data := client.recv(65536):
                line = data.split(b"\r\n")[0]
                refused = next((word for word, times in self.refuse.items() if times and word in line), None)
                if line.startswith(b"POST") and not self.lost:
                    self.lost = True
                    cut.set()
                elif refused:
                    self.refuse[refused] -= 1
                    cut.set()
                    client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: %s\r\n"
                                   b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (self.later, len(REFUSAL), REFUSAL))
                    server.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)
        except OSError:
            pass


def test_files(make):
    b = make().start()
    local = b.dir / "local.bin"
    local.write_bytes(bytes(range(256)) * 1000)
    local.chmod(0o750)
    equal(b.ctl("put", *W, "t", str(local), "d/data.bin").returncode, 0)
    equal(b.ctl("ls", *W, "t").stdout, b"d/data.bin\n")
    equal(b.ctl("ls", *W, "t", "d/").stdout, b"d/data.bin\n")
    equal(b.ctl("cat", *W, "t", "d/data.bin").stdout, local.read_bytes())
    back = b.dir / "back.bin"
    equal(b.ctl("get", *W, "t", "d/data.bin", str(back)).returncode, 0)
    equal((back.read_bytes(), back.stat().st_mode & 0o777), (local.read_bytes(), 0o750))
    equal(b.sh("t", "stat -c %a d/data.bin"), b"750\n")
    equal(b.ctl("put", *W, "t", "--mode", "0711", str(local), "x").returncode, 0)
    equal(b.sh("t", "stat -c %a x"), b"711\n")
    equal(b.ctl("put", *W, "t", "-", "piped", stdin=b"piped\n").returncode, 0)
    equal(b.sh("t", "cat piped"), b"piped\n")
    done = b.ctl("get", *W, "t", "nope", str(b.dir / "nope"))
    equal(done.returncode, 3)
    check(not list(b.dir.glob("nope*")), "no partial file")
    for path, folders in (("../x", False), ("/x", False), ("d", True)):
        done = b.ctl("cat", *W, "t", path, text=True)
        equal((done.returncode, "get -r copies folders" in done.stderr), (6, folders), done.stderr)
    equal(json.loads(b.ctl("cat", *W, "--json", "t", "piped").stdout)["size"], 6)
    equal(b.ctl("mv", *W, "t", "piped", "d/moved").returncode, 0)
    equal(b.ctl("rm", *W, "t", "x", "nope").returncode, 3)
    equal(b.ctl("rm", *W, "-f", "t", "nope").returncode, 0)
    done = b.ctl("rm", *W, "t", "d", text=True)
    equal(done.returncode, 6)
    check("rm -r" in done.stderr, done.stderr)
    equal(b.ctl("rm", *W, "-r", "t", "d").returncode, 0)
    equal(b.ctl("ls", *W, "t").stdout, b"")
    equal(b.ctl("ls", *W, "never").returncode, 3, "looking makes no task")
    equal(b.ctl("task", *W, "never").returncode, 3)


def test_reading_files_of_a_task_that_is_over_makes_no_session(make):
    b = make().start()
    b.sh("t", "echo x >f")
    b.teardown("t", wait="10s").expect(204)
    for command in (("ls", "t"), ("cat", "t", "f"), ("get", "t", "f", "-"), ("rm", "t", "f"), ("get", "-r", "t", ".", str(b.dir / "o"))):
        done = b.ctl(*command[:1], *W, *command[1:], text=True)
        equal(done.returncode, 3, command)
        check("gone" in done.stderr, done.stderr)
    equal(b.sessions_of("t"), [])


def test_task_sessions_executions_logs_retire_verify(make):
    b = make().start()
    b.ctl("exec", *W, "t", "echo kept; echo e >&2")
    shown = b.ctl("task", *W, "t", text=True).stdout
    check("idle" in shown and "mock" in shown, shown)
    equal(json.loads(b.ctl("task", *W, "--json", "t").stdout)["task_id"], "t")
    check("t" in b.ctl("sessions", *W, text=True).stdout.split())
    table = b.ctl("executions", *W, text=True).stdout
    check(table.startswith("ID") and "completed" in table, table)
    record = json.loads(b.ctl("executions", *W, "--json", "t").stdout)["items"][0]
    done = b.ctl("logs", record["id"])
    equal((done.stdout, done.stderr), (b"kept\n", b"e\n"))
    equal(b.ctl("logs", "--stderr", record["id"]).stdout, b"")
    check("preview" in json.loads(b.ctl("logs", "--json", record["id"]).stdout), "the outputs are in it")
    equal(b.ctl("verify").returncode, 0)
    made = b.ctl("exec", *W, "-d", "t", "echo so far; sleep 600", text=True).stdout.strip()
    wait_for(lambda: b.ctl("logs", made).stdout == b"so far\n", what="what is there so far")
    events = spawn(b, "events", made)
    check(events.stdout.readline().endswith(b"requested\n"))
    equal(b.ctl("cancel", made, text=True).stdout.split(), [made, "cancelled"])
    rest = events.communicate(timeout=60)[0].decode().splitlines()
    equal(events.returncode, 0)
    check("cancelled" in rest[-1], rest)
    kinds = [json.loads(line)["type"].rsplit(".", 1)[1] for line in b.ctl("events", "--json", made, text=True).stdout.splitlines()]
    check(kinds[0] == "requested" and kinds[-1] == "cancelled", kinds)
    ended = b.ctl("exec", *W, "-d", "t", "exit 4", text=True).stdout.strip()
    check(b.ctl("events", ended, text=True).stdout.rstrip().endswith("exit code 4"))
    equal(b.ctl("retire", *W, "--wait", "30s", "t", text=True).stdout, "t is gone\n")
    equal(json.loads(b.ctl("retire", *W, "--json", "t", text=True).stdout), {"task_id": "t", "gone": True})
    equal(b.ctl("logs", "sexec_" + "0" * 24).returncode, 3)


def test_a_retire_that_takes_longer_says_so(make):
    b = make().start()
    made = b.ctl("exec", *W, "-d", "t", "trap '' TERM; sleep 600", text=True).stdout.strip()
    wait_for(lambda: b.record(made)["status"] == "running", what="running")
    done = b.ctl("retire", *W, "--wait", "1s", "t", text=True)
    equal((done.returncode, done.stdout), (5, ""))
    check("t is still being torn down" in done.stderr, done.stderr)
    shown = b.ctl("task", *W, "t", text=True).stdout
    check("teardown" in shown and "torn down for" in shown, shown)
    equal(b.ctl("retire", *W, "--force", "--wait", "1m", "t", text=True).stdout, "t is gone\n")


def test_wait_exits_as_exec_does(make):
    b = make().start()
    made = b.ctl("exec", *W, "-d", "t", f"while [ ! -e {b.dir}/gate ]; do sleep 0.05; done; echo out; exit 6", text=True).stdout.strip()
    waiting = spawn(b, "wait", made)
    wait_for(lambda: b.record(made)["status"] == "running", what="running")
    check(waiting.poll() is None, "it waits")
    (b.dir / "gate").touch()
    equal((waiting.communicate(timeout=60), waiting.returncode), ((b"", b""), 6))
    done = b.ctl("wait", "--json", made, text=True)
    equal((done.returncode, json.loads(done.stdout)["id"]), (6, made), "of one that has ended")
    made = b.ctl("exec", *W, "-d", "t", "kill -9 $$", text=True).stdout.strip()
    done = b.ctl("wait", made, text=True)
    equal(done.returncode, 137)
    check("SIGKILL" in done.stderr, done.stderr)
    equal(b.ctl("wait", "-q", made, text=True).stderr, "")
    made = b.ctl("exec", *W, "-d", "t", "sleep 600", text=True).stdout.strip()
    b.ctl("cancel", made)
    equal(b.ctl("wait", made).returncode, 130)
    made = b.ctl("exec", *W, "-d", "-C", "nope", "t", "true", text=True).stdout.strip()
    equal(b.ctl("wait", made).returncode, 125)
    for word in ("sexec_" + "0" * 24, "t"):
        done = b.ctl("wait", word, text=True)
        equal(done.returncode, 125)
        check("berthctl executions" in done.stderr, done.stderr)
    equal(b.ctl("wait", made, env={"BERTH_ADDRESS": "http://127.0.0.1:1"}).returncode, 125)


def test_show_has_the_command(make):
    b = make().start()
    made = b.ctl("exec", *W, "-d", "t", "echo one\necho \x1b[31m; exit 3", text=True).stdout.strip()
    b.finish(made)
    shown = [line.split(None, 1) for line in b.ctl("show", made, text=True).stdout.splitlines()]
    rows = {row[0]: row[1] for row in shown if len(row) > 1}
    equal((rows["task"], rows["status"], rows["command"]), ("t", "completed", "echo one"))
    check(["echo", "?[31m; exit 3"] in shown and ["exit", "code      3"] in shown, shown)
    equal(json.loads(b.ctl("show", "--json", made).stdout)["id"], made)
    equal(b.ctl("show", "sexec_" + "0" * 24).returncode, 3)
    check("not a task" in b.ctl("show", "t", text=True).stderr)
    for args, words in ((("nosuch",), "no executions of task nosuch in workspace 'w'"), (("-s", "failed"), "that are failed")):
        done = b.ctl("executions", *W, *args, text=True)
        equal((done.returncode, done.stdout), (0, ""))
        check(words in done.stderr, done.stderr)
    equal(json.loads(b.ctl("executions", *W, "--json", "nosuch").stdout), {"items": []})


def test_retire_of_what_is_not_there(make):
    b = make().start()
    done = b.ctl("retire", *W, "nosuch", text=True)
    equal((done.returncode, done.stdout), (0, ""))
    check("there was no such task in workspace 'w': nosuch" in done.stderr and "berthctl sessions" in done.stderr, done.stderr)
    equal(json.loads(b.ctl("retire", *W, "--json", "nosuch").stdout), {"task_id": "nosuch", "gone": True})
    check("there is no such task" in b.ctl("retire", "--help", text=True).stdout)


def test_operators(make):
    b = make().start()
    b.sh("t", "true")
    shown = b.ctl("targets", text=True).stdout
    check("mock" in shown and "ok" in shown, shown)
    made = b.ctl("exec", *W, "-d", "t", "sleep 600", text=True).stdout.strip()
    wait_for(lambda: b.record(made)["status"] == "running", what="running")
    wait_for(lambda: json.loads(b.ctl("targets", "--json").stdout)["items"][0]["running"] == 1, what="the command as a call, as help says")
    equal(b.ctl("cancel", made).returncode, 0)
    b.sh("t", "mkdir d; echo x >d/f")
    for command in (("cat", "t", "none"), ("cat", "t", "d"), ("rm", "t", "d"), ("ls", "t", "d/f")):
        equal(b.ctl(*command, *W).returncode, 3 if "none" in command else 6, command)
    check("berthctl ls t lists all files" in b.ctl("ls", *W, "t", "d/f", text=True).stderr)
    equal(json.loads(b.ctl("targets", "--json").stdout)["items"][0]["failures"], 0, "of the target: what is not there is none")
    equal(b.ctl("drain", "mock").returncode, 0)
    equal(json.loads(b.ctl("targets", "--json").stdout)["items"][0]["drained"], True)
    equal(b.ctl("undrain", "mock", "--json").returncode, 0)
    equal(json.loads(b.ctl("targets", "--json").stdout)["items"][0]["drained"], False)
    done = b.ctl("drain", "nope", text=True)
    equal(done.returncode, 3)
    check("berthctl targets" in done.stderr, done.stderr)
    check("0.1.0" in b.ctl("hosts", text=True).stdout)
    check("threadsafe" in b.ctl("providers", "list", text=True).stdout)
    equal(b.ctl("recover").returncode, 0)
    equal(json.loads(b.ctl("verify", "--json").stdout)["ok"], True)
    equal(b.ctl("deadletters", "list", text=True).stderr, "no dead letters\n")
    for args in (("show", "1"), ("requeue", "1"), ("drop", "1", "2")):
        done = b.ctl("deadletters", *args, text=True)
        equal(done.returncode, 3, args)
        check("deadletters list" in done.stderr, done.stderr)


def test_dead_letters(make):
    b = make().start()
    b.stop()
    for reason in ("bad_json", "no_record"):
        stored.append(b, "dead", "s", json.dumps(
            {"reason": reason, "subject": "s", "seq": 1, "size": 8, "event": "not json"}).encode())
    b.start()
    table = b.ctl("deadletters", "list", text=True).stdout
    check("bad_json" in table and "no_record" in table, table)
    first, second = (x["id"] for x in json.loads(b.ctl("deadletters", "list", "--json").stdout)["items"])
    page = json.loads(b.ctl("deadletters", "list", "-n", "1", "--json").stdout)
    check(len(page["items"]) == 1 and page["next_cursor"], "there are more:", page)
    equal(json.loads(b.ctl("deadletters", "show", first).stdout)["letter"]["reason"], "bad_json")
    equal(b.ctl("deadletters", "requeue", first).returncode, 6)
    equal(b.ctl("deadletters", "drop", first, second, text=True).stdout, f"{first} is dropped\n{second} is dropped\n")
    equal(json.loads(b.ctl("deadletters", "list", "--json").stdout), {"items": []})


def test_config_and_providers_without_a_daemon(make):
    b = make()
    conf = str(b.dir / "berth.conf")
    equal(b.ctl("config", "check", "-c", conf, text=True).stdout, f"{conf}: ok\n")
    equal(json.loads(b.ctl("config", "check", "-c", conf, "--json").stdout)["ok"], True)
    dump = b.ctl("config", "dump", "-c", conf, text=True).stdout
    check('deployment = "e2e"' in dump and harness.TOKEN not in dump, dump)
    equal(dump, subprocess.run([BERTHD, "-t", "-c", conf], capture_output=True, text=True).stdout, "as berthd itself prints it")
    equal(json.loads(b.ctl("config", "dump", "-c", conf, "--json").stdout)["log"]["level"], "debug")
    equal(json.loads(b.ctl("providers", "check", "-c", conf, "--json").stdout),
          {"items": [{"target": "mock", "provider": "mock", "result": "ok", "required": True, "why": ""}]})
    (b.dir / "providers.d" / "20-bad.conf").write_text('provider = "mock";\nname = "bad";\nregion = "b";\nconfig: { nonsense = 1; };\n')
    (b.dir / "providers.d" / "30-gone.conf").write_text('provider = "gone";\nname = "gone";\nregion = "g";\nrequired = false;\n')
    done = b.ctl("providers", "check", "-c", conf, text=True)
    equal(done.returncode, 6)
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    check(" ok" in rows["mock"] and "nonsense" in rows["bad"] and "no such file" in rows["gone"], done.stdout)
    done = b.ctl("config", "check", "-c", conf, text=True)
    equal(done.returncode, 6)
    check("nonsense" in done.stderr, done.stderr)
    (b.dir / "berth.conf").write_text("deployment = ;\n")
    for command in (("config", "check"), ("config", "dump"), ("providers", "check")):
        done = b.ctl(*command, "-c", conf, text=True)
        equal(done.returncode, 6, command)
        check("berth.conf" in done.stderr, done.stderr)
    done = b.ctl("config", "check", "-c", conf, "--berthd", "/nope", text=True)
    equal(done.returncode, 2)
    check("--berthd" in done.stderr, done.stderr)


def test_providers_inspect(make):
    b = make()
    plugins = harness.BUILD / "lib" / "berth" / "plugins"
    shown = b.ctl("providers", "inspect", str(plugins / "mock.so"), text=True).stdout
    check("capabilities" in shown and "kill_grace" in shown, shown)
    told = json.loads(b.ctl("providers", "inspect", "mock", "-c", str(b.dir / "berth.conf"), "--json").stdout)
    equal((told["name"], told["abi"][:2]), ("mock", "1."))
    check("execute" in told["operations"] and "bulk" in told["capabilities"], told)
    check(any(o["key"] == "root" and o["type"] == "string" for o in told["options"]), told["options"])
    text = b.dir / "text.so"
    text.write_text("no plugin")
    done = b.ctl("providers", "inspect", str(text), text=True)
    equal((done.returncode, done.stdout), (6, ""))
    check("ELF" in done.stderr, done.stderr)
    for zoo, word in (("init-crashes", "SIGSEGV"), ("bad-magic", "magic")):
        found = list(harness.BUILD.glob(f"**/{zoo}.so"))
        done = b.ctl("providers", "inspect", str(found[0]), text=True, env=harness.SIGNALS)
        equal(done.returncode, 6, zoo)
        check(word in done.stderr, done.stderr)


def test_errors_say_what_to_do_next(make):
    b = make().start()

    def fails(code, word, *args, **env):
        done = b.ctl(*args, env=env, text=True)
        equal(done.returncode, code, args)
        check(word in done.stderr, args, done.stderr)
        check("\x1b" not in done.stderr and "\r" not in done.stderr, "no terminal's sequences in a pipe")

    wrong = "wrong-token-0123456789abcdef0123456789"
    fails(4, "BERTH_TOKEN", "sessions", BERTH_TOKEN=wrong)
    fails(4, "no token is set", "sessions", BERTH_TOKEN="")
    fails(5, "is berthd running", "sessions", BERTH_ADDRESS="http://127.0.0.1:1")
    fails(5, "http://", "sessions", BERTH_ADDRESS=f"https://127.0.0.1:{b.port}")
    fails(2, "http://", "sessions", BERTH_ADDRESS=f"127.0.0.1:{b.port}")
    fails(2, "/nope", "sessions", "--token-file", "/nope")
    fails(2, "--help", "sessions", "--bogus")
    fails(2, "needs a value", "sessions", "-w")
    fails(2, "usage: berthctl task", "task")
    fails(2, "too many", "task", "a", "b")
    fails(2, "did you mean 'exec'", "exce", "t", "true")
    fails(2, "did you mean '--status'", "executions", "--stauts=secret")
    fails(2, "providers check", "providers")
    fails(2, "no 'chek'", "providers", "chek")
    fails(2, "none of", "executions", "--status", "done")
    fails(2, "not a number", "executions", "-n", "0")
    fails(3, "berthctl sessions", "task", "never")
    fails(3, "berthctl executions", "logs", "sexec_" + "0" * 24)
    fails(3, "not a task", "logs", "t")
    fails(2, "did you mean 'put' or 'get'", "cp", "a", "b")
    fails(6, "-c FILE", "config", "check")
    fails(2, "put -r", "put", "t", str(b.dir))
    token = b.dir / "open.token"
    token.write_text(wrong)
    token.chmod(0o644)
    fails(2, "open.token", "sessions", "--token-file", str(token))
    conf = b.dir / "ctl.conf"
    conf.write_text(f'addres = "x";\n')
    fails(2, "ctl.conf:1", "sessions", BERTH_CTL_CONF=str(conf))


def test_hints_are_about_what_is_missing(make):
    b = make().start()
    b.sh("f", "echo x >there")

    def said(*args):
        done = b.ctl(*args[:1], *W, *args[1:], text=True)
        equal(done.returncode, 3, args)
        return done.stderr

    for args in (("ls", "f", "nosuch"), ("get", "f", "nosuch", "-"), ("cat", "f", "nosuch"), ("rm", "f", "nosuch"), ("mv", "f", "nosuch", "x"),
                 ("cat", "--json", "f", "nosuch")):
        told = said(*args)
        check(told.startswith("berthctl: nosuch: ") and "berthctl ls f lists" in told and "sessions" not in told, args, told)
    for args in (("ls", "nosuch", "x"), ("ls", "nosuch"), ("get", "nosuch", "x", "-"), ("cat", "nosuch", "x"), ("rm", "nosuch", "x"),
                 ("get", "-r", "--plain", "nosuch", "x", str(b.dir / "o")), ("cat", "--json", "nosuch", "x")):
        told = said(*args)
        check(told.startswith("berthctl: nosuch: the task is not known") and "berthctl sessions" in told and "ls" not in told.split(), args, told)


def test_a_drained_target_is_hinted_at(make):
    b = make().start()
    region = json.loads(b.ctl("targets", "--json").stdout)["items"][0]["region"]
    equal(b.ctl("drain", "mock").returncode, 0)
    for args in (("t", "true"), ("--region", region, "t", "true")):
        done = b.ctl("exec", *W, *args, text=True)
        equal(done.returncode, 125)
        check("is drained" in done.stderr and "berthctl undrain mock " in done.stderr, done.stderr)
    done = b.ctl("exec", *W, "--region", "nowhere", "t", "true", text=True)
    check("undrain" not in done.stderr, done.stderr)


def test_settings_flags_over_environment_over_file(make):
    b = make().start()
    b.sh("t", "true")
    conf, token = b.dir / "ctl.conf", b.dir / "all.token"
    conf.write_text(f'address = "http://127.0.0.1:{b.port}/"; token = "file:{token}"; workspace = "w";\n')
    clean = {"BERTH_ADDRESS": "", "BERTH_TOKEN": "", "BERTH_CTL_CONF": str(conf)}
    equal(json.loads(b.ctl("sessions", "--json", env=clean).stdout)["items"][0]["task_id"], "t")
    equal(json.loads(b.ctl("sessions", "--json", env={**clean, "BERTH_WORKSPACE": "other"}).stdout), {"items": []})
    equal(len(json.loads(b.ctl("sessions", "--json", "-w", "w", env={**clean, "BERTH_WORKSPACE": "other"}).stdout)["items"]), 1)
    conf.write_text(f'address = "http://127.0.0.1:{b.port}"; token = "file:/nope"; workspace = "w";\n')
    equal(b.ctl("sessions", env=clean).returncode, 2)
    equal(b.ctl("sessions", env={**clean, "BERTH_TOKEN": harness.TOKEN}).returncode, 0, "a token that is not used is not read")
    equal(b.ctl("sessions", "--token-file", str(token), env=clean).returncode, 0)


def test_a_token_that_may_less(make):
    files = "files-token-0123456789abcdef0123456789"
    b = make(tokens=[("all", harness.TOKEN, ["execution.create", "execution.read", "session.read", "admin", "file.read", "file.write"], ["*"]),
                     ("files", files, ["file.read", "file.write"], ["w"])]).start()
    tree = b.dir / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "f").write_text("f\n")
    less = {"BERTH_TOKEN": files}
    equal(b.ctl("sessions", *W, env=less).returncode, 4)
    equal(b.ctl("ls", "-w", "other", "t", env=less).returncode, 4)
    done = b.ctl("put", *W, "-r", "t", str(tree), env=less, text=True)
    equal(done.returncode, 4)
    check("--plain" in done.stderr, done.stderr)
    equal(b.ctl("put", *W, "-r", "--plain", "t", str(tree), env=less).returncode, 0)
    equal(b.ctl("get", *W, "-r", "--plain", "t", "tree", str(b.dir / "back"), env=less).returncode, 0)
    equal((b.dir / "back" / "sub" / "f").read_text(), "f\n")


def test_help_of_every_command(make):
    b = make()
    listed = b.ctl("--help", text=True).stdout
    equal(b.ctl().returncode, 2)
    names = [line[2:22].strip() for line in listed.splitlines() if line.startswith("  ") and line[2:3].isalpha() and len(line) > 23
             and line[21] == " " and line[23].isupper() and line[22] == " " and not line[2].isupper()]
    check(len(names) > 25, names)
    for name in names:
        done = b.ctl(*name.split(), "--help", text=True)
        equal(done.returncode, 0, name)
        check(done.stdout.startswith("usage: berthctl " + name), done.stdout)
        check("Examples:\n  " in done.stdout and "Exit codes" in done.stdout, done.stdout)
        equal(b.ctl("help", *name.split(), text=True).stdout, done.stdout)
        check(all(len(line) <= 128 for line in done.stdout.splitlines()), "lines fit", name)
    check(b.ctl("--version", text=True).stdout.startswith("berthctl "))
    check({"help", "version", "show", "wait"} <= set(names), names)
    version = b.ctl("--version", text=True).stdout.split()[1]
    for args in (("--json", "version"), ("version", "--json")):
        equal(json.loads(b.ctl(*args).stdout), {"version": version}, args)
    equal(b.ctl("-h", "exec").stdout, b.ctl("exec", "-h").stdout)
    equal(b.ctl("help", "nosuch").returncode, 2)
    told = b.ctl("targets", "--help", text=True).stdout
    check(all(title in told for title in ("STATUS", "DRAINED", "RUNNING", "STUCK", "CALLS", "FAILURES", "WHY")), "what the columns are")
    told = b.ctl("exec", "--help", text=True).stdout
    check("SIGTERM" in told and "closes the output" in told, "all that cancels")


def test_manual_pages(make):
    b = make()
    for page, words in (("berthctl", ("berthctl providers inspect", "EXIT STATUS", "BERTH_CA_FILE", "--idempotency-key")),
                        ("berth.conf", ("lease.active", "Environment: SANDBOX_TASK_LEASE_TTL", "max_operations"))):
        source = b.ctl("help", "--man", page).stdout
        done = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-rLL=300n"], input=source, capture_output=True)
        equal((done.returncode, done.stderr), (0, b""), page)
        text = strip_overstrikes(done.stdout.decode())
        for word in words:
            check(word in text, page, word)
    equal(b.ctl("help", "--man", "nope").returncode, 2)
    built = harness.BUILD / "share" / "man" / "man1" / "berthctl.1"
    if built.exists():
        equal(built.read_bytes(), b.ctl("help", "--man").stdout, "what the build made is what it prints")


def strip_overstrikes(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", re.sub(".\b", "", text)).replace("\u2010", "-").replace("\u2212", "-")
