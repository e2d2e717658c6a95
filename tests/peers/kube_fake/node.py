# SPDX-License-Identifier: Apache-2.0
"""The node: binds pods, runs a real berth-executor for each, sets their status, and deletes them gracefully.

A pod's script decides what happens to it. It is chosen by `scripts`, functions that get the pod and return the name of a script in
SCRIPTS, or None; by default every pod runs.
"""

import asyncio
import os
import pathlib
import random
import shutil
import signal
import socket

from .store import now

READY = [{"type": t, "status": "True", "reason": "", "message": ""} for t in
         ("PodScheduled", "Initialized", "ContainersReady", "Ready")]


def waiting(reason, message=""):
    return {"phase": "Pending", "conditions": [READY[0]],
            "containerStatuses": [{"name": "executor", "restartCount": 0, "ready": False,
                                   "state": {"waiting": {"reason": reason, "message": message}}}]}


def terminated(reason, code, phase="Failed", message=""):
    return {"phase": phase, "podIP": "", "containerStatuses": [
        {"name": "executor", "restartCount": 0, "ready": False,
         "state": {"terminated": {"reason": reason, "exitCode": code, "message": message}}}]}


def failed(reason, message=""):
    return {"phase": "Failed", "reason": reason, "message": message}


def unscheduled(reason, message=""):
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]}


def disrupted(reason, message=""):
    return {"phase": "Failed", "conditions": [READY[0], {"type": "DisruptionTarget", "status": "True", "reason": reason,
                                                         "message": message}]}


# Every row of what a pod may say of itself: status, and whether the pod is bound to a node by then.
SCRIPTS = {
    "unschedulable": unscheduled("Unschedulable", "0/12 nodes are available: 12 Insufficient memory."),
    "scheduling_gated": unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
    "no_scheduler": {"phase": "Pending"},
    "err_image_pull": waiting("ErrImagePull", "manifest unknown"),
    "image_pull_back_off": waiting("ImagePullBackOff", 'Back-off pulling image "nope"'),
    "invalid_image_name": waiting("InvalidImageName", "couldn't parse image reference"),
    "err_image_never_pull": waiting("ErrImageNeverPull", "image is not present with pull policy of Never"),
    "image_inspect_error": waiting("ImageInspectError"),
    "registry_unavailable": waiting("RegistryUnavailable"),
    "create_container_config_error": waiting("CreateContainerConfigError", 'secret "x" not found'),
    "create_container_error": waiting("CreateContainerError"),
    "run_container_error": waiting("RunContainerError"),
    "post_start_hook_error": waiting("PostStartHookError"),
    "crash_loop_back_off": waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
    "container_creating": waiting("ContainerCreating"),
    "start_error": terminated("StartError", 128),
    "container_cannot_run": terminated("ContainerCannotRun", 127),
    "out_of_cpu": failed("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"),
    "out_of_memory": failed("OutOfmemory", "Pod was rejected"),
    "out_of_pods": failed("OutOfpods", "Pod was rejected"),
    "node_affinity": failed("NodeAffinity", "Predicate NodeAffinity failed"),
    "unexpected_admission": failed("UnexpectedAdmissionError", "Allocate failed"),
    "node_shutdown": failed("NodeShutdown", "Pod was rejected as the node is shutting down."),
    "terminated": failed("Terminated", "Pod was terminated in response to imminent node shutdown."),
    "evicted": failed("Evicted", "The node was low on resource: ephemeral-storage."),
    "deadline_exceeded": failed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
    "preempted": disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod"),
    "drained": disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
    "taint_manager": disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    "pod_gc": disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
    "by_kubelet": disrupted("TerminationByKubelet", "The node was low on resource: memory."),
    "oom_killed": terminated("OOMKilled", 137),
    "crashed": terminated("Error", 1),
    "succeeded": terminated("Completed", 0, phase="Succeeded"),
}
UNBOUND = {"unschedulable", "scheduling_gated", "no_scheduler"}


