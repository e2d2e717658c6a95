# SPDX-License-Identifier: Apache-2.0
"""What the store of a daemon holds, read and changed by an independent client: SQLite's file, or Redis."""

import sqlite3
import time

import harness

STREAMS = ("requests", "events", "dead")


def on_redis(b):
    return b.redis is not None


def _open(b, write=False):
    db = sqlite3.connect(f"file:{b.state}/berth.db?mode={'rw' if write else 'ro'}", uri=True)
    return db


def _change(b, text, *values):
    db = _open(b, write=True)
    try:
        count = db.execute(text, values).rowcount
        db.commit()
        return count
    finally:
        db.close()


def _bytes(value):
    return value if isinstance(value, bytes) else value.encode()


def entries(b, stream):
    """The documents of a stream, oldest first."""
    if on_redis(b):
        return [dict(zip(fields[::2], fields[1::2]))[b"event"] for _, fields in
                b.redis.call("XRANGE", f"{b.store_name}.{stream}", "-", "+")]
    db = _open(b)
    try:
        return [_bytes(doc) for (doc,) in db.execute(f"select doc from stream_{stream} order by seq")]
    finally:
        db.close()


def append(b, stream, subject, doc):
    """As another program would: in Redis an entry has its document only."""
    if on_redis(b):
        b.redis.call("XADD", f"{b.store_name}.{stream}", "*", "event", doc)
    else:
        _change(b, f"insert into stream_{stream}(subject,at,doc) values(?,?,?)", subject, int(time.time() * 1000), doc)


def _document(text):
    """Of a row in Redis: behind its revision, its due time and its group."""
    _, _, size, rest = text.split(b" ", 3)
    return rest[int(size):]


def doc(b, table, key):
    """The document of a row as bytes; None without one."""
    if on_redis(b):
        text = b.redis.call("HGET", f"{b.store_name}:{table}", key)
        return None if text is None else _document(text)
    db = _open(b)
    try:
        row = db.execute(f"select doc from {table} where key=?", (key,)).fetchone()
        return None if row is None else _bytes(row[0])
    finally:
        db.close()


def rows(b, table):
    """{key: document} of a table in Redis, as bytes."""
    flat = b.redis.call("HGETALL", f"{b.store_name}:{table}")
    return {key: _document(text) for key, text in zip(flat[::2], flat[1::2])}


def damage(b, table, key, text):
    """Another document in a row's place; the daemon must not run."""
    if on_redis(b):
        old = b.redis.call("HGET", f"{b.store_name}:{table}", key)
        harness.check(old is not None, f"no row {key} of {table}")
        rev, due, size, rest = old.split(b" ", 3)
        b.redis.call("HSET", f"{b.store_name}:{table}", key, b" ".join([rev, due, size, rest[:int(size)] + _bytes(text)]))
    else:
        harness.equal(_change(b, f"update {table} set doc=? where key=?", text, key), 1, f"rows of {table} damaged")


def lose(b):
    """The whole store is gone."""
    if not on_redis(b):
        for path in b.state.glob("berth.db*"):
            path.unlink()
        return
    cursor = b"0"
    while True:
        cursor, keys = b.redis.call("SCAN", cursor, "MATCH", f"{b.store_name}[:.]*", "COUNT", "1000")
        if keys:
            b.redis.call("DEL", *keys)
        if cursor == b"0":
            return
