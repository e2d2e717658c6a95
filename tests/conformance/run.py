#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance kit over the mock provider, over the HTTP provider of tests/httpprov, and over copies of both with planted bugs.

  run.py --build DIR [--preset NAME] [--full] [-j N] [--record] [word…]

expected.txt says which rules each bug must be reported by, no more and no fewer. --record prints that file as it is seen now, for
review by hand. Ends with "N passed, N failed, N skipped".
"""

import argparse
import concurrent.futures
import contextlib
import faulthandler
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import document

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXPECTED = HERE / "expected.txt"
PATIENCE = {"asan": "4", "tsan": "5"}
COMPLAINTS = re.compile(r"a plugin (changed the process|broke a rule)|AddressSanitizer|ThreadSanitizer|LeakSanitizer|runtime error:")


LIMITED = "64MiB"  # of the sessions that run out of memory


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


def must(condition, text):
    if not condition:
        raise Failure(text)


class Kit:
    def __init__(self, args):
        self.args = args
        self.build = pathlib.Path(args.build).resolve()
        self.program = self.build / "bin" / "berth-conformance"
        self.mock = self.build / "lib/berth/plugins/mock.so"
        self.httpprov = self.build / "tests/httpprov/httpprov.so"
        self.bugs = self.build / "tests/conformance"
        self.sanitized = args.preset in PATIENCE
        self.patience = PATIENCE.get(args.preset, "1")
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of small files
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="berth-conformance-", dir=base))

    def write_config(self, provider, settings):
        lines = "".join(f'{key} = "{value}"; ' for key, value in settings.items())
        path = self.work / f"{provider}-{abs(hash(lines)) % 10000}.conf"
        path.write_text(f'provider = "{provider}";\nname = "{provider}";\nconfig : {{ {lines}}};\n')
        return path

    def config(self, provider, **settings):
        return self.write_config(provider, {"kill_grace": "200ms", **settings})

    @contextlib.contextmanager
    def server(self, provider, *more):
        """A test server of its own, and a target that uses it."""
        home = pathlib.Path(tempfile.mkdtemp(prefix="server-", dir=self.work))
        token, port = home / "token", home / "port"
        token.write_text(secrets.token_hex(24) + "\n")
        token.chmod(0o600)
        program = self.build / "tests/httpprov/httpprov-server"
        with open(home / "log", "wb") as log:
            process = subprocess.Popen([str(program), "--root", str(home / "root"), "--helpers", str(self.build / "bin"), "--token-file",
                                        str(token), "--port-file", str(port), "--kill-grace", "200ms", *more],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not port.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            must(port.exists(), f"the server does not listen:\n{(home / 'log').read_text()}")
            yield self.write_config(provider, {"base_url": f"http://127.0.0.1:{port.read_text().strip()}", "token": f"file:{token}"})
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        text = (home / "log").read_text()
        must(code == 0 and not COMPLAINTS.search(text), f"the server ended with {code}:\n{text[-3000:]}")

    def command(self, plugin, config, *more):
        return [str(self.program), str(plugin), "--config", str(config), "--patience", self.patience, "--gone", "2", *map(str, more)]

    def run(self, plugin, config, *more, limit=400):
        """Exit code, results by rule, standard output, standard error."""
        env = dict(os.environ, TMPDIR=str(self.work))
        done = subprocess.run(self.command(plugin, config, *more), capture_output=True, text=True, errors="replace", env=env,
                              timeout=limit, stdin=subprocess.DEVNULL)
        return done.returncode, results_of(done.stdout), done.stdout, done.stderr

    def rules(self):
        out = subprocess.run([str(self.program), "--list"], capture_output=True, text=True, check=True).stdout
        return {row[0]: (set() if row[1] == "-" else set(row[1].split(", ")), row[2])
                for row in (line.split("\t") for line in out.splitlines())}


def results_of(tap):
    """Rule to ("ok", "not ok" or "skip", reason)."""
    lines = re.findall(r"^(not ok|ok) \d+ - (\S+)( # SKIP (.*))?$", tap, re.M)
    return {rule: ("skip" if skip else word, reason) for word, rule, skip, reason in lines}


def failed(results):
    return sorted(rule for rule, (word, _) in results.items() if word == "not ok")


def must_be_quiet(err):
    lines = [line for line in err.splitlines() if COMPLAINTS.search(line)]
    must(not lines, "\n".join(lines[:5]))


def test_mock_process(kit):
    """Every rule; none is skipped but those that need HTTP or a memory limit."""
    summary = kit.work / "summary.md"
    code, results, out, err = kit.run(kit.mock, kit.config("mock"), "--summary", summary,
                                      *(["--stress"] if kit.args.full and not kit.sanitized else []), limit=1500)
    must(code == 0 and not failed(results), out)
    must(len(results) == len(kit.rules()), f"{len(results)} results for {len(kit.rules())} rules")
    skipped = {rule for rule, (word, _) in results.items() if word == "skip"}
    must(skipped == {rule for rule, (needs, _) in kit.rules().items() if "HTTP" in needs} | {"endings.oom"}, f"skipped: {skipped}\n{out}")
    must(all("HTTP" in results[rule][1] or "memory limit" in results[rule][1] for rule in skipped), out)
    must_be_quiet(err)
    text = summary.read_text()
    must(all(part in text for part in ("| plugin | mock |", "| version |", "| build |", "| date |",
                                       f"{len(results) - len(skipped)} passed, 0 failed")), text)


def test_httpprov(kit):
    """Every rule, those about lost answers too."""
    with kit.server("httpprov") as config:
        code, results, out, err = kit.run(kit.httpprov, config, *(["--stress"] if kit.args.full and not kit.sanitized else []), limit=2400)
    must(code == 0 and not failed(results) and len(results) == len(kit.rules()), out)
    must({rule for rule, (word, _) in results.items() if word == "skip"} == {"endings.oom"}, out)
    must_be_quiet(err)


def must_limit(code, out):
    """A target with a memory limit is refused where there is no control group to hold it."""
    if code == 3 and ("control group" in out or "cannot hold it" in out):
        raise Skipped(out.strip().splitlines()[0])


def test_mock_memory(kit):
    code, results, out, _ = kit.run(kit.mock, kit.config("mock", memory_max=LIMITED), "--rule", "endings")
    must_limit(code, out)
    must(code == 0 and results["endings.oom"][0] == "ok", out)


def test_mock_null(kit):
    """What needs commands, files or an undeclared capability is skipped by name; all else passes."""
    code, results, out, err = kit.run(kit.mock, kit.config("mock", runtime="null"), "--without", "commands", "--without", "files")
    must(code == 0, out)
    lacking = {"REATTACH", "SIGNAL", "BULK", "CHANGES", "commands", "files", "HTTP"}
    for rule, (needs, _) in kit.rules().items():
        word, reason = results[rule]
        must(word == ("skip" if needs & lacking else "ok"), f"{rule}, which needs {needs}: {word}")
        must(word != "skip" or any(part in reason for part in needs), f"{rule}: skipped because of {reason}")
    for family in ("lifecycle", "idempotence", "races"):
        must(any(rule.startswith(family) and word == "ok" for rule, (word, _) in results.items()), family)
    must_be_quiet(err)


def test_json(kit):
    code, _, out, _ = kit.run(kit.mock, kit.config("mock"), "--json", "--rule", "honesty", "--rule", "lifecycle.warm")
    doc = json.loads(out)
    must(code == 0 and doc["plugin"] == "mock" and doc["failed"] == 0 and doc["passed"] == len(doc["rules"]), out)
    must({row["rule"].split(".")[0] for row in doc["rules"]} == {"honesty", "lifecycle"} and doc["build_id"] and doc["date"], out)


def test_usage(kit):
    """Exit codes: 2 wrong usage, 3 a plugin or target that is refused."""
    config = kit.config("mock")
    must(kit.run(kit.mock, config, "--rule", "none.such")[0] == 2, "an unknown rule")
    for arguments, named in (((), "plugin.so is missing"), ((kit.mock,), "--config is missing"), ((kit.mock, "--bogus"), "--bogus"),
                             ((kit.mock, kit.mock, "--config", config), "one too many"), (("--patience", "0"), "--patience"),
                             (("--gone", ""), "--gone"), (("--without", "sense"), "commands or files")):
        done = subprocess.run([str(kit.program), *map(str, arguments)], capture_output=True, text=True)
        must(done.returncode == 2 and not done.stdout and named in done.stderr and done.stderr.count("\n") <= 2, f"{arguments}: {done}")
    done = subprocess.run([str(kit.program), "--help"], capture_output=True, text=True)
    must(done.returncode == 0 and "--config FILE" in done.stdout and not done.stderr, f"--help: {done}")
    code, _, out, _ = kit.run(kit.work / "none.so", config)
    must(code == 3 and out.startswith("Bail out!") and "none.so" in out, f"a missing plugin: {code} {out}")
    code, _, out, _ = kit.run(kit.mock, kit.config("mock", no_such_option="1"))
    must(code == 3 and "no_such_option" in out, f"an unknown option: {code} {out}")
    code, _, out, _ = kit.run(kit.bugs / "none.so", config)
    must(code == 3 and "mock" in out, f"a target of another provider: {code} {out}")


def test_helper(kit):
    """Without berth-supervise nothing is begun, and the answer says what to do; an installation has it elsewhere than a build."""
    config, home = kit.config("mock"), kit.work / "helper"
    (home / "bin").mkdir(parents=True)
    code, _, out, _ = kit.run(kit.mock, config, "--helpers", home, "--rule", "endings.exit")
    must(code == 3 and str(home) in out and "--helpers" in out and "ok" not in out.split(), f"exit {code}: {out}")
    code, _, out, _ = kit.run(kit.mock, kit.config("mock", runtime="null"), "--helpers", home, "--rule", "lifecycle.created",
                              "--without", "commands", "--without", "files")
    must(code == 0, out)
    program = shutil.copy(kit.program, home / "bin")
    command = [program, *kit.command(kit.mock, config, "--rule", "endings.exit")[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    must(done.returncode == 3 and "berth-supervise" in done.stdout, f"copied alone: {done}")
    (home / "lib/berth/helpers").mkdir(parents=True)
    shutil.copy(kit.build / "bin/berth-supervise", home / "lib/berth/helpers")
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    must(done.returncode == 0, f"installed: {done}")


def leave_by_kill(kit, plugin, config, state, sessions):
    process = subprocess.Popen(kit.command(plugin, config, "--state", state, "--rule", "endings"), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (sessions.is_dir() and any(sessions.iterdir())) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    must(any(sessions.iterdir()), "the killed run left no session")


def test_clean_after_kill(kit):
    """A killed run leaves sessions; the next run removes them, also when the first page of list shows none."""
    for plugin in (kit.mock, kit.bugs / "list-empty-page.so"):
        state = kit.work / f"state-{plugin.stem}"
        state.mkdir(mode=0o700)
        config = kit.config(plugin.stem, ready_delay="1ms")
        sessions = state / f"targets/{plugin.stem}/sessions"
        leave_by_kill(kit, plugin, config, state, sessions)
        code, _, out, _ = kit.run(plugin, config, "--state", state, "--rule", "lifecycle")
        must(code == 0, out)
        must(not any(sessions.iterdir()), f"{plugin.stem}: a session is left")


def test_clean_at_end(kit):
    """Sessions that no rule knows of are removed when a run ends."""
    state = kit.work / "state-end"
    state.mkdir(mode=0o700)
    code, _, out, err = kit.run(kit.bugs / "create-twice.so", kit.config("create-twice"), "--state", state, "--rule", "lifecycle.created")
    must(code == 1, out)
    left = list((state / "targets/create-twice/sessions").iterdir())
    must(not left, f"{len(left)} sessions are left\n{err}")


def test_mapped_leak(kit):
    """Alone, the rule has a C library that still maps large pieces by themselves; after the other rules it may not any more."""
    if kit.sanitized:
        raise Skipped("the sanitizer ends the program at a leak")
    code, results, out, _ = kit.run(kit.bugs / "mapped-leak.so", kit.config("mapped-leak"), "--rule", "leaks.memory")
    must(code == 1 and results["leaks.memory"][0] == "not ok", out)


def test_files_deaf(kit):
    """Every operation on many files is tried both ways, and named. An import hears the host's deadline by its source."""
    code, _, out, _ = kit.run(kit.bugs / "files-deaf.so", kit.config("files-deaf"), "--rule", "deadlines.files")
    named = re.findall(r"(\w+) goes on for \d+ ms after (a STOP|its deadline)", out)
    wanted = [(word, way) for word in ("file_list", "file_remove") for way in ("its deadline", "a STOP")] + [("import_tar", "a STOP")]
    must(code == 1 and named == wanted, out)


