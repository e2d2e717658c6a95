#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the static checkers and holds their findings against suppressions.txt; see run.sh."""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TREES = ("host", "sdk", "executor", "plugins")
PLANTED = "tests/static/planted.c"
FINDING = re.compile(r"^(?P<path>[^:\s]+):(?P<line>\d+):(?:\d+:)? (?:error|warning|portability|performance): (?P<text>.*?) \[(?P<check>[^\[\]]+)\]$", re.M)


def run(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    return done.stdout + "\n" + done.stderr


def sources():
    return [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.c"))]


def compile_commands(name, *options):
    """What is run for each file, from a configured build folder; nothing is built."""
    build = ROOT / "build" / name
    done = subprocess.run(["cmake", "-S", str(ROOT), "--preset", "debug", "-B", str(build), *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"check.py: {done.stdout}{done.stderr}")
    known = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if any((ROOT / tree) in path.parents for tree in TREES):
            known.setdefault(path, entry)
    return build, known


def each(jobs, work, items):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return "\n".join(pool.map(work, items))


def cppcheck(jobs):
    # Headers of the system are not looked into: the library descriptions say more.
    return run(["cppcheck", "-q", f"-j{jobs}", "--enable=warning,portability,performance", "--std=c11", "--library=posix,gnu",
                "--suppress=missingIncludeSystem", "-D_GNU_SOURCE", "-D__x86_64__", '-DBERTH_VERSION="0"', "-Ihost", "-Isdk/include",
                "--template={file}:{line}:{column}: {severity}: {message} [{id}]", *TREES, PLANTED])


def clang_tidy(jobs):
    build, known = compile_commands("static-clang", "-DCMAKE_C_COMPILER=clang-14")
    output = each(jobs, lambda path: run(["clang-tidy-14", "-p", str(build), "--quiet", "--extra-arg=-DBERTH_ANALYZE", str(path)]), known)
    return output + run(["clang-tidy-14", "--quiet", PLANTED, "--"])


def analyzer(jobs):
    _, known = compile_commands("static-gcc")

    def one(entry):
        command = [word for word in shlex.split(entry["command"]) if word != "-Werror"]
        command[command.index("-o") + 1] = "/dev/null"
        return run([*command, "-DBERTH_ANALYZE", "-fanalyzer", "-O1", "-fdiagnostics-plain-output"])

    return each(jobs, one, known.values()) + run(["gcc", "-fanalyzer", "-fdiagnostics-plain-output", "-c", "-o", "/dev/null", PLANTED])


TOOLS = {"cppcheck": cppcheck, "clang-tidy": clang_tidy, "analyzer": analyzer}


def read_excuses():
    """tool | check | file | part of the message | why it is no defect"""
    excuses = []
    for number, line in enumerate((HERE / "suppressions.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 4)]
        if len(parts) != 5 or not parts[4] or parts[0] not in TOOLS:
            sys.exit(f"suppressions.txt:{number}: expected tool | check | file | part of the message | reason")
        excuses.append({"line": number, "tool": parts[0], "check": parts[1], "path": parts[2], "text": parts[3], "used": False})
    return excuses


def excused(excuses, tool, finding):
    for excuse in excuses:
        if (excuse["tool"] == tool and excuse["check"] == finding["check"] and excuse["text"] in finding["text"]
                and excuse["path"] in (finding["path"], "*")):
            excuse["used"] = True
            return True
    return False


def judge(tool, output, excuses):
    bad, planted = 0, False
    seen = set()
    for match in FINDING.finditer(output):
        finding = match.groupdict()
        finding["path"] = finding["path"].removeprefix(f"{ROOT}/")
        finding["check"] = finding["check"].split(",")[0].removeprefix("-W")
        finding["text"] = re.sub(r" \[CWE-\d+\]$", "", finding["text"])
        if finding["path"] == PLANTED:
            planted = True
            continue
        if not finding["path"].startswith(TREES) or tuple(finding.values()) in seen:
            continue
        seen.add(tuple(finding.values()))
        # The analyzer is run over what the compiler's own warnings have judged already.
        if tool == "analyzer" and not finding["check"].startswith("analyzer-"):
            continue
        if not excused(excuses, tool, finding):
            bad += 1
            print(f"{finding['path']}:{finding['line']}: {finding['text']} [{tool}: {finding['check']}]")
    if not planted:
        bad += 1
        print(f"{PLANTED}: {tool} does not report the planted defect\n{output[-2000:]}")
    for excuse in excuses:
        if excuse["tool"] == tool and not excuse["used"]:
            bad += 1
            print(f"tests/static/suppressions.txt:{excuse['line']}: excuses nothing any more")
    return bad


def main():
    parser = argparse.ArgumentParser(prog="tests/static/run.sh")
    parser.add_argument("tool", nargs="*", help="cppcheck, clang-tidy, analyzer")
    parser.add_argument("--full", action="store_true", help="all of them")
    parser.add_argument("-j", dest="jobs", type=int, default=2)
    args = parser.parse_args()
    for tool in args.tool:
        if tool not in TOOLS:
            parser.error(f"no tool '{tool}'; there are {', '.join(TOOLS)}")
    excuses, bad = read_excuses(), 0
    for tool in args.tool or (TOOLS if args.full else ["cppcheck"]):
        start = time.monotonic()
        found = judge(tool, TOOLS[tool](args.jobs), excuses)
        print(f"{'FAIL' if found else 'ok  '} {tool}: {found} findings ({time.monotonic() - start:.0f} s)", flush=True)
        bad += found
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
