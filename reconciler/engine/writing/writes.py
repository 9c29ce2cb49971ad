"""The one way for every write: of a command, of the daemon, of procedures, of kicks and of people.

    size ▸ turn ▸ pace ▸ fresh look ▸ judged again ▸ right ▸ send ▸ echo believed, silence settled

| write | turn | look |
|---|---|---|
| changes what exists (update, delete, purge, RESET, resume) | one at a time in the process, taken before the look | always |
| creates, and pauses | none; at most four creates while a change waits or looks | none: `action: create` is the check |
| the same, after one without an answer | none | first: it may be there by now |

A look that takes longer than a few round trips gives the turn back and goes on outside; once it has an answer, it gets a slow
turn. A change whose answer takes long gives the turn to other domains; without an answer it closes the API that it went to (its
domain) until looks show what became of it.
Invariants: nothing else calls the writer; between the check of the right and the way out of the process nothing else runs;
silence in one place never stops another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from reconciler.engine.ports import Clock, LiveReader, LiveWriter
from reconciler.engine.writing.alarms import Alarms, Within
from reconciler.engine.writing.echo import NormalOf, differs, shows
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.turns import Elsewhere, Rank, Turn, Turns
from reconciler.errors import NatsError, NoAnswer, Rewritten, Unsettled
from reconciler.model.identity import Key
from reconciler.model.normal import Config
from reconciler.plan.comparing.display import yaml_path
from reconciler.procedures.requests import (
    ConsumerInfo,
    PauseConsumer,
    Put,
    StreamInfo,
    Write,
    changed_by,
    changes_what_exists,
)

_FEW = 4
"""Creates in flight while a change waits or looks: a server answers INFO when no write waits there."""
_ROUND_TRIPS = 8
_LEAST, _MOST = 0.25, 0.5
"""Seconds for which a look may keep the turn; a process that was not let run for a moment must not take that for a slow place."""
_SLOW, _SLOWEST = 1.0, 3.0
"""The same of one that is known to be slow."""
_APART = 2.0
"""Seconds between two looks that show that nothing came of a change."""
_AGAIN = 0.5
_LEARNING = 0.2
"""How much the last look counts."""

NOTHING = nullcontext()
"""Entered where nothing is to be done around a write."""

Reply = dict[str, Any]


class Permit(Protocol):
    """The right to send a write now."""

    def check(self) -> None:
        """Raises LeaseLost, NotSent or Refused when it has ended."""
        ...


PermitOf = Callable[[Collection[Key]], Permit]
"""The right to write to these keys."""


class WriteJudge(Protocol):
    """Whoever looks again before a write, and says whether it is still right."""

    async def judged(self, write: Write) -> Write | None:
        """What is to be sent, None when it is in place already; raises Moved when it must not be sent any more."""
        ...


class Witness(Protocol):
    """Whoever wants to know what was written."""

    def expecting(self, write: Write) -> AbstractContextManager[None]:
        """Entered around a write, so that its echoes are not taken for somebody else's changes."""
        ...

    def wrote(self, write: Write, reply: Reply) -> None:
        """The server has answered."""
        ...

    def unsure(self, key: Key) -> None:
        """What is live under this key has to be looked at."""
        ...

    def settled(self, key: Key) -> None:
        """It is known by now what became of a change of this, and others in its domain may go on."""
        ...


class Settling(Protocol):
    """Whoever knows what may still be on its way. Implemented by `jetstream.leading.lease.KvLease`."""

    async def settled(self) -> bool:
        """Whether it is proven that nothing can land any more of what got no answer; returns when that is known."""
        ...


class Nobody:
    """A witness that does not care."""

    def expecting(self, write: Write) -> AbstractContextManager[None]:  # noqa: ARG002 - see Witness
        """Nothing is taken for anything."""
        return NOTHING

    def wrote(self, write: Write, reply: Reply) -> None:
        """Fine."""

    def unsure(self, key: Key) -> None:
        """Fine."""

    def settled(self, key: Key) -> None:
        """Fine."""


@dataclass(slots=True, kw_only=True, eq=False)
class Order:
    """What stands behind a write; never changed, but not frozen, which would cost a microsecond for each."""

    permit: Permit
    judge: WriteJudge
    normal: NormalOf
    rank: Rank = Rank.COMMIT
    level: int = 0
    """The API level that the server is asked for."""