def processes_of(root):
    """Whatever was started in the pod's root, sessions of their own included: it has HOME there, or its folder."""
    root, found = str(root), []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environ = open(f"/proc/{entry}/environ", "rb").read()
            cwd = os.readlink(f"/proc/{entry}/cwd")
            command = open(f"/proc/{entry}/cmdline", "rb").read()
        except OSError:
            continue
        if f"HOME={root}/".encode() in environ or cwd.startswith(root + "/") or (root + "/").encode() in command:
            found.append(int(entry))
    return found


class Group:
    """The memory limit of a pod by control group, where this process may make one (v1 or v2); else there is none."""

    BASES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))

    def __init__(self, uid, limit):
        self.path = None
        for base, name in self.BASES:
            path = pathlib.Path(base) / f"kube-fake-{uid}"
            if not limit or self.path or not (pathlib.Path(base) / "cgroup.procs").exists():
                continue
            try:
                path.mkdir()
                (path / name).write_text(str(limit))
                self.path = path
            except OSError:
                if path.exists():
                    path.rmdir()

    def command(self, *words):
        """The same command inside the group, by a shell: what a big process starts with code of its own in the child has to be
        forked, and that stops everything else here."""
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.path), *words] if self.path else list(words)

    def processes(self):
        """Of the group, where there is one: one file, instead of a look at every process of the machine."""
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()] if self.path else None

    def drop(self):
        if self.path:
            try:
                self.path.rmdir()
                self.path = None
            except OSError:
                pass  # its processes are still being reaped
        return self.path is None


def memory_of(pod):
    """The limits of all containers together, in bytes; 0: a container has none."""
    units, total = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "M": 10**6, "G": 10**9, "": 1}, 0
    for container in pod["spec"]["containers"]:
        text = container.get("resources", {}).get("limits", {}).get("memory", "")
        digits = text.rstrip("KMGi")
        if not digits.isdigit():
            return 0
        total += int(digits) * units[text[len(digits):]]
    return total


