# SPDX-License-Identifier: Apache-2.0
"""What the checks of the tree share: one line per fault, exit 1 when there is one; --self-test plants some."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main(check, self_test):
    """check(root) gives (file, line, text) of each fault; self_test(root) lines of what went wrong."""
    if sys.argv[1:] == ["--self-test"]:
        lines = self_test(ROOT)
    else:
        lines = [f"{name}:{line}: {text}" for name, line, text in check(ROOT)]
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0
