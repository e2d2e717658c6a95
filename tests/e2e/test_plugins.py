# SPDX-License-Identifier: Apache-2.0
"""G1 to G3: plugins that must not get in, and plugins that misbehave beside one that serves (tests/zoo)."""

import ctypes
import os
import pathlib
import platform
import re
import signal
import subprocess
import time

import harness
from harness import BUILD, PATIENCE, Skipped, check, equal, wait_for

ZOO = BUILD / "tests" / "zoo"

# animal -> what the one sentence says
REFUSED = {
    "bad-magic": "expected the magic word",
    "bad-major": "expected ABI 1.x, got 2.0",
    "bad-minor": "needs 1.999",
    "bad-size": "struct_size 40",
    "bad-flags": "expected flags 0",
    "bad-reserved": "expected reserved[0] NULL",
    "bad-name": 'got "good"',
    "bad-capability": "declares the capability RENEW and lacks its operation renew",
    "bad-op": "expected the operation execute",
    "bad-option-key": "expected a key",
    "bad-option-twice": "declared twice",
    "bad-option-default": "default that does not fit",
    "entry-null": "expected a descriptor",
    "no-entry": "expected the symbol berth_provider_entry_v1, got none",
    "missing-library": "libzoo_nowhere.so",
    "missing-symbol": "undefined symbol: zoo_is_nowhere",
    "init-fails": "expected OK from init, got code 10 (unavailable)",
    "init-crashes": "crashed in init: SIGSEGV",
    "init-exits": "ended the process in init with exit status 3",
    "fini-crashes": "crashed in fini: SIG",
}


def with_zoo(make, *animals, required=True, **kw):
    """A berthd with mock, and one target per animal in a region of its own."""
    b = make(env=harness.SIGNALS, **kw)
    plugins = b.dir / "plugins"
    plugins.mkdir(mode=0o755)
    (plugins / "mock.so").symlink_to(BUILD / "lib" / "berth" / "plugins" / "mock.so")
    for animal in animals:
        link(b, animal)
        target(b, animal, required)
    conf = b.dir / "berth.conf"
    conf.write_text(re.sub(r'plugin_dir = "[^"]*"', f'plugin_dir = "{plugins}"', conf.read_text()))
    return b


def link(b, animal):
    if (ZOO / f"{animal}.so").exists():
        (b.dir / "plugins" / f"{animal}.so").symlink_to(ZOO / f"{animal}.so")


def target(b, animal, required=True, more=""):
    (b.dir / "providers.d" / f"20-{animal}.conf").write_text(
        f'provider = "{animal}";\nname = "{animal}";\nregion = "{animal}";\n'
        f'required = {"true" if required else "false"};\n{more}\n')


def without_sanitizers():
    """They take the signals for reports of their own."""
    if harness.SANITIZED:
        raise Skipped("sanitizers report crashes themselves")


def said(b, start):
    """The one line of the log that begins so."""
    lines = [line for line in b.log().splitlines() if line.startswith(start)]
    equal(len(lines), 1, f"lines of the log that begin with {start!r}: {lines}")
    return lines[0]


def refused(make, name, part, file=None):
    b = with_zoo(make, name)
    if file:
        file(b.dir / "plugins" / f"{name}.so")
    b.start(expect_exit=78)
    sentence = said(b, "berthd: ")
    check(sentence.startswith("berthd: providers: plugin /") and f"/{name}.so: " in sentence, sentence)
    check(part in sentence, f"{part!r} is not in {sentence!r}")


def test_g1_refused_at_start(make):
    for animal in ("bad-major", "bad-size", "missing-symbol", "init-crashes"):
        refused(make, animal, REFUSED[animal])

    def text(path):
        path.write_text("#!/bin/sh\n")

    def cut(path):
        path.write_bytes((ZOO / "good.so").read_bytes()[:5000])

    def other_machine(path):
        data = bytearray((ZOO / "good.so").read_bytes())
        data[18:20] = (22).to_bytes(2, "little")  # e_machine
        path.write_bytes(data)

    def loop(path):
        path.symlink_to(path.name)

    refused(make, "text", "expected an ELF shared object", text)
    refused(make, "cut", "cut at 5000 bytes", cut)
    refused(make, "other", "got one for s390 (22)", other_machine)
    refused(make, "loop", "expected a file, got a loop of symbolic links", loop)


