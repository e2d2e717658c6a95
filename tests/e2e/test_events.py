# SPDX-License-Identifier: Apache-2.0
"""What is published in Redis, held against docs/schemas."""

import contextlib
import http.client
import json
import pathlib
import re
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
    with on_redis(make, conf="runner: { concurrency = 1; };\n") as (b, server):
        done = b.run("t", "echo secret-output; exit 3")["id"]
        late = b.create("t", "sleep 60").expect(202).json["id"]
        wait_for(lambda: b.record(late)["status"] == "running", 20, "the command to run")
        waits = entries(server, b, "requests", "event.schema.json")
        equal(waits, [], "what a host has taken does not wait")
        more = [b.create("t", "sleep 60").expect(202).json["id"] for _ in range(2)]
        waits = entries(server, b, "requests", "event.schema.json")
        equal(sorted(e["subject"] for e in waits), sorted(more), "they wait for the session")
        for one in [*more, late]:
            b.request("DELETE", f"/sandbox/executions/{one}").expect(200, 202)
            b.finish(one)
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


def grow_history(b, server, subject, count):
    """More events of a running command, as if it had printed for hours, behind those that it has."""
    stream = f"{b.dir.name}.events"
    name, fields = [entry for entry in server.call("XRANGE", stream, "-", "+") if subject.encode() in entry[1][1]][-1]
    ms, seq = map(int, name.split(b"-"))
    for at in range(seq + 1, seq + 1 + count):
        server.call("XADD", stream, f"{ms}-{at}", *fields)
        server.call("ZADD", f"{b.dir.name}:of:events:{subject}", "0", f"{ms:015}-{at:07}")


def round_trips(b):
    return int(re.search(r"^berth_store_round_trips_total (\d+)$", b.get("/metrics").text, re.M)[1])


def test_a_follower_asks_for_the_record_once_for_many_events(make):
    """Last event, last offsets, end: what comes before the last needs no look at the record."""
    count = 200
    with on_redis(make) as (b, server):
        gate = b.dir / "gate"
        late = b.create("t", f"echo a; while [ ! -e {gate} ]; do sleep 0.02; done; echo b").expect(202).json["id"]
        wait_for(lambda: b.record(late)["status"] == "running", 20, "the command to run")
        grow_history(b, server, late, count)
        before, lines = round_trips(b), []
        connection = http.client.HTTPConnection("127.0.0.1", b.port, timeout=60)
        connection.request("GET", f"/sandbox/executions/{late}/events", headers={"Authorization": "Bearer " + harness.TOKEN})
        response = connection.getresponse()
        while lines.count("event: status") < count + 3:
            line = response.readline().decode()
            check(line, "the stream ended early:", lines[-4:])
            lines.append(line.rstrip())
        asked = round_trips(b) - before  # one for each event, and few beside them
        check(count < asked < count * 3 / 2, asked, "exchanges for", count, "events")
        gate.touch()
        lines += response.read().decode().splitlines()
        connection.close()
        told = [line for line in lines if line.startswith("event: ") or '"stdout_bytes"' in line]
        equal(told[-3:], ["event: output", 'data: {"stdout_bytes":4,"stderr_bytes":0}', "event: status"])
        equal(json.loads([line for line in lines if line.startswith("data: ")][-1][6:])["data"]["status"], "completed")
