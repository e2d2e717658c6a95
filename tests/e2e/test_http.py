# SPDX-License-Identifier: Apache-2.0
"""HTTP itself, byte by byte: what a strict reader of RFC 9110 and 9112 would ask of a server that sits behind proxies."""

import re
import socket

from harness import TOKEN, check, equal, wait_for

AUTH = f"Authorization: Bearer {TOKEN}\r\n".encode()
FILE = b"/sandbox/file-content?workspace_id=w&task_id=t&path="


def talk(b, data, answers=1, timeout=20):
    """Sends bytes as they are; (status, headers, body) of so many answers, or as many as came before the end."""
    out, found = b"", []
    with socket.create_connection(("127.0.0.1", b.port), timeout=timeout) as s:
        s.sendall(data)
        while len(found) < answers:
            taken = take(out, data)
            if taken:
                found.append(taken[:3])
                out = out[taken[3]:]
                continue
            try:
                piece = s.recv(65536)
            except (socket.timeout, ConnectionResetError):
                break
            if not piece:
                break
            out += piece
    return found


def take(out, asked):
    head, blank, rest = out.partition(b"\r\n\r\n")
    if not blank:
        return None
    status = int(head.split(b" ")[1])
    headers = {k.strip().lower().decode(): v.strip().decode() for k, v in
               (line.split(b":", 1) for line in head.split(b"\r\n")[1:])}
    length = 0 if asked.startswith(b"HEAD") or status in (100, 204) else int(headers.get("content-length", 0))
    return (status, headers, rest[:length], len(head) + 4 + length) if len(rest) >= length else None


def one(b, request, body=b"", headers=b"", host=b"Host: x\r\n", **kw):
    found = talk(b, request + b" HTTP/1.1\r\n" + host + headers + b"\r\n" + body, **kw)
    return found[0] if found else (0, {}, b"")


def test_methods(make):
    b = make().start()
    b.put_file("t", "f", b"12345").expect(200)
    execution = b.run("t", "echo hello")["id"].encode()
    for route in (b"/health", b"/ready", b"/metrics", b"/admin/targets", b"/sandbox/executions/" + execution, FILE + b"f",
                  b"/sandbox/executions/" + execution + b"/stdout", b"/sandbox/sessions?workspace_id=w"):
        wait_for(lambda: b'"stage":"idle"' in one(b, b"GET /sandbox/sessions?workspace_id=w", headers=AUTH)[2], 30, "the last read to be over")
        got = one(b, b"GET " + route, headers=AUTH)
        head = one(b, b"HEAD " + route, headers=AUTH)
        equal((head[0], head[2]), (200, b""), route)
        if route not in (b"/metrics", b"/ready", b"/admin/targets"):
            equal(head[1]["content-length"], got[1]["content-length"], route)
        equal(head[1]["content-type"], got[1]["content-type"], route)
    equal(one(b, b"HEAD " + FILE + b"none", headers=AUTH)[0], 404)
    equal(one(b, b"HEAD " + FILE + b"f")[0], 401)
    for target, allow in ((b"/sandbox/files", "PUT, GET, HEAD, DELETE, OPTIONS"), (b"/health", "GET, HEAD, OPTIONS"),
                          (b"*", "GET, HEAD, POST, PUT, DELETE, OPTIONS")):
        status, headers, body = one(b, b"OPTIONS " + target)
        equal((status, headers["allow"], body), (204, allow, b""), target)
    equal(one(b, b"OPTIONS /nothing")[0], 404)
    for method in (b"PATCH", b"TRACE", b"FOO", b"get", b"DELETE"):
        status, headers, body = one(b, method + b" /health")
        equal((status, headers.get("allow")), (405, "GET, HEAD, OPTIONS"), method)
    check(one(b, b"CONNECT x:1")[0] in (400, 404, 405))


