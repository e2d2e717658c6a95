# SPDX-License-Identifier: Apache-2.0
"""The running server against docs/openapi.yaml, in both directions: every answer fits, and every status, member and parameter that
the document has was seen. What cannot be brought about here is listed with its reason, and must then not come."""

import copy
import json
import re
import urllib.parse

import stored
from contract import Contract
from harness import ROOT, TOKEN, check, equal, wait_for

TEXT = (ROOT / "docs" / "openapi.yaml").read_text()
NEVER = "sexec_0123456789abcdef01234567"

# Members that no scenario here sends.
UNSEEN = {
    "Artifact.name": "artifacts are not collected by this version; each path has an error", "Artifact.content_type": "likewise",
    "Artifact.size": "likewise", "Artifact.sha256": "likewise",
    "Task.release.strays": "needs a create that appears after its session was given up (sessions.O4)",
}
# Statuses likewise.
UNANSWERED = {}


class Walk:
    """Asks like the harness, and has each answer judged. `spoil` changes one before it is judged."""

    def __init__(self, b, spoil=None):
        self.b, self.contract, self.spoil = b, Contract(TEXT), spoil

    def __call__(self, method, path, /, body=None, token=TOKEN, headers=None, expect=None, ids=None, **query):
        route = path
        for name, value in (ids or {}).items():
            route = route.replace("{" + name + "}", urllib.parse.quote(value, safe=""))
        answer = self.b.request(method, route, body, token=token, headers=headers, **query)
        kind = answer.headers.get("content-type")
        json_body = answer.json if kind == "application/json" and answer.body else None
        if self.spoil:
            json_body = self.spoil(method, path, answer.status, json_body)
        content = self.contract.answer(method, path, answer.status, kind, json_body)
        if content and "x-berth-events" in content:
            self.events(content["x-berth-events"], answer.text)
        check(re.fullmatch(r"[A-Za-z0-9._-]{1,64}", answer.headers.get("x-request-id", "")), "X-Request-Id:", answer.headers)
        check(("retry-after" in answer.headers) == bool(json_body and answer.status >= 400 and "retry_after_ms" in json_body),
              "Retry-After goes with retry_after_ms:", answer.headers, json_body)
        if expect:
            answer.expect(*(expect if isinstance(expect, tuple) else (expect,)))
        return answer

    def events(self, schemas, text):
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in fields and fields.get("event") in schemas:
                self.contract.check(schemas[fields["event"]], json.loads(fields["data"]), fields["event"])
            elif fields:
                self.contract.fault("events", f"an event {fields.get('event')!r} that is not in the document")


def create(walk, task, command, expect=(200, 202), wait="20s", region=None, headers=None, outer=None, **fields):
    body = {"workspace_id": "w", "task_id": task, "command": {"command_body": command, **fields}, **(outer or {})}
    if region:
        body["runtime"] = {"region": region}
    return walk("POST", "/sandbox/executions", body, headers=headers, expect=expect, wait=wait).json


