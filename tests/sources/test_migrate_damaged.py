"""A journal that somebody damages in the middle of a change is not gone on with; once it is as it was, nothing was lost by it.

It says what nobody else knows of a position: whoever went on with less would copy again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from reconciler.model.journals import MIGRATE, misfit
from reconciler.model.marker import PROCEDURE
from reconciler.plan.change import Action
from tests.support.world.declared import RETENTIONS, ROWS
from tests.support.world.driver import Crash
from tests.support.world.keeper import Keeper, Killed, planned
from tests.support.world.kept import KeptWorld, assert_exact, world_of
from tests.support.world.sources import durable

pytestmark = pytest.mark.diagonal
CHANGES = (
    "ephemeral to managed",
    "managed renamed",
    "user renamed",
    "managed to ephemeral",
    "managed, transformed",
)
DAMAGED = '{"name": "migrate-source", "step": "attach", "data": "{}"}'
WRONG: tuple[Any, ...] = (None, [], {}, -1, "x", True)


def damages(text: str) -> Iterator[str]:
    """What may become of a journal: no step that there is, a part too few, and each part as something else."""
    journal = orjson.loads(text)
    data = orjson.loads(journal["data"])
    yield orjson.dumps({**journal, "step": "nonsense"}).decode()
    for part in data:
        changed = [{name: value for name, value in data.items() if name != part}, *({**data, part: one} for one in WRONG)]
        for one in changed:
            if misfit(journal["name"], journal["step"], one):
                yield orjson.dumps({**journal, "data": orjson.dumps(one).decode()}).decode()


def journals(world: KeptWorld) -> dict[tuple[str, str], str]:
    """Those of a change of how a stream copies."""
    found = {place: (one.config.get("metadata") or {}).get(PROCEDURE, "") for place, one in world.server.consumers.items()}
    return {place: text for place, text in found.items() if f'"{MIGRATE}"' in text}


def put(world: KeptWorld, place: tuple[str, str], text: str) -> None:
    consumer = world.server.consumers[place]
    consumer.config = {**consumer.config, "metadata": {**consumer.config["metadata"], PROCEDURE: text}}


def changed(name: str, retention: str) -> tuple[KeptWorld, Any]:
    before, after = ROWS[name].manifests(retention)
    return world_of(before, retention), after


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", CHANGES)
def test_whoever_finds_it_blocks_and_goes_on_once_it_is_as_it_was(name: str, retention: str) -> None:
    world, after = changed(name, retention)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    seen = 0
    for number in range(len(smooth.writes)):
        left = copy.deepcopy(world)
        killed = Keeper(left, crash=Crash(write=number))
        with pytest.raises(Killed):
            killed.attempt(after)
        for place, text in journals(left).items():
            for damaged in damages(text):
                put(left, place, damaged)
                found = planned(after, killed.server).changes
                going = [change for change in found if change.action is not Action.BLOCKED]
                assert not [change for change in going if durable(place[1]) in change.touches], (number, damaged)
                codes = {reason.code for change in found for reason in change.reasons}
                assert "damaged-mark" in codes, (number, damaged)
                seen += 1
            put(left, place, text)
        killed.bring(after)
        assert_exact(killed, after, ROWS[name].kept)
    assert seen > 20


@dataclass
class Meddler:
    """Damages the first journal that it finds, before a step."""

    world: KeptWorld
    before: int
    text: str = ""
    place: tuple[str, str] = ("", "")

    def __call__(self, step: int) -> None:
        """Called before every step."""
        if step == self.before:
            self.place, self.text = next(iter(journals(self.world).items()), (self.place, ""))
            if self.text:
                put(self.world, self.place, DAMAGED)


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", CHANGES)
def test_whoever_is_at_it_goes_no_further(name: str, retention: str) -> None:
    world, after = changed(name, retention)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    met = 0
    for step in sorted(set(smooth.written_at)):
        meddled = copy.deepcopy(world)
        meddler = Meddler(meddled, step + 1)
        keeper = Keeper(meddled, hook=meddler)
        keeper.attempt(after)
        if not meddler.text:
            continue
        late = [write for write, at in zip(keeper.writes, keeper.written_at, strict=True) if at > step]
        assert len(late) <= 1, late  # what was looked at before may still be written
        assert getattr(keeper.ends[-1], "code", "") == "damaged-mark"
        put(meddled, meddler.place, meddler.text)
        keeper.bring(after)
        assert_exact(keeper, after, ROWS[name].kept)
        met += 1
    assert met
