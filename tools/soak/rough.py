"""Acts that remove messages by themselves, and what they leave, to the last message.

Invariant: while the cost of an act is not known, nothing is published to its stream: the act holds the family's lock until what
it changed is as declared again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.account.wire import Json
from tools.soak.families import FULL, Family
from tools.soak.hands import Hands, NoSuch, key_of
from tools.soak.traffic import publish

_PATIENCE = 600.0
"""Seconds until what is not repaired is given up: on a busy machine a term may take its time to begin."""
_GLANCE = 0.2
_LIFTED = 5000
_MORE = 20
_EXPIRED = 0.5
"""Seconds after which a server has removed what is too old."""
_RESTS = 3.0
"""Seconds after which no write that was judged before is on its way any more."""


class NotRepaired(Exception):
    """Something is still as the meddler left it."""


async def lower_limit(hands: Hands, family: Family) -> None:
    """Only the last messages fit."""
    async with _alone(hands, family):
        last = hands.dice.randrange(1, 20)
        before = await _changed(hands, family, max_msgs=last)
        hands.ledger.accounts[family.stream].keeps(last)
        await _restored(hands, family, before)


async def purge(hands: Hands, family: Family) -> None:
    """All but some."""
    async with _alone(hands, family):
        last = hands.dice.randrange(10)
        await hands.write(f"STREAM.PURGE.{family.stream}", {"keep": last} if last else None)
        hands.ledger.accounts[family.stream].keeps(last)


async def delete_stream(hands: Hands, family: Family) -> None:
    """Gone with all that hangs on it."""
    async with _alone(hands, family):
        await hands.write(f"STREAM.DELETE.{family.stream}")
        hands.ledger.accounts[family.stream].keeps(0)
        await _until_there(hands, family)


async def recreate_stream(hands: Hands, family: Family) -> None:
    """Made anew at once, metadata and all, with other messages; its consumers are gone."""
    async with _alone(hands, family):
        config = (await hands.info(family.stream))["config"]
        await hands.write(f"STREAM.DELETE.{family.stream}")
        hands.ledger.accounts[family.stream].keeps(0)
        await hands.put(config, family.stream, action="create")
        await publish(hands.wire, family, hands.ledger, hands.dice.randrange(30))


async def endanger(hands: Hands, family: Family) -> None:
    """A field by which the server removes messages as it sees fit, or takes none: what is there afterwards counts."""
    async with _alone(hands, family):
        field, value = hands.dice.choice(
            [("max_age", 10**9), ("max_msgs_per_subject", 1), ("retention", "interest"), ("max_bytes", 500), ("max_msg_size", 1)]
        )
        await _restored(hands, family, await _changed(hands, family, **{field: value}))
        await asyncio.sleep(_EXPIRED)
        account, state = hands.ledger.accounts[family.stream], (await hands.info(family.stream))["state"]
        if state["messages"] == state["last_seq"] - state["first_seq"] + 1 or not state["messages"]:
            account.keeps(int(state["messages"]))
        else:
            account.stored[:] = [int(text.rpartition(".")[2]) for text in await hands.wire.payloads(family.stream)]


async def lift(hands: Hands, family: Family) -> None:
    """More is stored than is declared: from then on nothing of it may go."""
    account = hands.ledger.accounts[family.stream]
    async with _alone(hands, family):
        await hands.edit(family.stream, max_msgs=_LIFTED)
        await publish(hands.wire, family, hands.ledger, _MORE)
        await asyncio.sleep(_RESTS)
        info = await hands.info(family.stream)
        if info["config"]["max_msgs"] != _LIFTED or info["state"]["messages"] <= FULL:
            return  # repaired before there was too much
        stored = int(info["state"]["messages"])
        account.stored[:] = range(account.published - stored, account.published)
        account.limit = 0

    async def undo() -> None:
        async with family.lock:
            await hands.edit(family.stream, max_msgs=FULL)
            account.limit = FULL
            account.keeps(FULL)

    hands.stands(key_of(family.stream), "lifted", undo, last=False)


@asynccontextmanager
async def _alone(hands: Hands, family: Family) -> AsyncIterator[None]:
    """With the stream for itself; its mark has to be in order, since nothing is repaired otherwise."""
    if family.lock.locked() or not hands.free(key_of(family.stream), careful=True):
        raise NoSuch(family.stream)
    async with family.lock:
        yield


async def _changed(hands: Hands, family: Family, **fields: Any) -> Json:  # noqa: ANN401 - any field
    """Makes these fields so; what they were before."""
    before = (await hands.info(family.stream))["config"]
    await hands.edit(family.stream, **fields)
    return {name: before.get(name) for name in fields}


async def _restored(hands: Hands, family: Family, before: Json) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        live = (await hands.info(family.stream))["config"]
        if all(live.get(name) == value for name, value in before.items()):
            return
        _in_time(deadline, f"{family.stream}: not {before} again")
        await asyncio.sleep(_GLANCE)


async def _until_there(hands: Hands, family: Family) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            await hands.info(family.stream)
        except NoSuch:
            _in_time(deadline, f"{family.stream} is gone")
            await asyncio.sleep(_GLANCE)
        else:
            return


def _in_time(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise NotRepaired(what)
