"""Listens to hints as the daemon does, and keeps what it was told.

Invariant: nothing is judged here; every hint, loss and state is kept in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.hearing.hints import FEW, AuditMode, Hint, HintListener, Hints, Limits
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.identity import Key
from reconciler.plan.change import Author
from tests.support.account.wire import HEARD_SECONDS, Wire, eventually
from tests.support.clock.until import SECONDS

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

    async def awake(self, wire: Wire, domain: str = "") -> None:
        """Waits until all of a change is heard, advisories and audit; then forgets it.

        For some milliseconds after a subscription a busy server may leave things out.
        """
        key, ways = f"{domain}Stream/AWAKE", 2 if self.states[-1] == "on" else 1
        async with asyncio.timeout(SECONDS):
            while sum(str(hint.key) == key for hint in self.heard) < 2 * ways:
                self.forget()
                await wire.expect("STREAM.CREATE.AWAKE", {"name": "AWAKE"})
                await wire.expect("STREAM.DELETE.AWAKE")
                with suppress(TimeoutError):
                    await eventually(lambda: sum(str(hint.key) == key for hint in self.heard) == 2 * ways, HEARD_SECONDS)
        self.forget()

    async def until_hinted(self, key: str, client: str | None = None) -> None:
        """Waits for a hint, with that author if one is named."""
        await eventually(
            lambda: (key in self.keys) if client is None else client in [author.client for author in self.authors(key)]
        )


async def heard_first(ears: Ears) -> None:
    """Waits until the audit has reported something: just after a subscription a busy server may leave things out."""
    api = JetStreamApi(ears.connection)
    async with asyncio.timeout(SECONDS):
        while not ears.hints.audit.heard:
            await api.account_info()
            with suppress(TimeoutError):
                await eventually(lambda: ears.hints.audit.heard > 0, HEARD_SECONDS)


@asynccontextmanager
async def listening(  # noqa: PLR0913 - the tests name them
    url: str,
    mode: AuditMode = AuditMode.AUTO,
    *,
    wants: Callable[[Key], bool] = lambda _: True,
    limits: Limits | None = None,
    advised: Limits = FEW,
    once_it_listens: Callable[[], object] = lambda: None,
    **settings: str,
) -> AsyncIterator[Ears]:
    """Hints of that server's account, until the block ends; with the audit, when it is being listened to, and has been heard."""
    made = ConnectionSettings(servers=(url,), timeout=30.0, **settings)  # type: ignore[arg-type]  # the test names the fields
    async with await Connection.start(made, OWN) as connection:
        ears = Ears(connection)
        told = HintListener(on_hint=ears.heard.append, on_lost=ears.lost.append, on_audit=ears.note_state, wants=wants)
        ears.hints = Hints(connection, told, mode, limits, advised)
        await ears.hints.start()
        try:
            once_it_listens()
            await connection.wait_connected()
            await connection.flush()
            await eventually(lambda: bool(ears.states) and ears.hints.advisories.state in {"on", "denied"})
            if ears.states[-1] == "on":
                await heard_first(ears)
            yield ears
        finally:
            await ears.hints.stop()
