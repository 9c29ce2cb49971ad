"""An origin is deleted and made anew in the middle of a change: no position of the old one is used in it.

The same sequences are other messages there: what is skipped is lost.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import orjson
import pytest

from reconciler.model.desired import Desired
from reconciler.procedures.requests import CreateStream, DeleteStream, PurgeStream, UpdateStream, Write
from tests.support.world.declared import ROWS
from tests.support.world.keeper import Keeper
from tests.support.world.kept import KeptWorld, leftovers, world_of
from tests.support.world.sources import S

pytestmark = pytest.mark.diagonal
CHANGES = ("managed renamed", "user renamed", "managed to ephemeral", "managed, transformed", "ephemeral to managed")
FEW = 3
"""Messages in the new one: fewer than were copied of the old one."""


@dataclass
class Remaker:
    """Somebody deletes the origin before a step, and makes it anew; only what is published then counts."""

    world: KeptWorld
    before: int

    def __call__(self, step: int) -> None:
        """Called before every step."""
        if step != self.before:
            return
        server = self.world.server
        config = orjson.dumps(server.streams["S"].config)
        server.write(DeleteStream(S))
        server.advance(1)
        server.write(CreateStream(S, config))
        self.world.published.clear()
        self.world.publish(FEW)


def begun(name: str, retention: str) -> tuple[KeptWorld, Desired]:
    before, after = ROWS[name].manifests(retention)
    return world_of(before, retention), after


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
@pytest.mark.parametrize("name", CHANGES)
def test_everything_in_the_new_one_arrives(name: str, retention: str) -> None:
    world, after = begun(name, retention)
    smooth = Keeper(copy.deepcopy(world), busy=0)
    smooth.bring(after)
    for step in range(_over(smooth)):
        made = copy.deepcopy(world)
        keeper = Keeper(made, hook=Remaker(made, step), busy=0)
        for _ in range(2):
            keeper.bring(after)
            made.settle()
        where = (step, smooth.trail[step])
        assert (made.missing(), made.duplicates()) == ([], []), where
        assert leftovers(made.server, ("c", "d", "u", "v")) == [], where


def _over(keeper: Keeper) -> int:
    """The step before which it has to happen.

    A purge is judged once more by the origin itself just before it is sent; and who begins in the middle of an origin is a
    matter of the server from then on.
    """
    at = zip(keeper.writes, keeper.written_at, strict=True)
    late = (step for write, step in at if isinstance(write, PurgeStream) or _begins_in_the_middle(write))
    return min(late, default=keeper.steps)


def _begins_in_the_middle(write: Write) -> bool:
    return isinstance(write, UpdateStream) and b"opt_start_seq" in write.config
