#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds imports of the tests whose name nothing in the file reads.

What a file imports for others says so on the line: noqa: F401. Prints file:line of each and exits 1. With --self-test it
must find what is planted, and nothing in what is read.
"""
import ast
import pathlib
import sys
import tempfile

import checker


def unread(source):
    """(line, name) of each."""
    tree, lines = ast.parse(source), source.splitlines()
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or "F401" in "".join(lines[node.lineno - 1:node.end_lineno]):
            continue
        for alias in node.names:
            name = (alias.asname or alias.name).split(".")[0]
            if name not in read:
                yield node.lineno, name


def check(root):
    return [(path.relative_to(root).as_posix(), line, f"{name} is imported and not read")
            for path in sorted((root / "tests").rglob("*.py")) for line, name in unread(path.read_text())]


# A file's text, and the line of the fault or None.
PLANTED = [
    ("import os\nimport sys\nsys.exit()\n", 1),
    ("import os.path\n", 1),
    ("from os import (\n    path,\n    sep)\nprint(path)\n", 1),
    ("import os as o\nos = 1\nprint(os)\n", 1),
    ("def f():\n    import os\n", 2),
    ("import os  # noqa: F401 - for others\n", None),
    ("import os.path\nprint(os.sep)\n", None),
    ("from os import path as p\n\n\ndef f(x):\n    return p.join(x)\n", None),
]


def self_test(_root):
    bad = []
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        (folder / "tests").mkdir()
        for text, line in PLANTED:
            (folder / "tests" / "zz.py").write_text(text)
            found = [fault[:2] for fault in check(folder)]
            if found != ([("tests/zz.py", line)] if line else []):
                bad.append(f"self-test: {text!r}: wanted line {line}, found {found}")
    return bad


if __name__ == "__main__":
    sys.exit(checker.main(check, self_test))
