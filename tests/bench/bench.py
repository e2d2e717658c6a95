#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benches: what Berth's figures have to be, one row each, and the driver that measures them.

One JSON line per figure; exit code 1 when one misses its goal. Both sides of a comparison run in turn in every round: `ours` and
`reference` are medians over the rounds, `ratio` is the median of the rounds' own ratios, which other load on the machine disturbs least.
Everything else goes to stderr.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

import cases
from soak import SECONDS as SOAK_SECONDS, WHOLE_S as SOAK_WHOLE_S

MIB = 1 << 20
SOAKED = SOAK_SECONDS / SOAK_WHOLE_S  # a shorter soak has to do its part
Row = collections.namedtuple("Row", "bench metric unit of goal case")


def at_least(limit):
    return ">=", limit


def at_most(limit):
    return "<=", limit


# bench, metric as its case names it, unit, what the goal is about ("ratio" to the reference or "ours"), goal, case.
# Cases give rates where more is better, so a ratio is ours / reference. Without a goal a row is there to be read beside the others.
ROWS = [
    Row("http", "health", "requests/s", "ratio", at_least(0.8), cases.http),
    Row("record", "record", "requests/s", "ratio", at_least(0.4), cases.record),
    Row("exec", "executions", "executions/s", "ratio", at_least(0.5), cases.executions),
    Row("exec", "commits_per_execution", "commits", "ours", at_most(2), cases.executions),
    Row("exec", "alone_p50", "ms", "ours", at_most(0.7), cases.executions),
    Row("exec", "alone_on_disk", "executions/s", "ratio", None, cases.executions),
    Row("exec-redis", "executions", "executions/s", "ratio", at_least(0.5), cases.exec_redis),
    Row("exec-redis", "round_trips", "round trips", "ours", at_most(8), cases.exec_redis),
    Row("recovery", "served", "s past owner_until", "ours", at_most(1), cases.recovery),
    Row("recovery", "continued", "s past the redelivery window", "ours", at_most(1), cases.recovery),
    Row("process", "commands", "commands/s", "ratio", at_least(0.5), cases.process),
    Row("files", "down", "MiB/s", "ratio", at_least(0.4), cases.files),
    Row("files", "up", "MiB/s", "ratio", at_least(0.7), cases.files),
    Row("files", "resident", "bytes", "ours", at_most(64 * MIB - 1), cases.files),
    Row("bindings", "resident_each", "bytes", "ours", at_most(1024), cases.bindings),
    Row("bindings", "lease_round", "ms", "ours", at_most(20), cases.bindings),
    Row("bindings", "sweep", "s", "ours", at_most(1), cases.bindings),
    Row("bindings", "ready", "s", "ours", at_most(2), cases.bindings),
    Row("long", "resident", "bytes", "ours", at_most(500 * MIB), cases.long),
    Row("long", "descriptors", "descriptors", "ours", at_most(19999), cases.long),
    Row("long", "began_p99", "ms", "ours", None, cases.long),
    Row("long", "added_p99", "ms", "ours", at_most(20), cases.long),
    Row("long", "short_p99", "ms", "ours", at_most(20), cases.long),
    Row("claim", "rate", "claims/s", "ours", at_least(500), cases.claim),
    Row("claim", "cpu", "ms of the daemon", "ours", None, cases.claim),
    Row("claim", "writes", "requests per claim", "ours", at_most(1), cases.claim),
    Row("claim", "reads", "requests per claim", "ours", at_most(2), cases.claim),
    Row("claim", "meanwhile", "pods made beside the claims", "ours", None, cases.claim),
    Row("claim", "refilled", "s until the pool is full again", "ours", None, cases.claim),
    Row("claim", "whole_cpu", "ms of the daemon until then", "ours", None, cases.claim),
    Row("claim", "server", "requests/s", "ours", at_least(5000), cases.claim),
    # The goals are the claim's, and so for a pool that is not filled again beside it, as nothing is beside the floor.
    Row("claim-real", "p50", "ms", "ours", at_most(30), cases.claim_real),
    Row("claim-real", "p99", "ms", "ours", at_most(150), cases.claim_real),
    Row("claim-real", "command_p50", "ms", "ours", None, cases.claim_real),
    Row("claim-real", "cpu", "ms of the daemon", "ours", None, cases.claim_real),
    Row("claim-real", "burst", "s for 300", "ours", at_most(3), cases.claim_real),
    Row("claim-real", "burst_commands", "s for 300", "ours", None, cases.claim_real),
    Row("claim-real", "burst_p99", "ms", "ours", None, cases.claim_real),
    Row("claim-real", "p50_refilled", "ms", "ours", None, cases.claim_real),
    Row("claim-real", "p99_refilled", "ms", "ours", None, cases.claim_real),
    Row("claim-real", "burst_refilled", "s for 300", "ours", None, cases.claim_real),
    Row("claim-real", "burst_warm", "of 300 that got a warm pod", "ours", None, cases.claim_real),
    Row("pod-exec", "added_p50", "ms", "ours", at_most(0.8), cases.pod_exec),
    Row("pod-exec", "p50", "ms", "ours", None, cases.pod_exec),
    Row("pod-exec", "spawn_echo", "commands/ms", "ratio", at_least(0.7), cases.pod_exec),
    Row("pod-exec", "spawn_look", "commands/ms", "ratio", at_least(0.7), cases.pod_exec),
    Row("pod-exec", "resident", "bytes", "ours", at_most(4 * MIB), cases.pod_exec),
    Row("soak", "executions", "executions", "ours", at_least(20000 * SOAKED), cases.soak),
    Row("soak", "kills", "kills", "ours", at_least(60 * SOAKED), cases.soak),
    Row("soak", "freezes", "freezes", "ours", at_least(20 * SOAKED), cases.soak),
    Row("soak", "redis_kills", "kills", "ours", at_least(5 * SOAKED), cases.soak),
    Row("soak", "lost", "executions", "ours", at_most(0), cases.soak),
    Row("soak", "twice", "executions", "ours", at_most(0), cases.soak),
    Row("soak", "illegal", "executions", "ours", at_most(0), cases.soak),
    Row("soak", "leaked", "sessions and processes", "ours", at_most(0), cases.soak),
    Row("soak", "crashed", "ends of a host by itself", "ours", at_most(0), cases.soak),
    Row("soak", "errors", "failures of the soak", "ours", at_most(0), cases.soak),
]
BY_NAME = ("soak", "claim", "claim-real")  # not part of everything: they take long, or need Go
ONCE = ("soak", "claim-real")  # one round
NAMES = list(dict.fromkeys(row.bench for row in ROWS))


