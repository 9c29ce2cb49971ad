"""Several entries of one stream change in one go: side by side, with one update of the stream, and each as exactly as alone."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from reconciler.model import units
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.normal import canonical
from reconciler.procedures.machine import Do, Observation, Wait
from reconciler.procedures.move_subject import StreamTarget
from reconciler.procedures.requests import ConsumerInfo, Fact, Read, StreamInfo, UpdateStream
from reconciler.procedures.side_by_side import FRESH, TOGETHER
from reconciler.sources.migration.migrate import MigrateSource, Slot
from tests.support.values.build import NOW
from tests.support.world.declared import RETENTIONS, copier, origin
from tests.support.world.keeper import Keeper, manifests
from tests.support.world.kept import KeptWorld, again, assert_exact, every_kill, world_of
from tests.support.world.sources import PLAIN, A, S, durable, through

pytestmark = pytest.mark.diagonal

CREATED = units.format_time(NOW)
NOWHERE = {"consumer_seq": 0, "stream_seq": 0}
FORMS = (("plain", "c"), ("c", "d"), ("c", "plain"))
MOST_REQUESTS = 30
"""Of one entry, from an ephemeral one to a durable, with all the looks of planning."""


def names(count: int) -> list[str]:
    """So many origins; one of them is the one that worlds have anyway."""
    return ["S", *(f"T{number}" for number in range(1, count))]


def entry(form: str, name: str) -> dict[str, object]:
    """An entry in one of the forms."""
    return {"name": name} if form == "plain" else {"name": name, "consumer": {"name": f"{form}-{name}", "serverManaged": True}}


def wanted(forms: dict[str, str], retention: str) -> Desired:
    """A stream that copies each origin in its form."""
    origins = [origin(retention, name=name, subject=f"{name.lower()}.>") for name in forms]
    return manifests(*origins, copier(*(entry(form, name) for name, form in forms.items())))


def world(forms: dict[str, str], retention: str) -> KeptWorld:
    """Messages flow from each of them."""
    return world_of(wanted(forms, retention), retention, subjects=tuple(f"{name.lower()}.a" for name in forms))


def durables(forms: dict[str, str]) -> list[str]:
    """What is there in the end."""
    return [f"{form}-{name}" for name, form in forms.items() if form != "plain"]


@pytest.mark.parametrize("retention", RETENTIONS)
def test_entries_of_every_kind_change_at_once_whenever_it_is_killed(retention: str) -> None:
    before = {name: form for name, (form, _) in zip(names(3), FORMS, strict=True)}
    after = {name: form for name, (_, form) in zip(names(3), FORMS, strict=True)}
    for keeper in every_kill(again(world(before, retention)), wanted(after, retention)):
        assert_exact(keeper, wanted(after, retention), *durables(after))


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize(("before", "after"), [FORMS[0], pytest.param(*FORMS[1], marks=pytest.mark.slow)])
def test_whenever_the_stream_gets_another_leader(before: str, after: str, retention: str) -> None:
    start, end = dict.fromkeys(names(3), before), dict.fromkeys(names(3), after)
    clustered = world(start, retention)
    clustered.server.leaders = Counter()
    for at in range(-1, steps_of(clustered, wanted(end, retention)) + 1):
        alone = copy.deepcopy(clustered)
        keeper = Keeper(alone)
        keeper.hook = lambda number, at=at, alone=alone: alone.server.elect("A") if number == at else None  # type: ignore[misc]
        keeper.bring(wanted(end, retention))
        assert_exact(
            keeper, wanted(end, retention), *durables(end), where=f"elected before step {at}: {keeper.trail[at - 2 : at + 2]}"
        )


def steps_of(before: KeptWorld, end: Desired) -> int:
    """How many it takes."""
    keeper = Keeper(copy.deepcopy(before))
    keeper.bring(end)
    return keeper.steps


@pytest.mark.parametrize("retention", RETENTIONS)
def test_whatever_the_server_refuses_the_others_come_to_an_end(retention: str) -> None:
    start, end = dict.fromkeys(names(3), "plain"), dict.fromkeys(names(3), "c")
    built, number = world(start, retention), 0
    while True:
        keeper = Keeper(copy.deepcopy(built), refuse=number)
        keeper.bring(wanted(end, retention))
        if not keeper.refused:
            break
        assert_exact(keeper, wanted(end, retention), *durables(end), where=f"write {number} is refused: {keeper.refused}")
        number += 1
    assert number > 3


@pytest.mark.parametrize(("before", "after"), FORMS)
def test_the_stream_is_updated_as_often_as_for_one(before: str, after: str) -> None:
    def updates(count: int) -> int:
        keeper = Keeper(world(dict.fromkeys(names(count), before), "limits"))
        keeper.bring(wanted(dict.fromkeys(names(count), after), "limits"))
        return sum(isinstance(write, UpdateStream) for write in keeper.writes)

    assert updates(5) == updates(1)


def test_an_entry_that_is_not_ready_holds_the_others_back_for_a_while_and_not_for_good() -> None:
    """Its new reader is not heard of: on interest the old durable stays until then."""
    live, other = through("x"), through("y")
    info = {"config": {"name": "A", "sources": [PLAIN, {**live, "name": "T"}]}, "state": {"last_seq": 9}, "created": CREATED}
    idle = {"stream_name": "S", "name": "c", "config": {"durable_name": "c"}, "created": CREATED, "delivered": NOWHERE}
    facts: dict[Read, Fact] = {StreamInfo(A): info, ConsumerInfo(durable("c")): {**idle, "ack_floor": NOWHERE, "ts": CREATED}}
    waits = Slot(origin=S, before=canonical(PLAIN), after=canonical(PLAIN), old=durable("c"), drop_old=True, retention="interest")
    entry_of_t, shall = canonical({**live, "name": "T"}), canonical({**other, "name": "T"})
    ready = Slot(origin=Key("Stream", "T"), before=entry_of_t, after=shall)
    machine = MigrateSource(StreamTarget(A, canonical({"name": "A"})), (waits, ready))
    memory, now, began = None, NOW, NOW
    while isinstance(step := machine.step(Observation(now, facts), memory), Wait):
        assert step.until > now
        memory, now = step.memory, step.until
    assert isinstance(step, Do)
    assert isinstance(step.write, UpdateStream)
    assert b'"y"' in step.write.config
    assert TOGETHER < now - began < 1.1 * TOGETHER


def test_forty_entries_take_hardly_longer_than_one_and_so_many_requests_each() -> None:
    (alone, _), (together, requests) = changed(1), changed(40)
    assert together < 1.5 * alone
    assert requests < 40 * MOST_REQUESTS


def test_where_writes_take_long_each_entry_is_looked_at_alone_and_not_all_of_them_again() -> None:
    """A look at all would be too old before a few of them had their turn."""
    _, requests = changed(40, FRESH // 5)
    assert requests < 2 * 40 * MOST_REQUESTS


def changed(count: int, slow: int = 0) -> tuple[float, int]:
    """So many entries get durables: the seconds, and the requests; each step takes so long (nanoseconds)."""
    built = world(dict.fromkeys(names(count), "plain"), "limits")
    keeper, read = Keeper(built, busy=0), built.server.read
    began, asked = built.server.now, list[Read]()

    def counted(one: Read) -> Fact:
        asked.extend([one] if keeper.steps else [])
        return read(one)

    def take_long(_: int) -> None:
        built.server.now += slow

    built.server.read = counted  # type: ignore[assignment,method-assign]
    keeper.hook = take_long
    end = wanted(dict.fromkeys(names(count), "c"), "limits")
    keeper.bring(end)
    found = (built.server.now - began) / 10**9, len(asked) + len(keeper.writes)
    assert_exact(keeper, end, *durables(dict.fromkeys(names(count), "c")))
    return found
