# SPDX-License-Identifier: Apache-2.0
"""Several daemons over one Redis, one provider and one folder of objects."""

import contextlib
import json
import shutil

import harness
import redis_server
import stored


@contextlib.contextmanager
def fleet(make, count=2, conf="", server=None, **kw):
    """Started hosts. Without a server they share that of the run, or one of their own."""
    with contextlib.ExitStack() as stack:
        server = server or harness.REDIS
        if not server:
            server = redis_server.RedisServer().start()
            stack.callback(server.close)
        hosts = []
        for _ in range(count):
            host = make(**kw)
            hosts.append(host)
            join(host, hosts[0], server, conf)
        for host in hosts:
            if host is not hosts[0]:
                shutil.copy(hosts[0].state / "state.key", host.state / "state.key")
            host.start()
        yield hosts


def join(host, first, server, conf):
    host.redis = server
    host.fleet_of = first.dir.name
    host.mock = first.mock
    (host.dir / "providers.d" / "10-mock.conf").unlink()
    host.conf_text = f'objects: {{ path = "{first.dir}/objects"; }};\n' + conf
    host.write_conf()


def id_of(host):
    """The name under which this process stands in the store; another one after each start."""
    return host.get("/admin/hosts").expect(200).json["items"][0]["id"]


def claims(host):
    """{execution: its private row}, read past the daemons."""
    return {key.decode(): json.loads(doc) for key, doc in stored.rows(host, "claims").items()}


def running_under(host, name):
    """Executions that this host id holds and whose command may run."""
    found = [key for key, claim in claims(host).items() if claim["runner"] == name and claim.get("sent_attempt") == claim["attempt"]]
    return [key for key in found if json.loads(stored.doc(host, "executions", key) or b'{"status": ""}')["status"] == "running"]
