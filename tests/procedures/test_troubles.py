"""Every procedure under one trouble of a cluster, at every place of its way.

A leader that answers lags by up to eight steps, for a look or for half a second; the answer to a write is lost, or the write
lands before any later step, or when all is over; our pause runs out and a person sets another one; a leader is elected.

What may happen after a late write, and nothing else: a consumer stands still until our pause runs out (two minutes); and where a
migration takes filters away, or gives the first ones, a late update takes that back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from reconciler.model.identity import Key
from tests.support.choice import some
from tests.support.world.declared import RETENTIONS, ROWS
from tests.support.world.keeper import Keeper
from tests.support.world.kept import KeptWorld, world_of
from tests.support.world.served import CHANGES, Change
from tests.support.world.sources import A, S, durable
from tests.support.world.troubles import Trouble, every_trouble, taken

pytestmark = pytest.mark.diagonal
SEED = random.randrange(1 << 32)
EVERY_DAY, AT_MOST = 15, 200
"""Of some 600 places of a change, by a seed that is another one each time; the first is for `make test`."""
DEAF = "go deaf to new messages"
"""What a real server would let a consumer do whose late update takes back its first filters."""


def migrated(name: str, retention: str) -> Change:
    """A change of how a stream copies, between streams that have several replicas."""
    before, after = ROWS[name].manifests(retention)
    world = world_of(before, retention)
    return Change(world, after, tuple(_durables(world, taken(world, after)[0])), (S, A))


def _durables(before: KeptWorld, after: Keeper) -> list[Key]:
    names = {name for server in (before.server, after.server) for _, name in server.consumers}
    return [durable(name) for name in ("c", "d", "u", "v") if name in names]


def wrongs(change: Change, troubles: Sequence[Trouble]) -> list[str]:
    """What came of each that did not end well."""
    found = ((trouble, taken(change.world, change.wanted, trouble, change.memory)[1]) for trouble in troubles)
    return [f"{trouble}: {wrong}" for trouble, wrong in found if wrong and not (trouble.kind == "late" and DEAF in wrong)]


def assert_good_whatever_happens(change: Change, number: int) -> None:
    change.world.server.leaders = Counter()
    everything = list(every_trouble(change.world, change.wanted, change.paused, change.others, change.memory))
    kinds = {trouble.kind for trouble in everything}
    assert kinds >= {"lag", "unheard", "late"}
    dice = random.Random(SEED)
    chosen = some(dice.sample(everything, min(AT_MOST, len(everything))), number, dice)
    assert wrongs(change, chosen) == [], f"seed {SEED}"


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", ROWS)
def test_a_migration_loses_and_repeats_nothing(name: str, retention: str) -> None:
    assert_good_whatever_happens(migrated(name, retention), EVERY_DAY)


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_consumer_loses_nothing(name: str, retention: str) -> None:
    assert_good_whatever_happens(CHANGES[name](retention), 2 * EVERY_DAY)


def test_a_pause_of_ours_that_lands_when_all_is_over_is_ended() -> None:
    change = migrated("another deliver subject", "limits")
    change.world.server.leaders = Counter()
    smooth, _ = taken(change.world, change.wanted)
    long = [number for number, title in enumerate(smooth.trail) if title.startswith("pause ")][-1]
    number = smooth.written_at.index(long)
    assert taken(change.world, change.wanted, Trouble("late", number, by=10**9))[1] == ""


@pytest.mark.parametrize("kind", ["filter added", "recreated"])
def test_control_a_pause_that_ran_out_is_not_told_by_being_paused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.procedures.consumer.ConsumerSeen.paused_by_other", False)
    change = CHANGES[kind]("limits")
    change.world.server.leaders = Counter()
    everything = every_trouble(change.world, change.wanted, change.paused, change.others, change.memory)
    assert wrongs(change, [one for one in everything if one.kind == "paused again"]) != []


def test_control_looks_that_go_back_do_harm_where_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.procedures.looks._goes_back", lambda *_: False)
    change = CHANGES["recreated"]("limits")
    change.world.server.leaders = Counter()
    everything = every_trouble(change.world, change.wanted, change.paused, change.others, change.memory)
    assert wrongs(change, [one for one in everything if one.kind == "lag"]) != []


@pytest.mark.parametrize("kind", ["filter added", "recreated", "restored"])
def test_what_a_person_has_paused_meanwhile_stays_so_and_nothing_is_lost(kind: str) -> None:
    change = CHANGES[kind]("limits")
    change.world.server.leaders = Counter()
    everything = every_trouble(change.world, change.wanted, change.paused, change.others, change.memory)
    assert wrongs(change, [one for one in everything if one.kind == "paused again"]) == []


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_stream_that_is_taken_late_from_a_durable_that_runs_gets_it_back(retention: str) -> None:
    change = migrated("managed, wider", retention)
    change.world.server.leaders = Counter()
    everything = every_trouble(change.world, change.wanted, change.paused, change.others, change.memory)
    detached = [one for one in everything if one.kind == "late" and one.at == 2]
    assert wrongs(change, detached) == []


def test_what_was_copied_after_a_durable_had_seemed_to_rest_is_not_copied_again() -> None:
    change = migrated("managed renamed", "limits")
    change.world.server.leaders = Counter()
    everything = every_trouble(change.world, change.wanted, change.paused, change.others, change.memory)
    assert wrongs(change, [one for one in everything if one.kind == "paused again" and one.on == (durable("c"),)]) == []
