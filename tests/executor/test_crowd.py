# SPDX-License-Identifier: Apache-2.0
"""Who has no token, in the sandbox or in front of it, against the sandbox's owner: connections and threads."""

import select
import subprocess
import time

from client import PATIENCE, Connection, must, wait_for
from nets import INNER, in_sandbox

HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = 256  # of the connections: what one sandbox's own addresses may hold


def open_ones(socks):
    """Those that the executor has not closed: an idle connection is readable only at its end."""
    poller = select.poll()
    for sock in socks:
        poller.register(sock, select.POLLIN)
    closed = {fd for fd, _ in poller.poll(0)}
    return [sock for sock in socks if sock.fileno() not in closed]


def must_serve(x, text, limit=20 * PATIENCE):
    start = time.monotonic()
    must(x.ask("/v1/check", {}).code == "ok" and x.health()["ready"], text)
    must(x.execute("echo here").ok().stream("O") == b"here\n", text)
    must(time.monotonic() - start < limit, f"{text}: it took {time.monotonic() - start:.1f} s")


INSIDE = (("127.0.0.1", ""), ("127.0.0.1", "127.0.0.2"), ("127.9.8.7", "127.0.0.1"), ("127.0.0.1", INNER[0]), (INNER[0], "127.0.0.1"),
          (INNER[0], ""), ("::1", ""), ("::1", INNER[1]), (INNER[1], ""))


def flood(x, ways, count):
    return [x.inside(*ways[n % len(ways)]) for n in range(count)]


@in_sandbox()
def test_inside_by_any_address(x):
    """Whatever connects from an address of the sandbox, by whichever pair of them, gets half of the connections at most."""
    for way in INSIDE:
        socks = flood(x, [way], HALF + 60)
        wait_for(lambda: len(open_ones(socks)) <= HALF, f"{way} counts as outside")
        # Those of the round before may still be on their way out.
        must(len(open_ones(socks)) > HALF - 20, f"{way}: {len(open_ones(socks))} are open")
        must_serve(x, f"kept out by {way}")
        for sock in socks:
            sock.close()


def link_local(net):
    """The cable's own address at this end."""
    out = subprocess.run(["nsenter", "-t", str(net.holder.pid), "-n", "ip", "-6", "-o", "addr", "show", "dev", "cable", "scope", "link", "-tentative"],
                         capture_output=True, text=True).stdout
    return out.split()[3].split("/")[0] if out else ""


@in_sandbox()
def test_outside_is_outside(x):
    """A peer's own addresses are nobody's half, link-local ones included."""
    here = wait_for(lambda: link_local(x.nets[1]), "no link-local address")
    for address in (INNER[0], INNER[1], here):
        socks = [x.outside(address) for _ in range(HALF + 60)]
        for sock in socks:
            sock.sendall(HEALTH)
            must(b" 200 OK" in sock.recv(4096), f"not served by {address}")
        must(len(open_ones(socks)) == HALF + 60, f"from outside by {address}: {len(open_ones(socks))} are open")
        for sock in socks:
            sock.close()


@in_sandbox(sysctl=["net.ipv4.ip_nonlocal_bind=1", "net.ipv6.ip_nonlocal_bind=1"])
def test_outside_with_nonlocal_bind(x):
    """Where every address can be bound, it is the interfaces that tell."""
    for address in INNER:
        socks = [x.outside(address) for _ in range(HALF + 60)]
        for sock in socks:
            sock.sendall(HEALTH)
            must(b" 200 OK" in sock.recv(4096), f"not served by {address}")
        must(len(open_ones(socks)) == HALF + 60, f"by {address}: {len(open_ones(socks))} are open")
        for sock in socks:
            sock.close()
    socks = flood(x, INSIDE, HALF + 60)
    wait_for(lambda: len(open_ones(socks)) == HALF, "inside counts as outside")
    must_serve(x, "kept out")


@in_sandbox(listen=f"{INNER[0]}:0")
def test_inside_without_ipv6(x):
    socks = flood(x, [(INNER[0], ""), (INNER[0], "127.0.0.1"), (INNER[0], "127.0.0.2")], HALF + 60)
    wait_for(lambda: len(open_ones(socks)) == HALF, "inside counts as outside")
    must_serve(x, "kept out")


@in_sandbox()
def test_crowd_from_everywhere(x):
    """Where all places are taken the oldest without a token makes room; a connection that showed one keeps its place."""
    owner = x.link()
    x.ask("/v1/check", {}, conn=owner).ok()
    execution = x.new_id()
    command = x.begin("echo up; sleep 100", execution)
    socks = [x.outside(INNER[n % 2]) for n in range(2 * HALF)] + flood(x, INSIDE, 2 * HALF)
    wait_for(lambda: len(open_ones(socks)) == 2 * HALF - 2, "not as many as there are places")
    for n in range(50):
        must_serve(x, "kept out")
        socks.append(x.outside())
    x.signal(execution, "KILL").ok()
    must(b'"kind":"cancelled"' in b"".join(command[0].chunks(command[1])), "no ending")
    x.ask("/v1/check", {}, conn=owner).ok()


@in_sandbox()
def test_half_a_request_takes_no_thread(x):
    socks = flood(x, INSIDE, 200)
    for sock in socks:
        sock.sendall(b"POST /v1/execute HTTP/1.1\r\nContent-Length: 1000\r\nBerth-Token: x.y\r\n\r\nhalf")
    must_serve(x, "threads wait for what never comes")


def clog(sock):
    """Pipelines requests until no more can be sent, and reads nothing."""
    sock.setblocking(False)
    try:
        while True:
            sock.send(HEALTH * 200)
    except (BlockingIOError, ConnectionError):
        pass


@in_sandbox()
def test_peers_that_do_not_read(x):
    """Without a token nobody is waited for: requests in a row whose answers are not read hold no thread."""
    socks = [x.inside(receive=2048) for _ in range(200)] + [x.outside(receive=2048) for _ in range(100)]
    for _ in range(5):
        for sock in socks:
            clog(sock)
    must_serve(x, "threads wait for peers that do not read")


@in_sandbox()
def test_requests_in_a_row(x):
    """Many requests on one connection are answered one turn at a time; the others come in between."""
    sock = x.inside()
    conn = Connection(x.port, sock=sock)
    conn.send(HEALTH * 1000 + b"GET /v1/hea")
    for _ in range(1000):
        must(conn.reply().status == 200, "a request in a row")
    conn.send(b"lth HTTP/1.1\r\nHost: x\r\n\r\n")
    must(conn.reply().status == 200, "the one that came in two pieces")
