# SPDX-License-Identifier: Apache-2.0
"""What a provider tells of a session once is kept."""
import test_plugins as p
from harness import BUILD, check, equal, wait_for


def once(make, **kw):
    b = p.with_zoo(make, **kw)
    (b.dir / "plugins" / "tells-once.so").symlink_to(BUILD / "tests" / "conformance" / "tells-once.so")
    (b.dir / "once").mkdir()
    return b


def where(b, more=""):
    return f'{more}isolation = "container";\nconfig: {{ root = "{b.dir}/once"; fault_file = "{b.dir}/faults"; }};'


def test_what_is_told_once_is_kept(make):
    b = once(make)
    p.target(b, "tells-once", more=where(b))
    b.start()
    equal(b.sh("t", "echo there", region="tells-once"), b"there\n")
    equal(len(list((b.dir / "once" / "sessions").iterdir())), 1)
    equal(b.stop(), 0)


def test_what_is_told_once_is_kept_of_warm_sessions(make):
    b = once(make)
    p.target(b, "tells-once", more=where(b, "warm = 1;\n"))
    b.start()
    wait_for(lambda: 'msg="a warm session is ready"' in b.log(), 30, "a warm session")
    equal(b.sh("t", "echo there", region="tells-once"), b"there\n")
    check("how=warm" in b.log(), "the warm session was taken")
    equal(b.stop(), 0)


def test_what_is_told_once_is_kept_over_a_crash(make):
    b = once(make, conf='lease: { owner_ttl = "2s"; };')
    p.target(b, "tells-once", more=where(b))
    (b.dir / "faults").write_text("await_ready nth=1 hang\n")
    b.start()
    b.create("t", "echo there", region="tells-once").expect(202)
    wait_for(lambda: (b.dir / "once" / "sessions").is_dir() and len(list((b.dir / "once" / "sessions").iterdir())) == 1, 30, "the session")
    wait_for(lambda: "await_ready" in (b.dir / "once" / "counters").read_text(), 30, "await_ready")
    refs = [x.name for x in (b.dir / "once" / "sessions").iterdir()]
    b.kill9()
    (b.dir / "faults").write_text("")
    b.start()
    equal(b.sh("t", "echo again", region="tells-once"), b"again\n")
    equal([x.name for x in (b.dir / "once" / "sessions").iterdir()], refs)
    equal(b.stop(), 0)
