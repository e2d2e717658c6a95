# SPDX-License-Identifier: Apache-2.0
"""berthctl --json: one rule for every command of the table, in success and in failure; what is new in lists and files."""

import http.server
import json
import re
import threading

import stored
from harness import check, equal, wait_for
from test_ctl import W, spawn

AWAY = {"BERTH_ADDRESS": "http://127.0.0.1:1"}
NEVER = "sexec_" + "0" * 24


def commands(b):
    """Every command's name with the shape that its help says."""
    page = b.ctl("help", "--man", text=True).stdout
    names = re.findall(r"^\.SS berthctl (.*)$", page, re.M)
    check(len(names) > 25 and ".SH JSON" in page, names)
    shapes = {}
    for name in names:
        line = [x for x in b.ctl(*name.split(), "--help", text=True).stdout.splitlines() if "--json  " in x and "print JSON: " in x]
        text = line[0].split("print JSON: ")[1] if line else ""
        shapes[name] = {"one object": "one", '{"items": […]}': "list", "one object a line": "lines", "": "none"}[text]
    return shapes


def document(done, shape, args):
    """What stands on standard output is one document of that shape."""
    text = done.stdout.decode()
    if shape == "lines":
        return [json.loads(line) for line in text.splitlines()]
    try:
        found = json.loads(text)
    except ValueError as error:
        raise AssertionError(f"{args}: {error}: {text!r} {done.stderr!r}") from None
    check(isinstance(found, dict), args, found)
    return found


def test_every_command_prints_one_document(make):
    b = make().start()
    b.stop()
    for _ in range(3):
        stored.append(b, "dead", "s", json.dumps({"reason": "bad_json", "subject": "s", "seq": 1, "size": 8, "event": "x"}).encode())
    b.start()
    ended = b.run("t", "echo x >f; echo y >g; mkdir d; echo z >d/h")["id"]
    going = b.create("t", "sleep 600").expect(200, 202).json["id"]
    conf, local = str(b.dir / "berth.conf"), b.dir / "local"
    local.mkdir()
    (local / "a").write_text("a")
    letters = [x["id"] for x in b.get("/admin/deadletters").json["items"]]
    # Arguments of a call that works, and of one that does not; None: it has none.
    calls = {
        "exec": [(*W, "t", "echo out; exit 3"), (*W, "t", "--cwd", "nosuch", "true"), (*W, "no/name", "true")],
        "logs": [(ended,), (NEVER,)], "events": [(ended,), (NEVER,)], "executions": [(*W, "t"), ("-w", "no/name")],
        "show": [(ended,), (NEVER,)], "wait": [(ended,), (NEVER,)], "cancel": [(going,), (NEVER,)],
        "put": [(*W, "t", str(local / "a")), (*W, "-r", "t", str(local)), (*W, "t", str(b.dir / "nosuch"))],
        "get": [(*W, "t", "f", str(b.dir / "got")), (*W, "-r", "t", "d", str(b.dir / "tree")), (*W, "t", "nosuch"), (*W, "t", "f", "-")],
        "ls": [(*W, "t"), (*W, "-l", "t", "d"), (*W, "t", "nosuch")], "cat": [(*W, "t", "f"), (*W, "t", "nosuch")],
        "mv": [(*W, "t", "g", "moved"), (*W, "t", "nosuch", "x")], "rm": [(*W, "t", "moved"), (*W, "t", "no1", "f", "no2")],
        "task": [(*W, "t"), (*W, "nosuch")], "sessions": [W, ("-w", "no/name")],
        "targets": [()], "drain": [("mock",), ("nosuch",)], "undrain": [("mock",), ("nosuch",)], "hosts": [()], "verify": [()], "recover": [()],
        "deadletters list": [()], "deadletters show": [(letters[0],), ("nosuch",)], "deadletters requeue": [(letters[0],), ("nosuch",)],
        "deadletters drop": [(letters[1],), ("nosuch", letters[2])], "providers list": [()],
        "providers check": [("-c", conf), ("-c", "/nosuch")], "providers inspect": [("mock", "-c", conf), ("/nosuch.so",)],
        "config check": [("-c", conf), ("-c", "/nosuch")], "config dump": [("-c", conf), ("-c", "/nosuch")], "version": [()],
        "retire": [(*W, "t"), ("-w", "no/name", "t")],
    }
    shapes = commands(b)
    equal({name for name, shape in shapes.items() if shape == "none"}, {"help", "completion"})
    equal(set(calls) | {"help", "completion"}, set(shapes), "every command of the table is called here")
    for name, many in calls.items():
        shape = shapes[name]
        for args in many:
            done = b.ctl(*name.split(), "--json", *args)
            found = document(done, shape, (name, args))
            refused = found[-1] if shape == "lines" else found
            if "error" in refused and "status" not in refused:
                check(done.returncode and refused["message"], name, args, found)
            elif shape == "list":
                check(isinstance(found["items"], list), name, args, found)
    for name in set(calls) - {"version", "providers check", "providers inspect", "config check", "config dump"}:
        done = b.ctl(*name.split(), "--json", *calls[name][0], env=AWAY)
        found = document(done, shapes[name], name)
        refused = found[-1] if shapes[name] == "lines" else found.get("items", [found])[0]
        check(done.returncode in (5, 125) and refused["error"] == "unavailable", name, done.returncode, found)
    for name in ("help", "completion"):
        done = b.ctl(name, "--json")
        equal((done.returncode, done.stdout), (2, b""), name)


