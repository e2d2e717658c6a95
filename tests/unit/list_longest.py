#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the longest functions and files of the C sources, and how lengths are spread.

  tests/unit/list_longest.py [--count N] [--layer core]
"""

import argparse
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"(\w+)\s*\(")


def functions(path):
    """Yields (name, first line, lines): in this style a body opens and closes with a brace in the first column."""
    lines = path.read_text(errors="replace").splitlines()
    head = None
    opened = None
    for number, line in enumerate(lines, 1):
        if opened is None and line[:1].isalpha() and "(" in line and not line.rstrip().endswith(";"):
            head = (NAME.search(line), number)
        if line == "{" and head and head[0]:
            opened = number
        elif line == "}" and opened:
            yield head[0][1], head[1], number - opened - 1
            head = opened = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10, help="how many of each are printed")
    parser.add_argument("--layer", default="", help="only files whose path holds this word")
    args = parser.parse_args()
    paths = [p for top in ("host", "sdk", "executor", "plugins") for p in sorted((ROOT / top).rglob("*.[ch]"))
             if args.layer in str(p.relative_to(ROOT))]
    files = sorted(((len(p.read_text(errors="replace").splitlines()), p.relative_to(ROOT)) for p in paths), reverse=True)
    found = sorted(((length, name, p.relative_to(ROOT), line) for p in paths if p.suffix == ".c"
                    for name, line, length in functions(p)), reverse=True)
    lengths = [length for length, *_ in found]
    if not lengths:
        print("no sources")
        return
    print(f"{len(files)} files, {sum(length for length, _ in files)} lines; {len(lengths)} functions, "
          f"median {statistics.median(lengths):g} lines, {100 * sum(n <= 45 for n in lengths) / len(lengths):.1f} % up to 45")
    print("\nLongest functions (lines of the body)")
    for length, name, path, line in found[:args.count]:
        print(f"{length:6}  {name}  {path}:{line}")
    print("\nLongest files")
    for length, path in files[:args.count]:
        print(f"{length:6}  {path}")


if __name__ == "__main__":
    main()
