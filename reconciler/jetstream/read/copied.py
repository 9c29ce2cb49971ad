"""How far a stream has copied under an identity (`model.sourcing.identity_of`), read off what it stores.

The server writes into each copy what it came from, `Nats-Stream-Source: <origin> <sequence> <filters> <destinations> …`, so the
stored messages are looked through backwards. A server of 2.15 says as well how far each of its entries is; of an ephemeral
one that is worth as much, and then little has to be looked through. (Of a durable's it is not: there the consumer decides.)

Invariant: no stored message is looked at twice for the same identity, and once for all that are asked for at a time; whatever
else changes, what was stored stays what it was.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.errors import MESSAGE_NOT_FOUND, ApiError
from reconciler.jetstream.api import JetStreamApi
from reconciler.model.identity import Key
from reconciler.model.sourcing import Entry, identity_of
from reconciler.procedures.requests import Copied

_BATCH = 128
"""Messages asked for at a time."""
_BATCH_BYTES = 4 << 20
_ENCODED = 1.4
"""A message in an answer (base64), by its size in the stream."""
_ENVELOPE = 256
_LITTLE = 1024
"""Messages looked through at a time where the server has told how far it is."""
_SOURCE = re.compile(rb"\r\nNats-Stream-Source: *([^\r\n]*)")
_LEGACY = b"$JS.ACK."
_PARTS, _DIGITS = 4, 20
"""Anybody who may publish there may have written the header."""
_NEAR = 8
"""Messages looked at around a place that is only tried, and four times as many further on."""
_REMEMBERED = 256
"""Streams whose scans are remembered."""
_SHARED = 4096
"""Messages that are kept while several identities are looked for."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One stored message, as far as it says where it comes from."""

    seq: int
    time: str
    identity: str
    """Empty where it is no copy."""
    origin_seq: int

    def copied_as(self, identity: str) -> int:
        """The origin's sequence, if it was copied under that identity; a mirror has none, and the sequences of its origin."""
        if not identity:
            return self.seq
        return self.origin_seq if identity == self.identity else 0


@dataclass(slots=True)
class _Scan:
    """What lies from `low` to `high` was looked through."""

    low: int
    high: int
    seq: int = 0
    """The origin's sequence of the last match."""
    time: str = ""
    """When it was stored; while there is none, that of the oldest message looked at: any match is older."""


@dataclass(slots=True)
class _Scanned:
    """One stream, as long as it is the same stream."""

    created: str
    by_identity: dict[str, _Scan] = field(default_factory=dict)
    lookers: int = 0
    asked: dict[int, asyncio.Task[_Stored | None]] = field(default_factory=dict)
    """What was asked for while somebody looks, for all who look at the same time."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody looks; what was asked for is kept as long as anybody does."""
        self.lookers += 1
        try:
            yield
        finally:
            self.lookers -= 1
            if not self.lookers:
                self.asked.clear()

    async def get(self, api: JetStreamApi, stream: str, seq: int) -> _Stored | None:
        """One message; None when it is not there."""
        task = self.asked.get(seq)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            if len(self.asked) >= _SHARED:
                del self.asked[next(iter(self.asked))]
            task = self.asked[seq] = asyncio.ensure_future(_get(api, stream, seq))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(task)


class Copies:
    """What streams have copied; remembers what it has looked through."""

    def __init__(self) -> None:
        self._streams: dict[Key, _Scanned] = {}
        self._due: dict[Key, asyncio.Task[dict[str, Any]]] = {}
        """Looks at streams that are about to be asked for."""

    async def last(self, api: JetStreamApi, stream: Key, identity: str) -> Copied:
        """The last origin sequence stored under an identity; raises ApiError when the stream is not there."""
        info = await self._info(api, stream)
        state, told = info["state"], _told(info, identity)
        if info["config"].get("mirror"):  # it has the sequences of its origin, and no such header
            return Copied(state["last_seq"], state["last_ts"] if state["last_seq"] else "")
        scanned = self._scanned(stream, info["created"])
        scan = scanned.by_identity.setdefault(identity, _Scan(state["last_seq"] + 1, state["last_seq"]))
        with scanned.looking():
            await _Walk(api, stream.stream_name, identity, state, scanned).extend(scan, _LITTLE if told else 0)
        complete = state["first_seq"] <= 1 and not state.get("num_deleted")
        seq = max(scan.seq, told)
        return Copied(seq, scan.time if seq else "", complete)

    async def _info(self, api: JetStreamApi, stream: Key) -> dict[str, Any]:
        """One look for all who have asked before it is sent."""
        due = self._due.get(stream)
        if due is None:
            due = self._due[stream] = asyncio.ensure_future(self._asked(api, stream))
            due.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(due)

    async def _asked(self, api: JetStreamApi, stream: Key) -> dict[str, Any]:
        await asyncio.sleep(0)
        del self._due[stream]
        return await api.stream_info(stream.stream_name)

    def _scanned(self, stream: Key, created: str) -> _Scanned:
        known = self._streams.pop(stream, None)
        if known is None or known.created != created:
            known = _Scanned(created)
        self._streams[stream] = known  # behind the others: the first of them is the one not asked about for longest
        if len(self._streams) > _REMEMBERED:
            del self._streams[next(iter(self._streams))]
        return known


async def last_below(api: JetStreamApi, stream: Key, identity: str, below: int) -> Copied:
    """The last origin sequence before `below` that is stored under an identity; not `complete` and 0 where nobody can tell.

    The copies under one identity are in the order of their origin, so that few of them have to be looked at. In a mirror, which
    has no identity, they keep their sequence.
    """
    info = await api.stream_info(stream.stream_name)
    state = info["state"]
    walk, found = _Walk(api, stream.stream_name, identity, state, _Scanned(info["created"])), 0
    low, high = state["first_seq"] - 1, state["last_seq"]
    while low < high:
        middle = (low + high + 1) // 2
        near = await walk.near(middle, low + 1)
        if near is None:
            return Copied(0, complete=False)
        if near >= below:
            high = middle - 1
        else:
            low, found = middle, near or found
    return Copied(found, complete=state["first_seq"] <= 1 and not state.get("num_deleted"))


