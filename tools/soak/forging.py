"""Acts on marks: what a person, or a tool that copies configurations, can write into the metadata of a resource.

Not forged is the one thing that is known to be believed: the journal of a migration in the durable of a source
(docs/decisions/0016-marks-are-claims.md).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from tests.support.account.wire import Json
from tools.soak.families import Family
from tools.soak.hands import JOURNAL, MARK, Hands, NoSuch, is_read, key_of

_FAR = 10**9
"""A position that no stream reaches."""


async def forge_stream(hands: Hands, family: Family) -> None:
    """Something in the mark of a stream."""
    await forge(hands, family, family.stream, last=family.kind != "bucket")


async def forge_consumer(hands: Hands, family: Family) -> None:
    """Something in the mark of a consumer."""
    name = hands.dice.choice(family.members)
    await forge(hands, family, family.stream, name, last=is_read(family, name))


async def forge_hold(hands: Hands, family: Family) -> None:
    """A hold far behind the end, and then the consumer is gone that it claims to stand for."""
    name = hands.dice.choice(family.members)
    if not hands.free(key_of(family.stream, name), careful=is_read(family, name)):
        raise NoSuch(name)
    hold = f"_reconciler_hold_{name}"
    mark = {entry: text for entry, text in _mark((await hands.info(family.stream, name))["config"]).items() if entry != JOURNAL}
    said = {"consumer": name, "start": _FAR}
    journal = {"name": "recreate-consumer", "step": "hold", "target": mark.get("reconciler.spec", ""), "data": json.dumps(said)}
    metadata = {**mark, "reconciler.key": key_of(family.stream, hold), JOURNAL: json.dumps(journal)}
    config = {"durable_name": hold, "name": hold, "ack_policy": "explicit", "deliver_policy": "by_start_sequence"}
    await hands.put({**config, "opt_start_seq": _FAR, "metadata": metadata}, family.stream, hold, "create")

    async def undo() -> None:
        await hands.write(f"CONSUMER.DELETE.{family.stream}.{hold}")

    hands.stands(key_of(family.stream, hold), "a forged hold", undo, last=True)
    await hands.write(f"CONSUMER.DELETE.{family.stream}.{name}")


async def forge(hands: Hands, family: Family, stream: str, consumer: str = "", *, last: bool) -> None:
    """One of the forgeries, taken back later; where copying hangs on it, none that tells of a procedure or its work."""
    if not hands.free(key_of(stream, consumer), careful=True):
        raise NoSuch(key_of(stream, consumer))
    async with _alone(family, consumer):
        config = (await hands.info(stream, consumer))["config"]
        mark = _mark(config)
        if not mark or JOURNAL in mark:
            raise NoSuch(key_of(stream, consumer))
        what, forged = hands.dice.choice(forgeries(hands, mark, is_consumer=bool(consumer), mild=family.kind == "copied"))
        await hands.put({**config, "metadata": {**_theirs(config), **forged}}, stream, consumer)

    async def undo() -> None:
        """Of what is still as it was forged."""
        async with _alone(family, consumer):
            live = (await hands.info(stream, consumer))["config"]
            if _mark(live) == forged:
                await hands.put({**live, "metadata": {**_theirs(live), **mark}}, stream, consumer)

    hands.stands(key_of(stream, consumer), f"forged: {what}", undo, last=last)


def _alone(family: Family, consumer: str) -> AbstractAsyncContextManager[object]:
    """A stream is not replaced while somebody else changes it in a way whose cost is to be known."""
    return contextlib.nullcontext() if consumer else family.lock


def forgeries(hands: Hands, mark: Mapping[str, str], *, is_consumer: bool, mild: bool) -> list[tuple[str, dict[str, str]]]:
    """Each with what the mark says then."""
    plain = dict(mark)
    other = f"Consumer/KEPT-{hands.dice.randrange(9)}/c1" if is_consumer else f"Stream/KEPT-{hands.dice.randrange(9)}"
    found = [
        ("owner", plain | {"reconciler.owner": "somebody-else"}),
        ("key", plain | {"reconciler.key": other}),
        ("wiped", {}),
        ("residue that is none", plain | {"reconciler.residue": hands.dice.choice(("no json", '[{"field": "max_msgs"}]', "[]"))}),
        ("journal that is none", plain | {JOURNAL: hands.dice.choice(("", "{}", "[]", '{"name": 7}'))}),
    ]
    if mild:
        return found
    found += [
        ("spec", plain | {"reconciler.spec": "0" * 32}),
        ("no key", {entry: text for entry, text in plain.items() if entry != "reconciler.key"}),
        ("journal of nothing", plain | {JOURNAL: _journal("no-such-procedure", "step", plain)}),
        ("source", plain | {"reconciler.source": "Stream/COPY-1"}),
        ("source that is none", plain | {"reconciler.source": "nothing"}),
        ("pause", plain | {"reconciler.pauseUntil": hands.dice.choice(("2031-01-01T00:00:00Z", "some day"))}),
    ]
    if is_consumer:
        procedure = hands.dice.choice(("filter-add", "recreate-consumer", "restore-consumer", "set-pause"))
        step = hands.dice.choice(("pause", "reset", "resume", "update", "hold"))
        row = {"field": "deliver_policy", "live": "by_start_sequence", "declared": None}
        found += [
            ("journal", plain | {JOURNAL: _journal(procedure, step, plain)}),
            ("residue", plain | {"reconciler.residue": json.dumps([row])}),
        ]
    return found


def _journal(name: str, step: str, mark: Mapping[str, str]) -> str:
    data: Json = {"start": _FAR, "position": _FAR, "reset": _FAR, "consumer": "c1"}
    return json.dumps({"name": name, "step": step, "target": mark.get("reconciler.spec", ""), "data": json.dumps(data)})


def _theirs(config: Json) -> dict[str, str]:
    return {entry: text for entry, text in config.get("metadata", {}).items() if not entry.startswith(MARK)}


def _mark(config: Json) -> dict[str, str]:
    return {entry: text for entry, text in config.get("metadata", {}).items() if entry.startswith(MARK)}