def test_g2_missing_at_start(make):
    refused(make, "nosuch", 'expected the file of provider "nosuch", got no such file')
    refused(make, "missing-library", REFUSED["missing-library"])


def test_g1_a_pool_that_nobody_can_assign(make):
    """`berthd -t` refuses what a start would: warm sessions of a provider that cannot say whose they became."""
    b = with_zoo(make)
    link(b, "good")
    target(b, "good", more="warm = 1;")
    result = subprocess.run([str(BUILD / "bin" / "berthd"), "-t", "-c", str(b.dir / "berth.conf")], capture_output=True,
                            text=True)
    equal(result.returncode, 78, result.stderr)
    sentence = "berthd: providers: target good: expected warm 0, its provider cannot assign warm sessions, got 1"
    check(sentence in result.stderr, result.stderr)
    b.start(expect_exit=78)
    equal(said(b, "berthd: providers: target"), sentence)


def test_g1_degraded_when_not_required(make):
    """Every animal that is refused, in one daemon: each keeps its sentence, mock serves."""
    b = with_zoo(make, *REFUSED, required=False).start()
    equal(b.sh("t", "echo served"), b"served\n")
    targets = {t["name"]: t for t in b.get("/admin/targets").expect(200).json["items"]}
    equal(targets["mock"]["status"], "ok")
    for animal, part in REFUSED.items():
        equal(targets[animal]["status"], "degraded", animal)
        check(part in targets[animal]["why"], f"{animal}: {part!r} is not in {targets[animal]['why']!r}")
        check(f"/{animal}.so: " in targets[animal]["why"], targets[animal]["why"])
        b.create("t-" + animal, "echo x", region=animal).expect_error(422, "no_eligible_target")
    b.get("/ready").expect(200)
    equal(b.sh("t", "echo still"), b"still\n")
    equal(b.stop(), 0)


def test_g3_init_that_hangs(make):
    b = with_zoo(make, "init-hangs", required=False).start()
    equal(b.sh("t", "echo served"), b"served\n")
    targets = {t["name"]: t for t in b.get("/admin/targets").expect(200).json["items"]}
    check("did not come back from init within 10000 ms" in targets["init-hangs"]["why"], targets["init-hangs"]["why"])


# animal -> what the failed record says
CONTAINED = {
    "op-two-endings": "broke a rule in execute: emitted twice what may be emitted once",
    "op-no-ending": "broke a rule in execute: returned OK and emitted an ending 0 times instead of once",
    "op-unknown-code": "broke a rule in execute: returned the unknown code 4711",
    "op-ending-and-code": "broke a rule in execute: emitted an ending and returned code 10 (unavailable) instead of OK",
    "op-unknown-ending": "broke a rule in execute: passed an ending of kind 99",
    "op-huge-output": "broke a rule in execute: wrote 18446744073709551615 bytes to stream 1",
    "op-foreign-thread": "broke a rule in execute: used a call outside its operation or thread",
    "op-garbage": "3 creates were lost: target op-garbage: plugin op-garbage broke a rule in provision: ",
    "find-forges": "broke a rule in find: passed a session of another identity than was asked for",
}


def test_g3_broken_operations(make):
    b = with_zoo(make, *CONTAINED).start()
    b.sh("t", "echo before > kept")
    for animal, part in CONTAINED.items():
        record = b.run("t-" + animal, "echo x", region=animal, limit=20)
        equal(record["status"], "failed", animal)
        check(part in record["error"], f"{animal}: {part!r} is not in {record['error']!r}")
        check(f"plugin={animal} " in b.log(), f"the log names {animal}")
        equal(b.sh("t", "cat kept"), b"before\n")
    equal(b.stop(), 0)


def test_a_list_of_too_much_is_no_fault_of_the_plugin(make):
    """What lies in a sandbox is its own: 413 says what to do, and no plugin is blamed in the log."""
    b = with_zoo(make, "large-lists").start()
    where = {"workspace_id": "w", "task_id": "t"}
    b.run("t", "begin", region="large-lists")
    equal(len(b.get("/sandbox/files", **where, list="100000").expect(200).json["paths"]), 100000)
    for path in ("100001", "100000-800", "100000-400"):
        for details in ("false", "true"):
            answer = b.get("/sandbox/files", **where, list=path, details=details).expect_error(413, "payload_too_large")
            check("more than 100000 entries or 32 MiB; list a folder in it, or let a command" in answer.json["message"], answer.json)
    done = b.ctl("ls", "-w", "w", "t", "100001", text=True)
    equal((done.returncode, "list a folder in it" in done.stderr), (6, True), done.stderr)
    check("broke a rule" not in b.log(), "a plugin is not blamed")
    equal(b.stop(), 0)


