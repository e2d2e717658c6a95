# SPDX-License-Identifier: Apache-2.0
"""put --recursive and get --recursive: what arrives is what was there, nothing else is touched, and a copy that broke off goes on."""

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import threading

import harness
from harness import Skipped, check, equal, wait_for
from test_ctl import CTL, W, LosesFirstAnswer, environment


def picture(root):
    """What lies below root: path -> (kind, mode, content)."""
    found, root = {}, pathlib.Path(root)
    for path in sorted(root.rglob("*")):
        st, name = path.lstat(), str(path.relative_to(root))
        if stat.S_ISLNK(st.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(st.st_mode):
            found[name] = ("folder", oct(st.st_mode & 0o777))
        else:
            found[name] = ("file", oct(st.st_mode & 0o777), hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def make_tree(root):
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o700)
    for name, data, mode in (("one", b"one\n", 0o644), ("a/none", b"", 0o600), ("a/b/run", b"#!/bin/sh\necho ran\n", 0o755),
                             ("a/it's \"a\" $name", b"x", 0o640), ("a/-dash", b"y", 0o444), ("a/gr\u00fc\u00df", b"z", 0o664),
                             ("a/big", os.urandom(5 << 20), 0o644)):
        (root / name).write_bytes(data)
        (root / name).chmod(mode)
    for name, target in (("a/up", "../one"), ("folder", "a/b"), ("a/dangling", "nothing/here")):
        (root / name).symlink_to(target)
    (root / "shut").mkdir()
    (root / "shut" / "in").write_text("in\n")
    (root / "shut").chmod(0o555)
    return root


def works(b, task, name):
    ref, = b.sessions_of(task)
    return b.mock.work(ref) / name


def test_a_tree_there_and_back(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    done = b.ctl("put", *W, "-r", "--json", "t", str(tree))
    equal(done.returncode, 0, done.stderr)
    told = json.loads(done.stdout)
    equal((told["copied"], told["same"], told["links"], told["failed"]), (8, 0, 3, []))
    equal(picture(works(b, "t", "tree")), picture(tree))
    equal(b.sh("t", "tree/a/b/run"), b"ran\n")
    back = b.dir / "back"
    done = b.ctl("get", *W, "-r", "t", "tree/", str(back))
    equal(done.returncode, 0, done.stderr)
    equal(picture(back), picture(tree))
    check(not [p for p in back.rglob("*") if "berthctl-part" in p.name], "nothing unfinished is left")


def test_only_what_differs_is_copied_again(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    equal(b.ctl("put", *W, "-r", "t", str(tree), "x/y").returncode, 0)
    (tree / "one").write_text("two\n")
    (tree / "a" / "none").chmod(0o400)
    (tree / "a" / "up").unlink()
    (tree / "a" / "up").symlink_to("big")
    writes = b.mock.count("file_write")
    told = json.loads(b.ctl("put", *W, "-r", "--json", "t", str(tree), "x/y").stdout)
    equal((told["copied"], told["same"], told["failed"]), (2, 6, []))
    equal(b.mock.count("file_write") - writes, 2, "the provider saw two files")
    equal(picture(works(b, "t", "x/y")), picture(tree))
    back = b.dir / "back"
    equal(b.ctl("get", *W, "-r", "t", "x/y", str(back)).returncode, 0)
    (back / "a" / "big").write_bytes(b"damaged")
    (back / "one").chmod(0o600)
    (back / "mine").write_text("stays")
    told = json.loads(b.ctl("get", *W, "-r", "--json", "t", "x/y", str(back)).stdout)
    equal((told["copied"], told["same"]), (1, 7))
    (back / "mine").unlink()
    equal(picture(back), picture(tree))


def test_the_whole_workspace(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    done = subprocess.run([CTL, "put", *W, "-r", "t", "."], cwd=tree, env=environment(b), capture_output=True)
    equal(done.returncode, 0, done.stderr)
    equal(picture(works(b, "t", ".")), picture(tree))
    done = subprocess.run([CTL, "get", *W, "-r", "t", "."], cwd=b.dir, env=environment(b), capture_output=True)
    equal(done.returncode, 0, done.stderr)
    equal(picture(b.dir / "t"), picture(tree))


def test_what_cannot_be_copied_is_named(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    os.mkfifo(tree / "pipe")
    (tree / "new\nline").write_text("x")
    (tree / "back\\slash").write_text("x")
    (tree / "out").symlink_to("/etc/passwd")
    (tree / "a" / "out").symlink_to("../../x")
    (tree / "hop").symlink_to("folder/../../x")
    done = b.ctl("put", *W, "-r", "--json", "t", str(tree), text=True)
    equal(done.returncode, 1)
    told = json.loads(done.stdout)
    equal(sorted(x["path"] for x in told["failed"]), ["a/out", "back\\slash", "hop", "new\nline", "out", "pipe"])
    equal(told["copied"], 8, "everything else is there")
    check("repeat" not in done.stderr, "another try would change nothing")
    for path in ("pipe", "new\nline", "back\\slash"):
        (tree / path).unlink()
    equal(b.ctl("put", *W, "-r", "--links", "all", "t", str(tree)).returncode, 0)
    equal(picture(works(b, "t", "tree")), picture(tree))
    back = b.dir / "back"
    done = b.ctl("get", *W, "-r", "t", "tree", str(back), text=True)
    equal(done.returncode, 1)
    check("tree/out: is a symbolic link that leads out" in done.stderr, done.stderr)
    check(not os.path.lexists(back / "out") and (back / "one").exists())
    equal(b.ctl("get", *W, "-r", "--links", "skip", "t", "tree", str(b.dir / "b2")).returncode, 0)
    check(not any(p.is_symlink() for p in (b.dir / "b2").rglob("*")))
    equal(b.ctl("get", *W, "-r", "--links", "all", "t", "tree", str(b.dir / "b3")).returncode, 0)
    equal(picture(b.dir / "b3"), picture(tree))
    equal(b.ctl("put", *W, "-r", "--links", "follow", "t", str(b.dir / "b2"), "b2").returncode, 0)
    b.sh("t", "mkdir odd; mkfifo odd/pipe; touch 'odd/back\\slash' \"odd/new\nline\" odd/fine")
    done = b.ctl("get", *W, "-r", "--json", "t", "odd", str(b.dir / "odd"))
    equal(done.returncode, 1)
    equal(sorted(x["path"] for x in json.loads(done.stdout)["failed"]), ["back\\slash", "new\nline", "pipe"])
    equal(os.listdir(b.dir / "odd"), ["fine"])


def test_plain_names_what_it_cannot_make(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    (tree / "empty" / "too").mkdir()
    done = b.ctl("put", *W, "-r", "--plain", "--json", "t", str(tree), text=True)
    equal(done.returncode, 1)
    told = json.loads(done.stdout)
    equal(sorted(x["path"] for x in told["failed"]), ["a/dangling", "a/up", "empty", "empty/too", "folder"])
    equal(told["copied"], 8)
    equal(b.get("/sandbox/executions", workspace_id="w").json["items"], [], "nothing was run")
    equal(b.ctl("get", *W, "-r", "--plain", "t", "tree", str(b.dir / "back")).returncode, 0)
    files = {name: what for name, what in picture(tree).items() if what[0] == "file"}
    equal({name: what for name, what in picture(b.dir / "back").items() if what[0] == "file"}, files)
    equal(b.ctl("put", *W, "-r", "-j", "17", "t", str(tree)).returncode, 2)


def test_links_are_followed_when_asked(make):
    b = make().start()
    tree = b.dir / "tree"
    (tree / "real").mkdir(parents=True)
    (tree / "real" / "f").write_text("f\n")
    (tree / "file").symlink_to("real/f")
    (tree / "folder").symlink_to("real")
    (tree / "loop").symlink_to(".")
    (tree / "dangling").symlink_to("nothing")
    done = b.ctl("put", *W, "-r", "--links", "follow", "--json", "t", str(tree))
    equal(done.returncode, 1)
    equal(sorted(x["path"] for x in json.loads(done.stdout)["failed"]), ["dangling", "loop"])
    equal(b.sh("t", "find tree -type f | sort; find tree -type l"), b"tree/file\ntree/folder/f\ntree/real/f\n")


def test_nothing_is_written_through_a_link(make):
    b = make().start()
    outside = b.dir / "outside"
    outside.mkdir()
    b.sh("t", "mkdir -p d/sub; echo new >d/sub/f; echo new >d/g")
    back = b.dir / "back"
    back.mkdir()
    (back / "sub").symlink_to(outside)
    (back / "g").symlink_to(outside / "g")
    done = b.ctl("get", *W, "-r", "t", "d", str(back), text=True)
    equal(done.returncode, 1)
    check("not followed" in done.stderr, done.stderr)
    equal(os.listdir(outside), [])
    check(not (back / "g").is_symlink() and (back / "g").read_text() == "new\n", "a link in a file's place is replaced")


class Hostile(http.server.BaseHTTPRequestHandler):
    """A daemon whose sandbox lies about its files."""
    protocol_version = "HTTP/1.1"
    listing = b""

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("X-Request-Id", "req_1")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(202, b'{"id":"sexec_1","status":"queued","revision":1}')

    def do_GET(self):
        if "/stdout" in self.path:
            self.answer(200, self.server.listing, "application/octet-stream")
        elif "/stderr" in self.path:
            self.answer(200, self.server.complaint)
        elif "/executions/" in self.path:
            self.answer(200, json.dumps({"id": "sexec_1", "status": "completed", "revision": 2,
                                         "result": {"exit_code": 1 if self.server.complaint else 0}}).encode())
        elif "list=" in self.path and self.server.too_large:
            self.answer(413, b'{"error":"payload_too_large","message":"the list has more than 100000 entries"}')
        elif "list=" in self.path:
            self.answer(200, json.dumps({"paths": self.server.paths}).encode())
        else:
            self.answer(200, b"evil", "application/octet-stream")


def serve_lies(b):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.asked, server.paths, server.listing, server.too_large, server.complaint = [], [], b"", False, b""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    b.port = server.server_address[1]
    return server


def test_the_script_does_with_busybox_too(make):
    """What a sandbox must have is in every image: the script's output is the same with GNU's tools and with busybox's."""
    if not shutil.which("busybox"):
        raise Skipped("busybox is not there")
    b = make()
    server = serve_lies(b)
    tree = make_tree(b.dir / "tree")
    os.mkfifo(tree / "pipe")
    (tree / "new\nline").mkdir()
    (tree / "new\nline" / "in it").write_text("x")
    (tree / "ends in\n").symlink_to("x")
    (tree / "link").symlink_to("ends in newline\n")
    (tree / ".agentarea").mkdir()
    (tree / ".berth-0123.tmp").write_text("x")
    tools = b.dir / "tools"
    tools.mkdir()
    for tool in ("sh", "find", "stat", "sha256sum", "readlink"):
        (tools / tool).symlink_to(shutil.which("busybox"))
    for name in ("tree", "tree/one", "tree/dangling", "nothing"):
        b.ctl("get", *W, "-r", "t", name, str(b.dir / "into"))
        script = server.asked.pop()["command"]["command_body"]
        one = subprocess.run(["sh", "-c", script], cwd=b.dir, capture_output=True)
        two = subprocess.run([str(tools / "sh"), "-c", script], cwd=b.dir, capture_output=True, env={"PATH": str(tools)})
        equal((one.returncode, one.stderr), (0, b""), name)
        equal((two.returncode, two.stderr), (0, b""), name)
        equal(sorted(one.stdout.split(b"\n")), sorted(two.stdout.split(b"\n")), name)
        check(b".berth-0123" not in one.stdout, one.stdout)
    server.shutdown()


def test_a_lying_sandbox_writes_nothing_outside(make):
    b = make()
    server = serve_lies(b)
    digest = hashlib.sha256(b"evil").hexdigest()
    cage = b.dir / "cage"
    cage.mkdir()

    def listing(stats, links=b""):
        sums = "".join(f"{digest}  {path}\n" for kind, path in stats if kind == "81a4")
        lines = "".join(f"{kind} 4 {path}\n" for kind, path in stats)
        return b"=list\n41ed 1 .\n" + lines.encode() + sums.encode() + b"=odd\n=links\n" + links + b"=end\n"

    link = b"./l\0" + str(cage).encode() + b"\n.\0"
    cases = {
        "dots": listing([("81a4", "./../cage/x")]), "more": listing([("81a4", "./a/../../cage/x")]),
        "absolute": listing([("81a4", f"./{cage}/x")]), "bare": listing([("81a4", f"{cage}/x")]),
        "through": listing([("a1ff", "./l"), ("81a4", "./l/x")], link), "folder": listing([("a1ff", "./l"), ("41ed", "./l")], link),
        "link": listing([("a1ff", "./l")], link), "climb": listing([("a1ff", "./l")], b"./l\0../cage\n.\0"),
        "device": listing([("6180", "./dev")]), "cut": listing([("81a4", "./ok")])[:-3], "empty": b"", "words": b"=list\nhello\n",
    }
    for name, text in cases.items():
        server.listing, server.paths = text, []
        home = b.dir / name
        home.mkdir()
        done = b.ctl("get", *W, "-r", "t", "d", str(home / "into"), timeout=60)
        check(done.returncode == 1 or name == "folder", name, done.returncode, done.stderr)
        equal(os.listdir(cage), [], name)
        equal([p.name for p in home.iterdir() if p.name != "into"], [], name)
        if name in ("through", "folder"):  # whichever of the two came first: what is there is a folder or nothing, and no link out
            check(not (home / "into" / "l").is_symlink(), os.listdir(home / "into"))
    server.listing, server.paths = listing([]), ["../x", "d", "d/ok/../../../y", "other"]
    check(b.ctl("get", *W, "-r", "--plain", "t", "d", str(b.dir / "plain")).returncode == 1)
    check(not (b.dir / "x").exists() and not (b.dir / "y").exists())
    # Bytes that are not those of the list do not get a name.
    server.listing, server.paths = listing([("81a4", "./f")]).replace(digest.encode(), b"0" * 64), []
    done = b.ctl("get", *W, "-r", "t", "d", str(b.dir / "wrong"))
    check(done.returncode == 1 and b"damaged" in done.stderr, done.stderr)
    equal(os.listdir(b.dir / "wrong"), [])
    # Nor do its words, or a name, move the terminal.
    server.complaint = b"\x1b]0;mine\x07 and \xc2\x9b31m\nmore"
    done = b.ctl("get", *W, "-r", "t", "d", str(b.dir / "told"))
    check(done.returncode == 1 and b"?]0;mine? and ?31m\n" in done.stderr, done.stderr)
    server.paths = ["a\u009bb", "d"]
    equal(b.ctl("ls", *W, "t").stdout, b"a?b\nd\n")
    server.paths = ["a\u009bb\x7f\x80\u00a0\u20acc", "d"]
    done = b.ctl("ls", "--json", *W, "t").stdout
    check(all(raw not in done for raw in (b"\xc2\x9b", b"\x7f", b"\xc2\x80")) and "\u00a0\u20acc".encode() in done, done)
    equal(json.loads(done)["paths"], server.paths)
    server.shutdown()


def test_a_folder_too_large_for_the_route_is_copied(make):
    """The list route has an end, the script in the sandbox has not; --plain has the route alone, and says what to do."""
    b = make()
    server = serve_lies(b)
    server.too_large = True
    server.listing = b"=list\n41ed 0 .\n41ed 0 ./d\n=odd\n=links\n=end\n"
    done = b.ctl("get", *W, "-r", "t", "top", str(b.dir / "top"), text=True)
    equal((done.returncode, (b.dir / "top/d").is_dir()), (0, True), done.stderr)
    done = b.ctl("get", *W, "-r", "--plain", "t", "top", str(b.dir / "plain"), text=True)
    equal((done.returncode, "without --plain a script" in done.stderr, (b.dir / "plain").exists()), (6, True, False), done.stderr)


def test_an_interrupted_copy_leaves_no_half_file_and_goes_on(make):
    b = make().start()
    tree = b.dir / "tree"
    tree.mkdir()
    for i in range(60):
        (tree / f"f{i:02}").write_bytes(os.urandom(1 << 20))
    process = subprocess.Popen([CTL, "put", *W, "-r", "-j", "1", "t", str(tree)], env=environment(b), stderr=subprocess.PIPE)
    wait_for(lambda: b.mock.count("file_write") > 3, what="some files")
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60 * harness.PATIENCE)[1]
    equal(process.returncode, -signal.SIGINT, err)
    check(b"repeat the command" in err, err)
    # What was half sent goes when berthd notices that the client has hung up.
    wait_for(lambda: b.sh("t", "ls -A tree | grep -v '^f' | wc -l").strip() == b"0", what="half a file to go")
    told = json.loads(b.ctl("put", *W, "-r", "--json", "t", str(tree)).stdout)
    check(told["same"] >= 3 and told["copied"] + told["same"] == 60, told)
    back = b.dir / "back"
    process = subprocess.Popen([CTL, "get", *W, "-r", "-j", "1", "t", "tree", str(back)], env=environment(b), stderr=subprocess.PIPE)
    wait_for(lambda: back.exists() and len(list(back.glob("f*"))) > 3, what="some files")
    process.send_signal(signal.SIGTERM)
    equal(process.wait(timeout=60 * harness.PATIENCE), -signal.SIGTERM)
    equal([p.name for p in back.iterdir() if not p.name.startswith("f")], [])
    told = json.loads(b.ctl("get", *W, "-r", "--json", "t", "tree", str(back)).stdout)
    check(told["same"] >= 3 and told["copied"] + told["same"] == 60, told)
    equal(picture(back), picture(tree))


def test_interrupted_while_the_sandbox_lists(make):
    b = make().start()
    b.sh("t", "mkdir d; echo x >d/f")
    b.mock.faults("execute delay=60s")
    for args in (("put", *W, "-r", "t", str(b.dir / "providers.d")), ("get", *W, "-r", "t", "d", str(b.dir / "into"))):
        posts = lambda: b.log().count("method=POST route=/sandbox/executions ")
        before = posts()
        process = subprocess.Popen([CTL, *args], env=environment(b), stderr=subprocess.PIPE)
        running = lambda: [i for i in b.get("/sandbox/executions", workspace_id="w").json["items"] if i["status"] == "running"]
        # Before it has the answer it knows of no execution that it could cancel.
        wait_for(lambda: running() and posts() > before, what="the script")
        process.send_signal(signal.SIGINT)
        equal(process.wait(timeout=20 * harness.PATIENCE), -signal.SIGINT, process.stderr.read())
        wait_for(lambda: not running(), what="the script's cancel")
    proxy = LosesFirstAnswer(b.port, lost=True, refuse={b"DELETE": 2})
    before = posts()
    process = subprocess.Popen([CTL, "get", *W, "-r", "t", "d", str(b.dir / "into")], stderr=subprocess.PIPE,
                               env=dict(environment(b), BERTH_ADDRESS=f"http://127.0.0.1:{proxy.port}"))
    wait_for(lambda: running() and posts() > before, what="the script")
    process.send_signal(signal.SIGINT)
    equal(process.wait(timeout=20 * harness.PATIENCE), -signal.SIGINT, process.stderr.read())
    equal(proxy.refuse, {b"DELETE": 0}, "a cancel that is refused for now is sent again")
    wait_for(lambda: not running(), what="the script's cancel")


def test_a_list_that_is_refused_for_now_is_asked_for_again(make):
    b = make().start()
    b.sh("t", "mkdir d; echo x >d/f")
    proxy = LosesFirstAnswer(b.port, lost=True, refuse={b"/stdout": 1})
    done = b.ctl("get", *W, "-r", "t", "d", str(b.dir / "into"), env={"BERTH_ADDRESS": f"http://127.0.0.1:{proxy.port}"})
    equal((done.returncode, (b.dir / "into/f").read_text(), proxy.refuse), (0, "x\n", {b"/stdout": 0}), done.stderr)


def test_many_files_at_once_and_faults_of_the_provider(make):
    b = make().start()
    tree = b.dir / "tree"
    for i in range(200):
        path = tree / f"d{i % 7}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(i * 37))
    b.mock.faults("file_write every=9 code=UNAVAILABLE", "file_read every=9 code=RATE_LIMITED retry_after=100ms")
    done = b.ctl("put", *W, "-r", "-j", "16", "t", str(tree))
    equal(done.returncode, 0, done.stderr)
    equal(picture(works(b, "t", "tree")), picture(tree))
    done = b.ctl("get", *W, "-r", "-j", "16", "t", "tree", str(b.dir / "back"))
    equal(done.returncode, 0, done.stderr)
    check(b.mock.count("faults") > 20, "some were tried again")
    equal(picture(b.dir / "back"), picture(tree))


def test_a_file_in_the_folders_place(make):
    b = make().start()
    tree = make_tree(b.dir / "tree")
    b.sh("t", "echo x >tree; mkdir -p other/one; ln -s tree link")
    done = b.ctl("put", *W, "-r", "t", str(tree), text=True)
    equal(done.returncode, 6)
    check("no folder" in done.stderr, done.stderr)
    done = b.ctl("put", *W, "-r", "--json", "t", str(tree), "other")
    equal([x["path"] for x in json.loads(done.stdout)["failed"]], ["one"])
    equal(b.ctl("get", *W, "-r", "t", "tree", str(b.dir / "o")).returncode, 6)
    equal(b.ctl("get", *W, "-r", "t", "nothing", str(b.dir / "o")).returncode, 3)
    check(not (b.dir / "o").exists(), "nothing is made for nothing")