def see_executions(walk, b):
    one = "/sandbox/executions/{id}"
    b.put_file("t", "env", b"A=b\0").expect(200)
    b.put_file("t", "in", b"input").expect(200)
    b.sh("t", "mkdir sub", region="eu")
    done = create(walk, "t", "cat; echo x >&2; sleep 200 & printf %070000d 1", region="eu", cwd="sub", env_ref="env", stdin_ref="in",
                  keep_descendants=True, stdout_max_bytes=60000, stderr_max_bytes=1, command_path="x.sh", artifact_paths=["in"],
                  outer={"session_id": "s", "workflow_id": "f"}, expect=200)
    ids = {"id": done["id"]}
    create(walk, "t", "kill -9 $$", wait=None, expect=202)
    create(walk, "t", "echo to stderr >&2; exit 3")
    b.mock.faults("execute nth=1 gap=0-3")
    create(walk, "lossy", "echo 1234567")
    b.mock.faults("provision count=1 code=INVALID reason=image_pull")
    create(walk, "bad", "true")
    b.mock.faults("provision task=w/full code=CAPACITY reason=no_room retry_after=2s")
    full = create(walk, "full", "true", wait=None, expect=202)
    walk("GET", "/sandbox/task/{id}", ids={"id": "full"}, workspace_id="w")
    wait_for(lambda: walk("GET", one, ids={"id": full["id"]}).json.get("retry_after_ms"), 20, "the queue's time to be over")
    b.mock.faults()
    walk("GET", one, ids=ids, expect=200, preview=50)
    walk("GET", one, ids=ids, expect=200, preview=0)
    walk("GET", "/sandbox/executions", expect=200, workspace_id="w", limit=2)
    walk("GET", "/sandbox/executions", expect=200, workspace_id="w", status="completed")
    for stream in ("stdout", "stderr"):
        route = f"{one}/{stream}"
        walk("GET", route, ids=ids, expect=200)
        walk("GET", route, ids=ids, expect=206, headers={"Range": "bytes=0-0"})
        walk("HEAD", route, ids=ids, expect=200)
        walk("HEAD", route, ids={"id": NEVER}, expect=404)
        walk("GET", route, ids=ids, expect=416, headers={"Range": "bytes=99999999-"})
    events = walk("GET", one + "/events", ids=ids, expect=200).text
    last = re.findall(r"(?m)^id: (\d+)", events)[-1]
    walk("GET", one + "/events", ids=ids, expect=204, headers={"Last-Event-ID": last})
    running = create(walk, "t", "sleep 100", wait=None, expect=202)
    wait_for(lambda: b.record(running["id"])["status"] == "running", 10)
    walk("DELETE", one, ids={"id": running["id"]}, expect=202)
    b.finish(running["id"])
    walk("DELETE", one, ids={"id": running["id"]}, expect=200)
    walk("GET", one, ids={"id": running["id"]}, expect=200)
    walk("GET", one + "/events", ids={"id": running["id"]}, expect=200)


def see_files(walk, b):
    place = {"workspace_id": "w", "task_id": "t"}
    walk("PUT", "/sandbox/files", {**place, "path": "a", "content_base64": "YQ=="}, expect=200)
    walk("GET", "/sandbox/files", expect=200, path="a", **place)
    walk("GET", "/sandbox/files", expect=200, list="", **place)
    walk("GET", "/sandbox/files", expect=200, list="", details="true", recursive="false", **place)
    walk("POST", "/sandbox/files/move", {**place, "from": "a", "to": "b"}, expect=200)
    walk("PUT", "/sandbox/file-content", b"bytes", expect=200, path="c", **place)
    walk("GET", "/sandbox/file-content", expect=200, path="c", **place)
    walk("DELETE", "/sandbox/files", expect=204, path="c", **place)
    b.mock.faults("file_read code=UNAVAILABLE reason=http_500")
    walk("GET", "/sandbox/file-content", expect=503, path="b", **place)
    b.mock.faults("file_read code=UNKNOWN")
    walk("GET", "/sandbox/files", expect=502, path="b", **place)
    b.mock.faults()


def see_sessions(walk, b):
    task = "/sandbox/task/{id}"
    running = create(walk, "t", "sleep 100", wait=None, expect=202)
    wait_for(lambda: walk("GET", task, ids={"id": "t"}, workspace_id="w").json["operations"], 10, "an operation")
    walk("GET", "/sandbox/sessions", expect=200, workspace_id="w")
    create(walk, "slow", "true", wait=None, expect=202)
    wait_for(lambda: "phase" in walk("GET", task, ids={"id": "slow"}, workspace_id="w").json, 10, "its phase")
    walk("GET", "/sandbox/sessions", expect=200, workspace_id="w")
    walk("DELETE", task, ids={"id": "t"}, expect=202, workspace_id="w", wait="0")
    walk("GET", task, ids={"id": "t"}, expect=200, workspace_id="w")
    b.mock.faults("release task=w/t code=UNAVAILABLE reason=http_500")
    walk("DELETE", task, ids={"id": "t"}, expect=202, workspace_id="w", force="true", wait="1s")
    wait_for(lambda: "release" in walk("GET", task, ids={"id": "t"}, workspace_id="w").json, 10, "a failed release")
    walk("POST", "/admin/verify", expect=200)
    b.mock.faults("list code=UNAVAILABLE")
    walk("POST", "/admin/verify", expect=200)
    b.mock.faults()
    b.finish(running["id"])
    wait_for(lambda: walk("DELETE", task, ids={"id": "t"}, workspace_id="w", wait="2s").status == 204, 20, "its end")
    wait_for(lambda: walk("GET", task, ids={"id": "bad"}, workspace_id="w").json["state"] == "gone", 10, "a failed session")