def test_parts_that_fail_are_told_beside_those_that_do_not(make):
    b = make().start()
    b.sh("t", "echo x >f")
    done = b.ctl("rm", "--json", *W, "t", "no1", "f", "no2")
    equal(done.returncode, 3)
    items = json.loads(done.stdout)["items"]
    equal([(x["path"], x["removed"], x.get("error")) for x in items], [("no1", False, "not_found"), ("f", True, None), ("no2", False, "not_found")])
    done = b.ctl("put", "--json", *W, "t", "/nosuch")
    equal((done.returncode, json.loads(done.stdout)), (2, {"error": "usage", "message": "/nosuch: No such file or directory"}))
    done = b.ctl("show", "--json", NEVER)
    equal(json.loads(done.stdout)["error"], "not_found", "the API's own answer")


def test_a_list_that_was_cut_says_so(make):
    b = make().start()
    made = [b.create("t", "true").expect(200, 202).json["id"] for _ in range(52)]
    for one in made:
        b.finish(one)
    done = b.ctl("executions", *W, text=True)
    equal((len(done.stdout.splitlines()), done.stderr), (51, "these are the newest 50; --limit N lists more\n"))
    check(json.loads(b.ctl("executions", "--json", *W).stdout)["next_cursor"], "there are more")
    done = b.ctl("executions", *W, "-n", "60", text=True)
    equal((len(done.stdout.splitlines()), done.stderr), (53, ""))
    check("next_cursor" not in json.loads(b.ctl("executions", "--json", *W, "-n", "60").stdout))


def test_ls_long_is_one_level_with_sizes_and_times(make):
    b = make().start()
    b.sh("t", "printf 12345 >f; chmod 640 f; touch -d 2020-02-03T04:05:06Z f; mkdir -p d/e .agentarea; echo x >d/g; ln -s f l; touch -d 1960-01-01 old")
    lines = b.ctl("ls", "-l", *W, "t", text=True).stdout.splitlines()
    rows = {line.split()[-1]: line.split() for line in lines[1:]}
    equal(lines[0].split(), ["MODE", "SIZE", "CHANGED", "PATH"])
    equal(set(rows), {"f", "d/", "l@", "old"})
    equal(rows["f"], ["0640", "5", "B", "2020-02-03", "04:05:06", "f"])
    equal(len(rows["old"]), 4, "a time before 1970 is left out")
    equal([line.split()[-1] for line in b.ctl("ls", "-l", *W, "t", "d", text=True).stdout.splitlines()[1:]], ["d/e/", "d/g"])
    equal(b.ctl("ls", *W, "t", text=True).stdout.split(), ["d/g", "f", "old"], "without it: files at any depth")
    items = {x["path"]: x for x in json.loads(b.ctl("ls", "-l", "--json", *W, "t").stdout)["items"]}
    equal((items["f"]["size"], items["f"]["kind"], items["l"]["kind"], items["d"]["kind"]), (5, "file", "link", "folder"))
    equal(set(x["path"] for x in json.loads(b.ctl("ls", "--json", *W, "t").stdout)["items"]), {"f", "d", "d/e", "d/g", "l", "old"})
    b.sh("t", "mkdir empty")
    equal(b.ctl("ls", "-l", *W, "t", "empty").stdout, b"")
    for query in ({"path": "f", "details": "true"}, {"path": "f", "recursive": "false"}, {"list": "", "details": "x"}, {"list": "", "recursive": ""}):
        b.get("/sandbox/files", workspace_id="w", task_id="t", **query).expect(400)


