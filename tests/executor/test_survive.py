# SPDX-License-Identifier: Apache-2.0
"""What a sandbox does to the program in it, and the places it has to run in."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from client import BUILD, Connection, Executor, Skipped, frames_of, must, wait_for

BUSYBOX = "/bin/busybox"
UNSHARE = ["unshare"] if os.geteuid() == 0 else ["unshare", "-r"]


def namespaces():
    """Skips, with a word, where the kernel or its policy gives none."""
    done = subprocess.run(UNSHARE + ["-mpf", "--kill-child", "true"], capture_output=True, text=True)
    if done.returncode:
        raise Skipped(f"no namespaces here: {done.stderr.strip()}")


def image(folder, program=None):
    """An image that holds only a busybox and the executor."""
    if not os.path.exists(BUSYBOX):
        raise Skipped("busybox-static is not installed")
    for name in ("bin", "proc", "dev", "tmp", "volume", "etc"):
        (folder / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, folder / "bin/busybox")
    shutil.copy(program or BUILD / "bin/berth-executor", folder / "berth-executor")
    os.symlink("busybox", folder / "bin/sh")
    for name in ("null", "zero", "urandom"):
        (folder / "dev" / name).touch()
    os.chmod(folder / "tmp", 0o1777)


class Contained(Executor):
    """In a PID and mount namespace of its own, as process 1, on a read-only root with one writable volume."""

    def command(self):
        self.place = self.dir / "image"
        if not self.place.exists():
            image(self.place)
            self.root, self.state = self.place / "volume/work", self.place / "volume/state"
        script = (f"mount --bind {self.place} {self.place} && cd / && mount -t proc none {self.place}/proc && "
                  f"for d in null zero urandom; do mount --bind /dev/$d {self.place}/dev/$d; done && "
                  f"mount --bind {self.place}/volume {self.place}/volume && mount -t tmpfs none {self.place}/tmp && "
                  f"mount -o remount,ro,bind {self.place} && "
                  f"exec chroot {self.place} /berth-executor serve --listen 127.0.0.1:0 --root /volume/work --state /volume/state "
                  f"--pod-uid {self.uid}")
        return UNSHARE + ["-mpf", "--kill-child", "sh", "-ec", script]

    def close(self, keep=False):
        if self.process and self.process.poll() is None:
            self.kill()  # and the namespace with it
        super().close(keep)

    def first(self):
        """Its number here, where it is not process 1."""
        for line in subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True).stdout.splitlines():
            pid, parent, args = line.split(None, 2)
            if int(parent) == self.process.pid and "serve" in args:
                return int(pid)
        return None


def contained(make, name):
    namespaces()
    x = Contained.__new__(Contained)
    Contained.__init__(x, name=name)
    return x


def closing(function):
    """A Contained closes itself, for make knows nothing of it."""
    def test(make):
        x = contained(make, function.__name__[5:])
        try:
            function(x)
        finally:
            x.close()
    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test


@closing
def test_busybox_only(x):
    """An image with nothing but a busybox, read-only, one volume, process 1."""
    reply = x.execute("busybox id -u; pwd; busybox echo $$ > f; busybox cat f; exit 7").ok()
    must(reply.stream("O").split()[1] == b"/volume/work" and reply.ending["exit_code"] == 7, reply.stream("O"))
    reply = x.execute("busybox touch /x").ok()
    must(b"Read-only" in reply.stream("E"), reply.stream("E"))
    x.write("in/file", b"bytes").ok()
    must(x.read("in/file").ok().stream("D") == b"bytes", "files")
    must(x.execute("busybox cat in/file; exec >&-; exec 2>&-; busybox sleep 0.1").ok().stream("O") == b"bytes", "closed streams")
    token = x.ask("/v1/mark", {}).ok().items("T")[0]["token"]
    x.execute("busybox rm in/file").ok()
    must({c["path"]: c["kind"] for c in x.ask("/v1/changes", {"token": token}).ok().items("K")} == {"in/file": "deleted"}, "changes")


@closing
def test_first_process_reaps(x):
    """Orphans and supervisors leave no zombies behind; only process 1 can see to that."""
    for _ in range(30):
        x.execute("(busybox sleep 0.01 &) ; (busybox setsid busybox sleep 0.01 &) ; true", keep_descendants=True).ok()

    def zombies():
        out = x.execute("busybox grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null; true").ok().stream("O")
        return out

    wait_for(lambda: zombies() == b"", "zombies stay")
    for _ in range(5):
        reply = x.execute("(busybox setsid busybox sleep 0.1 &); kill -9 $PPID; busybox sleep 1").ok()
        must(reply.ending["kind"] == "unknown", reply.ending)
    wait_for(lambda: zombies() == b"", "what a killed supervisor left stays as zombies")


@closing
def test_first_process_ends(x):
    """TERM to process 1 ends the commands, then the pod."""
    execution = x.new_id()
    conn, headers = x.begin("trap 'busybox echo bye; exit 0' TERM; busybox echo up; while :; do busybox sleep 0.02; done", execution)
    wait_for(lambda: (x.state / "run" / execution / "1/stdout").exists(), "not up")
    os.kill(wait_for(x.first, "no process 1"), signal.SIGTERM)
    frames = frames_of(b"".join(conn.chunks(headers)))
    must(any(b'"cancelled"' in payload for kind, payload in frames if kind == "X"), frames)
    must(b"bye" in b"".join(payload for kind, payload in frames if kind == "O"), "the trap did not run")
    wait_for(lambda: x.process.poll() is not None, "it does not end")


@closing
def test_kill_every_process(x):
    """kill -9 -1 inside the pod: what the command could reach is gone, process 1 serves on and tells no invented ending."""
    reply = x.execute("echo before; kill -9 -1; echo after").ok()
    must(reply.ending["kind"] in ("unknown", "signal"), reply.ending)
    must(reply.ending["kind"] != "exit", "an exit was invented")

    def again():
        return x.execute("echo alive").ok().stream("O") == b"alive\n"

    wait_for(again, "no command runs any more")


@closing
def test_remove_everything(x):
    """rm -rf of all that can be written: the state directory is lost, and that is what is said, to health as well."""
    x.execute("echo 1").ok()
    x.execute("busybox rm -rf /tmp/* /tmp/.[a-z]*").ok()
    x.execute("echo 2").ok()
    execution = x.new_id()
    reply = x.execute("busybox rm -rf /volume/state; exit 0", execution)
    must(reply.code in ("ok", "not_found", "session_lost", "unavailable"), reply.result)
    x.execute("echo 3").fails("session_lost", "state_lost", 410)
    reply = x.health(raw=True)
    must(reply.status == 503 and reply.json["reason"] == "state_lost", reply.json)


@closing
def test_own_file_removed(x):
    """The program's file is gone or replaced: commands go on starting, by the running image."""
    subprocess.run(["rm", str(x.place / "berth-executor")], check=True)
    for n in range(3):
        must(x.execute(f"echo {n}").ok().stream("O") == b"%d\n" % n, n)
    # Without the standing launcher the file is executed again.
    x.execute("for p in /proc/[0-9]*; do case $(busybox tr '\\0' ' ' < $p/cmdline) in 'berth-supervise attend '*) kill -9 ${p#/proc/};; esac; done")
    for n in range(3):
        must(x.execute(f"echo {n}").code in ("ok", "unavailable"), n)
    must(x.execute("echo end").ok().stream("O") == b"end\n", "after the launcher was killed")


