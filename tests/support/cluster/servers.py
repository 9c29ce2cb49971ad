"""Three servers of one version as a JetStream cluster.

Invariant: `start` returns only when all three agree on a meta leader and streams find a place on each of them.
"""

from __future__ import annotations

import json
import random
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from tests.support.server.binaries import NEWEST
from tests.support.server.plain_socket import PlainSocket
from tests.support.server.process import Server

SIZE = 3
LISTENING = range(20_000, 32_000)
_TRIAL = "TRIAL"


class Cluster:
    """Three routed servers; `servers` are in start order and can be stopped and restarted one by one."""

    def __init__(self, store: Path, *, version: str = NEWEST, config: str = "") -> None:
        self.version = version
        ports = free_ports(SIZE)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = tuple(
            Server(
                store / f"n{number}",
                version=version,
                config=f'cluster {{ name: test, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n{config}',
            )
            for number, port in enumerate(ports, start=1)
        )

    @property
    def url(self) -> str:
        """All servers, comma-separated, as clients accept it."""
        return ",".join(server.url for server in self.servers)

    @property
    def leader(self) -> str:
        """The name of the meta leader that every running server agrees on; empty while there is none.

        For a while after its death the others still name the old one, which does not count.
        """
        running = {server.name: server for server in self.servers if server.running}
        seen = {server.monitor("jsz").get("meta_cluster", {}).get("leader", "") for server in running.values()}
        agreed = seen.pop() if len(seen) == 1 else ""
        return agreed if agreed in running else ""

    def start(self) -> Self:
        """Start all three and wait until the cluster is whole."""
        for server in self.servers:
            server.launch()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until there is one meta leader, each server that runs is healthy, and streams find a place on all of them."""
        running = [server for server in self.servers if server.running]
        running[0].wait_for(lambda: bool(self.leader))
        for server in running:
            server.wait_ready()
        running[0].wait_for(lambda: _finds_a_place(running[0].url, len(running)))

    def stop(self) -> None:
        """Stop all three, each even when another one refused."""
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.stop)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.kill)


def _finds_a_place(url: str, replicas: int) -> bool:
    """Whether a stream with so many replicas can be made: servers are healthy a moment before their leader counts on them."""
    try:
        with closing(PlainSocket(url)) as somebody:
            config = {"name": _TRIAL, "storage": "memory", "num_replicas": replicas}
            made = json.loads(somebody.ask(f"$JS.API.STREAM.CREATE.{_TRIAL}", json.dumps(config).encode()))
            gone = json.loads(somebody.ask(f"$JS.API.STREAM.DELETE.{_TRIAL}"))
    except (OSError, TimeoutError):
        return False
    return "error" not in made and "error" not in gone


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, all different; for what cannot let the server choose.

    Below the range from which the system takes the local ends of outgoing connections: one of those may come at any moment.
    """
    with ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(LISTENING, len(LISTENING)):
            if len(found) == count:
                break
            if _bound(stack.enter_context(socket.socket()), port):
                found.append(port)
        return found


def _bound(each: socket.socket, port: int) -> bool:
    try:
        each.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
