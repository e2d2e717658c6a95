# SPDX-License-Identifier: Apache-2.0
"""Tokens: each field that does not fit is refused by its own word, and nothing happens."""

import hashlib
import os
import time

from client import Connection, Key, frame, must, wait_for, b64


def now_ms():
    return int(time.time() * 1000)


def refused(x, reason, code="unauthenticated", status=401, path="/v1/execute", **change):
    """A command that would leave a file, with one thing wrong."""
    execution = x.new_id()
    reply = x.execute("echo ran > ran-" + execution, execution, change=change)
    reply.fails(code, reason, status)
    must(not list(x.root.glob("ran-*")) and not (x.state / "run" / execution).exists(), f"{reason}: it ran all the same")
    x.execute("true").ok()


def test_each_wrong_field(make):
    x = make()
    x.execute("true").ok()
    for reason, lines in (
            ("pod_uid", {"uid": "another-uid"}), ("instance", {"instance": "0" * 32}), ("method", {"method": "GET"}),
            ("path", {"path": "/v1/reattach"}), ("head", {"head": "0" * 64}), ("body", {"body": hashlib.sha256(b"").hexdigest()}),
            ("arguments", {"execution": "sexec_other"}), ("arguments", {"execution": "-"}), ("arguments", {"attempt": "2"}),
            ("arguments", {"attempt": "0"}), ("expired", {"expires": str(now_ms() - 1)}), ("expired", {"expires": "0"}),
            ("expires_far", {"expires": str(now_ms() + 700000)}), ("key", {"kid": "k2"})):
        refused(x, reason, lines=lines)


def test_malformed(make):
    """Claims that are not exactly 13 lines of the right form, and encodings that are not exactly one."""
    x = make()
    good = x.request("/v1/check", {})
    claims, signature = (part for part in good.token.split("."))
    for lines in ({"kid": ""}, {"kid": "a b"}, {"kid": "k" * 65}, {"uid": ""}, {"workspace": ".x"}, {"workspace": "a/b"}, {"workspace": "_x"},
                  {"workspace": "w" * 129}, {"task": ""}, {"task": "t\0"}, {"head": "0" * 63}, {"head": "A" * 64}, {"body": "unsigned"},
                  {"attempt": "01"}, {"attempt": "-1"}, {"attempt": "4294967296"}, {"attempt": ""}, {"expires": "9" * 19}, {"expires": "+5"},
                  {"nonce": "0" * 31}, {"nonce": "F" * 32}, {"execution": ".."}, {"execution": "a/b"}, {"execution": ""}, {"path": ""},
                  {"instance": "x" * 40}, {"nonce": "0" * 32 + "\nmore"}):
        refused(x, "token", lines=lines)
    for token in ("", ".", claims, claims + ".", "." + signature, good.token + "=", good.token + ".", claims + "." + signature[:-4],
                  claims + "=." + signature, "!" + good.token, b64(b"\n" * 12) + "." + signature, "A" * 5000,
                  b64(b"\n" * 13) + "." + signature, claims + "." + signature[:-1] + "/"):
        refused(x, "token", token=token)
    refused(x, "signature", signature=os.urandom(64))
    x.ask("/v1/check", {}).ok()


def test_signature_of_other_things(make):
    """The prefix belongs to the signature; so does the right key."""
    x = make()
    other = Key(x.key.name)
    refused(x, "signature", key=other)
    request = x.request("/v1/check", {})
    claims = request.token.split(".")[0]
    import base64
    raw = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
    x.ask("/v1/check", {}, token=f"{claims}.{b64(x.key.sign(raw))}").fails("unauthenticated", "signature", 401)
    # A body's proof is not a token's, nor the other way round.
    x.ask("/v1/check", {}, token=f"{claims}.{b64(x.key.sign(b'berth-executor-body-v1' + bytes([10]) + raw))}").fails(
        "unauthenticated", "signature", 401)


