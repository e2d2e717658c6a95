#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources to the layers of the architecture.

Rules: a layer of host/ includes itself and lower ones only; ctl includes core, conf and net; sdk/, executor/ and plugins/ include nothing
of host/ (sdk/conformance may use its loader and call path); a library's header is included in its home layer only; a .c file that has a header of its name (or name_internal.h) includes it first.
Prints file:line of each violation and exits 1. With --self-test it plants violations in a copy and must find each of them.
"""
import pathlib
import re
import shutil
import sys
import tempfile

import checker

LAYERS = [{"core"}, {"conf", "obs", "net"}, {"plugin", "store", "blob"}, {"workspace"}, {"session"}, {"execution"}, {"api"}]
MAY_USE = {name: {name}.union(*LAYERS[:rank]) for rank, names in enumerate(LAYERS) for name in names}
MAY_USE["ctl"] = {"ctl", "core", "conf", "net"}
# Folders outside of host/ that may include layers of it, each with its reason.
EXCEPTIONS = {
    # The kit proves plugins by the host's own loader and call path; a second loader would prove something else.
    "sdk/conformance": {"core", "conf", "net", "plugin"},
}
# Start of a library's header: the layers that may know the library. berthd's own files may know all.
LIBRARY_HOMES = {
    "microhttpd": {"api"},
    "sqlite3": {"store"},
    "hiredis": {"store"},
    "libconfig": {"conf", "ctl"},
    "curl/": {"net", "ctl"},
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)


def blank_comments(source):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n") or " ", source, flags=re.S)


def includes(path):
    """(line, quoted, name) of each include, in order."""
    source = blank_comments(path.read_text(errors="replace"))
    return [(source.count("\n", 0, m.start()) + 1, m.group(1) == '"', m.group(2)) for m in INCLUDE.finditer(source)]


def layer_of(root, path):
    """The layer's name for a file below one, None for berthd's own files and those outside of host/."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "host" and len(parts) > 2 else None


def resolve(root, path, name):
    """The project's file an include means: beside the file, then the public headers, then host/."""
    for base in (path.parent, root / "sdk/include", root / "host"):
        target = (base / name).resolve()
        if target.is_file() and root.resolve() in target.parents:
            return target
    return None


def check_library(layer, name):
    for start, homes in LIBRARY_HOMES.items():
        if layer and name.startswith(start) and layer not in homes:
            return f"<{name}> is known to {' and '.join(sorted(homes))} only"
    return None


def check_include(root, path, name):
    layer = layer_of(root, path)
    target = resolve(root, path, name)
    if not target:
        return check_library(layer, name)
    target_layer = layer_of(root.resolve(), target)
    outside = path.relative_to(root).parts[0] != "host"
    if target_layer and outside:
        excepted = EXCEPTIONS.get(path.relative_to(root).parent.as_posix(), set())
        return None if target_layer in excepted else f"{name} belongs to the host"
    if target_layer and layer and target_layer not in MAY_USE.get(layer, {layer}):
        return f"{layer} may not include {target_layer}"
    return None


def own_header(root, path):
    """The header that a .c file must begin with, as a set of files; empty when it has none of its own."""
    candidates = [path.with_suffix(".h"), path.with_name(f"{path.stem}_internal.h"),
                  root / "sdk/include/berth" / f"{path.stem}.h"]
    return {c.resolve() for c in candidates if c.is_file()}


def check_own_header(root, path, found):
    own = own_header(root, path)
    first = resolve(root, path, found[0][2]) if found and found[0][1] else None
    line = found[0][0] if found else 1
    if own and first not in own:
        return line, f"includes its own header {sorted(own)[0].name} not first"
    return None


def check_file(root, path):
    found = includes(path)
    for line, _quoted, name in found:
        fault = check_include(root, path, name)
        if fault:
            yield line, fault
    if path.suffix == ".c":
        fault = check_own_header(root, path, found)
        if fault:
            yield fault


def check(root):
    faults = []
    for top in ("host", "sdk", "executor", "plugins"):
        for path in sorted((root / top).rglob("*.[ch]")):
            name = path.relative_to(root).as_posix()
            faults += [(name, line, text) for line, text in check_file(root, path)]
    for path in sorted((root / "host").iterdir()):
        if path.is_dir() and path.name not in MAY_USE:
            faults.append((path.relative_to(root).as_posix(), 1, "is a directory of no layer"))
    return faults


# File to plant, its text, line of the fault or None for a text that is fine.
PLANTED = [
    ("host/core/zz.c", '#include "core/zz.h"\n#include "conf/zz.h"\n', 2),
    ("host/conf/zz.c", '#include "conf/zz.h"\n#include "obs/zz.h"\n', 2),
    ("host/plugin/zz.c", '#include "plugin/zz.h"\n\n# include "session/zz.h"\n', 3),
    ("host/session/zz.c", '#include "session/zz.h"\n#include "../api/zz.h"\n', 2),
    ("host/session/zz.c", '#include "session/zz.h"\n#include <microhttpd.h>\n', 2),
    ("host/execution/zz.c", '#include "execution/zz.h"\n#include "api/zz.h"\n', 2),
    ("host/ctl/zz.c", '#include "ctl/zz.h"\n#include "store/zz.h"\n', 2),
    ("host/core/zz.c", '#include <stdio.h>\n\n#include "core/zz.h"\n', 1),
    ("plugins/zz/zz.c", '#include <stdio.h>\n', 1),
    ("plugins/zz/other.c", '#include "core/err.h"\n', 1),
    ("plugins/zz/other.c", '#include "../../host/core/err.h"\n', 1),
    ("sdk/lib/zz.c", '/* two\nlines */\n#include "core/err.h"\n', 3),
    ("sdk/conformance/zz.c", '#include "plugin/zz.h"\n#include "session/zz.h"\n', 2),
    ("host/session/zz.c", '/* #include "api/zz.h" */\n#include "session/zz.h"\n#include "store/zz.h"\n', None),
    ("host/api/zz.c", '#include "api/zz.h"\n#include <microhttpd.h>\n#include "session/zz.h"\n', None),
    ("host/ctl/zz.c", '#include "ctl/zz.h"\n#include "net/zz.h"\n', None),
    ("plugins/zz/zz.c", '#include "zz.h"\n#include <curl/curl.h>\n', None),
]


def self_test(root):
    bad = []
    with tempfile.TemporaryDirectory() as temp:
        copy = pathlib.Path(temp).resolve()
        for top in ("host", "sdk", "executor", "plugins"):
            shutil.copytree(root / top, copy / top)
        for home in [f"host/{layer}" for layer in MAY_USE] + ["plugins/zz"]:
            (copy / home).mkdir(exist_ok=True)
            (copy / home / "zz.h").write_text("\n")
        before = check(copy)
        for name, text, line in PLANTED:
            (copy / name).write_text(text)
            new = [fault[:2] for fault in check(copy) if fault not in before]
            if new != ([(name, line)] if line else []):
                bad.append(f"self-test: {name} {text!r}: wanted line {line}, found {new}")
            (copy / name).unlink()
    return bad


if __name__ == "__main__":
    sys.exit(checker.main(check, self_test))