def test_a_list_that_goes_round_is_left(make):
    """Neither a sweep nor verify follows it for ever, and neither concludes anything; the other target is verified."""
    b = with_zoo(make, "list-cycles").start()
    b.run("t", "true")
    targets = {t["name"]: t for t in b.request("POST", "/admin/verify").expect(200).json["targets"]}
    check("does not end" in targets["list-cycles"]["error"], targets)
    check("error" not in targets["mock"] and targets["mock"]["provider_sessions"] == 1, targets)
    wait_for(lambda: [line for line in b.log().splitlines() if "could not be swept" in line and "does not end" in line], 60, "the sweep ends")
    equal(b.stop(), 0)


def admin_target(b, name):
    return {t["name"]: t for t in b.get("/admin/targets").expect(200).json["items"]}[name]


def stuck_says(b, name, plugin, count):
    """The three places that tell of a target whose calls do not come back."""
    def said():
        equal(b.sh("t", "echo served"), b"served\n")
        return admin_target(b, name)["stuck"] == count
    wait_for(said, 30, f"{count} stuck calls of {name}")
    status = "degraded" if count >= 2 else "ok"
    equal(admin_target(b, name)["status"], status)
    ready = {t["name"]: t for t in b.get("/ready").expect(200).json["targets"]}
    equal((ready[name]["status"], ready["mock"]["status"]), (status, "ok"))
    providers = {p["name"]: p for p in b.get("/admin/providers").expect(200).json["items"]}
    equal((providers[plugin]["status"], providers[plugin]["stuck"]), (status, count))


def test_g3_calls_that_hang(make):
    """Two of eight calls never come back: their commands end all the same, the target is degraded, and only it."""
    b = with_zoo(make, conf='execution: { completion_grace = "1s"; };')
    link(b, "op-hangs")
    target(b, "op-hangs", more="max_operations = 8;")
    b.start()
    hung = [b.create(f"hung-{i}", "true", region="op-hangs", timeout_seconds=1).expect(202).json["id"] for i in range(2)]
    for i in hung:
        record = b.finish(i, 15)
        equal((record["status"], record["reason"], record["ending"]["kind"]), ("failed", "provider_stuck", "unknown"))
        check("did not come back from the command by its deadline" in record["error"], record["error"])
    # Nobody knows what their sessions still do: they are not used again, and no lease holds them.
    wait_for(lambda: all(b.task(f"hung-{i}").json["state"] == "gone" for i in range(2)), 20, "the sessions to be let go")
    stuck_says(b, "op-hangs", "op-hangs", 2)
    equal(admin_target(b, "op-hangs")["why"], "2 calls are stuck past their deadlines in plugin op-hangs")
    record = b.run("hung-2", "true", region="op-hangs")
    equal((record["status"], record["reason"]), ("failed", "target_degraded"))
    b.put_file("hung-3", "f", b"x", region="op-hangs").expect_error(503, "provider_unavailable")
    equal(b.stop(), 0)


def test_g3_calls_that_come_back_late(make):
    """What a call brings after it was given up is dropped; the target recovers, and serves the tasks that it had."""
    b = with_zoo(make, conf='execution: { completion_grace = "1s"; };', target="max_operations = 8;")
    target(b, "mock", more=f'max_operations = 8; config: {{ root = "{b.dir}/other"; fault_file = "{b.dir}/faults"; }};')
    conf = b.dir / "providers.d" / "20-mock.conf"
    conf.write_text(conf.read_text().replace('name = "mock"', 'name = "late"').replace('region = "mock"', 'region = "late"'))
    (b.dir / "other").mkdir()
    (b.dir / "faults").write_text("execute task=w/late-0 stall=8s\nexecute task=w/late-1 stall=8s\n")
    b.start()
    equal(b.sh("kept", "echo one > f; cat f", region="late"), b"one\n")
    ids = [b.create(f"late-{i}", "echo ran >> ../../../ran", region="late", timeout_seconds=1).expect(202).json["id"]
           for i in range(2)]
    ends = [b.finish(i, 15) for i in ids]
    # Another call asks for them, which also keeps the stuck ones from starting them.
    for record in ends:
        equal((record["status"], record["reason"]), ("failed", "provider_stuck"))
    stuck_says(b, "late", "mock", 2)
    record = b.run("kept", "cat f")
    equal((record["status"], record["reason"]), ("failed", "target_degraded"))
    stuck_says(b, "late", "mock", 0)
    check("a stuck command's call came back; what it brought is dropped" in b.log(), "it is said")
    equal([b.record(i) for i in ids], ends, "records after the calls came back")
    check(not (b.dir / "other" / "ran").exists(), "nothing ran after its record had ended")
    equal(b.sh("kept", "cat f"), b"one\n")
    equal(b.stop(), 0)