def test_documented(kit):
    """docs/writing-a-provider.md lists the rules as --list does."""
    text = (ROOT / "docs/writing-a-provider.md").read_text()
    rows = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| ([^|]*) \| ([^|]*) \|$", text, re.M)
    rules = kit.rules()
    must([row[0] for row in rows] == list(rules), f"documented: {sorted(set(rules) ^ {row[0] for row in rows})}")
    for name, needs, sentence in rows:
        wanted = rules[name]
        must(sentence.strip() == wanted[1], f"{name}: {sentence}")
        must(set(filter(None, needs.strip().strip("-").split(", "))) == wanted[0], f"{name}: needs {needs}")


def test_document(kit):
    """Who follows docs/writing-a-provider.md has a plugin that is loaded and passes every rule about sessions."""
    code, out, err = document.walk(kit.build, kit.work / "document")
    must(code == 0, f"exit {code}\n{out[-3000:]}\n{err[-3000:]}")
    results = results_of(out)
    for rule, (needs, _) in kit.rules().items():
        must(results[rule][0] == ("skip" if needs else "ok"), f"{rule}, which needs {needs or 'nothing'}: {results[rule]}")
    must(re.search(r"^acme +acme +ok *$", out, re.M), f"acme was not loaded:\n{out[:3000]}")
    must_be_quiet(err)