def see_operators(walk, b):
    walk("GET", "/health", token=None, expect=200)
    walk("GET", "/metrics", expect=200)
    walk("GET", "/ready", expect=200)
    objects = b.state / "objects"
    objects.rename(b.state / "away")
    walk("GET", "/ready", expect=503)
    (b.state / "away").rename(objects)
    walk("GET", "/runtime/manifest", expect=503)
    for route in ("/admin/targets", "/admin/providers", "/admin/hosts"):
        walk("GET", route, expect=200)
    walk("POST", "/admin/targets/{name}/drain", ids={"name": "mock"}, expect=200)
    walk("POST", "/admin/targets/{name}/undrain", ids={"name": "mock"}, expect=200)
    walk("POST", "/admin/recover", expect=204)


def see_letters(walk, b):
    open_one = create(walk, "open", f"while [ ! -e {b.dir}/gate ]; do sleep 0.02; done", wait=None, expect=202)["id"]
    b.kill9()
    message = json.dumps({"specversion": "1.0", "type": "com.agentarea.sandbox.execution.requested",
                          "data": {"execution_id": open_one}})
    for doc in (b"not json", b"\xff\0"):
        stored.append(b, "requests", "s", doc)
    stored.append(b, "dead", open_one, json.dumps(
        {"reason": "test", "subject": open_one, "seq": 1, "size": len(message), "event": message}).encode())
    b.conf_text += 'runtime: { manifest_json = "{}"; };'
    b.write_conf()
    b.start()
    walk("GET", "/runtime/manifest", expect=200)
    one = "/admin/deadletters/{id}"
    letters = wait_for(lambda: (x := walk("GET", "/admin/deadletters", limit=10).json)["total"] == 3 and x["items"], 20, "letters")
    for letter in letters:
        walk("GET", one, ids={"id": letter["id"]}, expect=200)
        back = walk("POST", one, ids={"id": letter["id"]}, expect=(204, 409))
        if back.status == 409:
            walk("DELETE", one, ids={"id": letter["id"]}, expect=204)
    walk("GET", "/admin/deadletters", expect=200, limit=1)
    (b.dir / "gate").touch()


def see_errors(walk, b):
    """Each operation refuses somebody without a token, or, where it is open, a parameter that it does not have."""
    contract = walk.contract
    for method, path, operation in contract.operations():
        ids = {name: NEVER if "executions" in path else "1" for name in re.findall(r"{(\w+)}", path)}
        is_open = operation.get("security") == []
        answer = walk(method, path, ids=ids, token=TOKEN if is_open else None, **({"zz": "1"} if is_open else {}))
        equal(answer.status, 400 if is_open else 401, f"{method} {path}")
        answer = walk(method, path, ids=ids, zz="1")
        equal(answer.status, 400, f"{method} {path} with an unknown parameter")
        if operation.get("x-berth-status") == "unsupported":
            walk(method, path, ids=ids, expect=501)


def see_damage(walk, b):
    """An internal error, with its request's id."""
    b.kill9()
    stored.damage(b, "tasks", "w/lossy", b'{"state":')
    b.start()
    walk("GET", "/sandbox/task/{id}", ids={"id": "lossy"}, workspace_id="w", expect=500)


def make_berth(make):
    return make(conf='gc: { interval = "200ms"; }; execution: { queue_timeout = "2s"; };',
                target='region = "eu"; cpu_millis = 500; memory = "64MiB"; disk = "1GiB";',
                mock='ready_delay = "700ms";').start()


