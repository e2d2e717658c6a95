# SPDX-License-Identifier: Apache-2.0
"""What is published in Redis, held against docs/schemas."""

import contextlib
import json
import pathlib
import sys

import harness
import redis_server
from harness import check, equal, wait_for

try:
    import jsonschema
except ImportError:  # another Python than the distribution's, whose package it is
    sys.path.append("/usr/lib/python3/dist-packages")
    import jsonschema

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schemas"
PREFIX = "com.agentarea.sandbox.execution."


@contextlib.contextmanager
def on_redis(make, **kw):
    server = harness.REDIS or redis_server.RedisServer().start()
    b = make(**kw)
    b.redis = server
    b.write_conf()
    try:
        yield b.start(), server
    finally:
        b.close(keep=True)
        if not harness.REDIS:
            server.close()


def entries(server, b, stream, schema):
    schema = json.loads((SCHEMAS / schema).read_text())
    out = []
    for _, fields in server.call("XRANGE", f"{b.dir.name}.{stream}", "-", "+"):
        document = json.loads(dict(zip(fields[::2], fields[1::2]))[b"event"])
        jsonschema.validate(document, schema)
        out.append(document)
    return out


def test_events_are_as_their_schema_says(make):
    with on_redis(make) as (b, server):
        done = b.run("t", "echo secret-output; exit 3")["id"]
        late = b.create("t", "sleep 60").expect(202).json["id"]
        wait_for(lambda: b.record(late)["status"] == "running", 20, "the command to run")
        waits = entries(server, b, "requests", "event.schema.json")
        equal([e["subject"] for e in waits], [late], "what has ended has left the queue")
        b.request("DELETE", f"/sandbox/executions/{late}").expect(200, 202)
        b.finish(late)
        events = entries(server, b, "events", "event.schema.json")
        types = [e["type"][len(PREFIX):] for e in events if e["subject"] == done]
        equal([t for t in types if t != "progress"], ["requested", "claimed", "started", "completed"])
        equal([e["type"][len(PREFIX):] for e in events if e["subject"] == late][-1], "cancelled")
        revisions = [e["data"]["revision"] for e in events if e["subject"] == done]
        equal(revisions, sorted(set(revisions)), "each event has a revision of its own")
        check("secret-output" not in json.dumps(events) and "exit 3" not in json.dumps(events), "outputs and commands are not told")
        equal(entries(server, b, "requests", "event.schema.json"), [])


def test_dead_letters_are_as_their_schema_says(make):
    with on_redis(make, conf='gc: { interval = "200ms"; };') as (b, server):
        server.call("XADD", f"{b.dir.name}.requests", "*", "event", "no json")
        server.call("XADD", f"{b.dir.name}.requests", "*", "event", b"\xff\x00binary")
        letters = wait_for(lambda: (found := entries(server, b, "dead", "dead-letter.schema.json")) and len(found) == 2 and found, 30,
                           "the dead letters")
        equal([(x["reason"], x.get("event"), x["size"]) for x in letters], [("bad_json", "no json", 7), ("bad_json", None, 8)])
        equal(entries(server, b, "requests", "event.schema.json"), [])


def test_the_schemas_refuse_what_is_wrong(make):
    with on_redis(make) as (b, server):
        b.run("t", "true")
        schema = json.loads((SCHEMAS / "event.schema.json").read_text())
        event = entries(server, b, "events", "event.schema.json")[0]
        for wrong in ({**event, "specversion": "2.0"}, {**event, "extra": 1}, {**event, "data": {}}, {k: v for k, v in event.items() if k != "id"}):
            try:
                jsonschema.validate(wrong, schema)
            except jsonschema.ValidationError:
                continue
            raise harness.Failure(f"was taken: {wrong}")