def test_g3_provision_that_hangs(make):
    b = with_zoo(make, "provision-hangs", conf='session: { scheduling = "1s"; starting = "1s"; begin_wait = "1s"; };'
                                               'execution: { queue_timeout = "3s"; };').start()
    id = b.create("t-hangs", "true", region="provision-hangs").expect(202).json["id"]
    equal(b.sh("t", "echo served"), b"served\n")
    record = b.finish(id, 20)
    equal((record["status"], record["reason"]), ("failed", "provider_stuck"))
    equal(b.sh("t", "echo served"), b"served\n")


def test_g3_close_that_hangs(make):
    b = with_zoo(make, "close-hangs").start()
    equal(b.stop(), 0)
    check('msg="a target\'s close did not come back"' in b.log() and "plugin=close-hangs" in b.log(), "it is named")


# animal -> signal, and how the report ends after the instruction's address
CRASHES = {
    "op-crashes": ("SIGSEGV at address 0x8", "in plugin op-crashes+0x[0-9a-f]+, in execute of plugin op-crashes, "),
    "op-divides": ("SIGFPE", "in plugin op-divides+0x[0-9a-f]+, in execute of plugin op-divides, "),
    "op-overflows": ("SIGSEGV at address 0x[0-9a-f]+", "in plugin op-overflows+0x[0-9a-f]+, in execute of plugin op-overflows, "),
    "op-aborts": ("SIGABRT", "outside the plugins, in execute of plugin op-aborts, "),
    "op-frees-host": ("SIGABRT", "outside the plugins, in execute of plugin op-frees-host, "),
    "op-calls-null": ("SIGSEGV at address 0x0", "outside the plugins, in execute of plugin op-calls-null, "),
    "op-thread-crashes": ("SIGSEGV at address 0x18", "in plugin op-thread-crashes+0x[0-9a-f]+, "
                          "on a thread that is in no plugin's call"),
}


def crash_report(b, animal):
    line = said(b, "berthd: crash: ")
    what, where = CRASHES[animal]
    if where.endswith(", "):
        where += "target " + animal
    pattern = f"berthd: crash: {what}, instruction 0x[0-9a-f]+ {where}".replace("+0x", "\\+0x")
    check(re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}")


def test_g3_crash_reports(make):
    without_sanitizers()
    for animal, (what, _) in CRASHES.items():
        b = with_zoo(make, animal).start()
        b.sh("t", "echo before > kept")
        lost = b.create("t-crash", "true", region=animal).expect(202).json["id"]
        b.wait_crash(getattr(signal, what.split()[0]))
        crash_report(b, animal)
        b.start()  # what the task had is there, and the command that was lost is not run again
        equal(b.sh("t", "cat kept"), b"before\n")
        record = b.finish(lost, 60)
        equal((record["status"], record["reason"], record["ending"]["kind"]), ("failed", "interrupted", "unknown"), animal)
        equal(b.mock.count("provision"), 1, "sessions made for mock's task")
        equal(b.stop(), 0, "stop after " + animal)


def test_g3_crash_in_open(make):
    without_sanitizers()
    b = with_zoo(make, "open-crashes").start(wait=False)
    b.wait_crash(signal.SIGSEGV)
    line = said(b, "berthd: crash: ")
    check(re.fullmatch(r"berthd: crash: SIGSEGV at address 0x10, instruction 0x[0-9a-f]+ in plugin open-crashes"
                       r"\+0x[0-9a-f]+, in open of plugin open-crashes, target open-crashes", line), line)


def test_g3_crash_sent_from_outside(make):
    without_sanitizers()
    b = make().start()
    b.proc.send_signal(signal.SIGABRT)
    b.wait_crash(signal.SIGABRT)
    line = said(b, "berthd: crash: ")
    check(re.fullmatch(r"berthd: crash: SIGABRT sent by process [0-9]+, instruction 0x[0-9a-f]+ outside the plugins, "
                       r"on a thread that is in no plugin's call", line), line)


