# SPDX-License-Identifier: Apache-2.0
"""README.md and the quickstart, as somebody new takes them: the shell blocks as they stand, and what the script answers. What pages
list that nothing else holds them to."""

import os
import re
import shutil
import subprocess

import harness
from harness import BUILD, ROOT, check, equal, settled


def block_of(heading):
    """The shell lines under a heading of README.md; blocks that are not marked `sh` are examples."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", (ROOT / "README.md").read_text(), re.S | re.M)
    check(section, f"README.md has no \"{heading}\"")
    blocks = re.findall(r"^```sh\n(.*?)^```$", section[1], re.S | re.M)
    check(len(blocks) == 1, heading, blocks)
    return blocks[0]


def paste(b, heading):
    """In a folder with what of the clone the blocks use, and the variables that quickstart.sh prints."""
    folder = b.dir / "clone"
    (folder / "build").mkdir(parents=True)
    shutil.copy(ROOT / "README.md", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    env = dict(os.environ, PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}", BERTH_ADDRESS=f"http://127.0.0.1:{b.port}",
               BERTH_TOKEN=harness.TOKEN, BERTH_WORKSPACE="team")
    done = subprocess.run(["sh", "-eux", "-c", block_of(heading)], cwd=folder, env=env, capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, timeout=120 * harness.PATIENCE)
    check(done.returncode == 0, done.returncode, done.stdout, done.stderr)
    return folder, done.stdout


def test_readme_with_curl(make):
    b = make().start()
    folder, out = paste(b, "With curl")
    check('"exit_code":3' in out.replace(" ", ""), out)
    check(re.search(r"^hello$", out, re.M), out)
    check(re.search(rf"^{(folder / 'README.md').stat().st_size}$", out, re.M), "the file came back in another size:", out)
    settled(b)
    equal(b.sessions_of("curl-1", "team"), [])


def test_readme_with_berthctl(make):
    b = make().start()
    folder, out = paste(b, "With berthctl")
    check("begun\ndone\n" in out, out)
    equal(sorted(path.name for path in (folder / "build/schemas").iterdir()), sorted(path.name for path in (ROOT / "docs/schemas").iterdir()))
    settled(b)
    equal(b.sessions_of("build-7", "team"), [])


def test_quickstart_names_what_it_does_not_know(make):
    script = ["sh", str(ROOT / "packaging/quickstart.sh")]
    done = subprocess.run([*script, "--bogus"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    equal((done.returncode, done.stdout), (2, ""))
    check("--bogus" in done.stderr and "--serve" in done.stderr, done.stderr)
    done = subprocess.run([*script, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    check(done.returncode == 0 and "--serve" in done.stdout and not done.stderr, done)


def test_quickstart_exports_what_the_blocks_use(make):
    """The variables that paste() gives are those of the line that quickstart.sh --serve prints."""
    line = re.search(r"^  export (.*)$", (ROOT / "packaging/quickstart.sh").read_text(), re.M)
    check(line, "quickstart.sh prints no export line")
    equal(re.findall(r"([A-Z_]+)=", line[1]), ["PATH", "BERTH_ADDRESS", "BERTH_TOKEN", "BERTH_WORKSPACE"])


def test_environment_is_what_mock_md_lists(make):
    line = re.search(r"^A command's environment: (.*), and the command's own", (ROOT / "docs/mock.md").read_text(), re.M)
    check(line, "docs/mock.md lists no environment")
    b = make().start()
    seen = dict(pair.split("=", 1) for pair in b.sh("t", "tr '\\0' '\\n' </proc/self/environ").decode().splitlines())
    seen.pop("PWD", None)  # the shell's
    equal(sorted(seen), sorted(re.findall(r"`([A-Z_]+)`", line[1])))
    equal([seen[name] for name in seen if name.endswith("_TASK_ID")], ["t", "t"])


def milliseconds(text):
    return sum(int(number) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000}[unit] for number, unit in re.findall(r"(\d+)(ms|s|m|h)", text))


def test_operating_md_has_every_duration_of_a_sandbox(make):
    """Key and default of every row of the option table whose group decides how long something lives."""
    options = re.findall(r"TTL(?:_FROM)?\((?:\d+, )?\"((?:lease|session|task|execution|gc)\.\w+)\", \w+, \"(\w+)\"",
                         (ROOT / "host/conf/table.c").read_text())
    check(len(options) >= 15, options)
    rows = {}
    for keys, defaults in re.findall(r"^\| (`(?:lease|session|task|execution|gc)\.[^|]*`) \| ([^|]*) \|", (ROOT / "docs/operating.md").read_text(), re.M):
        names = re.findall(r"`([\w.]+)`", keys)
        group = names[0].split(".")[0]
        rows.update(zip((name if "." in name else f"{group}.{name}" for name in names), map(milliseconds, defaults.split(", "))))
    equal(rows, {key: milliseconds(default) for key, default in options})
