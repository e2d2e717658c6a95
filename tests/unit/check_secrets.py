#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets are compared by secret_equal and by nothing else.

Looks through the C sources of host/, sdk/ and plugins/ for comparisons (memcmp, strcmp and their kin, CRYPTO_memcmp, ==, !=)
of identifiers that sound like a secret. Prints file:line of each and exits 1. What sounds like a secret and is none
stands in check_secrets.allow beside this file: path pattern, identifier, reason.

With --self-test it plants violations in a copy of the sources and must find each of them, and nothing in harmless look-alikes.
"""
import fnmatch
import pathlib
import re
import shutil
import sys
import tempfile

import checker

ROOTS = ("host", "sdk", "executor", "plugins")
HOME = "host/core/secret.c"
SOUNDS_SECRET = re.compile(r"secret|token(?!i|er)|passw|signature|credential|api_?key|bearer|hmac", re.I)
# Lengths, counts and moments of a secret are not the secret.
MEASURE = re.compile(r"(^|_)(len|length|size|count|max|min|cap|ms|ns|at|off|index|pos|state|type|kind|fd)$", re.I)
# a->b, a.b, a[i].b after the name a
MEMBER = re.compile(r"\s*(?:\[[^\]]*\]\s*)?(?:->|\.)\s*(\w+)")
# Members that hold what the struct around them is about.
CONTENTS = {"value", "bytes", "text", "data", "ptr", "str", "buf", "raw", "digest", "hash"}
CALL = re.compile(r"\b(memcmp|bcmp|strcmp|strncmp|strcasecmp|strncasecmp|strstr|strcoll|timingsafe_bcmp|CRYPTO_memcmp)\s*\(")
OPERATOR = re.compile(r"(?<![=!<>])[=!]=(?!=)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
CONSTANT = re.compile(r"^[\s(]*(NULL|true|false|[-+]?\d\w*|''|[A-Z][A-Z0-9_]*)[\s)]*$")


def blank(match):
    """Keeps line numbers: everything of a comment or literal goes, its newlines stay."""
    text = match.group(0)
    if text[0] in "\"'":
        return text[0] * 2
    return "\n" * text.count("\n") or " "


def without_comments_and_literals(source):
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def arguments(code, start):
    """The text between the parenthesis before start and the one that closes it."""
    depth = 1
    for pos in range(start, len(code)):
        depth += (code[pos] == "(") - (code[pos] == ")")
        if depth == 0:
            return code[start:pos]
    return code[start:]


def operand_left(code, end):
    """The expression before an operator, back to where its enclosing parenthesis or statement begins."""
    depth = 0
    start = end
    while start > 0:
        char = code[start - 1]
        depth += (char == ")") - (char == "(")
        if depth < 0:
            break
        if depth == 0 and (char in ";{},?:" or code[start - 2:start] in ("&&", "||")
                           or (char == "=" and code[start - 2:start - 1] not in "=!<>")):
            break
        start -= 1
    return code[start:end]


def operand_right(code, start):
    depth = 0
    end = start
    while end < len(code):
        char = code[end]
        depth += (char == "(") - (char == ")")
        if depth < 0 or (depth == 0 and (char in ";{},?:" or code[end:end + 2] in ("&&", "||"))):
            break
        end += 1
    return code[start:end]


def suspects(expression):
    """Identifiers in it that sound like a secret: not names of functions, constants or measures."""
    for match in IDENTIFIER.finditer(expression):
        name = match.group(0)
        called = expression[match.end():].lstrip().startswith("(")
        member = MEMBER.match(expression, match.end())
        if member and member.group(1) not in CONTENTS:
            continue # what is compared is the member; it is judged by its own name
        if SOUNDS_SECRET.search(name) and not called and not MEASURE.search(name) and not name.isupper():
            yield name


def last_call_result(expression):
    """True for `f(…)`: what is compared is a result, and the arguments were looked at on their own."""
    return bool(re.match(r"^\s*(?:return\b)?[\s!(]*[A-Za-z_][\w>.-]*\s*\(.*\)\s*$", expression, re.S))


def findings(code):
    """(offset, identifier, what compares it)"""
    for match in CALL.finditer(code):
        inside = arguments(code, match.end())
        names = list(suspects(inside))
        if match.group(1) in ("CRYPTO_memcmp", "timingsafe_bcmp"):
            names = names or [match.group(1)]
        for name in names:
            yield match.start(), name, match.group(1)
    for match in OPERATOR.finditer(code):
        left, right = operand_left(code, match.start()), operand_right(code, match.end())
        if CONSTANT.match(left) or CONSTANT.match(right):
            continue
        for side in (left, right):
            if not last_call_result(side):
                for name in suspects(side):
                    yield match.start(), name, match.group(0)


def read_allowed(path):
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(None, 2)
        if len(parts) < 3:
            sys.exit(f"{path}:{number}: needs a path pattern, an identifier and a reason")
        rows.append((parts[0], parts[1], number))
    return rows


def sources(root):
    for top in ROOTS:
        for path in sorted((root / top).rglob("*.[ch]")):
            name = path.relative_to(root).as_posix()
            if name != HOME:
                yield name, path


def check(root, allowed):
    """Lines to print; empty when all is well. Marks what was used in the list of the allowed."""
    found = set()
    used = set()
    for name, path in sources(root):
        code = without_comments_and_literals(path.read_text(errors="replace"))
        for offset, identifier, how in findings(code):
            rows = [row for row in allowed if fnmatch.fnmatch(name, row[0]) and row[1] == identifier]
            used.update(rows)
            if not rows:
                line = code.count("\n", 0, offset) + 1
                found.add((name, line, f"{how} on {identifier}; use secret_equal"))
    # A row for one file that no longer needs it must go, or it would hide the next comparison there.
    stale = [row for row in allowed if row not in used and "*" not in row[0] and (root / row[0]).exists()]
    return sorted(found) + [("tests/unit/check_secrets.allow", row[2], "is not needed any more") for row in stale]


PLANTED = {
    "memcmp(auth_token, given, n)": True,
    "strcmp(req->password, given)": True,
    "strncmp(given, cfg->api_key, 8)": True,
    "CRYPTO_memcmp(a, b, 32)": True,
    "!strcmp(secret_digest, given)": True,
    "a->signature == given": True,
    "memcmp(cfg->token.value, given, n)": True,
    "memcmp(tokens[i].digest, given, n)": True,
    "strcmp(row->secret, given)": True,
    "*token != *given": True,
    "memcmp(\n\t\tgiven,\n\t\tbearer, n)": True,
    "n == 3 && token[0] == given[0]": True,
    "secret_equal(token, given, n)": False,
    "token == NULL": False,
    "strcmp(token->workspace, given)": False,
    "strcmp(conf->tokens[i].name, given)": False,
    "!token || token[0] == '\\0'": False,
    "strcmp(name, \"token\") == 0": False,
    "secret->len == other->len": False,
    "json_tokener_get_error(tok) == code": False,
    "given == n /* the token */": False,
    "secret_load(token, given) != n": False,
}


def self_test(root, allowed):
    bad = []
    with tempfile.TemporaryDirectory() as temp:
        copy = pathlib.Path(temp)
        for top in ROOTS:
            shutil.copytree(root / top, copy / top)
        before = check(copy, allowed)
        for text, guilty in PLANTED.items():
            planted = copy / "host/core/planted.c"
            planted.write_text(f"int planted(void)\n{{\n\treturn {text};\n}}\n")
            new = [row for row in check(copy, allowed) if row not in before]
            if bool(new) != guilty or any(row[:2] != ("host/core/planted.c", 3) for row in new):
                bad.append(f"self-test: {text!r}: {'missed' if guilty else 'taken for a violation'}: {new}")
    return bad


if __name__ == "__main__":
    ALLOWED = read_allowed(pathlib.Path(__file__).resolve().parent / "check_secrets.allow")
    sys.exit(checker.main(lambda root: check(root, ALLOWED), lambda root: self_test(root, ALLOWED)))
