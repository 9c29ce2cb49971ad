"""Acts on streams that copy, and on the durables they read through; what each costs is what docs/sourcing.md says.

| act | on limits | on a work queue | on interest |
|---|---|---|---|
| a durable is deleted | nothing; before anything was copied through it, or in a migration: twice | twice, and some left | lost |
| a durable's mark is gone or wrong | nothing | left, in a migration | left |
| a durable is paused, edited, resumed | nothing | nothing | nothing |
| anything to the mark or the fields of the streams | nothing | nothing | nothing |
"""

from __future__ import annotations

from tests.support.account.wire import Json
from tools.soak.families import Family
from tools.soak.forging import forge
from tools.soak.hands import JOURNAL, Hands, NoSuch, key_of

_PAUSES = (2.0, 10.0, 40.0)


async def delete_durable(hands: Hands, family: Family) -> None:
    """Gone, with its position."""
    name, info = await _durable(hands, family)
    account = hands.ledger.accounts[family.stream]
    what = f"{name} deleted"
    if _migrating(info) or family.retention == "workqueue" or not info["delivered"]["consumer_seq"]:
        account.again.append(what)
    if family.retention == "interest":
        account.lost.append(what)
    if family.retention != "limits":
        account.left.append(what)
    await hands.write(f"CONSUMER.DELETE.{family.stream}.{name}")


async def edit_durable(hands: Hands, family: Family) -> None:
    """What does not change what it delivers."""
    name, info = await _durable(hands, family)
    if _migrating(info):
        raise NoSuch(name)
    text = str(hands.dice.random())
    await hands.edit(family.stream, name, **hands.dice.choice(({"description": text}, {"metadata": {"edited": text}})))


async def pause_durable(hands: Hands, family: Family) -> None:
    """Nothing is copied meanwhile."""
    name, info = await _durable(hands, family)
    if _migrating(info) or info.get("paused"):
        raise NoSuch(name)
    await hands.pause(family.stream, name, hands.dice.choice(_PAUSES))

    async def undo() -> None:
        if (await hands.info(family.stream, name)).get("paused"):
            await hands.pause(family.stream, name, 0.0)

    hands.stands(key_of(family.stream, name), "paused", undo, last=True)


async def forge_durable(hands: Hands, family: Family) -> None:
    """A mark that is none, or somebody else's."""
    name, info = await _durable(hands, family)
    account = hands.ledger.accounts[family.stream]
    if family.retention == "interest" or (_migrating(info) and family.retention != "limits"):
        account.left.append(f"the mark of {name} forged")
    await forge(hands, family, family.stream, name, last=True)


async def edit_copy(hands: Hands, family: Family) -> None:
    """A field of the stream that copies."""
    text = str(hands.dice.random())
    fields = ({"description": text}, {"metadata": {"edited": text}}, {"max_msgs": 6_000_000}, {"max_bytes": 10**9})
    await hands.edit(family.copy, **hands.dice.choice(fields))


async def forge_copy(hands: Hands, family: Family) -> None:
    """The mark of the stream that copies."""
    await forge(hands, family, family.copy, last=True)


async def _durable(hands: Hands, family: Family) -> tuple[str, Json]:
    """The one that is read through."""
    entries = (await hands.info(family.copy))["config"].get("sources") or [{}]
    name = (entries[0].get("consumer") or {}).get("name")
    if not name or key_of(family.stream, name) in hands.ledger.standing:
        raise NoSuch(family.copy)
    return name, await hands.info(family.stream, name)


def _migrating(info: Json) -> bool:
    return JOURNAL in info["config"].get("metadata", {})
