# SPDX-License-Identifier: Apache-2.0
"""A real task: a published C library is unpacked, built, tested, edited and built again, while the daemon is killed in between."""

import ctypes
import hashlib
import pathlib
import re
import stat
import subprocess
import zlib as python_zlib

from harness import ROOT, Failure, check, equal, settled, wait_for

ALONE = True  # it compiles: beside others it would only slow them down

TARBALL = "zlib_1.2.13.dfsg.orig.tar.bz2"
DIGEST = "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1"
TREE = "zlib-1.2.13.dfsg"
LIBRARY = f"{TREE}/libz.so.1.2.13"
OBJECTS = ("adler32 crc32 deflate infback inffast inflate inftrees trees zutil compress uncompr gzclose gzlib gzread gzwrite").split()

# Every object is made twice, position independent and not, each announced by its number; then a line every so often until
# somebody says "go". What is printed also goes into a file inside, to be compared byte by byte.
LONG_BUILD = f"""cd {TREE} && make clean >/dev/null && {{
	n=0
	for name in {' '.join(OBJECTS)}; do
		n=$((n + 1)); echo "line $n: $name"
		make $name.o $name.lo || exit 3
	done
	while [ ! -e ../go ]; do n=$((n + 1)); echo "line $n: waiting"; sleep 0.05; done
	make || exit 4
	n=$((n + 1)); echo "line $n: all"
	echo 37 >../code
}} 2>&1 | tee ../build.log
exit $(cat ../code)
"""

PROGRAM = br"""#include "zlib.h"
#include <stdio.h>

int main(void)
{
	printf("%s %08lx\n", zlibVersion(), crc32(0, (const unsigned char *)"berth", 5));
	return 0;
}
"""


def tarball():
    path = ROOT / "build" / "fixtures" / TARBALL
    if not path.is_file():
        raise Failure("the source package is not here: run sh tests/fixtures.sh")
    data = path.read_bytes()
    equal(hashlib.sha256(data).hexdigest(), DIGEST, "digest of the source package")
    return path, data


def edited_header(text):
    new = text.replace(b'#define ZLIB_VERSION "1.2.13"', b'#define ZLIB_VERSION "1.2.13-berth"')
    check(new != text, "zlib.h has the line that is edited")
    return new


def check_library(data, directory, version):
    """Loads the fetched library and compares what it says with an independent one."""
    path = pathlib.Path(directory) / "libz-fetched.so"
    path.write_bytes(data)
    library = ctypes.CDLL(str(path))
    library.zlibVersion.restype = ctypes.c_char_p
    library.crc32.restype = ctypes.c_ulong
    equal(library.zlibVersion(), version, "version of the fetched library")
    text = bytes(range(256)) * 64
    equal(library.crc32(ctypes.c_ulong(0), text, len(text)), python_zlib.crc32(text), "crc32")
    packed = ctypes.create_string_buffer(len(text))
    length = ctypes.c_ulong(len(packed))
    equal(library.compress(packed, ctypes.byref(length), text, ctypes.c_ulong(len(text))), 0, "compress")
    equal(python_zlib.decompress(packed.raw[:length.value]), text, "what it compressed")


def run_fetched(data, directory):
    path = pathlib.Path(directory) / "program-fetched"
    path.write_bytes(data)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return subprocess.run([str(path)], capture_output=True, check=True, timeout=30).stdout


def check_numbered(output):
    numbers = [int(n) for n in re.findall(rb"^line (\d+): ", output, re.M)]
    check(len(numbers) > len(OBJECTS) + 1, "numbered lines:", len(numbers))
    equal(numbers, list(range(1, len(numbers) + 1)), "numbered lines")


def build_across_a_kill(b, task):
    """The daemon dies in the middle of the build, which goes on meanwhile; a new daemon finds it and its ending."""
    inside = b.mock.work(b.sessions_of(task)[0]) / "build.log"
    made = b.create(task, LONG_BUILD, timeout_seconds=600).expect(202).json["id"]
    wait_for(lambda: b"line 3: " in b.output(made), 60, "the third line to be readable while it runs")
    b.kill9()
    before = len(inside.read_bytes())
    wait_for(lambda: len(inside.read_bytes()) > before + 200, 60, "the build to go on without a daemon")
    b.start()
    check(b.record(made)["status"] in ("claimed", "running"), "it still runs:", b.record(made))
    wait_for(lambda: b": waiting" in b.output(made), 120, "the end of the compilation")
    check(b.put_file(task, "go", b"").status == 200, "a file is written beside the running command")
    record = b.finish(made, 300)
    equal((record["status"], record["result"]["exit_code"], record["ending"]["kind"]), ("completed", 37, "exit"), record.get("error"))
    check(record["attempt"] >= 2, "another attempt took it over:", record["attempt"])
    output = b.output(made)
    equal(hashlib.sha256(output).hexdigest(), hashlib.sha256(b.get_file(task, "build.log").expect(200).body).hexdigest(),
          "digest of the output and of its copy made inside")
    equal(b.output(made, "stderr"), b"")
    check_numbered(output)