class Writes:
    """Sends the writes of one process."""

    def __init__(  # noqa: PLR0913 - all neighbours
        self,
        reader: LiveReader,
        writer: LiveWriter,
        clock: Clock,
        pace: Throttle,
        witness: Witness | None = None,
        *,
        fence: Settling | None = None,
    ) -> None:
        self.reader = reader
        self._writer = writer
        self._clock = clock
        self._pace = pace
        self._witness = witness or Nobody()
        self._fence = fence
        self._turns = Turns()
        self._alarms = Alarms()
        self._creating = 0
        self._silent: set[Key] = set()
        """Keys whose last write got no answer."""
        self._closed: dict[str, asyncio.Task[None]] = {}
        """Domains where a change got no answer, with who finds out what became of it."""
        self._late: dict[str, asyncio.Event] = {}
        """Domains where an answer takes long, each with the end of that."""
        self._round_trip: dict[str, float] = {}
        """Seconds that a look takes, by domain."""
        self._slow: dict[Key, float] = {}
        """Seconds that the last look took, by the stream, where that was too long for a turn."""

    def witnessed_by(self, witness: Witness) -> None:
        """From now on this is told what is written."""
        self._witness = witness

    def send(self, write: Write, order: Order) -> Coroutine[Any, Any, Reply | None]:
        """The server's answer; None when it was in place already.

        Raises NatsError when it failed or must not be sent (Moved), and what the permit raises.
        """
        self._writer.fits(write, order.level)
        return (self._change if changes_what_exists(write) else self._beside)(changed_by(write).live_key, write, order)

    async def settled(self) -> None:
        """Returns when it is known what became of every change."""
        await asyncio.gather(*self._closed.values(), return_exceptions=True)

    async def _beside(self, key: Key, write: Write, order: Order) -> Reply | None:
        """Without a turn: creates, which leave room for the looks of changes, and pauses."""
        creates = not isinstance(write, PauseConsumer)
        while creates and self._creating >= _FEW and self._turns.wanted:
            self._turns.eased.clear()
            await self._turns.eased.wait()
        self._creating += creates
        try:
            if self._pace.limited:
                order.permit.check()  # who may not write any more takes nobody's place
                await self._pace.take()
            judged = await order.judge.judged(write) if key in self._silent else write
            reply = await self._sent(key, judged, order) if judged is not None else None
        finally:
            self._creating -= creates
            if creates:
                self._turns.eased.set()
        self._silent.discard(key)
        if reply is not None and differs(judged, reply):
            await self._believe(judged, reply["config"], order.normal)
        return reply

    async def _change(self, key: Key, write: Write, order: Order) -> Reply | None:
        try:
            if not self._slow or key.stream_key not in self._slow:
                return await self._in_turn(key, write, order)
        except TimeoutError:
            pass
        started = self._clock.monotonic()
        if await order.judge.judged(write) is None:
            self._silent.discard(key)
            return None
        took = self._slow[key.stream_key] = self._clock.monotonic() - started
        try:
            return await self._in_turn(key, write, order, slow=min(_SLOWEST, max(_SLOW, 2 * took)))
        except TimeoutError as error:
            msg = f"{key}: what is there now was not shown within {_SLOWEST:g} s"
            raise NoAnswer(msg) from error

    async def _in_turn(self, key: Key, write: Write, order: Order, slow: float = 0.0) -> Reply | None:
        """Looks, judges and sends; raises TimeoutError when the look took too long."""
        turn = await self._turn(key, order, slow=bool(slow))
        try:
            order.permit.check()
            await self._pace.take()
            started = self._clock.monotonic()
            with Within(self._alarms, slow or self._patience(key.domain)):
                judged = await order.judge.judged(write)
            self._learn(key, self._clock.monotonic() - started)
            reply = await self._changed(key, judged, order, turn) if judged is not None else None
        finally:
            turn.give_back()
        self._silent.discard(key)
        return reply

    async def _turn(self, key: Key, order: Order, *, slow: bool) -> Turn:
        """A turn in a place where no answer is waited for."""
        while True:
            while late := self._late.get(key.domain):
                await late.wait()
            self._check_open(key)
            turn = await self._turns.take(order.rank, slow=slow)
            if key.domain not in self._late:
                break
            turn.give_back()
        try:
            self._check_open(key)
        except Unsettled:
            turn.give_back()
            raise
        return turn

    async def _changed(self, key: Key, write: Write, order: Order, turn: Turn) -> Reply:
        """Gives the turn back as soon as there is an answer."""
        with Elsewhere(self._alarms, self._late, key.domain, turn):
            try:
                reply = await self._sent(key, write, order)
            except NoAnswer:
                self._settle(write, order)
                raise
        turn.give_back()
        await asyncio.sleep(0)  # whoever is next asks what is there, and while that is on its way, this is worked up
        if differs(write, reply):
            await self._believe(write, reply["config"], order.normal)
        return reply

    async def _sent(self, key: Key, write: Write, order: Order) -> Reply:
        order.permit.check()
        try:
            with self._witness.expecting(write):
                reply = await self._writer.write(write, order.level)
        except NatsError as error:
            if isinstance(error, NoAnswer):
                self._silent.add(key)
            self._witness.unsure(key)
            raise
        self._witness.wrote(write, reply)
        return reply

    async def _believe(self, write: Put, echoed: Config, normal: NormalOf) -> None:
        """An echo that differs from what was sent is not believed until INFO says the same.

        2.11, and any server with `strict: false`, drop fields they do not know without a word; only the echo shows it. But the
        first update of a consumer after a start of the server echoes what was there before.
        """
        key = changed_by(write)
        wanted, stored = normal(key, orjson.loads(write.config)), normal(key, echoed)
        if wanted == stored:
            return
        fact = await self.reader.read(info_of(key))
        stored = normal(key, fact["config"]) if isinstance(fact, dict) else stored
        if wanted == stored:
            return
        fields = sorted(name for name in {*wanted, *stored} if wanted.get(name) != stored.get(name))
        names = ", ".join(yaml_path(key.kind, name) for name in fields)
        msg = f"the server dropped or rewrote {names}: it does not know or not allow what was sent"
        raise Rewritten(msg)

    def _check_open(self, key: Key) -> None:
        if key.domain in self._closed:
            where = f"the domain {key.domain}" if key.domain else "JetStream"
            msg = f"{where} has not answered a change, and nothing else is changed there before it is known what became of it"
            raise Unsettled(msg)

    def _settle(self, write: Write, order: Order) -> None:
        """From now on nothing is changed in that domain; somebody finds out what became of this."""
        domain = changed_by(write).domain
        self._closed[domain] = asyncio.get_running_loop().create_task(self._until_settled(write, order), name=f"settle {domain}")

        def settled(_: asyncio.Task[None]) -> None:
            self._closed.pop(domain, None)
            self._witness.settled(changed_by(write).live_key)

        self._closed[domain].add_done_callback(settled)

    async def _until_settled(self, write: Write, order: Order) -> None:
        """Returns when a look shows that it was executed, or when two looks far enough apart show that it was not.

        They need not show the same: others may edit it, or publish, all the time. Behind a proven fence one look is enough.
        """
        looked = False
        if self._fence is not None:
            proving = asyncio.ensure_future(self._fence.settled())
            try:
                while not proving.done():
                    if await self._look_shows(write, order):
                        return
                    await asyncio.wait({proving}, timeout=_AGAIN)
                looked = proving.result()
            finally:
                proving.cancel()
        while (shown := await self._look_shows(write, order)) is not True:
            if shown is False and looked:
                return
            looked = shown is False
            await self._clock.sleep(_APART if looked else _AGAIN)

    async def _look_shows(self, write: Write, order: Order) -> bool | None:
        """Whether this is how things are after the write; None: nobody answers."""
        try:
            fact = await self.reader.read(info_of(changed_by(write)))
        except NatsError:
            return None
        return shows(write, fact, order.normal)

    def _patience(self, domain: str) -> float:
        """Seconds for which a look there may keep the turn."""
        return min(_MOST, max(_LEAST, _ROUND_TRIPS * self._round_trip.get(domain, _MOST)))

    def _learn(self, key: Key, seconds: float) -> None:
        before = self._round_trip.get(key.domain, seconds)
        self._round_trip[key.domain] = before + _LEARNING * (seconds - before)
        if self._slow and seconds < _MOST:
            self._slow.pop(key.stream_key, None)


def info_of(key: Key) -> ConsumerInfo | StreamInfo:
    """The question what is there now."""
    return ConsumerInfo(key) if key.kind == "Consumer" else StreamInfo(key)