def test_every_answer_is_as_the_document_says_and_the_other_way_round(make):
    b = make_berth(make)
    walk = Walk(b)
    for see in (see_operators, see_executions, see_files, see_sessions, see_errors, see_letters, see_damage):
        see(walk, b)
    contract = walk.contract
    equal(contract.problems, [], "answers against the document")
    described = contract.described()
    equal(sorted(described - contract.seen - set(UNSEEN)), [], "members of the document that no answer had")
    equal(sorted(set(UNSEEN) & contract.seen), [], "members that came although they are listed as unseen")
    equal(sorted(set(UNSEEN) - described), [], "members that are listed as unseen and not in the document")
    equal(sorted(contract.statuses() - contract.answered - set(UNANSWERED)), [], "statuses that never came")


def test_the_judge_finds_planted_faults(make):
    """A member more, one less, of another type, another word; a status and a member that only the document has."""
    b = make().start()

    def judged(spoil, text=TEXT):
        walk = Walk(b, spoil)
        walk.contract = Contract(text)
        walk("GET", "/admin/hosts")
        walk("GET", "/health", token=None)
        walk("GET", "/sandbox/executions/{id}", ids={"id": NEVER})
        return walk.contract

    def change(path, fn):
        def spoil(method, at, status, body):
            if at == path:
                body = copy.deepcopy(body)
                fn(body)
            return body
        return spoil

    def host(fn):
        return change("/admin/hosts", lambda body: fn(body["items"][0]))

    def error(fn):
        return change("/sandbox/executions/{id}", fn)

    equal(judged(None).problems, [], "nothing planted")
    for spoil, what in ((host(lambda x: x.update(colour="red")), "Hosts.items[].colour: is not in the document"),
                        (host(lambda x: x.pop("roles")), "Hosts.items[].roles: is missing"),
                        (host(lambda x: x.update(pid="1")), "Hosts.items[].pid: '1' is not of type integer"),
                        (host(lambda x: x.update(pid=True)), "Hosts.items[].pid: True is not of type integer"),
                        (host(lambda x: x.update(pid=None)), "Hosts.items[].pid: None is not of type integer"),
                        (host(lambda x: x.update(requests=-1)), "Hosts.items[].requests: -1 is out of its bounds"),
                        (host(lambda x: x.update(started_at="now")), "Hosts.items[].started_at: 'now' is no time"),
                        (change("/health", lambda x: x.update(status="fine")), "'fine' is not 'ok'"),
                        (error(lambda x: x.update(error="oops")), "Error.error: 'oops' is none of"),
                        (error(lambda x: x.update(message="")), "Error.message: a text of 0 characters"),
                        (error(lambda x: x.update(details={"why": "x"})), "Error.details.why: is not in the document")):
        problems = judged(spoil).problems
        check(len(problems) == 1 and what in problems[0], what, "in", problems)

    planted = TEXT.replace("              pid: {type: integer, minimum: 1}", "              pid: {type: integer, minimum: 1}\n"
                           "              colour: {type: string}")
    check(planted != TEXT)
    contract = judged(None, planted)
    equal(contract.described() - Contract(TEXT).described(), {"Hosts.items[].colour"})
    check("Hosts.items[].colour" not in contract.seen, "it never came")
    planted = TEXT.replace("required: [id, version, roles]", "required: [id, version, roles, colour]")
    check(any("colour: is missing" in p for p in judged(None, planted).problems), "required, and never sent")
    planted = TEXT.replace("'200': {description: All, content", "'203': {description: All, content")
    check(any("the status is not in the document" in p for p in judged(None, planted).problems), "an undocumented status")
    check(("GET", "/admin/hosts", "203") in Contract(planted).statuses() - judged(None, planted).answered, "one that never comes")
    planted = TEXT.replace("minLength: 1, maxLength: 255}", "minLength: 1, multipleOf: 2}")
    check(any("multipleOf" in p for p in judged(None, planted).problems), "a keyword that nobody looks at")