def test_real_task_with_the_daemon_killed(make):
    _, data = tarball()
    b = make().start()
    b.put_file("zlib", "in/source.tar.bz2", data).expect(200)
    equal(b.sh("zlib", "sha256sum < in/source.tar.bz2").split()[0].decode(), DIGEST, "digest inside")
    b.sh("zlib", "tar xjf in/source.tar.bz2")
    b.sh("zlib", f"cd {TREE} && ./configure", timeout_seconds=300)
    b.restart()
    b.sh("zlib", f"cd {TREE} && make", timeout_seconds=600)
    tests = b.sh("zlib", f"cd {TREE} && make test 2>&1", timeout_seconds=600)
    for words in (b"*** zlib test OK ***", b"*** zlib shared test OK ***", b"*** zlib 64-bit test OK ***"):
        check(words in tests, "its own tests:", tests[-600:])

    header = b.get_file("zlib", f"{TREE}/zlib.h").expect(200).body
    b.put_file("zlib", f"{TREE}/zlib.h", edited_header(header)).expect(200)
    b.sh("zlib", f"sed -i 's/uncompress():/edited uncompress():/' {TREE}/test/example.c")
    b.put_file("zlib", f"{TREE}/program.c", PROGRAM).expect(200)
    build_across_a_kill(b, "zlib")

    tests = b.sh("zlib", f"cd {TREE} && make test 2>&1", timeout_seconds=600)
    equal(tests.count(b"\nedited uncompress(): hello, hello!"), 3, "the shell's edit is built in")
    check(b"zlib version 1.2.13-berth" in tests, "the file API's edit is built in:", tests[-600:])
    b.sh("zlib", f"cd {TREE} && cc -O2 -o program program.c libz.a")
    expected = b"1.2.13-berth %08x\n" % python_zlib.crc32(b"berth")
    equal(b.sh("zlib", f"{TREE}/program"), expected, "the program's output inside")
    check_library(b.get_file("zlib", LIBRARY).expect(200).body, b.dir, b"1.2.13-berth")
    equal(run_fetched(b.get_file("zlib", f"{TREE}/program").expect(200).body, b.dir), expected, "the fetched program's output")

    equal(len(b.sessions_of("zlib")), 1, "sessions of the task")
    equal(b.mock.count("provision"), 1, "one session served every step")
    settled(b)
    equal(b.teardown("zlib").status, 204)
    equal(b.mock.sessions(), {}, "sessions left")


def test_real_task_by_the_command_line(make):
    path, data = tarball()
    b = make().start()

    def ctl(*args, code=0, stdin=None):
        done = b.ctl(*args, stdin=stdin, timeout=600)
        if done.returncode != code:
            raise Failure(f"berthctl {' '.join(args)[:200]}: exit {done.returncode}: {done.stderr[-800:]!r} {done.stdout[-300:]!r}")
        return done.stdout

    ctl("put", "zlib", str(path), "source.tar.bz2")
    equal(ctl("exec", "zlib", "sha256sum source.tar.bz2").split()[0].decode(), DIGEST)
    ctl("exec", "zlib", "--", "tar", "xjf", "source.tar.bz2")
    ctl("exec", "zlib", "--timeout", "10m", f"cd {TREE} && ./configure && make")
    b.restart()
    check(b"*** zlib test OK ***" in ctl("exec", "zlib", "--timeout", "10m", f"cd {TREE} && make test"), "its own tests")
    header = ctl("cat", "zlib", f"{TREE}/zlib.h")
    ctl("put", "zlib", "-", f"{TREE}/zlib.h", stdin=edited_header(header))
    ctl("exec", "zlib", f"sed -i 's/uncompress():/edited uncompress():/' {TREE}/test/example.c")
    ctl("exec", "zlib", "--timeout", "10m", f"cd {TREE} && make && make test && exit 41", code=41)
    check(b"edited uncompress(): hello, hello!" in ctl("exec", "zlib", f"cd {TREE} && ./example"), "the edited program runs")
    local = b.dir / "libz.so"
    ctl("get", "zlib", LIBRARY, str(local))
    check_library(local.read_bytes(), b.dir, b"1.2.13-berth")
    ctl("retire", "zlib")
    wait_for(lambda: not b.mock.sessions(), 20, "the session to be gone")
    ctl("verify")