def test_a_cancel_that_is_asked_for_is_shown(make):
    b = make(mock='kill_grace = "60s";').start()
    made = b.create("t", f"trap '' TERM; echo up; while [ ! -e {b.dir}/gate ]; do sleep 0.05; done").expect(200, 202).json["id"]
    wait_for(lambda: b.ctl("logs", made).stdout == b"up\n", what="its trap")
    check("cancel_requested_at" not in b.record(made))
    cancel = spawn(b, "cancel", made)
    asked = wait_for(lambda: b.record(made).get("cancel_requested_at"), what="the cancel in the record")
    equal(b.record(made)["status"], "running")
    item = b.get("/sandbox/executions", workspace_id="w").json["items"][0]
    equal(item["cancel_requested_at"], asked, "in lists, too")
    check("cancel asked for" in b.ctl("executions", *W, text=True).stdout)
    check(re.search(r"^cancel asked +\d+s ago$", b.ctl("show", made, text=True).stdout, re.M))
    (b.dir / "gate").touch()
    equal((cancel.communicate(timeout=90)[0], cancel.returncode), (f"{made} cancelled\n".encode(), 0))
    check("cancel_requested_at" not in b.record(made), "it has happened")


def test_a_nul_in_an_output_is_shown(make):
    b = make().start()
    made = b.run("t", "printf 'a\\0b'")["id"]
    equal(json.loads(b.ctl("logs", "--json", made).stdout)["preview"]["stdout"]["head"], "a\0b")


class Other(http.server.BaseHTTPRequestHandler):
    """Answers everything with 200 and JSON that is not of this API."""
    text = b""
    name = "X-Request-Id"  # of the header that each answer of berthd has

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header(self.name, "req_1")
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *args):
        pass


def test_an_answer_that_is_not_berthds_crashes_nothing(make):
    b = make()
    b.port = 1
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {"BERTH_ADDRESS": f"http://127.0.0.1:{server.server_port}"}
    lists = (("executions",), ("sessions",), ("targets",), ("hosts",), ("providers", "list"), ("deadletters", "list"), ("ls", "t"), ("ls", "-l", "t"))
    ones = (("task", "t"), ("verify",), ("show", NEVER), ("drain", "m"))
    for text, called in ((b"{}", lists), (b'{"items": {}, "paths": 5}', lists), (b'{"items": [1, null, [], {}], "paths": [1, null, {}]}', lists),
                            (b"[1]", lists + ones), (b'{"operations": 1, "targets": {}, "output_lost": 3}', ones),
                            (b'{"operations": [1], "targets": [1, {"unknown": 5, "missing": [{}]}], "output_lost": [1]}', ones)):
        Other.text = text
        for command in called:
            done = b.ctl(*command, env=env)
            check(0 <= done.returncode < 100 and b"Sanitizer" not in done.stderr, command, text, done)
    Other.text = b'{"items": [], "next_cursor": "again"}'
    done = b.ctl("sessions", env=env)
    check(done.returncode == 1 and b"does not go on" in done.stderr, done)
    for Other.text in b"{}", b"<html>", b"":
        for command, code in (("wait", 125), ("cancel", 1), ("show", 1), ("logs", 1), ("events", 1), ("executions", 1), ("sessions", 1)):
            done = b.ctl(command, *([NEVER] if command in ("wait", "cancel", "show", "logs", "events") else []), env=env, timeout=120)
            check(done.returncode == code and b"the answer is not berthd's" in done.stderr, command, Other.text, done)
    # A server that is no berthd says so by its answers' heads, whatever is asked for.
    Other.name = "X-Other"
    for Other.text in b"{}", b"<html>", b"":
        for command in lists + ones + (("rm", "t", "f"), ("mv", "t", "f", "g"), ("get", "t", "f", "-"), ("cat", "t", "f"), ("events", NEVER)):
            done = b.ctl(*command, env=env)
            check(done.returncode == 1 and not done.stdout and b"the answer is not berthd's (status 200" in done.stderr, command, Other.text, done)
    Other.name = "X-Request-Id"
    server.shutdown()
