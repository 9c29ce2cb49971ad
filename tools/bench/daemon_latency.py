"""From the answer to somebody's edit until the daemon's repair is seen, by the servers' own word.

Beside it, in turn: the same client repairs its own edit of something undeclared with two bare requests, which is what the
machine allows at that moment.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from nats.aio.msg import Msg

from tests.support.account.wire import Wire
from tools.bench.measure import Measure, rounded

LIMIT = 50.0
"""Milliseconds, for 99 of 100."""
_AUDIT = "$JS.EVENT.ADVISORY.API"
_DAEMON = "reconciler-"
_CLIENT = "somebody"
_REPAIRED_WITHIN = 30.0
_PAUSE = 0.01
_BARE = "BARE"
Json = dict[str, Any]


async def latency(
    url: str, name: str, consumers: Sequence[tuple[str, str]], edits: int, *, limit: float | None = LIMIT
) -> Measure:
    """Edits these consumers (stream, name) and their streams in turn, each time in another way: nobody fights here."""
    async with await Wire.connect(url, name=_CLIENT) as wire, await Wire.connect(url, name="observer") as observer:
        repairs = _Repairs()
        await observer.client.subscribe(_AUDIT, cb=repairs.hear)
        await observer.client.flush()
        await _make_bare(wire)
        edited, bare = [], []
        for number, request in zip(range(edits), itertools.cycle(_requests(consumers)), strict=False):
            edited.append(await _repaired(wire, repairs, request, number))
            bare.append(await _bare(wire, number))
            await asyncio.sleep(_PAUSE)
        await wire.expect(f"STREAM.DELETE.{_BARE}")
    repaired, itself = _figures(edited), _figures(bare)
    return Measure(
        measure=f"daemon latency, {name}",
        value=repaired["p99"],
        unit="ms",
        ratio=rounded(repaired["p99"] / itself["p99"]),
        limit=limit,
        ok=limit is None or repaired["p99"] < limit,
        detail={"edits": edits, "repaired": repaired, "bare_requests": itself},
    )


class _Repairs:
    """What the daemon has written, heard from the audit."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[float]] = {}

    def expect(self, subject: str) -> asyncio.Future[float]:
        """Done at the moment at which a write of the daemon to this subject is seen."""
        self._waiting[subject] = asyncio.get_running_loop().create_future()
        return self._waiting[subject]

    async def hear(self, message: Msg) -> None:
        """Takes one advisory."""
        now = time.perf_counter()
        heard = json.loads(message.data)
        if heard["client"].get("name", "").startswith(_DAEMON):
            found = self._waiting.pop(heard["subject"], None)
            if found is not None:
                found.set_result(now)


def _requests(consumers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What to ask and what to send for each resource: INFO and update."""
    streams = dict.fromkeys(stream for stream, _ in consumers)
    found = [(f"CONSUMER.INFO.{stream}.{name}", f"CONSUMER.CREATE.{stream}.{name}") for stream, name in consumers]
    return found + [(f"STREAM.INFO.{stream}", f"STREAM.UPDATE.{stream}") for stream in streams]


async def _repaired(wire: Wire, repairs: _Repairs, request: tuple[str, str], number: int) -> float:
    info, update = request
    before = (await wire.expect(info))["config"]
    seen = repairs.expect(wire.subject(update))
    await wire.expect(update, _body(update, before | {"description": f"edit {number}"}))
    edited = time.perf_counter()
    async with asyncio.timeout(_REPAIRED_WITHIN):
        repaired = await seen
    if (after := (await wire.expect(info))["config"]) != before:
        msg = f"{update} was not repaired: {after}"
        raise RuntimeError(msg)
    return repaired - edited


async def _bare(wire: Wire, number: int) -> float:
    """The two requests that a repair needs at least."""
    update = f"CONSUMER.CREATE.{_BARE}.consumer"
    before = (await wire.expect(f"CONSUMER.INFO.{_BARE}.consumer"))["config"]
    await wire.expect(update, _body(update, before | {"description": f"edit {number}"}))
    edited = time.perf_counter()
    await wire.expect(f"CONSUMER.INFO.{_BARE}.consumer")
    await wire.expect(update, _body(update, before))
    return time.perf_counter() - edited


async def _make_bare(wire: Wire) -> None:
    await wire.expect(f"STREAM.CREATE.{_BARE}", {"name": _BARE, "subjects": ["bare"], "storage": "memory"})
    config = {"name": "consumer", "durable_name": "consumer", "ack_policy": "explicit"}
    await wire.expect(f"CONSUMER.CREATE.{_BARE}.consumer", {"stream_name": _BARE, "action": "create", "config": config})


def _body(update: str, config: Json) -> Json:
    kind, _, stream, *_ = update.split(".")
    return {"stream_name": stream, "action": "update", "config": config} if kind == "CONSUMER" else config


def _figures(taken: list[float]) -> dict[str, float]:
    """Milliseconds; a percentile is the first measured value that so many do not exceed."""
    return {name: rounded(1000 * value) for name, value in _percentiles(sorted(taken))}


def _percentiles(taken: list[float]) -> Iterator[tuple[str, float]]:
    for share in (50, 90, 99):
        yield f"p{share}", taken[-(-len(taken) * share // 100) - 1]
    yield "max", taken[-1]