def test_answers_by_name(kit):
    """A provider that cannot shut the internet out needs allow_internet, and the report names its answer as the contract does."""
    home = kit.work / "answers"
    home.mkdir(mode=0o700)
    before = "\tif (spec->isolation > BERTH_ISOLATION_NONE)\n"
    source = document.skeleton()
    must(source.count(before) == 1, "the skeleton has no such line")
    (home / "acme.c").write_text(source.replace(before, '\tif (!spec->internet_allowed)\n\t\treason = "internet";\n\telse ' + before.strip() + "\n"))
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT / 'sdk/include'}", "-fPIC", "-fvisibility=hidden", "-shared",
                    "-Wl,-z,nodelete", "-o", home / "acme.so", home / "acme.c"], check=True)
    page = (ROOT / "docs/writing-a-provider.md").read_text()
    least = re.search(r"^```\n(provider = .*?)^```$", page, re.S | re.M)[1].replace('"my"', '"acme"')
    rule = ("--rule", "lifecycle.created", "--without", "commands", "--without", "files")
    config = home / "target.conf"
    config.write_text(least)
    code, _, out, _ = kit.run(home / "acme.so", config, *rule)
    must(code == 1 and "INVALID (internet: " in out, f"exit {code}: {out}")
    config.write_text("allow_internet = true;\n" + least)
    code, _, out, _ = kit.run(home / "acme.so", config, *rule)
    must(code == 0, f"exit {code}: {out}")


