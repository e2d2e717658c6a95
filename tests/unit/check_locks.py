#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds fields that are guarded by a lock and touched without it.

A header marks such fields: those of the struct from a comment that begins "Under <lock>" to the next comment that says
otherwise ("The owner's", "Constant", ...) or the struct's end. They may be touched between lock_take and lock_drop, after
lock_assert, in a function whose name ends in _locked, and in a static function that is only named where the lock is
held. What makes or frees the whole (ALONE) is alone with it.

It reads text, not meaning: one lock is expected per folder (LOCKS names the files with another). A race needs two threads
at the right moment to be seen; this needs neither. Prints file:line and exits 1; --self-test plants faults and must find each.
"""
import pathlib
import re
import shutil
import sys
import tempfile

import checker

# Header -> struct -> what a pointer to it is called.
GUARDED = {
    "host/execution/execution_private.h": {"run": ("run",), "executions": ("e",)},
    "host/session/session_private.h": {"sessions": ("s",), "job": ("job",)},
}
# Files of those folders with locks of their own.
LOCKS = {"host/execution/spool.c"}
# Nobody else has it yet, or any more.
ALONE = {"executions_new", "executions_destroy", "sessions_new", "sessions_destroy", "run_new"}
UNTIL = re.compile(r"/\* (The owner's|The job's own|Constant|One thread's)")


def blank(text):
    """Comments and literals become spaces of the same length."""
    keep = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep, text, flags=re.S)


def fields_of(text, struct):
    """Names of the struct's fields that stand under an "Under ... lock" comment."""
    body = re.search(rf"^struct {struct} \{{(.*?)^\}};", text, re.M | re.S)
    names, under = [], False
    for line in body.group(1).splitlines() if body else []:
        if re.match(r"\s*/\* Under ", line):
            under = True
        elif UNTIL.search(line):
            under = False
        elif under:
            code = blank(line).strip()
            declared = re.match(r"(?:const |struct |enum |unsigned |_Atomic )*\w+\s+(.+);", code)
            names += re.findall(r"(\w+)(?:\[[^\]]*\])*\s*(?:,|$)", declared.group(1).replace("*", " ")) if declared else []
    return names


def functions(code):
    """(name, static, first line of the body, start, end) of each function."""
    for match in re.finditer(r"^(?!\s|#|\})([^;{}()]*?)(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", code, re.M | re.S):
        yield match.group(2), "static" in match.group(1), match.start(4), match.end(4)


TOKEN = re.compile(r"lock_take\(|lock_assert\(|lock_drop\(|[{}]|\b(?:return|goto|break|continue)\b|[\w.>-]+")


def walk(body, held):
    """(offset, word, held) of each word; a block that leaves does not count for what follows it."""
    stack, leaves, loose = [], False, None
    for match in TOKEN.finditer(body):
        word = match.group(0)
        if word in ("lock_take(", "lock_assert("):
            held = True
        elif word == "lock_drop(":
            held, leaves = False, False
        elif word == "{":
            stack.append(held)
            leaves = False
        elif word == "}":
            before = stack.pop() if stack else held
            held = before if leaves else held
            leaves = False
        elif word in ("return", "goto", "break", "continue"):
            leaves = True
        yield match.start(), word, held


