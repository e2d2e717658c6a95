#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The suites of tests/run.sh: one row each. Counts every single test of every suite and ends with "N passed, N failed"."""

import argparse
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = {"release": "1", "debug": "1", "asan": "3", "tsan": "4"}
SILENCE_S, SILENCE_FULL_S, LAST_WORDS_S = 3600, 4 * 3600, 30  # what a driven suite may take without a line, for a slow preset more
SANITIZER_ENV = {
    "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:halt_on_error=1:exitcode=99",
    "LSAN_OPTIONS": f"suppressions={ROOT}/tests/sanitizers/lsan.supp:print_suppressions=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": f"suppressions={ROOT}/tests/sanitizers/tsan.supp:halt_on_error=0:exitcode=66:second_deadlock_stack=1"
                    # It misreads the size of a plugin's thread-local block in this C library and dies of it now and then.
                    ":intercept_tls_get_addr=0",
}


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def add(self, name, passed, failed, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if failed:
            self.failures.append(name)


# The thread sanitizer's shadow memory does not get along with the wide address randomisation of newer kernels.
WRAP = {"tsan": ["setarch", "-R"]}


def run(command, env, limit):
    start = time.monotonic()
    command = WRAP.get(env.get("BERTH_PRESET"), []) + command
    try:
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=limit,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr, time.monotonic() - start
    except subprocess.TimeoutExpired as expired:
        out = b"".join(x for x in (expired.stdout, expired.stderr) if x).decode(errors="replace")
        return -1, out + f"\ntimed out after {limit} s", time.monotonic() - start


def unit(ctx):
    """cmocka programs: every test case counts."""
    programs = sorted((ctx.build / "tests" / "unit").glob("unit_*"))
    if not programs:
        ctx.tally.add("unit", 0, 1)
        print("FAIL unit: no programs were built")
    for program in programs:
        code, out, seconds = run([str(program)], dict(ctx.env, CMOCKA_MESSAGE_OUTPUT="TAP"), 900)
        # A test that clears the environment falls back to cmocka's own format for the rest of its program.
        passed = len(re.findall(r"^(?:ok |\[       OK \])", out, re.M))
        skipped = len(re.findall(r"^ok .*# SKIP", out, re.M))
        failed = len(re.findall(r"^not ok ", out, re.M)) + len(set(re.findall(r"^\[  FAILED  \] ([a-z]\w*)$", out, re.M)))
        planned = sum(map(int, re.findall(r"^(?:1\.\.|\[=+\].* Running )(\d+)", out, re.M)))
        failed = max(failed, int(code != 0 or not planned), planned - passed)
        ctx.tally.add(program.name, passed - skipped, failed, skipped)
        print(f"{'FAIL' if failed else 'ok  '} {program.name}: {passed - skipped} passed, {failed} failed, "
              f"{skipped} skipped ({seconds:.1f} s)", flush=True)
        for line in re.findall(r"^ok .*# SKIP.*", out, re.M):
            print(line, flush=True)
        if failed:
            print(out[-12000:], flush=True)


def fuzz(ctx):
    """Every input of every fuzz target's corpus, without libFuzzer: each counts. See tests/fuzz/run.sh for the real thing."""
    for corpus in sorted(path for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir() if path.is_dir()):
        program = ctx.build / "tests" / "fuzz" / f"replay_{corpus.name}"
        if not program.exists():
            ctx.tally.add(program.name, 0, 1)
            print(f"FAIL {program.name}: was not built")
            continue
        code, out, seconds = run([str(program), str(corpus)], ctx.env, 300)
        passed = len(re.findall(r"^ok ", out, re.M))
        failed = int(code != 0 or passed != len(list(corpus.iterdir())))
        ctx.tally.add(program.name, passed, failed)
        print(f"{'FAIL' if failed else 'ok  '} {program.name}: {passed} inputs ({seconds:.1f} s)", flush=True)
        if failed:
            print(out[-6000:], flush=True)


def static(ctx):
    """The checkers' findings, held against tests/static/suppressions.txt: cppcheck; with --full clang-tidy and gcc's analyzer too."""
    command = ["sh", str(ROOT / "tests" / "static" / "run.sh"), *(["--full"] if ctx.full else [])]
    code, out, seconds = run(command, ctx.env, 7200)
    passed, failed = len(re.findall(r"^ok ", out, re.M)), len(re.findall(r"^FAIL ", out, re.M))
    ctx.tally.add("static", passed, failed or int(code != 0 or not passed))
    print(out[-12000:], end="", flush=True)
    print(f"static: {seconds:.0f} s", flush=True)


def checks(ctx):
    """Checks of the tree: every check and its self-test (a planted violation must be found) counts."""
    for script in sorted((ROOT / "tests" / "unit").glob("check_*.py")):
        for arguments in ([], ["--self-test"]):
            name = " ".join([script.name, *arguments])
            code, out, seconds = run([sys.executable, str(script), *arguments], ctx.env, 300)
            ctx.tally.add(name, code == 0, code != 0)
            print(f"{'ok  ' if code == 0 else 'FAIL'} {name} ({seconds:.1f} s)", flush=True)
            if code:
                print(out[-6000:], flush=True)


def lines_of(process, silence):
    """Its output until its end. When nothing came for that long it is ended; what it says of that is the rest."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield from iter(lambda: lines.get(timeout=silence), None)
    except queue.Empty:
        process.terminate()
        yield f"FAIL nothing was heard for {silence:g} s\n"
        try:
            yield from iter(lambda: lines.get(timeout=LAST_WORDS_S), None)
        except queue.Empty:  # its own processes may hold the pipe
            process.kill()


def drive(ctx, name, *arguments):
    """A program tests/<name>/run.py that says of itself what passed."""
    command = [sys.executable, str(ROOT / "tests" / name / "run.py"), "-j", str(ctx.jobs), *arguments]
    if ctx.full:
        command.append("--full")
    command = WRAP.get(ctx.env["BERTH_PRESET"], []) + command
    process = subprocess.Popen(command, env=ctx.env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", stdin=subprocess.DEVNULL)
    last = ""
    for line in lines_of(process, (SILENCE_FULL_S if ctx.full else SILENCE_S) * float(ctx.env["BERTH_PATIENCE"])):
        last = line.strip() or last
        if not re.match(r"^\d+ passed, \d+ failed", line):
            print(line, end="", flush=True)
    code = process.wait()
    match = re.match(r"^(\d+) passed, (\d+) failed, (\d+) skipped", last)
    if match:
        ctx.tally.add(name, int(match[1]), int(match[2]) or int(code != 0), int(match[3]))
    else:
        ctx.tally.add(f"{name} (ended early)", 0, 1)


def e2e(ctx, patterns=()):
    """Real daemons; see tests/e2e/run.py."""
    drive(ctx, "e2e", *patterns)


def conformance(ctx, patterns=()):
    """The kit over the mock and the HTTP provider, and over copies of both with planted bugs; see tests/conformance/run.py."""
    drive(ctx, "conformance", "--build", str(ctx.build), "--preset", ctx.build.name, *patterns)


def abi(ctx, patterns=()):
    """The gates of the provider ABI; see tests/abi/run.py."""
    drive(ctx, "abi", "--build", str(ctx.build), "--preset", ctx.build.name, *patterns)


def executor(ctx, patterns=()):
    """The program inside pods, by a client of its own; see tests/executor/run.py."""
    drive(ctx, "executor", "--build", str(ctx.build), "--preset", ctx.build.name, *patterns)


def kubernetes_real(ctx, patterns=()):
    """kubernetes.so against a real kube-apiserver, which Go builds; see tests/kubernetes-real/run.py."""
    drive(ctx, "kubernetes-real", *patterns)


SUITES = [
    # name, function, sentence
    ("checks", checks, "layers, secrets, headers: rules that the tree itself must keep"),
    ("unit", unit, "unit and component tests (cmocka), hostile plugins included"),
    ("conformance", conformance, "the provider kit over the mock and over HTTP, and over copies with planted bugs"),
    ("abi", abi, "layout, headers, exports, baseline, an old plugin on this host and on a later one"),
    ("static", static, "cppcheck; with --full also clang-tidy and gcc's analyzer"),
    ("executor", executor, "berth-executor: protocol, refusals, commands, files, what it survives"),
    ("fuzz", fuzz, "what fuzzing found worth keeping, fed to every parser of outside bytes"),
    ("e2e", e2e, "the real daemon, the real command line, the mock provider"),
    ("kubernetes-real", kubernetes_real, "the Kubernetes provider against a real kube-apiserver, where Go can build it"),
]


def main():
    parser = argparse.ArgumentParser(prog="tests/run.sh")
    parser.add_argument("suite", nargs="*", help="suites to run (default: all); e2e:WORD runs the e2e tests whose name holds WORD")
    parser.add_argument("--list", action="store_true", help="list the suites and stop")
    parser.add_argument("--preset", default="release", choices=sorted(PATIENCE))
    parser.add_argument("--full", action="store_true", help="the long matrices too")
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "redis"], help="where the daemons of e2e keep their state")
    parser.add_argument("--target", default="mock", choices=["mock", "kubernetes"], help="what the daemons of e2e make sessions with")
    parser.add_argument("-j", dest="jobs", type=int, default=3, help="end-to-end tests at once")
    args = parser.parse_args()
    if args.list:
        for name, _, sentence in SUITES:
            print(f"{name:16} {sentence}")
        return 0

    known = {name: function for name, function, _ in SUITES}
    wanted = args.suite or [name for name, _, _ in SUITES]
    for word in wanted:
        if word.split(":")[0] not in known:
            print(f"run.sh: no suite '{word}'; there are {', '.join(known)}", file=sys.stderr)
            return 2

    class Context:
        build = ROOT / "build" / args.preset
        env = dict(os.environ, **SANITIZER_ENV, BERTH_BUILD=str(ROOT / "build" / args.preset), BERTH_PATIENCE=PATIENCE[args.preset],
                   BERTH_PRESET=args.preset, BERTH_STORE=args.store, BERTH_TARGET=args.target)
        full = args.full
        jobs = args.jobs
        tally = Tally()

    for word in wanted:
        name, _, pattern = word.partition(":")
        print(f"== {word}", flush=True)
        if pattern:
            known[name](Context, [pattern])
        else:
            known[name](Context)
    tally = Context.tally
    for name in tally.failures:
        print(f"failed: {name}")
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    print(f"{tally.passed} passed, {tally.failed} failed{skipped}")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
