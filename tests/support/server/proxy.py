"""Stands between one client and a server, and decides about each JetStream API write: let it through, drop it, hide its answer.

So a process can be stopped at an exact step from outside, without a hook in it. The write lease passes unhindered, but for
what concerns all there is: `stall` is a network that has gone silent, `cut` one that has ended.

Invariant: frames are forwarded whole, in order and unchanged, or not at all.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Self

from tests.support.account.wire import eventually

_WRITE = re.compile(
    r"\$JS\.API\.(?:STREAM\.(?:CREATE|UPDATE|DELETE|PURGE|MSG\.DELETE)|CONSUMER\.(?:CREATE|DURABLE|DELETE|PAUSE|RESET))\."
)
_LEASE = "KV_reconciler-"
_LONGEST_LINE = 1 << 20
_NOT_NOW = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'


class Verdict(Enum):
    """What becomes of a request."""

    PASS = "pass"
    DROP = "drop"
    """It never reaches the server."""
    MUTE = "mute"
    """The server executes it; the client never hears of it."""
    DENY = "deny"
    """The server executes it; the client hears that JetStream is not available just now."""
    REFUSE = "refuse"
    """It never reaches the server; the client hears that JetStream is not available just now."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the client."""

    subject: str
    reply: str
    at: float
    """Monotonic."""

    @property
    def is_write(self) -> bool:
        """Whether it changes a stream or a consumer, the lease's own bucket aside."""
        return bool(_WRITE.match(self.subject)) and _LEASE not in self.subject

    @property
    def stream(self) -> str:
        """The stream it is about."""
        return self.subject.split(".")[4]


def let_pass(_: Request) -> Verdict:
    """The rule of a proxy that only looks."""
    return Verdict.PASS


@dataclass
class Proxy:
    """`async with Proxy(server.port) as proxy:` then connect to `proxy.url`; `rule` is asked about every request."""

    upstream: int
    rule: Callable[[Request], Verdict] = let_pass
    window: int = 0
    """How many bytes the network swallows when nobody takes them, about; 0: as the kernel likes."""
    requests: list[Request] = field(default_factory=list)
    stuck: list[Request] = field(default_factory=list)
    """Requests that were dropped, or executed without their answer coming through."""
    names: set[str] = field(default_factory=set)
    """What the clients call themselves."""
    _muted: dict[str, Request] = field(default_factory=dict)
    _denied: set[str] = field(default_factory=set)
    _inboxes: dict[str, str] = field(default_factory=dict)
    """The ids of subscriptions for answers, by the subject up to its last token."""
    _listener: asyncio.Server | None = None
    _pumps: set[asyncio.Task[None]] = field(default_factory=set)
    _clients: set[asyncio.StreamWriter] = field(default_factory=set)
    _flows: asyncio.Event = field(default_factory=asyncio.Event)
    _cut: bool = False

    @property
    def url(self) -> str:
        """Where the client connects to."""
        assert self._listener is not None
        return f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    @property
    def writes(self) -> list[Request]:
        """The writes that were asked for, whatever became of them."""
        return [request for request in self.requests if request.is_write]

    def from_write(self, number: int, fate: Verdict) -> Callable[[Request], Verdict]:
        """A rule: this fate for the write of that number and all later ones."""
        return lambda request: fate if request.is_write and len(self.writes) >= number else Verdict.PASS

    def stall(self) -> None:
        """From now on nothing gets through, in either direction; a rule may call this, and holds back its own request so.

        What comes later is not even taken: a client that cuts its connection takes it back.
        """
        self._flows.clear()
        for client in self._clients:
            client.transport.pause_reading()  # type: ignore[attr-defined]  # of a TCP connection

    def cut(self) -> None:
        """Every connection ends, and no new one comes about; what was held back is lost."""
        self._cut = True
        for pump in self._pumps:
            pump.cancel()

    def mend(self) -> None:
        """All is well again; what was held back goes on."""
        self._cut = False
        self._flows.set()
        for client in self._clients:
            client.transport.resume_reading()  # type: ignore[attr-defined]  # the same

    async def until_stuck(self, count: int = 1) -> None:
        """Wait until that many requests are stuck."""
        await eventually(lambda: len(self.stuck) >= count)

    async def until_writes(self, count: int) -> None:
        """Wait until that many writes were asked for."""
        await eventually(lambda: len(self.writes) >= count)

    async def __aenter__(self) -> Self:
        self._flows.set()
        listening = socket.create_server(("127.0.0.1", 0))
        if self.window:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.window)
        self._listener = await asyncio.start_server(self._serve, sock=listening, limit=_LONGEST_LINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        if self._cut:
            to_client.close()
            return
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.upstream, limit=_LONGEST_LINE)
        except OSError:
            to_client.close()
            return
        self._clients.add(to_client)
        try:
            asked = partial(self._asked, to_client)
            ways = (self._pump(client, to_server, asked), self._pump(server, to_client, partial(self._answered, to_client)))
            pumps = [asyncio.create_task(way) for way in ways]
            self._pumps.update(pumps)
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if pumps[0].done():
                to_server.close()  # what was forwarded is still executed
            to_client.close()
            for pump in pumps:
                pump.cancel()
        except asyncio.CancelledError:
            return  # asked for by `cut` or at the end; asyncio would report it
        finally:
            self._clients.discard(to_client)
            to_server.close()
            to_client.close()

    def _asked(self, to_client: asyncio.StreamWriter, parts: list[str]) -> bool:
        if parts[0] == "CONNECT":
            self.names.add(json.loads(" ".join(parts[1:])).get("name", ""))
        if parts[0] == "SUB":
            self._inboxes[parts[1].rpartition(".")[0]] = parts[-1]
        if parts[0] not in ("PUB", "HPUB"):
            return True
        reply = parts[2] if len(parts) > (3 if parts[0] == "PUB" else 4) else ""
        request = Request(parts[1], reply, time.monotonic())
        self.requests.append(request)
        verdict = self.rule(request)
        if verdict is Verdict.DROP:
            self.stuck.append(request)
        elif verdict is Verdict.MUTE:
            self._muted[request.reply] = request
        elif verdict is Verdict.DENY:
            self._denied.add(request.reply)
        elif verdict is Verdict.REFUSE:
            _say_not_now(to_client, reply, self._inboxes[reply.rpartition(".")[0]])
        return verdict not in {Verdict.DROP, Verdict.REFUSE}

    def _answered(self, to_client: asyncio.StreamWriter, parts: list[str]) -> bool:
        if parts[0] not in ("MSG", "HMSG"):
            return True
        if parts[1] in self._denied:
            _say_not_now(to_client, parts[1], parts[2])
            return False
        if parts[1] not in self._muted:
            return True
        self.stuck.append(self._muted[parts[1]])
        return False

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: Callable[[list[str]], bool]) -> None:
        """Forward frames until one side ends; `passes` sees the words of each frame's first line."""
        try:
            while line := await source.readline():
                parts = line.decode().split()
                has_payload = bool(parts) and parts[0] in ("PUB", "HPUB", "MSG", "HMSG")
                payload = await source.readexactly(int(parts[-1]) + 2) if has_payload else b""
                passing = not parts or passes(parts)
                await self._flows.wait()
                if passing:
                    sink.write(line + payload)
                    await sink.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return


def _say_not_now(client: asyncio.StreamWriter, reply: str, sid: str) -> None:
    client.write(f"MSG {reply} {sid} {len(_NOT_NOW)}\r\n".encode() + _NOT_NOW + b"\r\n")
