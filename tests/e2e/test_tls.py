# SPDX-License-Identifier: Apache-2.0
"""TLS: what it refuses, that everything works through it, new certificates without a restart, berthctl; and proxies in front."""

import hashlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import ssl
import subprocess
import threading

import harness
from harness import TOKEN, check, equal, wait_for

AUTH = {"Authorization": "Bearer " + TOKEN}


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


def make_pair(folder, name, days="2"):
    """<name>.crt, signed by the folder's own authority, and <name>.key."""
    folder = pathlib.Path(folder)
    if not (folder / "ca.crt").exists():
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
                "-keyout", "ca.key", "-out", "ca.crt", cwd=folder)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
            "-out", f"{name}.csr", cwd=folder)
    (folder / "ext").write_text("subjectAltName = DNS:localhost, IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", days, "-extfile", "ext", "-out", f"{name}.crt", cwd=folder)
    (folder / f"{name}.key").chmod(0o600)


def make_tls(make, http="", **kw):
    b = make(**kw)
    make_pair(b.dir, "one")
    b.http_text = f'tls_cert = "{b.dir}/one.crt"; tls_key = "{b.dir}/one.key"; {http}'
    b.write_conf()
    return b


def start(b):
    b.start(wait=False)
    wait_for(lambda: b.proc.poll() is not None or "msg=ready" in b.log(), 30, "berthd to be ready")
    check(b.proc.poll() is None, b.log()[-2000:])
    b.port = int((b.state / "port").read_text())
    return b


def context(b, **limits):
    out = ssl.create_default_context(cafile=str(b.dir / "ca.crt"))
    out.set_ciphers("DEFAULT:@SECLEVEL=0")
    for name, value in limits.items():
        setattr(out, name, value)
    return out


def connect(b, **limits):
    return http.client.HTTPSConnection("localhost", b.port, timeout=60 * harness.PATIENCE, context=context(b, **limits))


def ask(connection, method, route, body=None, **headers):
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    connection.request(method, route, body, {**AUTH, **headers})
    response = connection.getresponse()
    return response.status, response.read()


def serial(b):
    with socket.create_connection(("127.0.0.1", b.port)) as raw, context(b).wrap_socket(raw, server_hostname="localhost") as s:
        return s.getpeercert()["serialNumber"], s.version()


