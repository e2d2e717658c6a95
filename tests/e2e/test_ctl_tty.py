# SPDX-License-Identifier: Apache-2.0
"""berthctl on a terminal: tables that fit, progress, Ctrl-C; and completion in the shells themselves."""

import errno
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

import harness
from harness import Failure, Skipped, check, equal, wait_for
from test_ctl import CTL, W, environment


class Terminal:
    """A program on a terminal of its own. `read` has what it wrote."""

    def __init__(self, args, env, rows=40, columns=80, stdin=None, stdout=None):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(args, stdin=stdin or slave, stdout=stdout or slave, stderr=slave, env=env, close_fds=True,
                                        preexec_fn=lambda: own_terminal(slave))
        os.close(slave)
        self.text = b""

    def pump(self, seconds=0.1):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""
            self.text += data
            return bool(data)
        return True

    def until(self, word, seconds=30):
        end = time.monotonic() + seconds * harness.PATIENCE
        while word not in self.text:
            if not self.pump() or time.monotonic() > end:
                raise Failure(f"{word!r} did not come: {self.text!r}")

    def send(self, data):
        os.write(self.master, data)

    def end(self, seconds=60):
        stop = time.monotonic() + seconds * harness.PATIENCE
        while self.pump() and time.monotonic() < stop:
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                break
        code = self.process.wait(timeout=max(1, stop - time.monotonic()))
        os.close(self.master)
        return code


def own_terminal(slave):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the runner may have been started in the background
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def on_terminal(b, *args, columns=80, env=None, **kw):
    return Terminal([CTL, *args], {**environment(b), "LC_ALL": "C.UTF-8", **(env or {})}, columns=columns, **kw)


def test_tables_fit_the_terminal_and_are_whole_in_a_pipe(make):
    b = make().start()
    task = "a-task-with-" + "a-very-" * 10 + "long-name"
    b.run(task, "true")
    for columns in (60, 80, 100, 200):
        term = on_terminal(b, "sessions", *W, columns=columns)
        equal(term.end(), 0)
        lines = term.text.decode().replace("\r", "").splitlines()
        check(all(len(line) <= columns for line in lines), columns, lines)
        check(columns == 200 or "…" in lines[1], lines)
        check(columns != 200 or task in lines[1], lines)
    term = on_terminal(b, "sessions", *W, columns=80, env={"LC_ALL": "C"})
    term.end()
    check(b"~" in term.text and "…".encode() not in term.text, term.text)
    piped = b.ctl("sessions", *W, text=True).stdout
    check(task in piped and "…" not in piped, piped)


def test_progress_on_a_terminal_only(make):
    b = make().start()
    b.sh("t", "true")
    b.mock.faults("file_write delay=1500ms", "file_read delay=1500ms")
    local = b.dir / "local"
    local.write_bytes(os.urandom(20 << 20))
    back = b.dir / "back"
    term = on_terminal(b, "put", *W, "t", str(local), "f")
    equal(term.end(), 0)
    shown = term.text.decode()
    check("MiB/s" in shown and "of 20.0 MiB" in shown and shown.endswith("\r\x1b[K"), repr(shown))
    equal(b.ctl("get", *W, "t", "f", str(back)).stderr, b"")
    equal(back.read_bytes(), local.read_bytes())
    tree = b.dir / "tree"
    tree.mkdir()
    for i in range(8):
        (tree / f"f{i}").write_bytes(os.urandom(100000))
    term = on_terminal(b, "put", *W, "-r", "-j", "2", "t", str(tree))
    equal(term.end(), 0)
    shown = term.text.decode()
    check(re.search(r"\d/8 files", shown) and "8 files copied" in shown, repr(shown))
    done = b.ctl("put", *W, "-r", "t", str(tree), "other")
    equal((done.returncode, done.stdout, done.stderr), (0, b"", b""))
    term = on_terminal(b, "put", *W, "--json", "t", str(local), "f")
    equal(term.end(), 0)
    check(b"MiB/s" not in term.text, term.text)
    b.mock.faults()
    term = on_terminal(b, "put", *W, "t", str(local), "f")
    equal(term.end(), 0)
    equal(term.text, b"", "what is quick shows nothing")


def test_a_sandbox_that_takes_long_is_waited_for_with_a_word(make):
    b = make(mock='ready_delay = "4s";').start()
    term = on_terminal(b, "exec", *W, "t", "echo there")
    equal(term.end(), 0)
    check(b"t waits for its sandbox" in term.text and term.text.endswith(b"\r\x1b[Kthere\r\n"), term.text)
    term = on_terminal(b, "exec", *W, "t", "echo there")
    equal((term.end(), term.text), (0, b"there\r\n"))
    term = on_terminal(b, "exec", *W, "u", "true")
    term.until(b"waits for its sandbox")
    term.send(b"\x03")
    equal(term.end(), 130)


