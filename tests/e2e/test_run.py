# SPDX-License-Identifier: Apache-2.0
"""The runner itself (run.py): whatever a test does is counted. The functions that do not begin with test_ are what it is given."""

import pathlib
import subprocess
import sys
import types

import run
from harness import check, equal


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


BAD = (raises_in_close, raises_more_than_an_exception, has_a_crash_in_its_log, has_a_daemon_that_ended, kills_a_daemon_that_had_ended)


def run_these(*names):
    """For a process of its own, whose output is looked at."""
    tests = [(f"these.{name}", globals()[name], name == "raises_in_close") for name in names]
    return run.run_all(tests, types.SimpleNamespace(j=2, keep=False))


def ran(*functions):
    names = [function.__name__ for function in functions]
    text = f"import sys, test_run; sys.exit(test_run.run_these(*{names!r}))"
    done = subprocess.run([sys.executable, "-c", text], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout.splitlines()


def test_every_test_is_counted(make):
    code, lines = ran(passes, *BAD, passes)
    equal((code, lines[-1]), (1, f"2 passed, {len(BAD)} failed, 0 skipped"), lines)
    for function in BAD:
        check(any(line.startswith(f"FAIL these.{function.__name__} ") for line in lines), function.__name__, lines)


def test_all_well_is_no_failure(make):
    equal(ran(passes, passes)[0], 0)
