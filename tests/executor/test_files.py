# SPDX-License-Identifier: Apache-2.0
"""Files, tar, marks: the SDK's functions seen through the wire."""

import io
import os
import tarfile
import threading
import time

from client import MAX, Connection, frame, must, wait_for


def test_round_trip(make):
    x = make()
    for content in (b"", b"x", bytes(range(256)), os.urandom(3 << 20)):
        for signed in (False, True):
            x.write("dir/sub/f.bin", content, mode=0o640, signed=signed).ok()
            must(x.read("dir/sub/f.bin").ok().stream("D") == content, f"{len(content)} bytes")
    must((x.root / "dir/sub/f.bin").stat().st_mode & 0o777 == 0o640, "the mode")
    data = x.read("dir/sub/f.bin", offset=1000, length=5000).ok().stream("D", 1000)
    must(data == content[1000:6000], "a range")
    must(x.read("dir/sub/f.bin", offset=1 << 40).ok().stream("D", 1 << 40) == b"", "behind the end")
    x.write("unknown", b"abc", size=MAX).ok()
    x.write("wrong", b"abc", size=4).fails("invalid", "size_mismatch", 400)
    x.write("wrong", b"abc", mode=0).fails("invalid", "mode")
    must(not (x.root / "wrong").exists() and not [n for n in os.listdir(x.root) if n.startswith(".")], os.listdir(x.root))


def test_stat_list_move_remove(make):
    x = make()
    x.write("a/b", b"12345").ok()
    os.symlink("b", x.root / "a/link")
    (info,) = x.ask("/v1/file/stat", {"path": "a/b"}).ok().items("F")
    must(info["path"] == "a/b" and info["kind"] == "regular" and info["size"] == 5 and info["mode"] == 0o644, info)
    must(abs(info["mtime_ms"] - time.time() * 1000) < 60000, info)
    x.ask("/v1/file/stat", {"path": "none"}).fails("not_found", "not_found", 404)
    files = {f["path"]: f["kind"] for f in x.ask("/v1/file/list", {"path": ".", "recursive": True}).ok().items("F")}
    must(files == {"a": "directory", "a/b": "regular", "a/link": "symlink"}, files)
    must([f["path"] for f in x.ask("/v1/file/list", {"path": "."}).items("F")] == ["a"], "not recursive")
    x.ask("/v1/file/move", {"from": "a/b", "to": "c/d"}).ok()
    must((x.root / "c/d").read_bytes() == b"12345", "moved")
    x.ask("/v1/file/remove", {"path": "a"}).fails("conflict", "not_empty", 409)
    x.ask("/v1/file/remove", {"path": "a", "recursive": True}).ok()
    x.ask("/v1/file/remove", {"path": "a"}).fails("not_found")
    must(os.listdir(x.root) == ["c"], os.listdir(x.root))


def test_what_cannot_be_named_is_left_out_of_a_list(make):
    x = make()
    base = os.open(x.root, os.O_PATH)
    for _ in range(6):
        os.mkdir("n" * 200, dir_fd=base)
        base, last = os.open("n" * 200, os.O_PATH, dir_fd=base), base
        os.close(last)
    os.close(base)
    answer = x.ask("/v1/file/list", {"path": ".", "recursive": True}).ok()
    must(len(answer.items("F")) == 5 and answer.result["text"].startswith("1 entries have paths over"), answer.result)
    x.ask("/v1/file/remove", {"path": "n" * 200, "recursive": True}).ok()


def test_odd_names(make):
    """Names are bytes: quotes, control characters, other encodings."""
    x = make()
    names = [b'q"uo\\te', b"new\nline", b"tab\tand\x01", "ünï".encode(), b"latin-\xe9", b" ", b"a" * 255]
    for name in names:
        (x.root / os.fsdecode(name)).write_bytes(name)
    raw = x.ask("/v1/file/list", {"path": "."}).ok().frames
    import json
    listed = {os.fsencode(json.loads(p.decode("utf-8", "surrogateescape"))["path"]) for k, p in raw if k == "F"}
    must(listed == set(names), listed ^ set(names))
    for name in names:
        text = json.dumps({"path": "@", "offset": 0, "length": MAX}).encode().replace(
            b'"@"', json.dumps(os.fsdecode(name), ensure_ascii=False).encode("utf-8", "surrogateescape"))
        must(x.ask("/v1/file/read", {}, args_raw=text).ok().stream("D") == name, name)


def test_nothing_outside(make):
    """No path and no link leads out of the root, while it is being swapped neither."""
    x = make()
    secret = x.dir / "secret"
    secret.write_bytes(b"secret")
    for path in ("../secret", "/etc/passwd", "a/../../secret", "..", "", "a//b", "./a", "a/."):
        reply = x.read(path)
        must(reply.code in ("invalid", "not_found") and b"secret" not in reply.raw.replace(str(secret).encode(), b""), path)
        must(x.write(path, b"evil").code == "invalid", path)
    os.symlink(str(secret), x.root / "link")
    os.symlink("..", x.root / "up")
    x.read("link").fails("invalid", "path_escapes")
    x.read("up/secret").fails("invalid", "path_escapes")
    x.write("up/new", b"evil").fails("invalid", "path_escapes")
    x.ask("/v1/file/remove", {"path": "up/secret"}).fails("invalid", "path_escapes")
    x.ask("/v1/file/move", {"from": "up/secret", "to": "mine"}).fails("invalid", "path_escapes")
    x.ask("/v1/tar/export", {}, [frame("P", b"up/secret\0")]).fails("invalid", "path_escapes")
    os.mkdir(x.root / "real")
    (x.root / "real/secret").write_bytes(b"public")
    over = threading.Event()

    def swap():
        os.symlink("real", x.root / "swap")
        while not over.is_set():
            for target in ("..", "real"):
                os.symlink(target, x.root / "next")
                os.rename(x.root / "next", x.root / "swap")

    thread = threading.Thread(target=swap)
    thread.start()
    conn = Connection(x.port)
    try:
        for _ in range(300):
            reply = x.ask("/v1/file/read", {"path": "swap/secret", "offset": 0, "length": MAX}, conn=conn)
            must(reply.code in ("ok", "invalid", "not_found", "unavailable"), reply.result)
            must(reply.code != "ok" or reply.stream("D") == b"public", "it led outside")
    finally:
        over.set()
        thread.join()