class Node:
    def __init__(self, api, directory, executor, port=8080):
        self.api, self.dir, self.executor, self.port = api, pathlib.Path(directory), executor, port
        self.scripts = []
        self.pods = {}  # uid -> process
        self.groups = {}  # uid -> Group
        self.tasks = set()
        self.deaf = set()  # uids that are not deleted: their node is away
        self.late_s = 0  # so long nothing listens in a pod that is Ready already
        self.kept = []  # what executors printed to standard error
        api.node = self
        api.store.hooks.append(self.on_change)

    def spawn(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_change(self, key, before, after):
        if key[0] != "pods":
            return
        if before is None:
            self.spawn(self.start(key, after))
        elif after is None:
            self.spawn(self.stop(before["metadata"]["uid"], 0))
        elif after["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
            self.spawn(self.finish(key, after))

    # ---- status ----
    def alive(self, key, uid):
        pod = self.api.store.objects.get(key)
        return pod if pod and pod["metadata"]["uid"] == uid else None

    def set_status(self, key, uid, status, node="node-1"):
        if not self.alive(key, uid):
            return False

        def change(pod):
            pod["status"] = {**pod.get("status", {}), **status}
            if node:
                pod["spec"]["nodeName"] = node
        self.api.store.update(*key, change)
        return True

    def script_of(self, pod):
        for script in self.scripts:
            name = script(pod)
            if name:
                return name
        return None

    def apply(self, key, uid, name):
        """A script's status, on a pod that may be running: what kills it ends its processes."""
        status = SCRIPTS[name]
        if status["phase"] in ("Failed", "Succeeded"):
            self.spawn(self.stop(uid, 0))
        return self.set_status(key, uid, status, None if name in UNBOUND else "node-1")

    async def start(self, key, pod):
        uid = pod["metadata"]["uid"]
        await asyncio.sleep(0)
        name = self.script_of(pod)
        if name:
            self.apply(key, uid, name)
            return
        await self.run(key, pod)

    async def run(self, key, pod):
        uid = pod["metadata"]["uid"]
        self.set_status(key, uid, {"phase": "Pending", "startTime": now(), **waiting("ContainerCreating")})
        ip = self.address()
        running = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": READY, "containerStatuses": [
            {"name": "executor", "restartCount": 0, "ready": True, "state": {"running": {"startedAt": now()}}}]}
        if self.late_s:
            self.set_status(key, uid, running)
            await asyncio.sleep(self.late_s)
        process = await self.execute(uid, pod, ip)
        if not process and self.kept:
            self.set_status(key, uid, terminated("StartError", 128, message=self.kept[-1][-200:]))
        if not self.alive(key, uid):
            await self.stop(uid, 0)  # it was deleted meanwhile
        elif process:
            self.set_status(key, uid, running)

    def address(self):
        """One of 127/8 that nobody else uses, other clusters of this machine included."""
        while True:
            ip = f"127.{random.randint(64, 250)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((ip, self.port))
                    return ip
                except OSError:
                    continue

    def environment(self, pod, uid):
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        for container in pod["spec"]["containers"]:
            if container["name"] != "executor":
                continue
            for entry in container.get("env", []):
                value = entry.get("value", "")
                if "valueFrom" in entry:
                    value = uid
                env[entry["name"]] = value.replace("$$", "$")
        return env

    async def execute(self, uid, pod, ip):
        home = self.dir / uid
        for part in ("work", "state"):
            (home / part).mkdir(parents=True, exist_ok=True)
        log = open(home / "log", "wb")
        env = self.environment(pod, uid)
        for name in ("BERTH_EXECUTOR_ROOT", "BERTH_EXECUTOR_STATE", "BERTH_EXECUTOR_LISTEN"):
            env.pop(name, None)
        group = self.groups[uid] = Group(uid, memory_of(pod))
        process = await asyncio.create_subprocess_exec(
            *group.command(self.executor, "serve", "--listen", f"{ip}:{self.port}", "--root", str(home / "work"), "--state",
                           str(home / "state")), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, env=env,
            start_new_session=True)
        log.close()
        self.pods[uid] = process
        line = await process.stdout.readline()
        if line:
            return process
        if home.exists():
            self.kept.append((home / "log").read_text(errors="replace"))
        return None

    # ---- ends ----
    async def finish(self, key, pod):
        """What a kubelet does with a pod that is to be deleted."""
        uid = pod["metadata"]["uid"]
        while uid in self.deaf:
            await asyncio.sleep(0.05)
        await self.stop(uid, pod["metadata"].get("deletionGracePeriodSeconds", 30))
        if self.alive(key, uid):
            self.set_status(key, uid, {"phase": "Succeeded"})
        if self.alive(key, uid):
            self.api.store.remove(*key)

    async def stop(self, uid, grace):
        process = self.pods.pop(uid, None)
        if process and process.returncode is None and grace:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), grace)
            except asyncio.TimeoutError:
                pass
        if process and process.returncode is None:
            process.kill()
        if process:
            await process.wait()
        await self.sweep(self.dir / uid)

    async def sweep(self, home):
        """A pod's end is the end of everything in it."""
        loop = asyncio.get_running_loop()
        group = self.groups.pop(home.name, None)
        for _ in range(200):
            if not home.exists():
                break
            left = group.processes() if group else None
            if left is None:
                left = await loop.run_in_executor(None, processes_of, home)
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            if not left:
                break
            await asyncio.sleep(0.01)
        for _ in range(200):
            if not group or group.drop():
                break
            await asyncio.sleep(0.01)
        await loop.run_in_executor(None, lambda: shutil.rmtree(home, ignore_errors=True))

    async def kill_executor(self, uid):
        """The container's process dies; with restartPolicy Never that is the pod's end."""
        process = self.pods.get(uid)
        if process:
            process.kill()

    async def close(self):
        await asyncio.gather(*(self.stop(uid, 0) for uid in list(self.pods)))
        if self.dir.exists():
            for home in list(self.dir.iterdir()):
                await self.sweep(home)
