#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gates of the provider ABI.

  run.py --build DIR [--preset NAME] [-j N] [word…]
  run.py --record        while the journal says that the version is open: records the baseline and the frozen headers anew

Ends with "N passed, N failed, N skipped".
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADERS = ROOT / "sdk/include"
PUBLIC = ["abi.h", "types.h", "host.h", "provider.h"]
LIBRARY = ["launcher.h", "localfs.h", "spawn.h", "supervised.h"]
BASELINE = HERE / "baseline.xml"
FROZEN = HERE / "frozen-1.0"
# The frozen plugin asks for no isolation, and changes no more: honesty.stronger is younger than it.
SESSIONS = [word for family in ("honesty.check", "honesty.declared", "honesty.undeclared", "honesty.isolation", "lifecycle", "idempotence", "races", "deadlines", "renew", "leaks") for word in ("--rule", family)]
NOTHING_RUNS = ["--without", "commands", "--without", "files"]


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


def must(condition, text):
    if not condition:
        raise Failure(text)


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, **more)


def must_run(*command, **more):
    done = run(*command, **more)
    must(done.returncode == 0, f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def need(tool):
    if not shutil.which(tool):
        raise Skipped(f"{tool} is not installed")
    return tool


def version(headers=HEADERS):
    text = (headers / "berth/abi.h").read_text()
    return tuple(int(re.search(rf"#define BERTH_ABI_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))


def journal(headers=HEADERS):
    """(version, date, text) of each entry."""
    text = (headers / "berth/abi.h").read_text().split("Journal", 1)[1].split("*/", 1)[0]
    return re.findall(r"^ \*   (\d+\.\d+)  (\d{4}-\d\d-\d\d)  (.+)$", text, re.M)


def is_open():
    return journal()[-1][2].startswith("open")


# ---- layout and headers ----

def test_layout(work, args):
    must_run("cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", f"-I{HEADERS}", HERE / "layout.c")
    planted = copy_headers(work / "layout", lambda name, text: text.replace("uint32_t survivors;", "uint64_t survivors;"))
    must(run("cc", "-std=c11", "-fsyntax-only", f"-I{planted}", HERE / "layout.c").returncode != 0, "a changed field was not found")


def declared(headers):
    """Every field of every public struct."""
    for name in PUBLIC:
        text = re.sub(r"/\*.*?\*/", "", (headers / "berth" / name).read_text(), flags=re.S)
        for struct, body in re.findall(r"^struct (berth_\w+) \{\n(.*?)^\};", text, re.S | re.M):
            body = "\n".join(line for line in body.splitlines() if not line.startswith("#"))
            for field in (" ".join(part.split()) for part in body.split(";") if part.strip()):
                pointer = re.search(r"\(\*\s*(\w+)\)\(", field)
                yield struct, pointer[1] if pointer else re.sub(r"\[.*", "", field).split()[-1].lstrip("*")


def test_layout_whole(work, args):
    """No field is without its line."""
    lines = set(re.findall(r"^FIELD\((\w+), (\w+),", (HERE / "layout.c").read_text(), re.M))
    fields = set(declared(HEADERS))
    must(fields and lines == fields, f"layout.c and the headers differ in {sorted(lines ^ fields)}")


def alone(compiler, language, standard):
    def test(work, args):
        need(compiler)
        for name in PUBLIC + LIBRARY:
            source = work / f"alone-{compiler}-{standard}-{name}.{'c' if language == 'c' else 'cc'}"
            source.write_text(f"#include <berth/{name}>\n#include <berth/{name}>\nint main(void);\nint main(void) {{ return 0; }}\n")
            must_run(compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{HEADERS}", source)
    return test


def test_library_from_cxx(work, args):
    """Each function of the library's headers is found under its C name."""
    need("g++")
    names = {name for header in LIBRARY for name in re.findall(r"\b(berth_\w+)\(", (HEADERS / "berth" / header).read_text())}
    must(len(names) > 15, f"only {sorted(names)} in the headers")
    source = work / "library.cc"
    source.write_text("".join(f"#include <berth/{header}>\n" for header in LIBRARY) + "#include <cstdio>\nint main() {\n" +
                      "".join(f'\tstd::printf("%d", {name} != nullptr);\n' for name in sorted(names)) + "}\n")
    must_run("g++", "-std=c++17", "-Wno-address", f"-I{HEADERS}", source, args.build / "sdk/libberth_sdk.a", "-o", work / "library")


# ---- exports ----

def exported(path):
    return [line.split() for line in must_run("nm", "-D", "--defined-only", path).splitlines()]


def test_exports(work, args):
    plugins = sorted((args.build / "lib/berth/plugins").glob("*.so"))
    must(plugins, "no plugin was built")
    for plugin in plugins:
        names = [row[-1] for row in exported(plugin)]
        if args.sanitized:
            names = [name for name in names if not re.match(r"_*(asan|tsan|ubsan|lsan|sanitizer|interceptor|odr)", name, re.I)]
        must(names == ["berth_provider_entry_v1"], f"{plugin.name} exports {' '.join(names)}")


def test_exports_host(work, args):
    """A plugin must not be able to bind to the host: no function is exported, and nothing of ours (the linker's own marks are)."""
    programs = [args.build / "bin" / name for name in ("berthd", "berth-conformance") if (args.build / "bin" / name).exists()]
    must(programs, "no program was built")
    if args.sanitized:
        raise Skipped("a sanitizer's runtime exports its interceptors")
    for program in programs:
        names = [row[-1] for row in exported(program) if row[1] in "TtWwiu" or row[-1].startswith("berth")]
        must(not names, f"{program.name} exports {' '.join(names)}")


# ---- baseline ----

def surface(headers, target, *flags):
    major, minor = version(headers)
    must_run("cc", "-std=c11", "-g", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,berth-abi-{major}.{minor}",
             f"-I{headers}", "-o", target, HERE / "surface.c", *flags)
    return target


def has_debug_info(path):
    return ".debug_info" in must_run("readelf", "-S", "-W", path)


def copy_headers(target, change=lambda name, text: text):
    (target / "berth").mkdir(parents=True)
    changed = False
    for path in (HEADERS / "berth").iterdir():
        before = path.read_text()
        after = change(path.name, before)
        changed = changed or after != before
        (target / "berth" / path.name).write_text(after)
    must(changed, "nothing was planted")
    return target


def compare(library):
    need("abidiff")
    must(has_debug_info(library), f"{library} has no debug information: abidiff would find nothing")
    return run("abidiff", "--no-default-suppression", BASELINE, library)


def test_baseline(work, args):
    done = compare(surface(HEADERS, work / "surface.so"))
    must(done.returncode == 0, f"the ABI is not the recorded one:\n{done.stdout[-5000:]}{done.stderr}")


BREAKS = {
    "a field is wider": ("types.h", "uint32_t survivors;", "uint64_t survivors;"),
    "two fields are swapped": ("types.h", "int32_t exit_code;  /* with EXIT: 0..255 */\n\tint32_t signal;", "int32_t signal;\n\tint32_t exit_code;"),
    "an operation is gone": ("provider.h", "int32_t (*check)(void *inst, struct berth_call *call);", ""),
    "an operation has another argument": ("provider.h", "struct berth_call *call, const struct berth_session *session, int64_t until_ms);",
                                          "struct berth_call *call, const struct berth_session *session, int32_t until_ms);"),
    "a service has another result": ("host.h", "int32_t (*created)", "void (*created)"),
    "a descriptor's field moved": ("provider.h", "\tuint64_t capabilities;\n\t/* Once", "\tconst char *more;\n\tuint64_t capabilities;\n\t/* Once"),
}


def test_planted_breaks(work, args):
    for number, (what, (file, old, new)) in enumerate(BREAKS.items()):
        headers = copy_headers(work / f"break-{number}", lambda name, text: text.replace(old, new) if name == file else text)
        done = compare(surface(headers, work / f"break-{number}.so"))
        must(done.returncode & 4, f"not found: {what} (exit {done.returncode})")


def test_debug_info_needed(work, args):
    stripped = surface(HEADERS, work / "stripped.so", "-s")
    must(not has_debug_info(stripped), "a stripped library seems to have debug information")
    try:
        compare(stripped)
    except Failure:
        return
    raise Failure("a library without debug information was compared")


def test_journal(work, args):
    entries = journal()
    major, minor = version()
    must(entries and entries[-1][0] == f"{major}.{minor}", f"the journal ends with {entries[-1:]}, the version is {major}.{minor}")
    must([entry[1] for entry in entries] == sorted(entry[1] for entry in entries), "the journal's dates do not grow")
    recorded = re.search(r"soname='berth-abi-(\d+\.\d+)'", BASELINE.read_text())
    must(recorded and recorded[1] == entries[-1][0], f"the baseline is of {recorded and recorded[1]}, the journal of {entries[-1][0]}")
    must(not is_open() or version() != (1, 0), "1.0 is frozen")


# ---- old plugins ----

def kit(program, args, plugin, config, *rules):
    env = dict(os.environ, TMPDIR=str(plugin.parent))
    helpers = args.build / "bin"
    done = run(program, plugin, "--config", config, "--helpers", helpers, "--gone", "2", "--patience", "3", *rules, env=env, timeout=600)
    must(done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    must(re.search(r"^ok .*lifecycle\.release$", done.stdout, re.M), done.stdout)


def build_frozen(work):
    target = work / "frozen" / "frozen.so"
    target.parent.mkdir()
    must_run("cc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
             "-Wl,-z,defs,-z,now,-z,nodelete", f"-I{FROZEN / 'include'}", "-o", target, FROZEN / "frozen.c", "-pthread")
    config = target.parent / "target.conf"
    config.write_text('provider = "frozen";\nname = "frozen";\nconfig : { greeting = "hi"; };\n')
    return target, config


def code_of(path):
    """Without comments and layout: words may still get better."""
    return re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S).split()


def test_frozen_headers(work, args):
    for name in PUBLIC:
        now, then = code_of(HEADERS / "berth" / name), code_of(FROZEN / "include/berth" / name)
        if version() == (1, 0):
            must(now == then, f"{name} is not as it was frozen: what is appended raises the minor number")
    must(version(FROZEN / "include") == (1, 0), "the frozen headers are not of 1.0")


def test_frozen_plugin(work, args):
    plugin, config = build_frozen(work)
    must([row[-1] for row in exported(plugin)] == ["berth_provider_entry_v1"], "frozen.so exports more than its entry")
    kit(args.build / "bin/berth-conformance", args, plugin, config, *SESSIONS, *NOTHING_RUNS)


# What a later host has more of: one operation, one capability, one service, and a field in each struct that crosses and may grow.
def grow(name, text):
    if name == "abi.h":
        major, minor = version()
        text = text.replace(f"#define BERTH_ABI_MINOR {minor}", f"#define BERTH_ABI_MINOR {minor + 1}")
    if name == "types.h":
        text = re.sub(r"#define BERTH_CAP_ALL \(\(UINT64_C\(1\) << (\d+)\) - 1\)",
                      lambda m: f"#define BERTH_CAP_GROWN (UINT64_C(1) << {m[1]})\n"
                                f"#define BERTH_CAP_ALL ((UINT64_C(1) << {int(m[1]) + 1}) - 1)", text)
    fixed = ("berth_str", "berth_pair")

    def append(match):
        struct, body = match[1], match[2]
        if struct in fixed:
            return match[0]
        more = "\tuint64_t grown_field;\n"
        if struct == "berth_ops":
            more = "\tint32_t (*grown)(void *inst, struct berth_call *call, const struct berth_session *session);\n"
        if struct == "berth_host":
            more = "\tint32_t (*grown)(struct berth_call *call, uint32_t what);\n"
        return f"struct {struct} {{\n{body}{more}}};"
    return re.sub(r"^struct (berth_\w+) \{\n(.*?)^\};", append, text, flags=re.S | re.M)


def build_grown(work):
    tree = work / "grown"
    for part in ("host", "sdk", "cmake"):
        shutil.copytree(ROOT / part, tree / part)
    shutil.rmtree(tree / "sdk/include")
    copy_headers(tree / "sdk/include", grow)
    (tree / "CMakeLists.txt").write_text("\n".join((
        "cmake_minimum_required(VERSION 3.25)", "project(berth VERSION 0.1.0 LANGUAGES C)", "set(CMAKE_C_STANDARD 11)",
        "set(CMAKE_C_EXTENSIONS OFF)", "set(CMAKE_POSITION_INDEPENDENT_CODE ON)", "include(cmake/berth.cmake)",
        "find_package(PkgConfig REQUIRED)", "add_subdirectory(sdk)", "add_subdirectory(host)", "")))
    must_run("cmake", "-S", tree, "-B", work / "grown-build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug")
    must_run("cmake", "--build", work / "grown-build", "--target", "berth-conformance", "-j", "2")
    return work / "grown-build/bin/berth-conformance"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_later_host(work, args):
    """A host built with more in the headers loads the plugins of today, the same files, and they pass."""
    if args.sanitized:
        raise Skipped("a plugin with a sanitizer does not load into a host without")
    program = build_grown(work)
    mock = args.build / "lib/berth/plugins/mock.so"
    today = digest(mock)
    place = work / "later"
    place.mkdir()
    shutil.copy(mock, place / "mock.so")
    config = place / "mock.conf"
    config.write_text('provider = "mock";\nname = "mock";\nconfig : { kill_grace = "200ms"; };\n')
    kit(program, args, place / "mock.so", config)
    plugin, frozen_config = build_frozen(work / "later")
    kit(program, args, plugin, frozen_config, *SESSIONS, *NOTHING_RUNS)
    must(digest(mock) == today == digest(place / "mock.so"), "the plugin was not the same file")


def test_newer_plugin(work, args):
    """A plugin that needs a later minor is refused by the host of today, in one sentence."""
    headers = copy_headers(work / "newer-headers", grow)
    plugin = work / "newer" / "newer.so"
    plugin.parent.mkdir()
    source = (FROZEN / "frozen.c").read_text().replace('.abi_minor = 0', '.abi_minor = BERTH_ABI_MINOR').replace('"frozen"', '"newer"')
    (plugin.parent / "newer.c").write_text(source)
    must_run("cc", "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{headers}", "-o", plugin,
             plugin.parent / "newer.c", "-pthread")
    config = plugin.parent / "target.conf"
    config.write_text('provider = "newer";\nname = "newer";\n')
    done = run(args.build / "bin/berth-conformance", plugin, "--config", config)
    must(done.returncode == 3 and "needs 1." in done.stdout, f"exit {done.returncode}: {done.stdout}")


TESTS = {
    "layout": test_layout, "layout whole": test_layout_whole,
    "the library from C++": test_library_from_cxx,
    **{f"headers alone, {standard}, {compiler}": alone(compiler, language, standard)
       for compilers, language, standards in ((("gcc", "clang"), "c", ("c99", "c11")), (("g++", "clang++"), "c++", ("c++17",)))
       for compiler in compilers for standard in standards},
    "exports": test_exports, "exports of the host": test_exports_host,
    "baseline": test_baseline, "planted breaks": test_planted_breaks, "debug information": test_debug_info_needed,
    "journal": test_journal, "frozen headers": test_frozen_headers, "frozen plugin": test_frozen_plugin,
    "later host": test_later_host, "newer plugin": test_newer_plugin,
}


def record():
    if not is_open():
        print("the journal's last entry is not open: append a new version to it first", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        library = surface(HEADERS, pathlib.Path(work) / "surface.so")
        must_run(need("abidw"), "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", BASELINE, library)
    for name in PUBLIC:
        shutil.copy(HEADERS / "berth" / name, FROZEN / "include/berth" / name)
    print(f"recorded {BASELINE.relative_to(ROOT)} and {FROZEN.relative_to(ROOT)}/include; layout.c is changed by hand")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--full", action="store_true", help="accepted for the runner of suites")
    parser.add_argument("-j", dest="jobs", type=int, default=1, help="likewise")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("word", nargs="*")
    args = parser.parse_args()
    if args.record:
        return record()
    args.build = args.build.resolve()
    args.sanitized = args.preset in ("asan", "tsan")
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) and "noexec" not in next(
        (line for line in open("/proc/mounts") if line.split()[1] == "/dev/shm"), "noexec") else None
    for name, function in TESTS.items():
        if args.word and not any(word in name for word in args.word):
            continue
        start, text, result = time.monotonic(), "", "ok"
        with tempfile.TemporaryDirectory(prefix="berth-abi-", dir=base) as work:
            os.chmod(work, 0o755)
            try:
                function(pathlib.Path(work), args)
            except Failure as failure:
                result, text = "FAIL", str(failure)
            except Skipped as skipped:
                result, text = "skip", str(skipped)
        counts[result] += 1
        print(f"{result:4} abi {name} ({time.monotonic() - start:.1f} s){': ' + text if result == 'skip' else ''}", flush=True)
        if result == "FAIL":
            print(text[-6000:], flush=True)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] or not sum(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
