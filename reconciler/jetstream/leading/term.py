"""The connection over which one term changes what exists, and under which name its server knows it.

Invariant: it never comes back. When it is lost, or a change on it gets no answer, the next one is another connection with
another name, which stands in the lease before the first change is sent over it; what was silent stays named there until it
is known that nothing of it can land any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Self

import structlog

from reconciler.errors import LeaseLost, NatsError, NoAnswer, NotSent
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.inbox import Reply
from reconciler.jetstream.transport.link import Link

_PAUSE = 0.1
_PAUSE_MOST = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkName:
    """What a server calls one of its connections: enough to ask it whether that connection is gone."""

    server: str
    server_id: str
    """Of this life of the server."""
    cid: int
    account: str = ""
    """Empty: it was not to be found out."""
    alone: bool = False
    """The server was no part of a cluster, and kept the lease itself."""

    @classmethod
    def parse(cls, found: object) -> Self | None:
        """What somebody has written down; None when that is no such name."""
        if not isinstance(found, dict):
            return None
        types = {"server": str, "server_id": str, "cid": int, "account": str, "alone": bool}
        if not all(type(found.get(name)) is kind for name, kind in types.items()):
            return None
        return cls(**{name: found[name] for name in types})


Announce = Callable[[tuple[LinkName, ...]], Awaitable[None]]
"""Writes down, fenced by the lease, over which links changes of this term may be on their way; raises LeaseLost, NatsError."""
Known = Callable[[Link], Awaitable[LinkName]]
"""Finds out what a server calls a link."""


class Term:
    """Sends the changes of one term after the other; between them, and before a term is admitted, it sends nothing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._link: Link | None = None
        self._newest: Link | None = None
        """The link, or the one that will be when the lease names it."""
        self._name: LinkName | None = None
        self._known: Known
        self._announce: Announce
        self._admitted = False
        self._in_flight = 0
        self._silent: list[LinkName] = []
        """Of links with a change of which nobody knows what became."""
        self._noted: list[LinkName] = []
        """Of links with a note of which nobody knows what became: no change, but it may overwrite that of a successor."""
        self._anew: asyncio.Task[None] | None = None

    @property
    def name(self) -> LinkName | None:
        """Of the newest link of this term."""
        return self._name

    @property
    def names(self) -> tuple[LinkName, ...]:
        """Of all over which changes of this term may be on their way."""
        return (self._name, *self._silent) if self._name is not None else self.silent

    @property
    def silent(self) -> tuple[LinkName, ...]:
        """The links of this term over which a change may still be on its way, though nobody waits for it any more."""
        return tuple(self._silent)

    @property
    def left(self) -> tuple[LinkName, ...]:
        """The links over which anything at all of this term may still be on its way when it has ended."""
        return tuple(dict.fromkeys((*self._silent, *self._noted)))

    async def begin(self, known: Known, announce: Announce) -> LinkName:
        """Opens the link of a term, which sends nothing before `admit`; raises NatsError."""
        await self.end()
        self._known, self._announce = known, announce
        self._silent.clear()
        self._noted.clear()
        self._name = None
        self._link, self._name = await self._open()
        return self._name

    def admit(self) -> None:
        """From now on changes may be sent."""
        self._admitted = True

    def settled(self, names: tuple[LinkName, ...]) -> None:
        """Nothing of these can land any more."""
        self._silent = [name for name in self._silent if name not in names]

    async def end(self) -> None:
        """The term is over: what is in flight has no answer."""
        self._admitted = False
        link, self._link, self._newest = self._link, None, None
        if self._anew is not None:
            self._anew.cancel()
            await asyncio.gather(self._anew, return_exceptions=True)
            self._anew = None
        if link is not None:
            await link.close()

    def cut(self) -> None:
        """The same at once; what the kernel has not delivered yet never arrives."""
        self._admitted = False
        link, self._link, self._newest = self._link, None, None
        if self._anew is not None:
            self._anew.cancel()
        if link is not None:
            link.cut()

    async def request(  # noqa: PLR0913 - as a connection does it
        self,
        subject: str,
        payload: bytes = b"",
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - one timer per request keeps pipelining cheap
        headers: Mapping[str, str] | None = None,
        write: bool = False,  # noqa: ARG002 - everything here is one
        at_once: bool = False,  # noqa: ARG002 - always
    ) -> Reply:
        """Sends a change at once or not at all; one without an answer ends the link."""
        link, name = self._link, self._name
        if link is None or name is None or not self._admitted:
            msg = "the connection for changes is not there yet: nothing was sent"
            raise NotSent(msg)
        self._in_flight += 1
        try:
            return await link.request(subject, payload, timeout or self._connection.settings.timeout, headers, at_once=True)
        except (NoAnswer, asyncio.CancelledError):
            if name not in self._silent:
                self._silent.append(name)
            link.cut()
            raise
        finally:
            self._in_flight -= 1

    async def aside(self, subject: str, payload: bytes, patience: float | None, headers: Mapping[str, str] | None) -> Reply:
        """Sends what is no change of a resource over the newest link, also before the term is admitted."""
        link, name = self._newest, self._name
        if link is None or name is None:
            msg = "the connection for changes is not there yet: nothing was sent"
            raise NotSent(msg)
        try:
            return await link.request(subject, payload, patience or self._connection.settings.timeout, headers, at_once=True)
        except (NoAnswer, asyncio.CancelledError):
            self._noted.append(name)
            raise

    async def _open(self) -> tuple[Link, LinkName]:
        link = await self._connection.another(self._on_lost)
        try:
            name = await self._known(link)
        except BaseException:
            await link.close()
            raise
        self._newest = link
        return link, name

    def _on_lost(self, link: Link) -> None:
        if link is not self._link or self._name is None:
            return  # one that was never used
        self._link = None
        if self._in_flight and self._name not in self._silent:
            self._silent.append(self._name)
        log.debug("term.link_lost", silent=len(self._silent))
        self._anew = asyncio.get_running_loop().create_task(self._open_anew(), name="term-link")

    async def _open_anew(self) -> None:
        """Opens another link, and sends nothing over it before the lease names it."""
        pause = _PAUSE
        while True:
            try:
                link, self._name = await self._open()
                try:
                    await self._announce(self.names)
                except BaseException:
                    await link.close()
                    raise
                if not link.lost:
                    self._link = link
                    return
                await link.close()
            except LeaseLost:
                return
            except NatsError as error:
                log.debug("term.link_not_opened", error=str(error))
            await asyncio.sleep(pause)
            pause = min(_PAUSE_MOST, 2 * pause)


class Aside:
    """Sends as a connection does, over the newest link of a term, what is no change of a resource."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def request(  # noqa: PLR0913 - as a connection does it
        self,
        subject: str,
        payload: bytes = b"",
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - passed on
        headers: Mapping[str, str] | None = None,
        write: bool = False,  # noqa: ARG002 - everything here is one
        at_once: bool = False,  # noqa: ARG002 - always
    ) -> Reply:
        """The reply; raises NatsError."""
        return await self._term.aside(subject, payload, timeout, headers)