@closing
def test_descriptors(x):
    """Commands that close or flood every descriptor they can have."""
    reply = x.execute("for n in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; exit 3").ok()
    must(reply.ending["exit_code"] == 3, reply.ending)
    script = ("i=0; while [ $i -lt 60 ]; do busybox sh -c 'n=3; while [ $n -lt 200 ]; do eval \"exec $n</dev/null\" 2>/dev/null || break; n=$((n+1)); "
              "done; busybox sleep 1' & i=$((i+1)); done; wait; echo flooded")
    execution = x.new_id()
    conn, headers = x.begin(script, execution)
    for _ in range(10):
        x.execute("true").ok()
    frames = frames_of(b"".join(conn.chunks(headers)))
    must(b"flooded" in b"".join(payload for kind, payload in frames if kind == "O"), frames)


def test_full_disk(make):
    """No room left: refused by name, nothing half-made; running commands end truthfully; with room it goes on."""
    if os.geteuid() != 0:
        raise Skipped("mounting a small file system needs root")
    small = pathlib.Path(tempfile.mkdtemp(prefix="berth-small-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], capture_output=True, text=True)
    if done.returncode:
        small.rmdir()
        raise Skipped(f"no mount here: {done.stderr.strip()}")
    x = None
    try:
        x = make(base=str(small))
        x.execute("true").ok()
        execution = x.new_id()
        conn, headers = x.begin("while [ ! -e ../go ]; do sleep 0.02; done; echo late; exit 5", execution)
        reply = x.execute("head -c 9000000 /dev/zero > big; head -c 100000 /dev/zero; exit 6").ok()
        must(reply.ending["exit_code"] == 6, reply.ending)
        must(reply.ending["stdout_dropped"] + len(reply.stream("O")) == 100000, "bytes are neither kept nor counted")
        x.write("more", os.urandom(100000)).fails("storage_full", None, 507)
        must(not (x.root / "more").exists(), "half a file")
        x.execute("echo > ran" + "x" * 5000).fails("storage_full", None, 507)
        x.ask("/v1/file/stat", {"path": "big"}).ok()
        must(x.health()["ready"], "health")
        (x.root / "big").unlink()
        (x.dir / "go").touch()
        frames = frames_of(b"".join(conn.chunks(headers)))
        must(any(b'"exit_code":5' in payload for kind, payload in frames if kind == "X"), frames)
        must(x.execute("echo again").ok().stream("O") == b"again\n", "it does not recover")
    finally:
        if x:
            x.close(keep=True)
        subprocess.run(["umount", "-l", str(small)])
        small.rmdir()


def pids_group():
    """A control group that limits processes, of either version; None where none can be made."""
    for base in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        path = pathlib.Path(base) / f"berth-test-{os.getpid()}-{time.monotonic_ns()}"
        try:
            path.mkdir()
            (path / "pids.max").write_text("60")
            return path
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():
                path.rmdir()
    return None


def test_fork_storm(make):
    """A command takes every process there is: others are refused by name, health answers, it can be followed and killed."""
    group = pids_group()
    if not group:
        raise Skipped("no control group for processes can be made here")
    try:
        x = make(wrap=["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"])
        execution = x.new_id()
        storm = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        os.sched_yield()\n"
        conn, headers = x.begin(f"echo up; exec python3 -c '{storm}'", execution, kill_grace_ms=200)
        current = group / "pids.current"
        wait_for(lambda: int(current.read_text()) >= 59, "the storm does not rise")
        for _ in range(5):
            must(x.health()["ready"], "health")
            reply = x.execute("true")
            must(reply.code in ("ok", "unavailable"), reply.result)
        must(x.execute("true").reason in ("resources", "start_failed", "busy", ""), "refused by another name")
        follower = Connection(x.port)
        follower.send(x.request("/v1/reattach", {"execution_id": execution, "attempt": 1, "stdout_offset": 0, "stderr_offset": 0}).raw())
        x.signal(execution, "KILL").ok()
        for frames in (frames_of(b"".join(conn.chunks(headers))), follower.reply().frames):
            must(any(b'"cancelled"' in payload for kind, payload in frames if kind == "X"), frames[-2:])
        wait_for(lambda: int(current.read_text()) < 20, "processes are left")
        wait_for(lambda: x.execute("echo after").code == "ok", "no command starts after the storm")
        x.close(keep=True)
    finally:
        wait_for(lambda: not group.exists() or not (group / "cgroup.procs").read_text().strip(), "the group is not empty")
        group.rmdir()


def memory_group():
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = pathlib.Path(base) / f"berth-test-{os.getpid()}-{time.monotonic_ns()}"
        try:
            path.mkdir()
            (path / limit).write_text(str(48 << 20))
            return path
        except OSError:
            if path.exists():
                path.rmdir()
    return None


def test_oom(make):
    """The kernel kills a command for its memory: that is its ending, and the executor lives."""
    group = memory_group()
    if not group:
        raise Skipped("no control group for memory can be made here")
    try:
        x = make(wrap=["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"], program=BUILD / "bin/berth-executor")
        pid = x.process.pid
        reply = x.execute("exec python3 -c 'x = bytearray(200 << 20); print(len(x))'").ok()
        must(reply.ending["kind"] == "oom", reply.ending)
        must(x.process.poll() is None and x.process.pid == pid, "the executor went with it")
        must(x.execute("kill -9 $$").ok().ending["kind"] == "signal", "a plain KILL afterwards")
        must(int(x.execute("cat /proc/self/oom_score_adj").ok().stream("O")) >
             int(open(f"/proc/{pid}/oom_score_adj").read()), "commands are not preferred")
        x.close(keep=True)
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text().strip(), "the group is not empty")
        group.rmdir()


def counters_of(version, place):
    """A pod's view of its own group's counters, as files that a test can raise."""
    if version == 1:
        (place / "memory").mkdir()
        return place / "memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    return place / "memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill {}\noom_group_kill 0\n"


def oom_by_counter(make, version):
    namespaces()
    if os.geteuid() != 0:
        raise Skipped("mounting over the control groups needs root")
    place = pathlib.Path(tempfile.mkdtemp(prefix="berth-cgroup-"))
    try:
        counter, text = counters_of(version, place)
        counter.write_text(text.format(3))
        (place / "self").write_text("4:memory:/kubepods/pod1/abc\n0::/\n" if version == 1 else "0::/\n")
        x = make(wrap=["unshare", "-m", "sh", "-c", f'mount --bind {place} /sys/fs/cgroup; exec "$@"', "sh"])
        # The kernel's own file says where this machine's groups are; the pod sees its own at the top of the mount.
        must(x.execute("kill -9 $$").ok().ending["kind"] == "signal", "no rise, but oom")
        raised = text.format(4).replace("\n", "\\n")
        for _ in range(3):
            counter.write_text(text.format(3))
            must(x.execute(f"printf '{raised}' > {counter}; kill -9 $$").ok().ending["kind"] == "oom", "a rise, but no oom")
            counter.write_text(text.format(3))
            must(x.execute(f"printf '{raised}' > {counter}; exit 137").ok().ending["kind"] == "exit", "an exit became an oom")
        x.close(keep=True)
    finally:
        shutil.rmtree(place)


def test_oom_v1(make):
    if not re.search(r"^\d+:[^:]*\bmemory\b", open("/proc/self/cgroup").read(), re.M):
        raise Skipped("the kernel does not run the memory controller as version 1")
    oom_by_counter(make, 1)


def test_oom_v2(make):
    if not re.search(r"^0::", open("/proc/self/cgroup").read(), re.M):
        raise Skipped("the kernel has no version 2 hierarchy")
    oom_by_counter(make, 2)


def test_launcher_stopped(make):
    """Somebody stops or kills the standing launcher: commands go on starting."""
    x = make()
    x.execute("true").ok()

    def launcher():
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and open(f"/proc/{entry}/cmdline").read() == "berth-supervise\0attend\0":
                    parent = int(open(f"/proc/{entry}/stat").read().rsplit(") ", 1)[1].split()[1])
                    if parent == x.process.pid:
                        return int(entry)
            except OSError:
                continue
        return None

    for _ in range(3):
        os.kill(wait_for(launcher, "no launcher"), signal.SIGKILL)
        for n in range(5):
            reply = x.execute(f"echo {n}")
            # What was sent to the dying one is lost, and told so.
            must(reply.code == "ok" or (n == 0 and reply.code == "unavailable" and reply.result["retryable"]), reply.result)
            must(reply.code != "ok" or reply.stream("O") == b"%d\n" % n, n)
    pid = wait_for(launcher, "no launcher")
    os.kill(pid, signal.SIGSTOP)
    for n in range(4):  # two are ready, then nobody answers: the third is lost, and told so, and a new launcher comes
        reply = x.execute(f"echo {n}")
        must(reply.code == "ok" or (reply.code == "unavailable" and reply.result["retryable"]), reply.result)
    wait_for(lambda: launcher() not in (None, pid), "no new launcher")
    x.execute("true").ok()


def test_as_any_user(make):
    """Without root, and without a writable place but its two directories."""
    if os.geteuid() != 0:
        x = make()
        x.execute("true").ok()
        return
    place = pathlib.Path(tempfile.mkdtemp(prefix="berth-user-", dir="/dev/shm"))
    os.chown(place, 4321, 4321)
    os.chmod(place, 0o755)
    program = place / "berth-executor"
    shutil.copy(BUILD / "bin/berth-executor", program)
    os.chmod(program, 0o755)
    x = None
    try:
        x = make(wrap=["setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups", "--no-new-privs", "--inh-caps=-all"], program=program,
                 base=str(place), flags=["--root", str(place / "r"), "--state", str(place / "s")])
        must(x.execute("id -u").ok().stream("O") == b"4321\n", "another user")
        # A command of the same user cannot read the executor's memory: tokens are in there.
        reply = x.execute(f"head -c 1 /proc/{x.process.pid}/environ; cat /proc/{x.process.pid}/maps; ls /proc/{x.process.pid}/fd").ok()
        must(reply.stream("O") == b"" and b"denied" in reply.stream("E"), (reply.stream("O")[:200], reply.stream("E")))
        x.restart()
        x.execute("true").ok()
    finally:
        if x:
            x.close(keep=True)
        shutil.rmtree(place)


def test_randomised_kills(make):
    """kill -9 of the executor at any time under many commands: each ran at most once, and those that ran to their end say so."""
    x = make()
    outcomes = []
    for round_number in range(6):
        conns = []
        for n in range(8):
            execution = x.new_id()
            conn = Connection(x.port)
            script = f"echo x >> ran-{execution}; sleep 0.0{n}; echo out; exit {n}"
            conn.send(x.request("/v1/execute", x.execute_args(execution), x.execute_frames(script)).raw())
            conns.append((execution, n, conn))
        time.sleep(0.012 * round_number)
        x.restart()
        for execution, n, conn in conns:
            conn.close()
            reply = x.reattach(execution)
            ran = (x.root / f"ran-{execution}").read_text() if (x.root / f"ran-{execution}").exists() else ""
            if reply.code == "ok":
                must(ran == "x\n" and reply.ending["exit_code"] == n and reply.stream("O") == b"out\n", (reply.ending, ran))
            else:
                must(reply.code == "not_started" and ran == "", (reply.result, ran))
            outcomes.append(reply.code)
    must(len(outcomes) == 48, len(outcomes))
