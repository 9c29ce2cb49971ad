"""The durable of an entry is not declared any more, or never was: the entry goes on reading through it, and nothing is begun."""

from __future__ import annotations

import pytest

from reconciler.plan.change import Action, Rules
from tests.support.world.declared import Entry, copier, origin, own, user
from tests.support.world.keeper import Keeper, manifests, planned
from tests.support.world.kept import assert_exact, world_of

UNMANAGED: Entry = {"name": "S", "consumer": {"name": "u", "deliverSubject": "dlv.u", "unmanaged": True}}


@pytest.mark.parametrize("entry", [own("u"), UNMANAGED], ids=["without a word", "unmanaged"])
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_it_is_left_as_it_is(retention: str, entry: Entry) -> None:
    world = world_of(manifests(origin(retention), copier(own("u")), user("u")), retention)
    wanted = manifests(origin(retention), copier(entry))
    keeper = Keeper(world, Rules(policy="upsert-only"))
    assert keeper.bring(wanted).changes == ()
    assert keeper.writes == []
    world.publish(6)
    assert_exact(keeper, manifests(origin(retention), copier(own("u")), user("u")), "u")


@pytest.mark.parametrize("entry", [own("u"), UNMANAGED], ids=["without a word", "unmanaged"])
def test_it_is_not_pruned_while_a_declared_stream_reads_through_it(entry: Entry) -> None:
    world = world_of(manifests(origin(), copier(own("u")), user("u")))
    world.settle()
    (change,) = planned(manifests(origin(), copier(entry)), world.server, Rules(policy="sync")).changes
    assert (str(change.key), change.action, change.wanted) == ("Consumer/S/u", Action.BLOCKED, Action.DELETE)
    assert [reason.code for reason in change.reasons] == ["depends-on"]
    (change,) = planned(manifests(origin(), copier()), world.server, Rules(policy="sync")).changes
    assert (str(change.key), list(map(str, change.touches))) == ("Stream/A", ["Consumer/S/u"])
