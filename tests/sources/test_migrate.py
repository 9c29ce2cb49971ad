"""Every change of how a stream copies another, killed at every write and before every step while messages are published.

Who goes on after a kill is the planner, from what the server shows. Each message must arrive exactly once, nothing may be left
behind, and then there must be nothing to do.
"""

from __future__ import annotations

import contextlib
import copy

import orjson
import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.plan.change import Rules
from reconciler.procedures.requests import DeleteStream, UpdateConsumer
from tests.support.world.declared import RETENTIONS, ROWS, copier, managed, origin, own, plain, user
from tests.support.world.driver import Crash
from tests.support.world.keeper import Keeper, Killed, manifests
from tests.support.world.kept import again, assert_exact, assert_settled, every_kill, world_of
from tests.support.world.sources import S, durable

pytestmark = pytest.mark.diagonal
RETENTION = pytest.mark.parametrize("retention", RETENTIONS)
LONG = 200
"""Seconds after which every pause that has a deadline is over."""
EVERY_DAY = ("ephemeral to managed", "user renamed", "managed to ephemeral", "user to managed of the same name", "managed, wider")
LOSS = Rules(policy="sync", allow=frozenset({("data-loss", "Stream/A")}))


@RETENTION
@pytest.mark.parametrize("name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in ROWS])
def test_every_message_arrives_once_whenever_it_is_killed(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    for keeper in every_kill(again(world_of(before, retention)), after):
        assert_exact(keeper, after, *filter(None, [row.kept]))


@pytest.mark.slow
@RETENTION
@pytest.mark.parametrize("name", EVERY_DAY)
def test_the_same_on_2_14_when_nobody_comes_back_for_minutes(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    for keeper in every_kill(again(world_of(before, retention, level=4)), after, LONG):
        assert_exact(keeper, after, *filter(None, [row.kept]))


# -- more than one entry ---------------------------------------------------------------------------------------------------------

OTHER = origin(name="T", subject="t.>")
BOTH = ("s.a", "s.b", "t.a")


def entry(form: str, origin_name: str, subject: str = "") -> dict[str, object]:
    """An entry of one of two origins in one of these forms."""
    name, durable = {"name": origin_name}, f"{form}-{origin_name}{subject[2:3]}"
    chosen = {"filterSubject": subject} if subject else {}
    return {**name, **chosen} if form == "plain" else {**name, **chosen, "consumer": {"name": durable, "serverManaged": True}}


@pytest.mark.slow
@RETENTION
@pytest.mark.parametrize(("before", "after"), [("plain", "c"), ("c", "d"), ("c", "plain")])
def test_several_entries_change_in_one_go(before: str, after: str, retention: str) -> None:
    def wanted(form: str) -> Desired:
        own = (origin(retention), origin(retention, name="T", subject="t.>"))
        return manifests(*own, copier(entry(form, "S"), entry(form, "T")))

    for keeper in every_kill(again(world_of(wanted(before), retention, subjects=BOTH)), wanted(after)):
        kept = () if after == "plain" else (f"{after}-S", f"{after}-T")
        assert_exact(keeper, wanted(after), *kept)


@pytest.mark.slow
@RETENTION
@pytest.mark.parametrize(("before", "after"), [("plain", "c"), ("c", "d"), ("c", "plain")])
def test_two_entries_of_one_origin_are_told_apart(before: str, after: str, retention: str) -> None:
    def wanted(form: str) -> Desired:
        return manifests(origin(retention), copier(entry(form, "S", "s.a"), entry(form, "S", "s.b")))

    for keeper in every_kill(again(world_of(wanted(before), retention, subjects=("s.a", "s.b"))), wanted(after)):
        kept = () if after == "plain" else (f"{after}-Sa", f"{after}-Sb")
        assert_exact(keeper, wanted(after), *kept)


@RETENTION
def test_one_of_two_entries_of_one_origin_changes(retention: str) -> None:
    def wanted(form: str) -> Desired:
        return manifests(origin(retention), copier(entry("plain", "S", "s.a"), entry(form, "S", "s.b")))

    for before, after in (("plain", "c"), ("c", "plain")):
        for keeper in every_kill(again(world_of(wanted(before), retention, subjects=("s.a", "s.b"))), wanted(after)):
            assert_exact(keeper, wanted(after), *(["c-Sb"] if after == "c" else []))


@RETENTION
def test_an_entry_changes_beside_those_of_others(retention: str) -> None:
    def wanted(mine: dict[str, object]) -> Desired:
        return manifests(origin(retention), OTHER, copier({"name": "T"}, mine))

    for keeper in every_kill(again(world_of(wanted(plain()), retention, subjects=BOTH)), wanted(managed())):
        assert_exact(keeper, wanted(managed()), "c")


@RETENTION
def test_one_comes_one_goes_and_one_changes(retention: str) -> None:
    both = (origin(retention), OTHER)
    before = manifests(*both, copier(managed("c", filterSubject="s.a"), {"name": "T"}))
    after = manifests(
        *both, copier(managed("d", filterSubject="s.a"), {"name": "T", "consumer": {"name": "t", "serverManaged": True}})
    )
    for keeper in every_kill(again(world_of(before, retention, subjects=("s.a", "t.a"))), after):
        assert_exact(keeper, after, "d", "t")


# -- coming and going ------------------------------------------------------------------------------------------------------------


@RETENTION
@pytest.mark.parametrize("made", [(copier(managed()),), (copier(own()), user())], ids=["managed", "user"])
@pytest.mark.parametrize("there", [True, False], ids=["added", "created"])
def test_what_an_entry_copies_from_its_first_day_on_arrives_once(
    made: tuple[Declared, ...], retention: str, *, there: bool
) -> None:
    before, after = manifests(origin(retention), *([copier()] if there else [])), manifests(origin(retention), *made)
    for keeper in every_kill(again(world_of(before, retention)), after):
        assert_settled(keeper, after, "c", "u")
        assert keeper.world.duplicates() == keeper.world.stuck() == []
        missing = keeper.world.missing()
        assert missing == (keeper.world.published[: len(missing)] if retention == "interest" else [])  # nobody wanted these


@RETENTION
@pytest.mark.parametrize("made", [(copier(managed()),), (copier(own()), user())], ids=["managed", "user"])
def test_an_entry_that_goes_takes_its_durable_along(made: tuple[Declared, ...], retention: str) -> None:
    before, after = manifests(origin(retention), *made), manifests(origin(retention), copier())
    world = world_of(before, retention)
    world.settle()
    for keeper in every_kill(again(world), after, rules=LOSS):
        assert_settled(keeper, after)
        assert keeper.world.duplicates() == keeper.world.stuck() == []
        assert keeper.world.held() == keeper.world.published[: len(keeper.world.held())]


@RETENTION
def test_a_missing_durable_comes_back_where_the_stream_stands(retention: str) -> None:
    wanted = manifests(origin(retention), copier(managed()))
    world = world_of(wanted, retention)
    world.settle()
    world.remove("c")
    for keeper in every_kill(again(world), wanted):
        assert_settled(keeper, wanted, "c")
        assert keeper.world.duplicates() == keeper.world.stuck() == []
        missing, published = keeper.world.missing(), keeper.world.published
        assert not missing or retention == "interest", "elsewhere the origin kept what was published while it was gone"
        begun = published.index(missing[0]) if missing else 0
        assert missing == published[begun : begun + len(missing)]


@RETENTION
@pytest.mark.parametrize(
    "fields",
    [{"description": "x"}, {"max_ack_pending": 7}, {"filter_subjects": ["s.a", "s.q"]}, {"metadata": {}}],
    ids=["described", "narrowed", "filtered", "unmarked"],
)
def test_a_durable_that_somebody_changed_is_as_it_was(fields: dict[str, object], retention: str) -> None:
    wanted = manifests(origin(retention), copier(managed()))
    world = world_of(wanted, retention)
    config = world.server.read_config(durable("c"))
    world.server.write(UpdateConsumer(durable("c"), orjson.dumps({**config, **fields})))
    rules = Rules(policy="sync", adopt=True)
    for keeper in every_kill(again(world), wanted, rules=rules):
        assert_exact(keeper, wanted, "c")


@pytest.mark.parametrize("level", [4, 5])
def test_an_origin_made_anew_is_copied_from_its_beginning(level: int) -> None:
    wanted = manifests(origin(), copier(managed()))
    world = world_of(wanted, level=level)
    world.settle()
    world.server.advance(1)
    world.server.write(DeleteStream(S))
    for keeper in every_kill(again(world), wanted):
        assert_settled(keeper, wanted, *[name for (_, name) in keeper.server.consumers])
        assert keeper.world.missing() == keeper.world.duplicates() == []


def test_where_to_go_on_is_known_though_every_durable_before_is_gone_by_then() -> None:
    """Killed once it was detached, and again once another one was attached, which shall not be read through either by then."""
    courses = (
        manifests(origin(), copier(own("u", deliver="x")), user("u", deliver="x")),
        manifests(origin(), copier(managed("c"))),
    )
    last, killed_between = manifests(origin(), copier(managed("d"))), 0
    built = world_of(manifests(origin(), copier(own("u")), user("u")))
    for first in range(16, 24):
        for second in range(6, 14):
            world = copy.deepcopy(built)
            for wanted, step in zip(courses, (first, second), strict=True):
                with contextlib.suppress(Killed):
                    Keeper(world, crash=Crash(step=step)).attempt(wanted)
            killed_between += {"u", "c"} == {name for _, name in world.server.consumers}
            keeper = Keeper(world)
            keeper.bring(last)
            assert_exact(keeper, last, "d", where=f"killed at {first} and at {second}")
    assert killed_between
