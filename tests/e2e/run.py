#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end tests: every function test_* of the modules beside this file.

A test takes one argument, a function that makes a Berth (harness.py); what it made is closed for it. Exits 1 on a failure and
ends with "N passed, N failed, N skipped".
"""

import argparse
import faulthandler
import importlib
import pathlib
import queue
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402
import pod_target  # noqa: E402
import redis_server  # noqa: E402


def collect(patterns):
    tests = []
    for path in sorted(pathlib.Path(__file__).resolve().parent.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        for name, function in vars(module).items():
            full = f"{path.stem[5:]}.{name[5:]}"
            if name.startswith("test_") and callable(function) and (
                    not patterns or any(p in full for p in patterns)):
                tests.append((full, function, getattr(module, "ALONE", False)))
    return tests


def judge(name, function, make):
    """What the test says of itself."""
    try:
        if harness.TARGET != "mock" and pod_target.why_not(name):
            raise harness.Skipped(pod_target.why_not(name))
        if harness.STORE != "sqlite" and hasattr(function, "only_sqlite"):
            raise harness.Skipped(function.only_sqlite)
        function(make)
        return "ok", ""
    except harness.Skipped as skip:
        return "skip", str(skip)
    except BaseException:  # noqa: B902 - whatever it is, the test has failed
        return "FAIL", traceback.format_exc()


def end(berth, keep):
    """Closes it; returns what it leaves that no test may."""
    try:
        fault = berth.fault()
        berth.close(keep=keep(fault))
        return fault
    except BaseException:  # noqa: B902 - likewise
        return traceback.format_exc()


def run_one(name, function, keep):
    made = []

    def make(**kw):
        berth = harness.Berth(name=name.split(".")[1][:24], **kw)
        made.append(berth)
        return berth

    start = time.monotonic()
    outcome, text = judge(name, function, make)
    if outcome == "FAIL":
        text += "".join(f"\n--- log of {berth.dir} ---\n" + "\n".join(berth.log().splitlines()[-40:]) for berth in made)
    for berth in made:
        fault = end(berth, lambda fault: keep and (fault or outcome == "FAIL"))
        if fault:
            outcome, text = "FAIL", text + "\n" + fault
    return outcome, text, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("patterns", nargs="*", help="run only tests whose name holds one of these")
    parser.add_argument("-j", type=int, default=3, help="tests at once")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--full", action="store_true", help="the long matrices too")
    parser.add_argument("--target", choices=["mock", "kubernetes"], default=harness.TARGET, help="what the daemons make sessions with")
    parser.add_argument("--keep", action="store_true", help="keep the files of failed tests")
    args = parser.parse_args()
    harness.FULL, harness.TARGET = args.full, args.target
    tests = collect(args.patterns)
    if args.list:
        for name, *_ in tests:
            print(name)
        return 0
    if harness.STORE == "redis":
        harness.REDIS = redis_server.RedisServer().start()
    try:
        return run_all(tests, args)
    finally:
        pod_target.close_all()
        if harness.REDIS:
            harness.REDIS.close()


def run_all(tests, args):
    faulthandler.register(signal.SIGTERM, chain=True)  # the runner of suites gives up: where every test stands
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    lock = threading.Lock()

    def report(name, outcome, text, seconds):
        with lock:
            counts[outcome] += 1
            print(f"{outcome:4} {name} ({seconds:.1f} s){': ' + text if outcome == 'skip' else ''}", flush=True)
            if outcome == "FAIL":
                print(text, flush=True)

    def work(todo):
        while True:
            try:
                name, function = todo.get_nowait()
            except queue.Empty:
                return
            report(name, *run_one(name, function, args.keep))

    for alone in (False, True):
        todo = queue.Queue()
        for name, function, is_alone in tests:
            if is_alone == alone:
                todo.put((name, function))
        threads = [threading.Thread(target=work, args=(todo,)) for _ in range(1 if alone else args.j)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts["FAIL"] += len(tests) - sum(counts.values())  # those of which nothing was heard
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] or not sum(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
