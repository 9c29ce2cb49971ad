"""Acts that lose nothing by themselves: edits, deletions of consumers, pauses, copies under another name."""

from __future__ import annotations

from typing import Any

from tests.support.account.wire import Json
from tools.soak.families import Family
from tools.soak.hands import JOURNAL, Hands, NoSuch, is_read, key_of

_COPIES = 0.01
"""Of the resources: how many copies there are at most, of streams and of consumers."""
_HOUR = 3600 * 10**9


async def edit_stream(hands: Hands, family: Family) -> None:
    """A field by which the stream keeps as much as before, or more."""
    dice = hands.dice
    fields: list[Json] = [
        {"description": f"edited {dice.random()}"},
        {"metadata": {"edited": str(dice.random())}},
        {"max_msgs": dice.choice((-1, 6_000_000 + dice.randrange(1000)))},
        {"max_bytes": 10**9 + dice.randrange(1000)},
        {"max_age": (100 + dice.randrange(1000)) * _HOUR},
        {"max_msgs_per_subject": 5_000_000 + dice.randrange(1000)},
        {"max_msg_size": 100_000 + dice.randrange(1000)},
        {"max_consumers": 50 + dice.randrange(1000)},
        {"allow_direct": False},
        {"compression": "s2"},
    ]
    if family.kind == "bucket":
        fields = [*fields[:2], {"max_msgs_per_subject": dice.randrange(6, 60)}, *fields[3:5]]
    if family.kind == "full":
        fields = [*fields[:2], *fields[4:]]
    if family.subjects and family.kind != "copied":
        fields.append({"subjects": [f"{family.kind}.{family.number}.>", f"beside.{family.kind}.{family.number}"]})
    async with family.lock:  # a replacement must not take back what another act has changed meanwhile
        await hands.edit(family.stream, **dice.choice(fields))


async def edit_consumer(hands: Hands, family: Family) -> None:
    """Any field of a consumer that a worker bears to have changed; of the others also what it would not."""
    dice = hands.dice
    name = _member(hands, family)
    fields: list[Json] = [
        {"description": f"edited {dice.random()}"},
        {"metadata": {"edited": str(dice.random())}},
        {"max_ack_pending": 1000 + dice.randrange(1000)},
        {"ack_wait": (5 + dice.randrange(50)) * 10**9},
        {"sample_freq": str(dice.randrange(1, 100))},
        {"max_batch": 1000 + dice.randrange(1000)},
        {"max_expires": (5 + dice.randrange(50)) * 10**9},
    ]
    if not is_read(family, name):
        fields += [{"max_deliver": dice.randrange(1, 50)}, {"inactive_threshold": _HOUR}, {"headers_only": True}]
    elif family.retention == "limits":
        fields.append({"filter_subjects": list(family.wanted[:1])})
    await hands.edit(family.stream, name, **dice.choice(fields))


async def misguide_consumer(hands: Hands, family: Family) -> None:
    """It delivers something else, or everything: what that adds may not be taken away again while nobody has read it."""
    name = _member(hands, family)
    key = key_of(family.stream, name)
    if key in hands.ledger.standing:
        raise NoSuch(name)
    before = (await hands.info(family.stream, name))["config"]
    wide = [hands.dice.choice((f"{family.kind}.{family.number}.>", *family.subjects))]
    await hands.edit(family.stream, name, filter_subjects=wide)

    async def undo() -> None:
        live = (await hands.info(family.stream, name))["config"]
        if _filters(live) == wide != _filters(before):
            await hands.edit(family.stream, name, filter_subjects=_filters(before))

    if not is_read(family, name):
        hands.stands(key, "made to deliver something else", undo, last=False)


async def delete_consumer(hands: Hands, family: Family) -> None:
    """Gone; on what keeps its messages anyway."""
    await hands.write(f"CONSUMER.DELETE.{family.stream}.{_member(hands, family)}")


async def recreate_consumer(hands: Hands, family: Family) -> None:
    """The same once more, metadata and all."""
    name = _member(hands, family)
    config = (await hands.info(family.stream, name))["config"]
    await hands.write(f"CONSUMER.DELETE.{family.stream}.{name}")
    await hands.put(config, family.stream, name, "create")


async def misplaced_consumer(hands: Hands, family: Family) -> None:
    """Another start, which no update can take away."""
    name = _member(hands, family)
    if is_read(family, name) or key_of(family.stream, name) in hands.ledger.standing:
        raise NoSuch(name)
    config = dict((await hands.info(family.stream, name))["config"]) | {"deliver_policy": "new"}
    config.pop("opt_start_seq", None)
    await hands.write(f"CONSUMER.DELETE.{family.stream}.{name}")
    await hands.put(config, family.stream, name, "create")

    async def undo() -> None:
        if (await hands.info(family.stream, name))["config"].get("deliver_policy") == "new":
            await hands.write(f"CONSUMER.DELETE.{family.stream}.{name}")

    hands.stands(key_of(family.stream, name), "made with another start", undo, last=False)


async def pause_consumer(hands: Hands, family: Family) -> None:
    """For some seconds, or the end of it."""
    name = _member(hands, family)
    await hands.pause(family.stream, name, hands.dice.choice((0.0, 3.0, 20.0, 60.0)))


async def copy_stream(hands: Hands, family: Family) -> None:
    """A stream of another name with the same metadata, and messages in it that are nobody's to delete."""
    copies = hands.ledger.copies
    if len(copies) >= max(2, _COPIES * hands.resources):
        victim = hands.dice.choice(sorted(copies))
        del copies[victim]
        await hands.write(f"STREAM.DELETE.{victim}")
        return
    name = f"DUPLICATE-{hands.ledger.acts.total()}"
    config = _copied((await hands.info(family.stream))["config"], name)
    config |= {"subjects": [f"duplicate.{name}"], "retention": "limits"}
    config.pop("sources", None)
    if hands.dice.random() < 1 / 3:  # forged to the last
        config["metadata"] = {**config.get("metadata", {}), "reconciler.key": key_of(name)}
    await hands.put(config, name, action="create")
    for number in range(3):
        await hands.wire.publish(f"duplicate.{name}", first=number)
    copies[name] = [b"0", b"1", b"2"]


async def copy_consumer(hands: Hands, family: Family) -> None:
    """The same of a consumer, in the same stream."""
    known = hands.ledger.copied_consumers
    if len(known) >= max(2, _COPIES * hands.resources):
        stream, name = hands.dice.choice(sorted(known))
        known.discard((stream, name))
        await hands.write(f"CONSUMER.DELETE.{stream}.{name}")
        return
    name = f"duplicate-{hands.ledger.acts.total()}"
    config = _copied((await hands.info(family.stream, _member(hands, family)))["config"], name) | {"durable_name": name}
    if hands.dice.random() < 1 / 3:
        config["metadata"] = {**config.get("metadata", {}), "reconciler.key": key_of(family.stream, name)}
    known.add((family.stream, name))
    await hands.put(config, family.stream, name, "create")


def _filters(config: Json) -> list[str]:
    return list(config.get("filter_subjects") or [config["filter_subject"]])


def _copied(config: Json, name: str) -> dict[str, Any]:
    """All of it but what says that something is under way."""
    metadata = {entry: text for entry, text in config.get("metadata", {}).items() if entry != JOURNAL}
    return {**config, "name": name, "metadata": metadata}


def _member(hands: Hands, family: Family) -> str:
    """A declared consumer that may be worked on."""
    name = hands.dice.choice(family.members)
    if not hands.free(key_of(family.stream, name), careful=is_read(family, name)):
        raise NoSuch(name)
    return name
