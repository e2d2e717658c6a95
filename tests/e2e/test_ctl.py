# SPDX-License-Identifier: Apache-2.0
"""berthctl against the real daemon."""

import json
import os
import signal
import subprocess
import time

import harness
from harness import check, equal, settled, wait_for

W = ("-w", "w")


def test_exec_streams_and_passes_the_exit_code(make):
    b = make().start()
    done = b.ctl("exec", *W, "t", "echo out; echo err >&2; exit 7")
    equal((done.returncode, done.stdout, done.stderr), (7, b"out\n", b"err\n"))
    done = b.ctl("exec", *W, "t", "--", "printf", "%s|", "a b", "it's", "$HOME")
    equal((done.returncode, done.stdout), (0, b"a b|it's|$HOME|"))
    done = b.ctl("exec", *W, "t", "--timeout", "1s", "sleep 60")
    equal(done.returncode, 124)
    equal(b.ctl("exec", *W, "t", "kill -9 $$").returncode, 137)
    equal(b.ctl("exec", *W, "t", "--cwd", "nope", "true").returncode, 125)
    done = b.ctl("exec", *W, "t", "--json", "echo hi")
    equal(json.loads(done.stdout)["status"], "completed")
    done = b.ctl("exec", *W, "t", "--script", "-", stdin=b"echo from stdin\n")
    equal(done.stdout, b"from stdin\n")


def test_exec_large_output_is_exact(make):
    b = make().start()
    done = b.ctl("exec", *W, "t", "head -c 5000000 /dev/zero | tr '\\0' x")
    equal((done.returncode, len(done.stdout), done.stdout.strip(b"x")), (0, 5000000, b""))


def test_exec_streams_while_it_runs(make):
    b = make().start()
    environment = dict(os.environ, BERTH_ADDRESS=f"http://127.0.0.1:{b.port}", BERTH_TOKEN=harness.TOKEN)
    process = subprocess.Popen([str(harness.BUILD / "bin" / "berthctl"), "exec", "-w", "w", "t", "echo first; sleep 600"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    equal(process.stdout.readline(), b"first\n")
    process.send_signal(signal.SIGINT)
    equal(process.wait(timeout=60), 130)
    items = b.get("/sandbox/executions", workspace_id="w").json["items"]
    equal([i["status"] for i in items], ["cancelled"])
    settled(b)


def test_exec_survives_a_restart_of_the_daemon(make):
    b = make().start()
    port = b.port
    environment = dict(os.environ, BERTH_ADDRESS=f"http://127.0.0.1:{port}", BERTH_TOKEN=harness.TOKEN)
    process = subprocess.Popen([str(harness.BUILD / "bin" / "berthctl"), "exec", "-w", "w", "t",
                                "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 4"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    equal(process.stdout.readline(), b"0\n")
    b.kill9()
    conf = (b.dir / "berth.conf").read_text()
    check("port = 0;" in conf)
    (b.dir / "berth.conf").write_text(conf.replace("port = 0;", f"port = {port};"))
    b.start()
    out, err = process.communicate(timeout=60 * harness.PATIENCE)
    equal((process.returncode, out), (4, b"".join(b"%d\n" % i for i in range(1, 40))), err)


def test_files(make):
    b = make().start()
    local = b.dir / "local.bin"
    local.write_bytes(bytes(range(256)) * 1000)
    local.chmod(0o750)
    equal(b.ctl("put", *W, "t", str(local), "d/data.bin").returncode, 0)
    equal(b.ctl("ls", *W, "t").stdout, b"d/data.bin\n")
    equal(b.ctl("cat", *W, "t", "d/data.bin").stdout, local.read_bytes())
    back = b.dir / "back.bin"
    equal(b.ctl("get", *W, "t", "d/data.bin", str(back)).returncode, 0)
    equal(back.read_bytes(), local.read_bytes())
    equal(b.sh("t", "stat -c %a d/data.bin"), b"750\n")
    equal(b.ctl("put", *W, "t", "-", "piped", stdin=b"piped\n").returncode, 0)
    equal(b.sh("t", "cat piped"), b"piped\n")
    done = b.ctl("get", *W, "t", "nope", str(b.dir / "nope"))
    equal(done.returncode, 3)
    check(not list(b.dir.glob("nope*")), "no partial file")
    equal(b.ctl("cat", *W, "t", "../x").returncode, 6)


def test_task_sessions_executions_logs_retire_verify(make):
    b = make().start()
    b.ctl("exec", *W, "t", "echo kept; echo e >&2")
    shown = b.ctl("task", *W, "t", text=True).stdout
    check("idle" in shown and "mock" in shown, shown)
    equal(json.loads(b.ctl("task", *W, "--json", "t").stdout)["task_id"], "t")
    check("t" in b.ctl("sessions", *W, text=True).stdout.split())
    table = b.ctl("executions", *W, text=True).stdout
    check(table.startswith("ID") and "completed" in table, table)
    record = json.loads(b.ctl("executions", *W, "--json", "t").stdout)[0]
    done = b.ctl("logs", record["id"])
    equal((done.stdout, done.stderr), (b"kept\n", b"e\n"))
    equal(b.ctl("verify").returncode, 0)
    made = b.ctl("exec", *W, "-d", "t", "sleep 600", text=True).stdout.strip()
    equal((b.ctl("logs", made).returncode, b.ctl("logs", made).stdout), (0, b""))
    equal(b.ctl("cancel", made, text=True).stdout.split(), [made, "cancelled"])
    equal(b.ctl("retire", *W, "t", text=True).stdout, "t is gone\n")
    equal(b.ctl("task", *W, "never").returncode, 3)
    equal(b.ctl("logs", "sexec_" + "0" * 24).returncode, 3)


def test_errors_say_what_to_do_next(make):
    b = make().start()
    done = b.ctl("sessions", env={"BERTH_TOKEN": "wrong-token-0123456789abcdef0123456789"}, text=True)
    equal(done.returncode, 4)
    check("BERTH_TOKEN" in done.stderr, done.stderr)
    done = b.ctl("sessions", env={"BERTH_ADDRESS": "http://127.0.0.1:1"}, text=True)
    equal(done.returncode, 5)
    check("is berthd running" in done.stderr, done.stderr)
    equal(b.ctl("exec").returncode, 125)
    equal(b.ctl("bogus").returncode, 2)
    equal(b.ctl("sessions", "--bogus").returncode, 2)
    for command in ("exec", "put", "get", "ls", "cat", "task", "sessions", "retire", "executions", "logs", "cancel", "verify"):
        done = b.ctl(command, "--help", text=True)
        equal(done.returncode, 0, command)
        check(done.stdout.startswith("usage: berthctl " + command), done.stdout)