def test_tar(make):
    x = make()
    x.write("d/one", b"1" * 1000, mode=0o600).ok()
    x.write("d/two", b"2" * 70000, mode=0o755).ok()
    raw = x.ask("/v1/tar/export", {}, [frame("P", b"d/one\0d/two\0")]).ok().stream("D")
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        members = {m.name: (m.mode & 0o777, tar.extractfile(m).read()) for m in tar if m.isfile()}
    must(members == {"d/one": (0o600, b"1" * 1000), "d/two": (0o755, b"2" * 70000)}, list(members))
    for signed in (False, True):
        x.ask("/v1/tar/import", {"path": f"in{signed}"}, [frame("D", raw[at:at + 5000]) for at in range(0, len(raw), 5000)], signed=signed).ok()
        must((x.root / f"in{signed}/d/two").read_bytes() == b"2" * 70000, "imported")
    x.ask("/v1/tar/import", {"path": "cut"}, [frame("D", raw[:2000])]).fails("invalid")
    x.ask("/v1/tar/import", {"path": "bad"}, [frame("D", raw)], signed=True, body_signature=bytes(64)).fails("unauthenticated", "body")
    must(not (x.root / "cut/d").exists() and not (x.root / "bad/d").exists(), "half an archive became visible")
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        info = tarfile.TarInfo("../evil")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    x.ask("/v1/tar/import", {"path": "."}, [frame("D", evil.getvalue())]).fails("invalid")
    must(not (x.dir / "evil").exists(), "it led outside")
    x.ask("/v1/tar/export", {}, [frame("P", b"no-nul")]).fails("invalid", "frame")
    x.ask("/v1/tar/export", {}).fails("invalid", "frame")


def test_changes(make):
    x = make()
    for name in ("kept", "edited", "removed", "mode", "same-size"):
        x.write(name, b"12345").ok()
    token = x.ask("/v1/mark", {}).ok().items("T")[0]["token"]
    must(x.ask("/v1/changes", {"token": token}).ok().items("K") == [], "changes where there are none")
    stat = (x.root / "same-size").stat()
    (x.root / "same-size").write_bytes(b"54321")
    os.utime(x.root / "same-size", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (x.root / "edited").write_bytes(b"more bytes")
    (x.root / "removed").unlink()
    (x.root / "mode").chmod(0o755)
    x.execute("mkdir new; echo x > new/file").ok()
    for _ in range(2):
        changes = {c["path"]: c["kind"] for c in x.ask("/v1/changes", {"token": token}).ok().items("K")}
        must(changes == {"same-size": "regular", "edited": "regular", "removed": "deleted", "mode": "regular", "new": "directory",
                         "new/file": "regular"}, changes)
        x.restart()
    x.ask("/v1/changes", {"token": "0" * 24}).fails("not_found", "mark", 404)
    x.ask("/v1/changes", {"token": "../../executor"}).fails("not_found", "mark", 404)
    tokens = [x.ask("/v1/mark", {}).items("T")[0]["token"] for _ in range(17)]
    x.ask("/v1/changes", {"token": token}).fails("not_found", "mark", 404)
    x.ask("/v1/changes", {"token": tokens[-1]}).ok()


def tar_of(content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("small", b"x"), ("half", content)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_disconnect_in_the_middle(make):
    """Half an upload leaves nothing behind, and the operation ends."""
    x = make()
    for path, args, content in (("/v1/file/write", {"path": "half", "mode": 420, "size": 5000000}, os.urandom(5000000)),
                                ("/v1/tar/import", {"path": "."}, tar_of(os.urandom(5000000))),
                                ("/v1/execute", x.execute_args("sexec_half", has_stdin=True), b"x" * 5000000)):
        frames = ([frame("C", b"cat > half")] if "execute" in path else [])
        frames += [frame("D", content[at:at + 500000]) for at in range(0, len(content), 500000)]
        raw = x.request(path, args, frames).raw()
        conn = Connection(x.port)
        conn.send(raw[:len(raw) // 2])
        conn.close()
        wait_for(lambda: x.health()["operations"] == 0, f"{path}: the operation outlives its client")
        must(os.listdir(x.root) == [], os.listdir(x.root))
    x.reattach("sexec_half").fails("not_started")


def test_large_file(make):
    """Streams, in both directions, without memory to match."""
    x = make()
    size = 64 << 20
    block = os.urandom(1 << 20)
    request = x.request("/v1/file/write", {"path": "large", "mode": 420, "size": size}, [frame("D", block)] * 64, signed=True)
    conn = Connection(x.port)
    conn.send(request.raw())
    conn.reply().ok()
    must(x.read("large").ok().stream("D") == block * 64, "other bytes")
    peak = int(next(line for line in open(f"/proc/{x.process.pid}/status") if line.startswith("VmHWM")).split()[1])
    must(peak < 16384 or os.environ.get("BERTH_PRESET") in ("asan", "tsan"), f"{peak} KiB")