def test_versions(make):
    b = start(make_tls(make))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        connection = connect(b, minimum_version=version, maximum_version=version)
        equal(ask(connection, "GET", "/health")[0], 200, version)
        connection.close()
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        try:
            connect(b, minimum_version=version, maximum_version=version).connect()
            raise harness.Failure(f"{version} was taken")
        except (ssl.SSLError, ConnectionError):
            pass
    try:
        http.client.HTTPSConnection("localhost", b.port, timeout=30).connect()
        raise harness.Failure("an unknown authority was believed")
    except ssl.SSLCertVerificationError:
        pass
    check(not b.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", timeout=5).startswith(b"HTTP/"), "no plain HTTP")
    equal(ask(connect(b), "GET", "/health")[0], 200)


def test_everything_goes_through(make):
    b = start(make_tls(make))
    c = connect(b)
    create = {"workspace_id": "w", "task_id": "t", "command": {"command_body": "echo one; sleep 1; echo two"}}
    status, body = ask(c, "POST", "/sandbox/executions?wait=30s", create)
    equal((status, json.loads(body)["status"]), (200, "completed"))
    execution = json.loads(body)["id"]
    equal(ask(c, "GET", f"/sandbox/executions/{execution}/stdout"), (200, b"one\ntwo\n"))
    equal(ask(c, "HEAD", f"/sandbox/executions/{execution}/stdout"), (200, b""))
    check(ask(c, "GET", f"/sandbox/executions/{execution}/events")[1].count(b"event: status") >= 3, "events")

    data = random.Random(1).randbytes(20_000_001)
    place = "/sandbox/file-content?workspace_id=w&task_id=t&path=big"
    equal(ask(c, "PUT", place + "&sha256=" + hashlib.sha256(data).hexdigest(), data)[0], 200)
    status, body = ask(c, "GET", place)
    equal((status, hashlib.sha256(body).digest()), (200, hashlib.sha256(data).digest()))
    equal(ask(c, "PUT", place, iter([data[:1000], data[1000:200000]]))[0], 200)
    equal(ask(c, "GET", place)[1], data[:200000])

    def several(i):
        mine = connect(b)
        for number in range(5):
            body = random.Random(i * 10 + number).randbytes(300_000)
            equal(ask(mine, "PUT", f"{place}{i}", body)[0], 200)
            equal(ask(mine, "GET", f"{place}{i}")[1], body)
        mine.close()

    harness.in_parallel(6, several)
    c.close()


def test_a_follower_gets_bytes_as_they_come(make):
    b = start(make_tls(make))
    gate = b.dir / "gate"
    c = connect(b)
    create = {"workspace_id": "w", "task_id": "t",
              "command": {"command_body": f"echo early; while [ ! -e {gate} ]; do sleep 0.02; done; echo late"}}
    execution = json.loads(ask(c, "POST", "/sandbox/executions", create)[1])["id"]
    follower = connect(b)
    follower.request("GET", f"/sandbox/executions/{execution}/stdout?follow=1", headers=AUTH)
    response = follower.getresponse()
    equal(response.read(6), b"early\n")
    gate.touch()
    equal(response.read(), b"late\n")
    follower.close()
    c.close()


def test_an_answer_before_the_end_of_the_body(make):
    b = start(make_tls(make, conf='files: { size_max = "1MiB"; };'))
    for head, status in ((b"PUT /sandbox/file-content?workspace_id=w&task_id=t&path=f HTTP/1.1\r\nContent-Length: 9999999", 413),
                         (b"POST /sandbox/executions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 400)):
        with socket.create_connection(("127.0.0.1", b.port), timeout=30) as raw, \
                context(b).wrap_socket(raw, server_hostname="localhost") as s:
            s.sendall(head + f"\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode() + b"x" * 100)
            answer = b""
            while piece := s.recv(4000):
                answer += piece
            check(answer.startswith(b"HTTP/1.1 %d " % status) and answer.endswith(b"}\n"), answer)


def test_slow_handshakes_and_heads_are_cut(make):
    b = start(make_tls(make, http='head_timeout = "1s"; rate_window = "1s";'))
    with socket.create_connection(("127.0.0.1", b.port), timeout=30) as silent:
        try:
            equal(silent.recv(1), b"", "no handshake")
        except ConnectionResetError:
            pass
    with socket.create_connection(("127.0.0.1", b.port), timeout=30) as raw, \
            context(b).wrap_socket(raw, server_hostname="localhost") as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHo")
        try:
            equal(s.recv(1), b"", "no head")
        except (ConnectionResetError, ssl.SSLError):
            pass
    wait_for(lambda: b"berth_http_connections_cut_total{limit=\"head\"} 2" in ask(connect(b), "GET", "/metrics")[1], 10)


def reload(b, word):
    before = b.log().count(word)
    b.proc.send_signal(signal.SIGHUP)
    wait_for(lambda: b.log().count(word) > before, 20, word)


def test_new_certificates_without_a_restart(make):
    b = start(make_tls(make))
    first = serial(b)[0]
    kept = connect(b)
    equal(ask(kept, "GET", "/health")[0], 200)
    for number in range(3):
        make_pair(b.dir, "two")
        os.replace(b.dir / "two.key", b.dir / "one.key")
        reload(b, "reload: failed, the former configuration stays")
        equal(serial(b)[0], first, "a key without its certificate changes nothing")
        os.replace(b.dir / "two.crt", b.dir / "one.crt")
        reload(b, "reload: done")
        second = serial(b)[0]
        check(second != first, "the new certificate is used")
        equal(ask(kept, "GET", "/health")[0], 200, "a connection goes on")
        first = second
    b.http_text = f'tls_cert = "{b.dir}/nothing.crt"; tls_key = "{b.dir}/one.key";'
    b.write_conf()
    reload(b, "reload: failed, the former configuration stays")
    check(f"{b.dir}/nothing.crt" in b.log(), "the log names the file")
    b.http_text = ""
    b.write_conf()
    reload(b, "beginning or ending TLS needs a restart")
    equal(serial(b)[0], first)
    kept.close()


def test_handshakes_while_certificates_change(make):
    b = start(make_tls(make))
    stop = threading.Event()
    failures = []

    def shake():
        while not stop.is_set():
            try:
                serial(b)
            except Exception as e:
                failures.append(repr(e))
                return

    threads = [threading.Thread(target=shake) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        reload(b, "reload: done")
    stop.set()
    for thread in threads:
        thread.join()
    equal(failures, [])


def test_what_is_refused_at_the_start(make):
    b = make_tls(make)
    make_pair(b.dir, "two")
    good = b.http_text
    (b.dir / "garbage").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    for change, words in (
            ({"one.key": "two.key"}, ("two.key", "not that of http.tls_cert")),
            ({"one.crt": "nothing.crt"}, ("nothing.crt", "No such file")),
            ({"one.key": "nothing.key"}, ("nothing.key", "No such file")),
            ({"one.crt": "garbage"}, ("garbage",)),
            ({f'tls_key = "{b.dir}/one.key";': ""}, ("http.tls_cert", "need each other"))):
        b.http_text = good
        for old, new in change.items():
            b.http_text = b.http_text.replace(old, new)
        b.write_conf()
        size = len(b.log())
        b.start(expect_exit=78)
        check(all(word in b.log()[size:] for word in words), words, b.log()[size:])
        tested = subprocess.run([str(harness.BUILD / "bin" / "berthd"), "-t", "-c", str(b.dir / "berth.conf")],
                                capture_output=True, text=True)
        equal(tested.returncode, 78)
        check(all(word in tested.stderr for word in words), tested.stderr)
    b.http_text = good
    (b.dir / "one.key").chmod(0o644)
    b.write_conf()
    b.start(expect_exit=78)
    check("open to every user" in b.log(), b.log()[-500:])


def test_another_address_than_loopback(make):
    b = make_tls(make, http='listen = "0.0.0.0";')
    equal(ask(connect(start(b)), "GET", "/health")[0], 200)
    b.stop()
    b.http_text = 'listen = "0.0.0.0";'
    b.write_conf()
    b.start(expect_exit=78)
    check("0.0.0.0 is not a loopback address: set http.tls_cert" in b.log(), b.log()[-500:])


def test_berthctl_talks_https(make):
    b = start(make_tls(make))
    env = {"BERTH_ADDRESS": f"https://localhost:{b.port}", "BERTH_WORKSPACE": "w"}
    done = b.ctl("exec", "--ca-file", str(b.dir / "ca.crt"), "t", "echo through; exit 3", env=env)
    equal((done.returncode, done.stdout), (3, b"through\n"), done.stderr)
    done = b.ctl("exec", "t", "true", env=env)
    check(done.returncode not in (0, 3) and b"certificate" in done.stderr, done)


def clients(b, route):
    """In the order of the lines; those of different requests may come in another order than the requests."""
    return [line.split("client=")[1].split()[0] for line in b.log().splitlines()
            if "msg=request" in line and f"route={route} " in line and "client=" in line]


def test_only_named_proxies_are_believed(make):
    b = make(http='behind_proxy = true; proxies = "127.0.0.1 10.0.0.0/8";').start()
    for number, header in enumerate(("203.0.113.9", "6.6.6.6, 203.0.113.9, 10.1.2.3"), 1):
        b.get("/runtime/manifest", headers={"X-Forwarded-For": header})
        wait_for(lambda: clients(b, "/runtime/manifest") == ["203.0.113.9"] * number, 10, "the client's own address")
    b.get("/metrics")
    wait_for(lambda: clients(b, "/metrics") == ["127.0.0.1"], 10, "the peer's address")
    b.stop()
    b.http_text = 'behind_proxy = true;'
    b.write_conf()
    b.start()
    size = len(clients(b, "/runtime/manifest"))
    b.get("/runtime/manifest", headers={"X-Forwarded-For": "203.0.113.9"})
    wait_for(lambda: clients(b, "/runtime/manifest")[size:] == ["127.0.0.1"], 10, "its line: nobody is believed unless named")
    b.stop()
    for text, word in (('proxies = "10.0.0.1";', "needs http.behind_proxy"),
                       ('behind_proxy = true; proxies = "my.proxy";', "my.proxy")):
        b.http_text = text
        b.write_conf()
        b.start(expect_exit=78)
        check(word in b.log()[-400:], b.log()[-400:])
