# SPDX-License-Identifier: Apache-2.0
"""`berthd -t` looks at everything and leaves nothing behind, whoever runs it."""

import json
import os
import re
import shutil
import subprocess

import harness
from harness import BUILD, Skipped, check, equal, wait_for

BERTHD = BUILD / "bin" / "berthd"
ZOO = BUILD / "tests" / "zoo"
OTHER = 65534  # a user who owns nothing


def with_own_folder(make, *animals):
    """A configuration whose mock keeps its sessions in the target's private folder, and one target per animal of the zoo."""
    b = make()
    plugins = b.dir / "plugins"
    plugins.mkdir(mode=0o755)
    (plugins / "mock.so").symlink_to(BUILD / "lib" / "berth" / "plugins" / "mock.so")
    (b.dir / "providers.d" / "10-mock.conf").write_text('provider = "mock";\nname = "mock";\n')
    for animal in animals:
        (plugins / f"{animal}.so").symlink_to(ZOO / f"{animal}.so")
        (b.dir / "providers.d" / f"20-{animal}.conf").write_text(f'provider = "{animal}";\nname = "{animal}";\nregion = "{animal}";\n')
    conf = b.dir / "berth.conf"
    conf.write_text(re.sub(r'plugin_dir = "[^"]*"', f'plugin_dir = "{plugins}"', conf.read_text()))
    b.loans = b.dir / "tmp"
    b.loans.mkdir()
    b.loans.chmod(0o1777)
    return b


def run_check(b, **kw):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOX_", "BERTH_", "REDIS_"))}
    env.update(harness.SIGNALS, TMPDIR=str(b.loans))
    return subprocess.run([str(BERTHD), "-t", "-c", str(b.dir / "berth.conf")], capture_output=True, text=True, env=env, cwd="/",
                          stdin=subprocess.DEVNULL, **kw)


def tree(path):
    """Every file below with what tells a change of it."""
    return {str(p.relative_to(path)): (s.st_mode, s.st_ino, s.st_mtime_ns) for p in [path, *path.rglob("*")] for s in [p.lstat()]}


def must_be_empty(b):
    equal(list(b.loans.iterdir()), [], "what the check left")


def test_nothing_is_left(make):
    b = with_own_folder(make)
    b.state.rmdir()
    for _ in range(2):
        done = run_check(b)
        equal((done.returncode, "this user cannot" in done.stderr), (0, False), done.stderr)
        check(f'state_dir = "{b.state}"' in done.stdout, done.stdout)
        check(not b.state.exists(), "the check made the state directory")
        must_be_empty(b)


def test_nothing_is_left_of_a_refusal(make):
    b = with_own_folder(make, "open-fails")
    done = run_check(b)
    equal(done.returncode, 78, done.stderr)
    check("berthd: providers: target open-fails" in done.stderr, done.stderr)
    equal(list(b.state.iterdir()), [])
    must_be_empty(b)


def test_nothing_is_left_of_a_crash(make):
    if harness.SANITIZED:
        raise Skipped("sanitizers report crashes themselves")
    b = with_own_folder(make, "open-crashes")
    done = run_check(b)
    check(done.returncode < 0, done.returncode, done.stderr)
    wait_for(lambda: not list(b.loans.iterdir()), 20, "the folder to be removed")
    equal(list(b.state.iterdir()), [])


def test_beside_a_daemon(make):
    """What stands in the state directory is neither changed nor replaced."""
    b = with_own_folder(make).start()
    b.sh("t", "echo x")
    calls = b.state / "targets" / "mock" / "calls.log"
    wait_for(lambda: " forget " in calls.read_text(), 60, "the command to be forgotten, the last thing done for it")
    before = tree(b.state / "targets")
    equal(run_check(b).returncode, 0)
    equal(tree(b.state / "targets"), before)
    must_be_empty(b)


def test_without_rights_to_the_state(make):
    """Read only, or of another user: the check goes through and says what a start of this user would meet."""
    b = with_own_folder(make)
    as_other = {}
    if os.getuid() == 0:
        b.dir.chmod(0o755)
        for path in b.dir.glob("*.token"):
            os.chown(path, OTHER, OTHER)
        as_other = {"user": OTHER, "group": OTHER, "extra_groups": []}
        if not all(p.stat().st_mode & 0o005 == 0o005 for p in BERTHD.resolve().parents):
            raise Skipped("other users cannot reach the build")
        os.chown(b.state, OTHER, OTHER)
    b.state.chmod(0o500)
    before = tree(b.state)
    for owner in (True, False)[:1 + bool(as_other)]:
        if not owner:
            os.chown(b.state, 0, 0)
            b.state.chmod(0o700)
            before = tree(b.state)
        done = run_check(b, **as_other)
        equal(done.returncode, 0, done.stderr)
        check('msg="this user cannot use the state directory' in done.stderr and 'why="Permission denied"' in done.stderr, done.stderr)
        equal(tree(b.state), before)
        must_be_empty(b)
    b.state.chmod(0o700)


def refused(b, words):
    done = run_check(b)
    equal(done.returncode, 78, done.stderr)
    check(words in done.stderr, done.stderr)
    must_be_empty(b)