def test_parameters_and_bodies_are_those_of_the_document(make):
    b = make(target='region = "eu";').start()
    contract = Contract(TEXT)
    source = (ROOT / "host" / "api" / "routes.c").read_text().replace('IDENTITY "', '"workspace_id task_id region')
    rows = re.findall(r'\.method = "(\w+)",\s*\.pattern = "([^"]+)",(.*?)\.handler', source, re.S)
    taken = {}
    for method, pattern, rest in rows:
        query = re.search(r'\.query = "([^"]*)"', rest)
        taken[method, re.sub(r":(\w+)", r"{\1}", pattern)] = set(query[1].split()) if query else set()
    documented = {(m, p): set(contract.parameters(p, m)) for m, p, _ in contract.operations() if m != "HEAD"}
    unsupported = {(m, p) for m, p, o in contract.operations() if o.get("x-berth-status")}
    for key in set(taken) - unsupported:
        equal(documented[key], taken[key], f"query parameters of {key}")
        for name in sorted(taken[key]):
            ids = {n: NEVER if "executions" in key[1] else "1" for n in re.findall(r"{(\w+)}", key[1])}
            route = key[1]
            for n, value in ids.items():
                route = route.replace("{" + n + "}", value)
            answer = b.request(key[0], route, **{name: "\x7f"})
            check(answer.status == 400 and "unknown query parameter" not in answer.text, key, name, answer.text)

    def body_of(path, method):
        return contract.ref(contract.doc["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"])[0]

    values = {"workspace_id": "w", "task_id": "t", "region": "eu", "path": "a", "content_base64": "YQ==", "from": "a", "to": "b",
              "session_id": "s", "workflow_id": "f", "workspace_manifest_ref": None, "runtime": {"region": "eu"},
              "command_body": "true", "cwd": ".", "env_ref": "a", "stdin_ref": "a", "command_path": "x", "artifact_paths": [],
              "timeout_seconds": 5, "stdout_max_bytes": 5, "stderr_max_bytes": 5, "keep_descendants": True}

    def send(method, path, body):
        return b.request(method, path, body)

    create = body_of("/sandbox/executions", "post")
    command = create["properties"]["command"]
    values["command"] = {"command_body": "true"}
    b.put_file("t", "a", b"A=b\0").expect(200)
    for schema, wrap in ((create, lambda body: body),
                         (command, lambda body: {"workspace_id": "w", "task_id": "t", "command": body}),
                         (create["properties"]["runtime"], lambda body: {"workspace_id": "w", "task_id": "t", "runtime": body,
                                                                         "command": {"command_body": "true"}})):
        try_members(schema, values, lambda body: send("POST", "/sandbox/executions", wrap(body)))
    for method, path in (("PUT", "/sandbox/files"), ("POST", "/sandbox/files/move")):
        try_members(body_of(path, method.lower()), values, lambda body: send(method, path, body))


def try_members(schema, values, send):
    """Each member alone beside the required ones is taken, without a required one it is refused, and so is any other."""
    equal(schema["additionalProperties"], False)
    need = schema.get("required", [])
    least = {name: values[name] for name in need}
    for name in schema["properties"]:
        answer = send({**least, name: values[name]})
        check(answer.status not in (400, 413, 415), name, "is taken:", answer.text)
    for name in need:
        answer = send({k: v for k, v in least.items() if k != name}).expect_error(400, "invalid_request")
        check(name in answer.json["message"], name, "is named:", answer.text)
    answer = send({**least, "colour": 1}).expect_error(400, "invalid_request")
    check("colour" in answer.json["message"], answer.text)


def test_the_words_of_errors_are_those_of_the_table(make):
    table = re.search(r"#define ERR_TABLE\(X\)(.*?)/\* Internal", (ROOT / "host/core/err.h").read_text(), re.S)[1]
    rows = re.findall(r'X\(\w+, "(\w+)", (\d+), [01]\)', table)
    equal(sorted(Contract(TEXT).doc["components"]["schemas"]["Error"]["properties"]["error"]["enum"]),
          sorted(word for word, _ in rows))
    page = (ROOT / "docs" / "http-api.md").read_text()
    section = page[page.index("| status | words |"):page.index("Auth fails closed")]
    equal(sorted(set(re.findall(r"`(\w+)`", section)) - {"Allow"}), sorted(word for word, _ in rows), "docs/http-api.md")
