#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of berth-executor: every function test_* of the modules beside this file.

  run.py [--build DIR] [--preset NAME] [--full] [-j N] [--keep] [--list] [word…]

A test takes one argument, a function that makes a running executor (client.py); what it made is closed for it. Ends with
"N passed, N failed, N skipped".
"""

import argparse
import concurrent.futures
import faulthandler
import importlib
import os
import pathlib
import signal
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def collect(words):
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        for name, function in vars(module).items():
            full = f"{path.stem[5:]}.{name[5:]}"
            if name.startswith("test_") and callable(function) and (not words or any(word in full for word in words)):
                yield full, function, getattr(module, "ALONE", False)


def run_one(client, name, function, keep):
    made = []

    def make(**settings):
        executor = client.Executor(name=name.split(".")[1][:24], **settings)
        made.append(executor)
        return executor

    start = time.monotonic()
    outcome, text = "ok", ""
    try:
        function(make)
    except client.Skipped as skip:
        outcome, text = "skip", str(skip)
    except Exception:
        outcome, text = "FAIL", traceback.format_exc()
    for executor in made:
        executor.close(keep=True)
        if executor.report():
            outcome, text = "FAIL", text + "\nsanitizer report:\n" + executor.report()
        executor.close(keep=keep and outcome == "FAIL")
    return outcome, text, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*", help="run only tests whose name holds one of these")
    parser.add_argument("--build", default=os.environ.get("BERTH_BUILD", "build/release"))
    parser.add_argument("--preset", default=os.environ.get("BERTH_PRESET", "release"))
    parser.add_argument("--full", action="store_true", help="long versions")
    parser.add_argument("--keep", action="store_true", help="keep the files of failed tests")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-j", type=int, default=2, help="tests at once")
    args = parser.parse_args()
    faulthandler.register(signal.SIGTERM, chain=True)  # the runner of suites gives up: where every test stands
    os.environ.update(BERTH_BUILD=args.build, BERTH_PRESET=args.preset, BERTH_FULL=str(int(args.full)))
    import client
    tests = list(collect(args.words))
    if args.list:
        print("\n".join(name for name, *_ in tests))
        return 0
    counts = {"ok": 0, "FAIL": 0, "skip": 0}

    def done(name, result):
        outcome, text, seconds = result
        counts[outcome] += 1
        print(f"{outcome:4} executor.{name} ({seconds:.1f} s){': ' + text if outcome == 'skip' else ''}", flush=True)
        if outcome == "FAIL":
            print(text, flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        jobs = {pool.submit(run_one, client, name, function, args.keep): name for name, function, alone in tests if not alone}
        for job in concurrent.futures.as_completed(jobs):
            done(jobs[job], job.result())
    for name, function, alone in tests:
        if alone:
            done(name, run_one(client, name, function, args.keep))
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] or not sum(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