def test_targets(make):
    b = make().start()
    for target, status in ((b"http://other/health", 200), (b"HTTPS://user@other:99/health", 200), (b"http://other", 404),
                           (b"http:///health", 404), (b"ftp://other/health", 404), (b"//other/health", 404), (b"/health/", 404),
                           (b"/health?", 200), (b"/health?x", 400), (b"/%68ealth", 404), (b"/./health", 404), (b"/a/../health", 404),
                           (b"/health%00", 404), (b"/health#a", 404), (b"/HEALTH", 404), (b"*", 404), (b"/" + b"a" * 9000, 414),
                           (b"/sandbox/task/%", 400), (b"/sandbox/task/%zz", 400), (b"/sandbox/task/a%2fb", 400),
                           (b"/sandbox/task/a%00", 400), (b"/sandbox/task/%ff", 400), (b"/sandbox/task/%61?workspace_id=w", 404),
                           (b"/sandbox/task/t?workspace_id=%", 400), (b"/sandbox/task/t?workspace_id=w&workspace_id=w", 400),
                           (b"/sandbox/task/t?workspace%5fid=w", 404), (b"/sandbox/task/t?workspace_id=w&", 400),
                           (b"/sandbox/task/t?=w", 400), (b"/sandbox/task/t?&", 400)):
        equal(one(b, b"GET " + target, headers=AUTH)[0], status, target)
    equal(one(b, b"GET http://other/health", host=b"")[0], 400, "Host is needed, also with an absolute target")
    status, headers, body = one(b, b"GET http://other/sandbox/sessions?workspace_id=w", headers=AUTH)
    equal((status, b'"total":0' in body), (200, True))


def test_what_a_request_may_not_ask_for(make):
    b = make().start()
    b.put_file("t", "f", b"before").expect(200)
    put = b"PUT " + FILE + b"f"
    length = b"Content-Length: 5\r\n"
    for header, status, word in ((b"Expect: 200-ok", 417, b"expectation_failed"),
                                 (b"Content-Encoding: gzip", 415, b"unsupported_media_type"),
                                 (b"Content-Range: bytes 0-4/10", 400, b"Content-Range"),
                                 (b"If-Match: \"x\"", 412, b"precondition_failed"),
                                 (b"If-None-Match: *", 412, b"precondition_failed"),
                                 (b"Content-Encoding: identity\r\nContent-Encoding: gzip", 400, b"twice")):
        got = one(b, put, b"wrong", AUTH + length + header + b"\r\n")
        equal((got[0], word in got[2]), (status, True), header)
        equal(b.get_file("t", "f").expect(200).body, b"before", "nothing was written")
    create = b'{"workspace_id":"w","task_id":"t","command":{"command_body":"true"}}'
    for kind, status in ((b"text/xml", 415), (b"multipart/form-data; boundary=x", 415), (b"application/json; charset=latin1", 415),
                         (b"application/json; charset=utf-8", 202), (b"application/x-www-form-urlencoded", 202)):
        got = one(b, b"POST /sandbox/executions", create,
                  AUTH + b"Content-Length: %d\r\nContent-Type: " % len(create) + kind + b"\r\n")
        equal(got[0], status, kind)
    got = talk(b, put + b" HTTP/1.1\r\nHost: x\r\n" + AUTH + length + b"Expect: 100-continue\r\n\r\n" + b"after", answers=2)
    equal([x[0] for x in got], [100, 200])
    equal(b.get_file("t", "f").expect(200).body, b"after")
    got = talk(b, put + b" HTTP/1.1\r\nHost: x\r\n" + length + b"Expect: 100-continue\r\n\r\n", answers=2)
    equal([x[0] for x in got], [401], "refused without its body")


def test_ranges(make):
    b = make().start()
    execution = b.run("t", "printf 0123456789")["id"].encode()
    route = b"GET /sandbox/executions/" + execution + b"/stdout"
    for header, status, body in ((b"Range: bytes=0-0", 206, b"0"), (b"Range: bytes=-3", 206, b"789"), (b"Range: bytes=5-", 206, b"56789"),
                                 (b"Range: bytes=5-99", 206, b"56789"), (b"Range: bytes=10-", 416, None), (b"Range: bytes=-0", 416, None),
                                 (b"Range: bytes=5-4", 200, b"0123456789"), (b"Range: bytes=0-1,3-4", 200, b"0123456789"),
                                 (b"Range: lines=0-1", 200, b"0123456789"), (b"Range: bytes=a-b", 200, b"0123456789"),
                                 (b"Range: bytes=0-99999999999999999999999", 200, b"0123456789"),
                                 (b"Range: bytes=0-0\r\nIf-Range: \"x\"", 200, b"0123456789"),
                                 (b"If-None-Match: \"x\"", 200, b"0123456789"), (b"If-Match: \"x\"", 412, None)):
        got = one(b, route, headers=AUTH + header + b"\r\n")
        equal(got[0], status, header)
        check(body is None or got[2] == body, header, got)
        if status == 416:
            equal(got[1]["content-range"], "bytes */10")
    got = one(b, b"HEAD" + route[3:], headers=AUTH + b"Range: bytes=2-3\r\n")
    check(got[0] in (200, 206) and got[2] == b"", got)


def chunked(*chunks, trailers=b""):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n" + trailers + b"\r\n"


