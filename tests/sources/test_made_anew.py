"""A stream that copies is made anew: what a procedure had to vary in its entries belonged to the one before."""

from __future__ import annotations

import pytest

from reconciler.plan.change import Rules
from tests.support.world.declared import copier, managed, origin, plain
from tests.support.world.keeper import Keeper, manifests
from tests.support.world.kept import assert_exact, world_of

RULES = Rules(policy="sync", allow=frozenset({("recreate", "Stream/A"), ("data-loss", "Stream/A")}))


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_it_copies_from_the_beginning_whatever_it_had_copied_before(retention: str) -> None:
    world = world_of(manifests(origin(retention), copier(managed("c"))), retention)
    assert world.published
    Keeper(world, busy=0).bring(manifests(origin(retention), copier(plain())))
    assert "opt_start_seq" in str(world.server.streams["A"].config["sources"])
    wanted = manifests(origin(retention), copier(plain(), storage="memory"))
    keeper = Keeper(world, RULES, busy=0)
    keeper.bring(wanted)
    assert "opt_start_seq" not in str(world.server.streams["A"].config["sources"])
    if retention == "limits":
        assert_exact(keeper, wanted)