def test_missing(make):
    x = make()
    conn = Connection(x.port)
    conn.send(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    conn.reply().fails("unauthenticated", "token", 401)
    request = x.request("/v1/check", {})
    conn.send(request.raw().replace(b"Berth-Token", b"Authorization"))
    conn.reply().fails("unauthenticated", "token", 401)
    request = x.request("/v1/check", {})
    conn.send(request.head(more=f"Berth-Token: {request.token}\r\n") + request.body)
    must(conn.reply().status == 400, "two tokens were taken")


def test_replay(make):
    """A token serves once: the same bytes again do nothing, also on another connection and after a restart."""
    x = make()
    first = x.request("/v1/file/write", {"path": "f", "mode": 420, "size": 3}, [frame("D", b"old")])
    conn = Connection(x.port)
    conn.send(first.raw())
    conn.reply().ok()
    x.write("f", b"new").ok()
    for _ in range(3):
        again = Connection(x.port)
        again.send(first.raw())
        again.reply().fails("unauthenticated", "replayed", 401)
    must((x.root / "f").read_bytes() == b"new", "an old write came back")
    x.restart()
    again = Connection(x.port)
    again.send(first.raw())
    again.reply().fails("unauthenticated", "instance", 401)
    must((x.root / "f").read_bytes() == b"new", "an old write came back after a restart")


def test_replay_only_after_acceptance(make):
    """A token that was refused for its form is not used up."""
    x = make()
    request = x.request("/v1/check", {})
    conn = Connection(x.port)
    conn.send(request.raw().replace(b"/v1/check ", b"/v1/mark ", 1))
    conn.reply().fails("unauthenticated", "path", 401)
    conn.send(request.raw())
    conn.reply().ok()


def test_identity_pinned(make):
    """The first identity stays, over restarts; health does not say it, an answer to a signed request does."""
    x = make()
    must(not x.health()["pinned"], "pinned before any request")
    workspace, task = x.workspace, x.task
    x.workspace = x.task = ""
    reply = x.ask("/v1/check", {}).ok()
    must("berth-workspace-id" not in reply.headers and not x.health()["pinned"], "an empty identity pinned")
    x.execute("true").fails("forbidden", "identity_missing", 403)
    x.workspace, x.task = workspace, task
    reply = x.ask("/v1/check", {}).ok()
    must(reply.headers["berth-workspace-id"] == workspace and reply.headers["berth-task-id"] == task, reply.headers)
    must("team" not in x.health(raw=True).raw.decode().replace(str(x.root), ""), "health tells the identity")
    for _ in range(2):
        for other in (("team", "task-2"), ("team2", "task-1")):
            x.workspace, x.task = other
            reply = x.execute("echo > ran").fails("forbidden", "identity", 403)
            must(reply.headers["berth-task-id"] == task, "it does not tell whom it serves")
        must(not (x.root / "ran").exists(), "a command of another task ran")
        x.workspace, x.task = workspace, task
        x.execute("true").ok()
        x.restart()
        must(x.health()["pinned"], "the pin was lost")


def test_identity_race(make):
    """Of many first identities exactly one wins."""
    import concurrent.futures
    x = make()

    def ask(n):
        request = x.request("/v1/check", {}, lines={"task": f"task-{n}"})
        conn = Connection(x.port)
        conn.send(request.raw())
        return conn.reply()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(ask, range(16)))
    must(sorted(r.code for r in replies) == ["forbidden"] * 15 + ["ok"], [r.code for r in replies])
    must(len({r.headers["berth-task-id"] for r in replies}) == 1, "two identities were told")


def test_rotation(make):
    """Several keys at once; a new key in the file is found when it is first used; a broken file costs nothing."""
    import tempfile
    old, new = Key("old"), Key("new")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(f"# keys\n{old.entry()}\n")
        file.flush()
        x = make(flags=["--keys", file.name])
        x.ask("/v1/check", {}, key=old).ok()
        x.ask("/v1/check", {}).ok()
        x.ask("/v1/check", {}, key=new).fails("unauthenticated", "key", 401)
        file.write(f"{new.entry()}\n")
        file.flush()
        wait_for(lambda: x.ask("/v1/check", {}, key=new).code == "ok", "the new key is not taken")
        file.write("what is this\n")
        file.flush()
        third = Key("third")
        x.ask("/v1/check", {}, key=third).fails("unauthenticated", "key", 401)
        x.ask("/v1/check", {}, key=old).ok()
        x.ask("/v1/check", {}, key=new).ok()


def test_body_tampered(make):
    """Bytes changed on the way: nothing becomes visible, whichever way the body was signed."""
    x = make()
    for signed in (False, True):
        for path, args, data in (("/v1/file/write", {"path": "f", "mode": 420, "size": 6}, b"secret"),
                                 ("/v1/execute", x.execute_args(x.new_id(), has_stdin=True), b"secret")):
            frames = ([frame("C", b"cat > out")] if "execute" in path else []) + [frame("D", data)]
            request = x.request(path, args, frames, signed=signed)
            request.body = request.body.replace(b"secret", b"public")
            conn = Connection(x.port)
            conn.send(request.raw())
            conn.reply().fails("unauthenticated", "body", 401)
        args = x.execute_args(x.new_id())
        request = x.request("/v1/execute", args, [frame("C", b"echo > one")], signed=signed)
        request.body = request.body.replace(b"echo > one", b"echo > two")
        conn = Connection(x.port)
        conn.send(request.raw())
        conn.reply().fails("unauthenticated", "body", 401)
    x.ask("/v1/file/write", {"path": "f", "mode": 420, "size": 1}, [frame("D", b"x")], signed=True,
          body_signature=os.urandom(64)).fails("unauthenticated", "body", 401)
    must(list(x.root.iterdir()) == [], f"something became visible: {list(x.root.iterdir())}")
    x.ask("/v1/file/write", {"path": "f", "mode": 420, "size": 1}, [frame("D", b"x")], signed=True).ok()


def test_body_of_another_request(make):
    """The proof of a signed body holds for its own nonce only."""
    x = make()
    one = x.request("/v1/file/write", {"path": "a", "mode": 420, "size": 1}, [frame("D", b"1")], signed=True)
    two = x.request("/v1/file/write", {"path": "a", "mode": 420, "size": 1}, [frame("D", b"2")], signed=True)
    two.body = one.body
    conn = Connection(x.port)
    conn.send(two.raw())
    conn.reply().fails("unauthenticated", "body", 401)
    must(not (x.root / "a").exists(), "written")
    conn = Connection(x.port)
    conn.send(one.raw())
    conn.reply().ok()