def test_chunked_bodies(make):
    b = make().start()
    b.put_file("t", "f", b"before").expect(200)
    put = b"PUT " + FILE + b"f HTTP/1.1\r\nHost: x\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
    after = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for body, content in ((chunked(b"abc", b"d" * 5000), b"abc" + b"d" * 5000),
                          (chunked(b"abc", trailers=b"X-Sum: 1\r\nContent-Length: 99\r\nTransfer-Encoding: gzip\r\n"), b"abc"),
                          (b"003\r\nabc\r\n0\r\n\r\n", b"abc"), (b"3;name=value\r\nabc\r\n0\r\n\r\n", b"abc"), (chunked(), b"")):
        got = talk(b, put + body + after, answers=2)
        equal([x[0] for x in got], [200, 200], body[:60])
        equal(b.get_file("t", "f").expect(200).body, content, body[:60])
    b.put_file("t", "f", b"before").expect(200)
    for body in (b"0x3\r\nabc\r\n0\r\n\r\n", b"+3\r\nabc\r\n0\r\n\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"g\r\nabc\r\n0\r\n\r\n",
                 b"3\r\nabcd\r\n0\r\n\r\n", b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n", b"\r\nabc\r\n0\r\n\r\n", b"3 \r\nabc\r\n0\r\n\r\n"):
        got = talk(b, put + body + after, answers=2, timeout=5)
        check(200 not in [x[0] for x in got], body, got)
        equal(b.get_file("t", "f").expect(200).body, b"before", body)


def test_heads_that_two_readers_could_read_differently(make):
    b = make().start()
    after = b"GET /runtime/manifest HTTP/1.1\r\nHost: x\r\n\r\n"
    for lines in (b"Host: x\r\n Content-Length: 5", b"Host: x\r\nX: a\r\n b", b"Host: x\r\nTransfer-Encoding:\r\n chunked",
                  b"Host: x\r\nTransfer-Encoding: chun\r\n\tked", b"Host: x\r\nX: " + b"a" * 5000 + b"\r\n b",
                  b"Host: x\r\nContent-Length: 0\r\nContent-Length: 0", b"Host: x\r\nContent-Length: 1, 1", b"Host: x\r\nContent-Length: +1",
                  b"Host: x\r\nContent-Length: 0x1", b"Host: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
                  b"Host: x\r\nTransfer-Encoding: identity", b"Host: x\r\nTransfer-Encoding: gzip, chunked", b"Host : x",
                  b"Host: x\r\nTransfer-Encoding : chunked", b"Host: x\r\nX\0: a", b"Host: x\nX: a", b"Host: x\r\nX: a\rb",
                  b"Host: x\r\nHost: x", b" Host: x", b"Host: x\r\nX Y: a"):
        got = talk(b, b"GET /health HTTP/1.1\r\n" + lines + b"\r\n\r\n" + after, answers=2, timeout=5)
        check(len(got) <= 1 and all(x[0] == 400 for x in got), lines, [x[0] for x in got])
    for line in (b"GET  /health HTTP/1.1", b"GET\t/health HTTP/1.1", b" GET /health HTTP/1.1", b"GET /health HTTP/1.1 ", b"GET /health",
                 b"GET /health HTTP/2.0", b"GET /health http/1.1", b"GET /health HTTP/1.10", b"GET /hea lth HTTP/1.1"):
        got = talk(b, line + b"\r\nHost: x\r\n\r\n" + after, answers=2, timeout=5)
        check(all(x[0] != 200 for x in got), line, [x[0] for x in got])


def test_pipelining(make):
    b = make().start()
    b.sh("t", "true")
    create = b'{"workspace_id":"w","task_id":"t","command":{"command_body":"sleep 0.3; echo %d"}}'
    requests = b""
    for number in range(5):
        body = create % number
        requests += b"POST /sandbox/executions?wait=20s HTTP/1.1\r\nHost: x\r\n" + AUTH + b"Content-Length: %d\r\n\r\n" % len(body) + body
        requests += b"PUT " + FILE + b"f%d HTTP/1.1\r\nHost: x\r\n" % number + AUTH + b"Content-Length: 70000\r\n\r\n" + b"%d" % number * 70000
        requests += b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    got = talk(b, requests, answers=15, timeout=60)
    equal([x[0] for x in got], [200] * 15)
    for number in range(5):
        execution = re.search(rb'"id":"(sexec_\w+)"', got[3 * number][2])[1].decode()
        equal(b.output(execution), b"%d\n" % number, "answers stand in the order of their requests")
        equal(b.get_file("t", f"f{number}").expect(200).body, b"%d" % number * 70000)