def test_what_no_start_would_take(make):
    b = with_own_folder(make)
    targets = b.state / "targets"
    targets.mkdir(mode=0o700)
    (targets / "mock").mkdir(mode=0o700)
    equal(run_check(b).returncode, 0)
    (targets / "mock").chmod(0o755)
    refused(b, "/targets/mock: expected a folder of uid")
    (targets / "mock").rmdir()
    (targets / "mock").write_text("")
    refused(b, "/targets/mock: expected a folder, got another kind of file")
    b.start(expect_exit=78)
    check("/targets/mock: expected a folder, got another kind of file" in b.log(), b.log())
    shutil.rmtree(b.state)
    b.state.write_text("")
    refused(b, f"cannot use state_dir {b.state}: Not a directory")
    b.state.unlink()
    conf = b.dir / "berth.conf"
    conf.write_text(conf.read_text().replace(f'"{b.state}"', f'"{b.state}/deeper"'))
    refused(b, f"cannot make state_dir {b.state}/deeper: No such file or directory")


def test_a_missing_helper_is_a_refused_configuration(make):
    b = with_own_folder(make)
    conf = b.dir / "berth.conf"
    conf.write_text(re.sub(r'helper_dir = "[^"]*"', f'helper_dir = "{b.dir}/nowhere"', conf.read_text()))
    refused(b, f"{b.dir}/nowhere/berth-supervise is missing or cannot be run; helper_dir of berth.conf names its folder")
    b.start(expect_exit=78)


def test_what_the_mock_does_not_take(make):
    b = with_own_folder(make)
    target = b.dir / "providers.d" / "10-mock.conf"
    for config, words in (("root = 5;", "10-mock.conf:3: config.root: expected a text in quotes, got an integer"),
                          ("ready_delay = 5;", "config.ready_delay: expected a duration in quotes"),
                          ('root = "here";', 'root: expected an absolute path, got "here"'),
                          ('fault_file = "faults";', 'fault_file: expected an absolute path, got "faults"'),
                          ('fault_fil = "/x";', "config.fault_fil: is not an option of provider mock; did you mean fault_file?")):
        target.write_text(f'provider = "mock";\nname = "mock";\nconfig: {{ {config} }};\n')
        refused(b, words)


def test_a_missing_plugin_names_the_key(make):
    b = with_own_folder(make)
    (b.dir / "plugins" / "mock.so").unlink()
    refused(b, "got no such file; plugin_dir names the folder")


def test_what_is_of_no_use_is_a_warning(make):
    b = with_own_folder(make)
    conf = b.dir / "berth.conf"
    text = conf.read_text().replace('{ name = "all";', '{ name = "all"; not_after = "2020-01-01T00:00:00Z";')
    conf.write_text(text + f'runtime: {{ manifest = "{b.dir}/nosuch.json"; }};\n')
    done = run_check(b)
    equal(done.returncode, 0, done.stderr)
    check('msg="a token has ended' in done.stderr and "token=all" in done.stderr, done.stderr)
    check('msg="runtime.manifest cannot be read' in done.stderr and f"{b.dir}/nosuch.json" in done.stderr, done.stderr)


def test_each_key_with_its_origin(make):
    """And what is printed is a configuration again."""
    b = with_own_folder(make)
    conf = b.dir / "berth.conf"
    done = run_check(b)
    for line in (f'state_dir = "{b.state}"; # {conf}:2', '\tlevel = "debug"; # ' + f"{conf}:", 'stop_grace = "10s"; # default',
                 f'\tname = "mock"; # {b.dir}/providers.d/10-mock.conf:2'):
        check(line in done.stdout, line, done.stdout)
    with_env = subprocess.run([str(BERTHD), "-t", "-c", str(conf)], capture_output=True, text=True, cwd="/",
                              env={**os.environ, "BERTH_PORT": "0", "TMPDIR": str(b.loans)})
    check("port = 0; # environment BERTH_PORT" in with_env.stdout, with_env.stdout)


def test_all_that_is_wrong_is_told_in_one_run(make):
    """Of the files, and of what a start looks at besides: one refusal hides no other."""
    b = with_own_folder(make, "open-fails", "init-fails")
    done = run_check(b)
    equal(done.returncode, 78, done.stderr)
    said = [line for line in done.stderr.splitlines() if line.startswith("berthd: ")]
    check(len(said) == 2 and "open-fails" in said[0] + said[1] and "init-fails" in said[0] + said[1], "each target by itself:", done.stderr)
    conf = b.dir / "berth.conf"
    good = conf.read_text()
    conf.write_text(good.replace("http:", 'lease : { idle = "soon"; active = 3; };\nhttp:', 1) + "nonsense = 1;\n")
    (b.dir / "providers.d" / "20-open-fails.conf").write_text("provider = ;\n")
    done = run_check(b)
    equal(done.returncode, 78, done.stderr)
    for words in ("lease.idle: ", "lease.active: ", "nonsense: is not a known key", "20-open-fails.conf:1: syntax error"):
        check(len([x for x in done.stderr.splitlines() if words in x]) == 1, words, done.stderr)
    told = b.ctl("config", "check", "-c", str(conf), "--json")
    told = (told.returncode, json.loads(told.stdout))
    equal((told[0], told[1]["ok"], len(told[1]["refusals"])), (6, False, 4), told)
    equal(told[1]["why"], told[1]["refusals"][0])
    for command in ("check", "dump"):
        lines = b.ctl("config", command, "-c", str(conf), text=True).stderr.splitlines()
        equal(len([x for x in lines if x.startswith("berthctl: ")]), 4, lines)
    b.start(expect_exit=78)
    equal(len([x for x in b.log().splitlines() if x.startswith("berthd: configuration: ")]), 4)
    must_be_empty(b)
