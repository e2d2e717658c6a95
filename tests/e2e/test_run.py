# SPDX-License-Identifier: Apache-2.0
"""The runners themselves, run.py and suites.py: whatever a test does is counted. What does not begin with test_ is what they are given."""

import os
import pathlib
import subprocess
import sys
import threading
import types

import run
from harness import ROOT, check, equal


def passes(make):
    make()


def raises_in_close(make):
    berth = make()
    close = berth.close

    def closing(**kw):
        close(**kw)
        raise OSError("in close")
    berth.close = closing


def raises_more_than_an_exception(make):
    raise SystemExit(0)


def has_a_crash_in_its_log(make):
    make().log_path.write_text("berthd: crash: SIGSEGV at address 0x0\n")


def has_a_daemon_that_ended(make):
    berth = make()
    berth.proc = subprocess.Popen(["false"], stdout=subprocess.DEVNULL)
    berth.proc.wait()


def kills_a_daemon_that_had_ended(make):
    berth = make()
    berth.proc = subprocess.Popen(["false"], stdout=subprocess.DEVNULL)
    berth.proc.wait()
    berth.kill9()


def hangs(make):
    threading.Event().wait()


BAD = (raises_in_close, raises_more_than_an_exception, has_a_crash_in_its_log, has_a_daemon_that_ended, kills_a_daemon_that_had_ended)


def run_these(*names):
    """For a process of its own, whose output is looked at."""
    tests = [(f"these.{name}", globals()[name], name == "raises_in_close") for name in names]
    return run.run_all(tests, types.SimpleNamespace(j=2, keep=False))


def tally(suite, root):
    """Likewise: what the runner of suites counts where root is the project, and its build."""
    sys.path.insert(0, str(ROOT / "tests"))
    import suites
    suites.ROOT, suites.SILENCE_S, suites.LAST_WORDS_S = pathlib.Path(root), 15, 5
    env = dict(os.environ, BERTH_PRESET="release", BERTH_PATIENCE="1")
    context = types.SimpleNamespace(build=suites.ROOT, env=env, full=False, jobs=2, tally=suites.Tally())
    suites.unit(context) if suite == "unit" else suites.drive(context, suite)
    print(context.tally.passed, context.tally.failed, context.tally.skipped, *context.tally.failures)


def python(text):
    """The same imports as here, and those words."""
    text = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); import test_run; {text}"
    return [sys.executable, "-c", text]


def output_of(text):
    done = subprocess.run(python(text), capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout.splitlines()


def ran(*functions):
    return output_of(f"sys.exit(test_run.run_these(*{[function.__name__ for function in functions]!r}))")


def tallied(make, suite, name, text):
    """The last line, and all, of a suite that has one program."""
    program = make().dir / "tests" / suite / name
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    lines = output_of(f"test_run.tally({suite!r}, {str(program.parents[2])!r})")[1]
    return lines[-1], lines


def test_every_test_is_counted(make):
    code, lines = ran(passes, *BAD, passes)
    equal((code, lines[-1]), (1, f"2 passed, {len(BAD)} failed, 0 skipped"), lines)
    for function in BAD:
        check(any(line.startswith(f"FAIL these.{function.__name__} ") for line in lines), function.__name__, lines)


def test_all_well_is_no_failure(make):
    equal(ran(passes, passes)[0], 0)


def test_a_suite_that_fails_without_a_number_has_failed(make):
    said = "print('2 passed, 0 failed, 0 skipped'); "
    equal(tallied(make, "good", "run.py", said)[0], "2 0 0")
    equal(tallied(make, "bad", "run.py", said + "exit(1)")[0], "2 1 0 bad")
    equal(tallied(make, "none", "run.py", "print('0 passed, 0 failed, 0 skipped'); exit(1)")[0], "0 1 0 none")


def test_a_suite_that_hangs_is_ended_and_says_where(make):
    last, lines = tallied(make, "hung", "run.py", python("test_run.run_these('passes', 'hangs')")[2])
    equal(last, "0 1 0 hung (ended early)", lines)
    check(any(line.endswith(" in hangs") for line in lines), "where it stood:", lines)


def test_a_unit_program_that_ends_before_its_plan_has_failed(make):
    def unit(text):
        return tallied(make, "unit", "unit_some", f"#!/bin/sh\nprintf '{text}'\n")
    equal(unit("1..2\\nok 1 - a\\nok 2 - b\\n")[0], "2 0 0")
    equal(unit("1..3\\nok 1 - a\\n")[0], "1 2 0 unit_some")
    equal(unit("1..2\\nok 1 - a\\n1..2\\nok 1 - c\\nnot ok 2 - d\\n")[0], "2 2 0 unit_some")
    last, lines = unit("1..2\\nok 1 - a\\nok 2 - b # SKIP no network\\n")
    equal(last, "1 0 1")
    check("ok 2 - b # SKIP no network" in lines, "what was skipped is told:", lines)