def test_g3_crash_on_a_thread_of_the_host(make):
    """One that never was in a plugin is reported like all others."""
    without_sanitizers()
    b = make().start()
    pid = b.proc.pid
    threads = {pathlib.Path(f"/proc/{pid}/task/{t}/comm").read_text().strip(): int(t) for t in os.listdir(f"/proc/{pid}/task")}
    tgkill = {"x86_64": 234, "aarch64": 131}[platform.machine()]
    equal(ctypes.CDLL(None).syscall(tgkill, pid, threads["keeper"], signal.SIGSEGV), 0, "tgkill")
    b.wait_crash(signal.SIGSEGV)
    line = said(b, "berthd: crash: ")
    check(re.fullmatch(r"berthd: crash: SIGSEGV sent by process [0-9]+, instruction 0x[0-9a-f]+ outside the plugins, "
                       r"on a thread that is in no plugin's call", line), line)


def test_a_release_that_hangs(make):
    """One try of a release has ten seconds, also in a plugin that never comes back; the next one ends the session."""
    for fault in ("hang", "stall"):
        b = make(conf='gc: { interval = "200ms"; };', target="max_operations = 64;").start()
        b.sh("t", "echo one > f")
        b.mock.faults(f"release task=w/t nth=1 {fault}")
        began = time.monotonic()
        equal(b.teardown("t", force="true", wait="40s").status, 204)
        # The next command of the task waits for that, and no longer.
        equal(b.sh("t", "cat f || echo none"), b"none\n")
        check(time.monotonic() - began < 25 * PATIENCE, f"{fault}: the task was held for {time.monotonic() - began:.1f} s")
        equal(len(b.sessions_of("t")), 1)


def test_a_target_that_is_gone(make):
    """Commands on a target that was taken out of the configuration end at the start, not after session.starting; on a store that may be
    shared, when the dead daemon's claim is over."""
    b = with_zoo(make, conf='execution: { claim_ttl = "2s"; };\n')
    target(b, "mock", more=f'config: {{ root = "{b.dir}/other"; }};')
    file = b.dir / "providers.d" / "20-mock.conf"
    file.write_text(file.read_text().replace('name = "mock"', 'name = "other"').replace('region = "mock"', 'region = "other"'))
    (b.dir / "other").mkdir()
    b.start()
    id = b.create("t", "sleep 60", region="other").expect(202).json["id"]
    wait_for(lambda: b.record(id)["status"] == "running", 20, "the command to run")
    b.kill9()
    kept = file.read_text()
    file.unlink()
    b.start()
    record = b.finish(id, 15)
    equal((record["status"], record["reason"], record["ending"]["kind"]), ("failed", "interrupted", "unknown"))
    equal(record["error"], "target other is not configured any more")
    record = b.run("t", "true")
    equal((record["status"], record["reason"]), ("failed", "provider_unavailable"))
    # Its session waits for the target, and is deleted when it is there again.
    b.stop()
    file.write_text(kept)
    b.start()
    equal(b.teardown("t", force="true", wait="40s").status, 204)
    equal(list((b.dir / "other" / "sessions").iterdir()), [])
    equal(b.stop(), 0)


def test_a_stop_is_not_taken_for_a_plugins_doing(make):
    """Signals are handled from the start on as they are at the end: what a plugin has not changed is not put back, and a second
    signal still ends the process."""
    b = make(conf='stop_grace = "1s";').start()
    made = b.create("t", f"while [ ! -e {b.dir}/gate ]; do sleep 0.05; done").expect(200, 202).json["id"]
    wait_for(lambda: b.record(made)["status"] == "running", what="the command to run")
    equal(b.stop(), 0)
    check("a plugin changed the process" not in b.log(), b.log())
    conf = b.dir / "berth.conf"
    conf.write_text(conf.read_text().replace('stop_grace = "1s"', 'stop_grace = "10m"'))
    b.start()
    wait_for(lambda: b.get("/ready").json["queue"]["running"] == 1, what="the command to be found again")
    b.proc.terminate()
    wait_for(lambda: b.log().count("msg=stopping") == 2, what="the stop")
    b.proc.terminate()
    equal(b.wait_dead(), 1)
    (b.dir / "gate").touch()
    b.start()
    equal(b.finish(made)["result"]["exit_code"], 0)
