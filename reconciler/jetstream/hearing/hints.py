"""Hints: what somebody else may just have changed, from advisories and from the API audit, each on a connection of its own.

A hint says where to look, never what is there. The same change may be hinted at twice: by an advisory at once, and by the
audit with its author. A consumer's update is only in the audit.

Invariant: what may have been missed is said (`on_lost`), and our own writes are no hints.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from reconciler.jetstream.hearing.advisories import AUDITED, Home, OwnWrites, advisories
from reconciler.jetstream.hearing.audit import Audit, AuditListener, AuditMode, Heard
from reconciler.jetstream.hearing.overhearing import Limits
from reconciler.jetstream.transport.connection import Connection
from reconciler.model.identity import Key
from reconciler.plan.change import Author
from reconciler.procedures.requests import Write

__all__ = ["AuditMode", "Hint", "HintListener", "Hints", "Limits"]

FEW = Limits(window=1.0, retry=15.0, trial=1.0)
"""What advisories may be; what is more is replaced by a look at everything now, and another each time it is tried again."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Somebody may have changed this; a bucket's key is that of its stream."""

    key: Key
    author: Author | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HintListener:
    """Who is told. All are called in the middle of reading from a server, so they must be quick and never raise."""

    on_hint: Callable[[Hint], None]
    on_lost: Callable[[str], None]
    """Look at everything, for this reason."""
    on_audit: Callable[[str, float], None]
    """The audit is now `on`, `off`, `shed` or `denied`, at so many messages a second."""
    wants: Callable[[Key], bool] = lambda _: True
    """Whether a key concerns us; asked with kind Stream or Consumer. One in the home domain is asked for without and,
    if that is not wanted, with its domain, and is reported as it was wanted."""


class Hints:
    """The hints of one connection's account, on connections `<name>-hints` and `<name>-audit` with the same settings.

    So whoever publishes advisories, be it a flood of forged ones, fills no pipe that answers come through.
    """

    def __init__(
        self,
        connection: Connection,
        listener: HintListener,
        mode: AuditMode = AuditMode.AUTO,
        limits: Limits | None = None,
        advised: Limits = FEW,
    ) -> None:
        self._connection = connection
        self._listener = listener
        self._home = Home(connection)
        self._own = OwnWrites(self._home)
        self.advisories = advisories(self._home, f"{connection.name}-hints", self._on_advisory, listener.on_lost, advised)
        ears = AuditListener(heard=self._on_audited, lost=listener.on_lost, state=listener.on_audit)
        name = f"{connection.name}-audit"
        self.audit = Audit(connection.settings, name, ears, limits or Limits(), mode)

    async def start(self) -> None:
        """Hints come from now on, whether or not a server is there yet."""
        await self.advisories.start(at_once=self._connection.connected)
        await self.audit.start()

    async def stop(self) -> None:
        """Nothing comes any more."""
        await self.audit.stop()
        await self.advisories.stop()

    def expecting(self, write: Write) -> AbstractContextManager[None]:
        """`with hints.expecting(write):` around sending it, so that what servers say of it is no hint."""
        return self._own.expecting(write)

    def _on_advisory(self, operation: str, key: Key) -> bool:
        if self._own.claim(operation, key):
            return False
        self._hint(key, None)
        return True

    def _on_audited(self, heard: Heard) -> None:
        key = self._home.key(heard.key)
        ours = heard.client == self._connection.name
        # Through a leaf node a request loses its client's name; then it is ours if one like it was sent.
        claimed = (ours or heard.relayed) and self._own.claim(AUDITED, key)
        if not ours and not claimed:
            self._hint(key, heard.author)

    def _hint(self, key: Key, author: Author | None) -> None:
        wants = self._listener.wants
        if not key.domain and not wants(key):
            key = key._replace(domain=self._home.domain)
        if wants(key):
            self._listener.on_hint(Hint(key, author))
