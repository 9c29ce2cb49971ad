"""Listens to hints as the daemon does, and keeps what it was told.

Invariant: nothing is judged here; every hint, loss and state is kept in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reconciler.jetstream.connection import Connection
from reconciler.jetstream.hints import AuditLimits, AuditMode, Hint, HintListener, Hints
from reconciler.jetstream.settings import ConnectionSettings
from reconciler.model.identity import Key
from reconciler.plan.change import Author
from tests.support.account.wire import eventually

OWN = "reconciler-0a1b2c3d"


@dataclass
class Ears:
    """`async with listening(url) as ears:`."""

    connection: Connection
    hints: Hints = field(init=False)
    heard: list[Hint] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def keys(self) -> set[str]:
        """What was hinted at."""
        return {str(hint.key) for hint in self.heard}

    def authors(self, key: str) -> list[Author]:
        """Who is said to have changed it, in order."""
        return [hint.author for hint in self.heard if str(hint.key) == key and hint.author is not None]

    def note_state(self, state: str, rate: float) -> None:
        """Takes a state of the audit."""
        self.states.append(state)
        self.rates.append(rate)

    def forget(self) -> None:
        """From here on only what is new."""
        self.heard.clear()
        self.lost.clear()

    async def until_hinted(self, key: str, client: str | None = None) -> None:
        """Waits for a hint, with that author if one is named."""
        await eventually(
            lambda: (key in self.keys) if client is None else client in [author.client for author in self.authors(key)]
        )


@asynccontextmanager
async def listening(
    url: str,
    mode: AuditMode = AuditMode.AUTO,
    *,
    wants: Callable[[Key], bool] = lambda _: True,
    limits: AuditLimits | None = None,
    **settings: str,
) -> AsyncIterator[Ears]:
    """Hints of that server's account, until the block ends; with the audit, when it is being listened to."""
    made = ConnectionSettings(servers=(url,), timeout=5.0, **settings)  # type: ignore[arg-type]  # the test names the fields
    async with await Connection.start(made, OWN) as connection:
        ears = Ears(connection)
        told = HintListener(on_hint=ears.heard.append, on_lost=ears.lost.append, on_audit=ears.note_state, wants=wants)
        ears.hints = Hints(connection, told, mode, limits)
        await ears.hints.start()
        try:
            await connection.wait_connected()
            await connection.flush()
            await eventually(lambda: bool(ears.states))
            yield ears
        finally:
            await ears.hints.stop()
