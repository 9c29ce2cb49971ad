"""What came of a soak: one line for each question, ok or FAIL, with figures.

Invariant: everything is read from the server or from the processes; what the product says of itself is only asked where the
question is what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.account.wire import Json, Wire
from tests.support.sources import aggregate
from tools.soak.families import Families, Family
from tools.soak.ledger import Ledger

_FEW = 5
_NAMED = frozenset({"Blocked", "Unmanaged"})
_OURS = ("reconciler.", "_nats.")
_NOT_COMPARED = ("deliver_policy", "opt_start_seq", "sources", "pause_until")
"""What a procedure may have to leave different for good, and a pause, which nobody ends but who began it."""


@dataclass
class Verdicts:
    """All lines so far."""

    failed: int = 0

    def tell(self, what: str, found: Iterable[str], figures: str = "") -> None:
        """A line; `found` is what speaks against it."""
        against = list(found)
        self.failed += bool(against)
        more = f"; {len(against)} found: {'; '.join(against[:_FEW])}{' …' if len(against) > _FEW else ''}" if against else ""
        print(f"{'FAIL' if against else 'ok  '} {what}: {figures}{more}", flush=True)


def settled(document: Json, ledger: Ledger) -> list[str]:
    """What is neither in place nor named, with a reason, for something that was done to it."""
    found = []
    for one in document["resources"]:
        key, state, message = one["key"], one["state"], one["message"]
        if state == "Synced" or (state == "Unmanaged" and not message):
            continue
        named = state in _NAMED or (state == "OutOfSync" and "waits for" in message)
        if not named or not message or not explained(key, ledger):
            found.append(f"{key} {state}: {message}")
    return found


def explained(key: str, ledger: Ledger) -> bool:
    """Whether something that the meddler has left behind is about this resource, or about its stream."""
    kind, _, rest = key.partition("/")
    copied = {f"Stream/{name}" for name in ledger.copies} | {f"Consumer/{of}/{name}" for of, name in ledger.copied_consumers}
    stream = f"Stream/{rest.partition('/')[0]}" if kind == "Consumer" else key
    return bool({key, stream} & (ledger.standing.keys() | copied))


async def configurations(wire: Wire, families: Families) -> dict[str, Json]:
    """What is live of everything that is declared, without marks; by key."""
    found: dict[str, Json] = {}
    for family in families.every:
        for key in family.keys(0):
            kind, _, rest = key.partition("/")
            stream, _, consumer = rest.partition("/")
            name = f"KV_{stream}" if kind == "KeyValue" else stream
            answer = await wire.call(f"CONSUMER.INFO.{name}.{consumer}" if consumer else f"STREAM.INFO.{name}")
            found[key] = _bare(answer.get("config", {}))
    return found


def differing(before: Mapping[str, Json], after: Mapping[str, Json], synced: Iterable[str]) -> list[str]:
    """What is said to be as declared, and is not as it was when that was true."""
    found = []
    for key in synced:
        if key in before and before[key] != after[key]:
            odd = [name for name in {*before[key], *after[key]} if before[key].get(name) != after[key].get(name)]
            if odd:
                found.append(f"{key}: {', '.join(f'{one} {after[key].get(one)}' for one in sorted(odd))}")
    return found


def _bare(config: Json) -> dict[str, Any]:
    metadata = {name: text for name, text in config.get("metadata", {}).items() if not name.startswith(_OURS)}
    kept = {name: value for name, value in config.items() if name not in _NOT_COMPARED and name != "metadata"}
    return {**kept, **({"metadata": metadata} if metadata else {})}


async def stored(url: str, family: Family, ledger: Ledger) -> list[str]:
    """What a stream that keeps its messages lacks, or has beyond what it should, told by their numbers."""
    account = ledger.accounts[family.stream]
    held = [int(one.id.rpartition(b".")[2]) for one in await aggregate.held(url, family.stream)]
    if held == account.stored:
        return []
    missing, more = set(account.stored) - set(held), set(held) - set(account.stored)
    twice = len(held) - len(set(held))
    return [f"{family.stream}: {len(missing)} missing {_some(missing)}, {len(more)} too many {_some(more)}, {twice} twice"]


async def copied(url: str, family: Family, ledger: Ledger) -> list[str]:
    """What a stream that copies lacks or has twice, beyond what acts on its durable cost."""
    account = ledger.accounts[family.stream]
    held = [int(one.id.rpartition(b".")[2]) for one in await aggregate.held(url, family.copy)]
    missing = set(range(account.published)) - set(held)
    twice = len(held) - len(set(held))
    found = []
    if missing and not account.lost:
        found.append(f"{family.copy} ({family.retention}) lacks {len(missing)} of {account.published} {_some(missing)}")
    if twice and not account.again:
        found.append(f"{family.copy} ({family.retention}) has {twice} of {account.published} twice")
    return found


async def left(wire: Wire, family: Family, ledger: Ledger) -> list[str]:
    """What an origin that keeps nothing still has, though all of it was copied."""
    number = await aggregate.stuck(wire, family.stream, 0.0) if family.retention != "limits" else 0
    if not number or ledger.accounts[family.stream].left:
        return []
    return [f"{family.stream} ({family.retention}) has {number} left: {await aggregate.readers(wire, family.stream)}"]


async def copies_kept(url: str, ledger: Ledger) -> list[str]:
    """Streams that somebody copied, marks and all: they are nobody's to delete."""
    found = []
    for name, texts in ledger.copies.items():
        held = [one.id for one in await aggregate.held(url, name)]
        if held != texts:
            found.append(f"{name}: {held}")
    return found


def _some(numbers: Iterable[int]) -> str:
    return f"({', '.join(map(str, sorted(numbers)[:_FEW]))} …)"