def test_what_was_sent_goes_with_a_command_that_never_was(make):
    b = make().start()
    b.sh("t", "true")
    for more in ((), ("-d",)):
        term = on_terminal(b, "exec", *W, *more, "-i", "-e", "SECRET=very", "t", "cat")
        term.until(b"reading standard input")
        wait_for(lambda: b".berthctl-env-" in b.ctl("ls", *W, "t").stdout, what="the variables in the workspace")
        term.send(b"\x03")
        equal(term.end(), -signal.SIGINT, term.text)
        check(b"removing .berthctl-env-" in term.text, term.text)
        equal([name for name in b.sh("t", "ls -A").split() if b".berthctl" in name], [])
    equal(len(b.get("/sandbox/executions", workspace_id="w").json["items"]), 3, "no command was made")


def test_who_leaves_is_told_what_stays(make):
    b = make().start()
    term = on_terminal(b, "exec", *W, "-e", "SECRET=very", "t", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    term.until(b"ready")
    term.send(b"\x03")
    term.until(b"cancelling")
    term.send(b"\x03")
    equal(term.end(), 130, term.text)
    check(b"stays what was sent for it: .berthctl-env-" in term.text, term.text)


def test_what_the_sandbox_does_meanwhile_is_said(make):
    """Of a command and of what is sent first, while one is made and while the former one is torn down; nothing into a pipe."""
    b = make(mock='ready_delay = "4s";').start()
    term = on_terminal(b, "exec", *W, "-e", "A=b", "t", "echo $A")
    equal(term.end(), 0)
    check(b"t waits for its sandbox: it is being made (" in term.text and term.text.endswith(b"\r\x1b[Kb\r\n"), term.text)
    done = b.ctl("exec", *W, "-e", "A=b", "u", "echo $A")
    equal((done.returncode, done.stdout, done.stderr), (0, b"b\n", b""))
    b.mock.faults("release delay=4s")
    b.teardown("t", wait="0s").expect(202)
    term = on_terminal(b, "exec", *W, "--json", "t", "true")
    equal(term.end(), 0)
    check(b"t waits for its sandbox: the former one is being torn down (claimed, " in term.text
          or b"t waits for its sandbox: the former one is being torn down (queued, " in term.text, term.text)


def test_ctrl_c_cancels_and_waits(make):
    b = make().start()
    term = on_terminal(b, "exec", *W, "t", "trap 'echo cleaning; exit 3' TERM; echo first; while :; do sleep 0.1; done")
    term.until(b"first")
    term.send(b"\x03")
    term.until(b"Ctrl-C again leaves")
    equal(term.end(), 130)
    check(b"cleaning" in term.text, "its last words are seen", term.text)
    check(b"was cancelled" in term.text, term.text)
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"][0]["status"], "cancelled")


def test_ctrl_c_twice_leaves(make):
    b = make(mock='kill_grace = "30s";').start()
    term = on_terminal(b, "exec", *W, "t", "trap '' TERM; echo first; while :; do sleep 0.1; done")
    term.until(b"first")
    term.send(b"\x03")
    term.until(b"Ctrl-C again leaves")
    term.send(b"\x03")
    equal(term.end(20), 130)
    check(b"left; the command is being cancelled" in term.text or b"left; the cancel was sent" in term.text, term.text)


def test_logs_ends_with_ctrl_c_and_the_command_goes_on(make):
    b = make().start()
    made = b.ctl("exec", *W, "-d", "t", f"echo first; while [ ! -e {b.dir}/gate ]; do sleep 0.05; done; exit 6", text=True).stdout.strip()
    term = on_terminal(b, "logs", "-f", made)
    term.until(b"first")
    term.send(b"\x03")
    equal(term.end(20), -signal.SIGINT)
    equal(b.record(made)["status"], "running")
    (b.dir / "gate").touch()
    equal(b.finish(made)["result"]["exit_code"], 6)


def test_standard_input_typed(make):
    b = make().start()
    term = on_terminal(b, "exec", *W, "-i", "t", "tr a-z A-Z")
    term.until(b"Ctrl-D ends it")
    term.send(b"typed\n\x04")
    equal(term.end(), 0)
    check(b"TYPED" in term.text, term.text)


# ---- completion ----

def candidates(b, *words, env=None):
    done = subprocess.run([CTL, "__complete", *words], capture_output=True, text=True, env={**environment(b), **(env or {})})
    equal((done.returncode, done.stderr), (0, ""))
    directive, *lines = done.stdout.splitlines()
    return directive, [line.split("\t")[0] for line in lines]


def test_completion_candidates(make):
    b = make().start()
    made = b.run("build-7", "echo x >in.txt; mkdir d; echo y >d/f")["id"]
    b.run("build-8", "true")
    check({"exec", "put", "providers", "config", "help"} <= set(candidates(b, "")[1]))
    equal(candidates(b, "ex")[1], ["exec", "executions"])
    equal(candidates(b, "providers", "")[1], ["list", "check", "inspect"])
    equal(candidates(b, "providers", "in")[1], ["inspect"])
    equal(candidates(b, "task", "-w", "w", "")[1], ["build-7", "build-8"])
    equal(candidates(b, "task", "--workspace", "w", "build-8")[1], ["build-8"])
    equal(candidates(b, "task", "-w", "w", "build-7", "")[1], [], "there is no second one")
    equal(candidates(b, "task", "", env={"BERTH_WORKSPACE": "w"})[1], ["build-7", "build-8"])
    equal(candidates(b, "task", "")[1], [], "another workspace")
    check(made in candidates(b, "logs", "-w", "w", "")[1])
    opened = b.create("build-8", "sleep 600").expect(200, 202).json["id"]
    for command in ("cancel", "wait"):
        equal(candidates(b, command, "-w", "w", "")[1], [opened], "what has ended cannot be cancelled")
    equal(b.ctl("cancel", opened).returncode, 0)
    equal(candidates(b, "cat", "-w", "w", "build-7", "")[1], ["d/f", "in.txt"])
    equal(candidates(b, "rm", "-w", "w", "build-7", "in.txt", "d")[1], ["d/f"])
    equal(candidates(b, "drain", "")[1], ["mock"])
    equal(candidates(b, "executions", "--status", "c")[1], ["claimed", "completed", "cancelled"])
    equal(candidates(b, "put", "t", "")[0], ":files")
    equal(candidates(b, "config", "check", "-c", "")[0], ":files")
    check("--timeout" in candidates(b, "exec", "--t")[1] and "--token-file" in candidates(b, "exec", "--t")[1])
    equal(candidates(b, "exec", "t", "--", "--t"), (":none", []))
    equal(candidates(b, "exec", "t", "make", "--t"), (":none", []))
    equal(candidates(b, "completion", "")[1], ["bash", "zsh"])
    equal(candidates(b, "nonsense", ""), (":none", []))
    equal(candidates(b, "task", "-w", "w", "", env={"BERTH_ADDRESS": "http://127.0.0.1:1"}), (":none", []))
    equal(candidates(b, "task", "-w", "w", "", env={"BERTH_TOKEN": "wrong"}), (":none", []))


def shell_home(b):
    home = b.dir / "home"
    home.mkdir(exist_ok=True)
    (home / "local file.txt").write_text("x")
    return home


def test_completion_in_bash(make):
    if not shutil.which("bash"):
        raise Skipped("bash is not there")
    b = make().start()
    b.run("build-7", "true")
    home = shell_home(b)
    env = {**environment(b, BERTH_WORKSPACE="w"), "HOME": str(home), "PS1": "ready> ", "TERM": "dumb",
           "PATH": f"{harness.BUILD}/bin:{os.environ['PATH']}", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8"}
    term = Terminal(["bash", "--norc", "--noprofile", "-i"], env, columns=200)
    term.until(b"ready> ")
    term.send(b". <(berthctl completion bash); bind 'set bell-style none'; cd ~; echo in''stalled\n")
    term.until(b"installed\r\n")
    for typed, expected in ((b"berthctl exe\t\t\t", b"executions"), (b"berthctl prov\t", b"providers "), (b"berthctl providers insp\t", b"inspect "),
                            (b"berthctl task bui\t", b"build-7 "), (b"berthctl executions --status comp\t", b"completed "),
                            (b"berthctl put build-7 loc\t", b"local\\ file.txt "), (b"berthctl exec --tim\t", b"--timeout ")):
        term.text = b""
        term.send(typed)
        term.until(expected)
        term.send(b"\x15echo aw''ay\n")
        term.until(b"away\r\n")
        term.until(b"ready> ")
    term.send(b"exit\n")
    term.end()


def test_completion_in_zsh(make):
    if not shutil.which("zsh"):
        raise Skipped("zsh is not there")
    b = make().start()
    b.run("build-7", "true")
    home = shell_home(b)
    functions = home / "functions"
    functions.mkdir()
    (functions / "_berthctl").write_bytes(b.ctl("completion", "zsh").stdout)
    (home / ".zshrc").write_text(f"fpath=({functions} $fpath)\nautoload -Uz compinit\ncompinit -u -d {home}/dump\nPS1='ready> '\n"
                                 "unsetopt zle_bracketed_paste beep prompt_cr prompt_sp\ncd ~\n")
    env = {**environment(b, BERTH_WORKSPACE="w"), "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb",
           "PATH": f"{harness.BUILD}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    term = Terminal(["zsh", "-i"], env, columns=200)
    term.until(b"ready> ")
    for typed, expected in ((b"berthctl exe\t\t\t", b"executions"), (b"berthctl prov\t", b"providers"), (b"berthctl providers insp\t", b"inspect"),
                            (b"berthctl task bui\t", b"build-7"), (b"berthctl executions --status comp\t", b"completed"),
                            (b"berthctl put build-7 loc\t", b"local\\ file.txt")):
        term.text = b""
        term.send(typed)
        term.until(expected)
        term.send(b"\x15echo aw''ay\n")
        term.until(b"away\r\n")
        term.until(b"ready> ")
    term.send(b"exit\n")
    term.end()