def note(text):
    print(text, file=sys.stderr, flush=True)


def measure(case, name, options):
    """{metric: [(ours, reference or None), one per round]}"""
    figures = collections.defaultdict(list)
    with contextlib.ExitStack() as stack:
        one_round = case(options, stack)
        rounds = 1 if name in ONCE else options.rounds
        for number in range(rounds):
            found = one_round(number)
            note(f"{name} round {number + 1}/{rounds}: " + ", ".join(
                f"{metric} {ours:.5g}" + (f" against {ref:.5g}" if ref is not None else "")
                for metric, (ours, ref) in found.items()))
            for metric, pair in found.items():
                figures[metric].append(pair)
    return figures


def judge(row, pairs):
    ours = statistics.median(pair[0] for pair in pairs)
    reference = ratio = None
    if pairs[0][1] is not None:
        reference = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    return {"bench": row.bench, "metric": row.metric, "ours": rounded(ours), "reference": rounded(reference),
            "ratio": rounded(ratio), "unit": row.unit, "goal": told(row), "ok": reached(row, ours, ratio)}


def told(row):
    return row.goal and f"{row.of} {row.goal[0]} {row.goal[1]:g}"


def reached(row, ours, ratio):
    if row.goal is None:
        return True
    figure, (sign, limit) = round(ratio if row.of == "ratio" else ours, 2), row.goal
    return figure >= limit if sign == ">=" else figure <= limit


def rounded(value):
    return None if value is None else float(f"{value:.4g}") if abs(value) < 1e6 else round(value)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="benches to run: " + " ".join(NAMES))
    parser.add_argument("--list", action="store_true", help="name the benches and their goals")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each bench, at least 5 for a figure that counts")
    parser.add_argument("--seconds", type=int, default=5, help="length of one measurement")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for state and files, on the disk to measure")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no bench {unknown[0]!r}; there are {' '.join(NAMES)}")
    if options.rounds < 1 or options.seconds < 1 or not pathlib.Path(options.dir).is_dir():
        parser.error("--rounds and --seconds are numbers from 1 on, --dir is a folder")
    return options


def main():
    options = parse_arguments()
    if options.list:
        for row in ROWS:
            print(f"{row.bench:10} {row.metric:22} {told(row) or 'no goal'} ({row.unit})")
        return 0
    tempfile.tempdir = options.dir
    failed = 0
    for name in options.names or [name for name in NAMES if name not in BY_NAME]:
        rows = [row for row in ROWS if row.bench == name]
        figures = measure(rows[0].case, name, options)
        for row in rows:
            line = judge(row, figures[row.metric])
            failed += not line["ok"]
            print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
