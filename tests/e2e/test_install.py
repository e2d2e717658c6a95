# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` puts in place is all that a daemon needs."""

import os
import subprocess

from harness import BUILD, check, equal

PLACES = ("bin/berthd", "bin/berthctl", "bin/berth-conformance", "lib/berth/helpers/berth-supervise", "lib/berth/helpers/berth-executor",
          "lib/berth/plugins/mock.so", "lib/berth/plugins/kubernetes.so", "lib/systemd/system/berthd.service",
          "share/man/man1/berthctl.1", "share/man/man5/berth.conf.5", "share/bash-completion/completions/berthctl",
          "share/zsh/site-functions/_berthctl", "share/doc/berth/examples/berth.conf", "share/doc/berth/examples/providers.d/10-mock.conf")


def test_an_installed_berth_runs_a_command(make):
    b = make()
    root = b.dir / "root"
    subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr"], check=True, capture_output=True, env={**os.environ, "DESTDIR": str(root)})
    usr = root / "usr"
    for place in PLACES:
        check((usr / place).is_file(), place, "was not installed")
    left = [str(p.relative_to(usr)) for p in usr.rglob("*") if p.is_file()]
    equal(sorted(left), sorted(PLACES), "what was installed")
    for program in PLACES[:7]:
        text = subprocess.run(["readelf", "-d", usr / program], check=True, capture_output=True, text=True).stdout
        check("RUNPATH" not in text and "RPATH" not in text, program, "looks for libraries in a folder of the build")
    b.programs, b.plugins, b.helpers = usr / "bin", usr / "lib/berth/plugins", usr / "lib/berth/helpers"
    b.write_conf()
    equal(b.start().sh("t", "echo installed"), b"installed\n")