class File:
    def __init__(self, path, name, fields):
        self.name, self.code = name, blank(path.read_text())
        self.touch = re.compile("|".join(
            rf"(?:^|>|\b){receiver}->(?:{'|'.join(names)})\b" for receiver, names in fields))
        self.functions = [(n, static, self.code[a:b], a) for n, static, a, b in functions(self.code)]

    def contexts(self):
        """Functions that run with the lock held."""
        held = {n for n, static, _, _ in self.functions if n.endswith("_locked") or static}
        named_in_table = set(re.findall(r"\w+", self.outside()))
        while True:
            named, free = set(), set(named_in_table)
            for n, _, body, _ in self.functions:
                for _, word, is_held in walk(body, n in held):
                    last = re.split(r"[.>-]+", word)[-1]
                    named.add(last)
                    if not is_held:
                        free.add(last)
            keep = {n for n in held if n.endswith("_locked") or (n in named and n not in free)}
            if keep == held:
                return held
            held = keep

    def outside(self):
        """Text that is neither in a function nor a function's head: tables."""
        return re.sub(r"^(?!\s|#|\})([^;{}()]*?)(\w+)\(([^;{}]*)\)(\n\{\n.*?^\}|;)", "", self.code, flags=re.M | re.S)

    def faults(self):
        held = self.contexts()
        for n, _, body, at in self.functions:
            if n in ALONE:
                continue
            for offset, word, is_held in walk(body, n in held):
                address = re.search(r"(^|[^&])&$", body[:offset])  # handed to who takes the lock
                if not is_held and self.touch.search(word) and not address:
                    yield self.code.count("\n", 0, at + offset) + 1, f"{word} in {n}, without the lock"


def check(root):
    found = []
    for header, structs in GUARDED.items():
        text = (root / header).read_text()
        fields = [(r, fields_of(text, s)) for s, receivers in structs.items() for r in receivers]
        for receiver, names in fields:
            if not names:
                found.append((header, 1, f"no field of {receiver} is marked as guarded"))
        fields = [(r, names) for r, names in fields if names]
        for path in sorted((root / header).parent.glob("*.c")):
            name = path.relative_to(root).as_posix()
            if name not in LOCKS and fields:
                found += [(name, line, what) for line, what in File(path, name, fields).faults()]
    return found


# Text of a planted file, and the line of its fault or None.
PLANTED = [
    ("int f(struct run *run)\n{\n\treturn run->cancel;\n}\n", 3),
    ("int f(struct run *run)\n{\n\tlock_take(&run->e->lock);\n\tlock_drop(&run->e->lock);\n\treturn run->cancel;\n}\n", 5),
    ("int f(struct run *run)\n{\n\treturn g(run->e->detaching);\n}\n", 3),
    ("static int f(struct run *run)\n{\n\treturn run->lost[0];\n}\n\nint g(struct run *run)\n{\n\treturn f(run);\n}\n", 3),
    ("static int f(struct run *run)\n{\n\treturn run->lost[0];\n}\n\nstatic int (*const t[])(struct run *) = {f};\n", 3),
    ("int f(struct run *run)\n{\n\tint r;\n\n\tlock_take(&run->e->lock);\n\tif (run->cancel) {\n\t\tlock_drop(&run->e->lock);\n"
     "\t\treturn 1;\n\t}\n\tr = run->woken;\n\tlock_drop(&run->e->lock);\n\treturn r;\n}\n", None),
    ("int f_locked(struct run *run)\n{\n\treturn run->cancel;\n}\n", None),
    ("static int f(struct run *run)\n{\n\treturn run->lost[0];\n}\n\nint g(struct run *run)\n{\n\tlock_take(&run->e->lock);\n"
     "\tf(run);\n\tlock_drop(&run->e->lock);\n\treturn 0;\n}\n", None),
    ("int f(struct run *run)\n{\n\treturn run->started; /* run->cancel */\n}\n", None),
]


def self_test(root):
    bad = []
    with tempfile.TemporaryDirectory() as temp:
        copy = pathlib.Path(temp)
        for header in GUARDED:
            shutil.copytree((root / header).parent, (copy / header).parent)
        before = check(copy)
        for text, line in PLANTED:
            planted = copy / "host/execution/zz.c"
            planted.write_text(text)
            new = [fault[1] for fault in check(copy) if fault not in before]
            planted.unlink()
            if new != ([line] if line else []):
                bad.append(f"self-test: {text!r}: wanted line {line}, found {new}")
    return bad


if __name__ == "__main__":
    sys.exit(checker.main(check, self_test))