def test_cmake_outside(kit):
    """berth_add_plugin is for the tree; elsewhere it says so, and where to look."""
    home = kit.work / "outside"
    home.mkdir()
    (home / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(outside LANGUAGES C)\n"
                                         f"include({ROOT / 'sdk/cmake/BerthPlugin.cmake'})\nberth_add_plugin(mine mine.c)\n")
    done = subprocess.run(["cmake", "-S", home, "-B", home / "build"], capture_output=True, text=True, timeout=120)
    must(done.returncode != 0 and "docs/writing-a-provider.md" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def expected():
    table = {}
    for line in EXPECTED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, rules = line.split(":", 1)
            table[name] = sorted(rules.split())
    return table


def run_kit(kit, name):
    plugin = kit.bugs / f"{name}.so"
    if name.startswith("http-"):
        with kit.server(name) as config:
            return kit.run(plugin, config)
    return kit.run(plugin, kit.config(name, **({"memory_max": LIMITED} if name.startswith("oom-") else {})))


def run_bug(kit, name):
    code, results, out, _ = run_kit(kit, name)
    must_limit(code, out)
    must(len(results) == len(kit.rules()), f"exit {code}:\n{out}")
    must(code == (1 if failed(results) else 0), f"exit {code} with {len(failed(results))} failures")
    return failed(results), out


def check_bug(kit, name):
    seen, out = run_bug(kit, name)
    wanted = expected()[name]
    must(seen == wanted, f"reported by {' '.join(seen) or 'no rule'}\nexpected {' '.join(wanted) or 'no rule'}\n{out}")


def tests(kit):
    for function in (test_httpprov, test_mock_process, test_mock_null, test_mock_memory, test_json, test_usage, test_helper, test_clean_after_kill, test_clean_at_end,
                     test_mapped_leak, test_files_deaf, test_documented, test_document, test_answers_by_name, test_cmake_outside):
        yield function.__name__[5:], lambda function=function: function(kit)
    built = {path.stem for path in kit.bugs.glob("*.so")}
    must(kit.sanitized or built == set(expected()), f"expected.txt and the built bugs differ: {sorted(built ^ set(expected()))}")
    for name in sorted(built):
        # Under a sanitizer a leak ends the program elsewhere, and time is short: the unmodified copies stand for all.
        if not kit.sanitized or name in ("none", "http-none"):
            yield f"bug {name}", lambda name=name: check_bug(kit, name)


def run_one(name, function):
    start = time.monotonic()
    try:
        function()
        return name, None, time.monotonic() - start
    except Failure as failure:
        return name, str(failure), time.monotonic() - start
    except Skipped as skipped:
        return name, skipped, time.monotonic() - start
    except subprocess.TimeoutExpired as expired:
        return name, f"timed out: {expired}", time.monotonic() - start


def record(kit, pool):
    words = kit.args.word
    names = sorted(path.stem for path in kit.bugs.glob("*.so") if not words or any(word in path.stem for word in words))
    for name, (seen, _) in zip(names, pool.map(lambda name: run_bug(kit, name), names)):
        print(f"{name}: {' '.join(seen)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("-j", dest="jobs", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("word", nargs="*")
    args = parser.parse_args()
    faulthandler.register(signal.SIGTERM, chain=True)  # the runner of suites gives up: where every test stands
    kit = Kit(args)
    passed = failures = skipped = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            if args.record:
                record(kit, pool)
                return 0
            chosen = [(name, function) for name, function in tests(kit) if not args.word or any(word in name for word in args.word)]
            for name, text, seconds in pool.map(lambda pair: run_one(*pair), chosen):
                left_out = isinstance(text, Skipped)
                print(f"{'skip' if left_out else 'FAIL' if text else 'ok  '} conformance {name} ({seconds:.1f} s)", flush=True)
                if text:
                    print(str(text)[-6000:], flush=True)
                passed += not text
                skipped += left_out
                failures += bool(text) and not left_out
    finally:
        shutil.rmtree(kit.work, ignore_errors=True)
    print(f"{passed} passed, {failures} failed, {skipped} skipped")
    return 1 if failures or not passed + skipped else 0


if __name__ == "__main__":
    sys.exit(main())