async def newest(api: JetStreamApi, stream: Key, identity: str, subject: str) -> Copied:
    """The origin's sequence of the newest message on a subject; 0: there is none, or it was not copied under that identity."""
    try:
        reply = await api.call_raw(f"STREAM.MSG.GET.{stream.stream_name}", {"last_by_subj": subject})
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return Copied(0, complete=False)
        raise
    message = _stored(reply)
    seq = message.copied_as(identity)
    return Copied(seq, message.time if seq else "", complete=False)


@dataclass(frozen=True, slots=True)
class _Walk:
    """One walk through a stream as it was at one moment."""

    api: JetStreamApi
    stream: str
    identity: str
    state: dict[str, Any]
    scanned: _Scanned

    async def extend(self, scan: _Scan, limit: int) -> None:
        """Looks at what came since the last time, then goes on downwards until something is found (or the limit, if any)."""
        seq, time, high = 0, "", self.state["last_seq"]
        top = high
        while top > scan.high and not seq:
            seq, time, low = await self._batch(top, scan.high + 1)
            top = low - 1
        if high > scan.high:
            scan.high = high
            scan.seq, scan.time = (seq, time) if seq else (scan.seq, scan.time)
        end = max(self.state["first_seq"], scan.low - limit if limit else 1)
        while not scan.seq and scan.low > end:
            scan.seq, time, scan.low = await self._batch(scan.low - 1, end)
            scan.time = time or scan.time

    async def near(self, top: int, bottom: int) -> int | None:
        """The origin's sequence of the last match from `top` down; 0: there is none, None: none within a few."""
        span, given_up = _NEAR, top - _LITTLE
        while top >= bottom:
            if top <= given_up:
                return None
            seq, _, low = await self._batch(top, max(bottom, top - span + 1))
            if seq:
                return seq
            top, span = low - 1, span * 4
        return 0

    async def _batch(self, top: int, bottom: int) -> tuple[int, str, int]:
        """Looks at some messages from `top` down.

        Returns the origin's sequence of the last match (or 0), its time (or that of the oldest message), and how far it looked.
        """
        size = self._answer_size()
        low = max(bottom, top - max(1, min(_BATCH, _BATCH_BYTES // size)) + 1)
        async with self.api.budget.reserve(size * (top - low + 1)):
            due = range(top, low - 1, -1)
            answers = await asyncio.gather(*(self.scanned.get(self.api, self.stream, seq) for seq in due))
        messages = [one for one in answers if one]
        for message in messages:
            if seq := message.copied_as(self.identity):
                return seq, message.time, low
        if not messages and low > bottom:
            low = await self._below_hole(low, bottom)
        return 0, messages[-1].time if messages else "", low

    async def _below_hole(self, low: int, bottom: int) -> int:
        """Nothing is stored just above `low`: the lowest sequence with nothing stored between it and there."""
        span = _BATCH
        while (down := max(bottom, low - span)) < low and await self._empty(down, low):
            low, span = down, span * 2
        while low - down > 1:  # something is stored in between, at `down` or above
            middle = (down + low) // 2
            low, down = (middle, down) if await self._empty(middle, low) else (low, middle)
        return low

    async def _empty(self, low: int, high: int) -> bool:
        """Whether nothing is stored from `low` to before `high`."""
        found = await self.api.next_message(self.stream, ">", low)
        return found is None or found[0] >= high

    def _answer_size(self) -> int:
        average = self.state["bytes"] / max(1, self.state["messages"])
        return int(average * _ENCODED) + _ENVELOPE


async def _get(api: JetStreamApi, stream: str, seq: int) -> _Stored | None:
    try:
        return _stored(await api.call_raw(f"STREAM.MSG.GET.{stream}", {"seq": seq}))
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return None
        raise


def _stored(reply: bytes) -> _Stored:
    message: dict[str, Any] = orjson.loads(reply)["message"]
    seq, time = int(message["seq"]), message["time"]
    header = _SOURCE.search(base64.b64decode(message.get("hdrs", "")))
    parts = [] if header is None or header[1].startswith(_LEGACY) else header[1].decode(errors="replace").split(" ")
    if len(parts) < _PARTS or not parts[1].isdecimal() or len(parts[1]) >= _DIGITS:
        return _Stored(seq, time, "", 0)
    return _Stored(seq, time, f"{parts[0]} {parts[2]} {parts[3]}", int(parts[1]))


def _told(info: dict[str, Any], identity: str) -> int:
    """What the server itself says of an ephemeral entry; 0 where it does not, or not beyond doubt which entry it means."""
    entries = [entry for entry in info["config"].get("sources") or () if identity_of(entry) == identity]
    if len(entries) != 1 or entries[0].get("consumer"):
        return 0
    look = _looks(entries[0])
    shown = [one for one in info.get("sources") or () if _looks(one) == look]
    alike = [one for one in info["config"]["sources"] if _looks(one) == look]
    return int(shown[0].get("seq") or 0) if len(shown) == len(alike) == 1 else 0


def _looks(entry: Entry) -> tuple[Any, ...]:
    """What INFO shows of an entry, which is not its consumer."""
    transforms = tuple((one.get("src", ""), one.get("dest", "")) for one in entry.get("subject_transforms") or ())
    return entry["name"], (entry.get("external") or {}).get("api", ""), entry.get("filter_subject", ""), transforms
