# SPDX-License-Identifier: Apache-2.0
"""Does what docs/writing-a-provider.md tells a third party to do: its shell lines, as they stand, in an empty folder."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/writing-a-provider.md"


def shell_lines():
    """The blocks marked `sh`, one after another; others are examples."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.S | re.M))


def skeleton():
    return re.search(r"^```c acme\.c\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]


def walk(build, folder):
    """Exit code, standard output, standard error."""
    folder.mkdir(mode=0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    env.update(BERTH=str(ROOT), BUILD=str(build), PATH=f"{build / 'bin'}:{env['PATH']}", TMPDIR=str(folder))
    done = subprocess.run(["sh", "-eux", "-c", shell_lines()], cwd=folder, env=env, capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, timeout=600)
    return done.returncode, done.stdout, done.stderr
