"""What a plan makes of entries and durables: what is blocked and why, what belongs to which change, and what goes with what."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import orjson
import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.marker import Marker, read_marker
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.model.sourcing import durables_read
from reconciler.plan.change import Action, Cause, Change, Plan, Rules
from reconciler.procedures.requests import LastCopied, StreamInfo, Unanswered, UpdateConsumer
from reconciler.sources.migration.migrate import MigrateSource
from tests.support.values.build import consumer, stream
from tests.support.values.planned import plan
from tests.support.world.declared import RETENTIONS, copier, managed, origin, own, plain, user
from tests.support.world.driver import Crash
from tests.support.world.keeper import SYNC, Keeper, Killed, live_of, manifests, planned
from tests.support.world.kept import KeptWorld, world_of
from tests.support.world.sources import A, durable

UPSERT = Rules()
C, U = durable("c"), durable("u")
POSITION = Intent(allow=frozenset({"position-loss"}))


def after(world: KeptWorld, *declared: Declared, rules: Rules = SYNC, retention: str = "limits") -> Plan:
    """The plan for these, once the origin is there."""
    return planned(manifests(origin(retention), *declared), world.server, rules)


def world(*declared: Declared, retention: str = "limits", level: int = 5, subjects: tuple[str, ...] = ("s.a",)) -> KeptWorld:
    """As these want it; messages have flowed, and have been copied."""
    made = world_of(manifests(origin(retention), *declared), retention, level, subjects=subjects)
    made.settle()
    return made


def the_change(found: Plan) -> Change:
    """The only one."""
    (change,) = found.changes
    return change


def codes(change: Change) -> list[str]:
    return [reason.code for reason in change.reasons]


def refused(found: Plan, code: str, text: str) -> None:
    """The stream that copies is blocked for one reason."""
    change = next(change for change in found.changes if change.key == A)
    assert change.action is Action.BLOCKED
    assert codes(change) == [code], change.reasons
    assert text in change.reasons[0].message


def migrates(found: Plan) -> bool:
    """Whether there is one change: the stream's, with a procedure."""
    return the_change(found).key == A and isinstance(the_change(found).machine, MigrateSource)


# -- what is blocked -------------------------------------------------------------------------------------------------------------


def unmanaged() -> dict[str, object]:
    return {"name": "S", "consumer": {"name": "theirs", "deliverSubject": "d", "unmanaged": True}}


def test_a_durable_of_somebody_else_cannot_be_moved_to_where_to_go_on() -> None:
    for before in (plain(), managed()):
        refused(after(world(copier(before)), copier(unmanaged())), "position-loss", "theirs is kept by somebody else")


def test_a_durable_of_somebody_else_is_read_where_somebody_allowed_it() -> None:
    for before in (plain(), managed()):
        there = world(copier(before))
        there.consumer("theirs", "d")
        wanted = manifests(origin(), copier(unmanaged(), intent=POSITION))
        assert Keeper(there).bring(wanted).changes == ()
        assert [name for _, name in there.server.consumers] == ["theirs"]
        assert there.source()["active"] >= 0


def test_a_durable_that_begins_with_the_last_message_cannot_be_moved() -> None:
    last = user(deliverPolicy="last_per_subject", filterSubjects=["s.>"])
    refused(after(world(copier(plain())), copier(own()), last), "position-loss", "deliverPolicy last_per_subject")


@pytest.mark.parametrize("form", [managed("d"), managed(subjectTransforms=[{"src": "s.>", "dest": "z.>"}]), plain()])
def test_what_a_person_paused_is_not_resumed(form: dict[str, object]) -> None:
    there = world(copier(managed()))
    there.pause("c")
    refused(after(there, copier(form)), "paused-by-person", "was paused until")
    (reason,) = the_change(after(there, copier(form))).reasons
    assert "`reconciler consumer resume S c`" in reason.way_out
    there.resume("c")
    assert migrates(after(there, copier(form)))


def test_a_durable_that_is_not_ours_is_not_touched() -> None:
    there = world(copier(plain()))
    there.consumer("c", "d")
    refused(after(there, copier(managed())), "not-owned", "carries no marker of ours")
    theirs = {"metadata": Marker(owner="theirs").to_metadata()}
    there.server.write(UpdateConsumer(C, orjson.dumps({**there.server.read_config(C), **theirs})))
    refused(after(there, copier(managed())), "not-owned", "belongs to 'theirs'")
    ours = {"metadata": Marker(owner="default", source="Stream/B").to_metadata()}
    there.server.write(UpdateConsumer(C, orjson.dumps({**there.server.read_config(C), **ours})))
    refused(after(there, copier(managed())), "not-owned", "is kept for Stream/B")


def test_a_durable_without_an_owner_is_taken_over_with_adopt() -> None:
    there = world(copier(plain()))
    there.consumer("c", "d")
    wanted = manifests(origin(), copier(managed()))
    assert Keeper(there, Rules(adopt=True)).bring(wanted).changes == ()
    there.settle()
    assert (there.missing(), there.duplicates()) == ([], [])


def test_how_it_reads_and_what_it_copies_do_not_change_at_once() -> None:
    for before, now in ((plain(filterSubject="s.a"), managed()), (managed(filterSubject="s.a"), managed("d"))):
        refused(after(world(copier(before)), copier(now)), "position-loss", "at once")
    there = world(copier(managed(filterSubject="s.a")), retention="workqueue")
    assert migrates(after(there, copier(managed("d")), retention="workqueue")), "what is left there was not copied yet"


def test_what_others_read_from_a_workqueue_is_not_purged() -> None:
    there = world(copier(plain(filterSubject="s.a")), retention="workqueue")
    readers = (copier(managed(filterSubject="s.a")), consumer("S", "other", {"filterSubjects": ["s.b"]}))
    assert Action.BLOCKED not in {change.action for change in after(there, *readers, retention="workqueue").changes}
    there.consumer("other", filter_subjects=["s.a"])
    found = after(there, copier(managed(filterSubject="s.a")), retention="workqueue")
    refused(found, "position-loss", "other reads it")


def test_a_wider_filter_reaches_nothing_behind_the_position() -> None:
    there = world(copier(managed(filterSubject="s.a")), subjects=("s.a", "s.b"))
    refused(after(there, copier(managed(filterSubject="s.>"))), "position-loss", "messages on s.b from sequence 2")
    assert migrates(after(there, copier(managed(filterSubject="s.>"), intent=POSITION)))
    never = world(copier(managed(filterSubject="s.a")))
    assert migrates(after(never, copier(managed(filterSubject="s.>")))), "nothing is stored there"


def test_a_narrower_filter_leaves_nothing_behind() -> None:
    there = world(copier(managed(filterSubject="s.>")))
    assert migrates(after(there, copier(managed(filterSubject="s.b"))))
    there.pause("c")
    there.publish(1)
    there.resume("c")
    refused(after(there, copier(managed(filterSubject="s.b"))), "data-loss", "not delivered")


@pytest.mark.parametrize("retention", RETENTIONS)
def test_an_entry_goes_unless_messages_would_go_with_it(retention: str) -> None:
    there = world(copier(managed()), retention=retention)
    assert migrates(after(there, copier(), retention=retention))
    there.publish(1)
    found = after(there, copier(), retention=retention)
    if retention == "interest":
        refused(found, "data-loss", "not copied yet: 1 message of Stream/S")
        found = after(there, copier(intent=Intent(allow=frozenset({"data-loss"}))), retention=retention)
    assert migrates(found)


def test_an_origin_that_listens_to_everything_leaves_no_room_for_another_identity() -> None:
    def wanted(*now: Declared) -> Desired:
        return manifests(stream("S", {"subjects": ["*.*.*"]}), *now)

    durable_read = (stream("A", {"sources": [own(deliver="dlv")]}), user(deliver="dlv"))
    there = world_of(wanted(*durable_read), subjects=("s.a.b",))
    now = planned(wanted(stream("A", {"sources": [plain()]})), there.server, SYNC)
    refused(now, "position-loss", "listens to everything")


def test_nothing_is_done_while_the_origin_s_domain_does_not_answer() -> None:
    far = {"name": "EV", "external": {"domain": "leaf"}, "consumer": {"name": "c", "serverManaged": True}}
    there = world(copier(plain()))
    silent = {Key("Stream", EVERY_STREAM, "", "leaf"): "the leaf is away"}
    live = replace(live_of(there.server), unknown=silent)
    found = plan(manifests(origin(), copier(plain(), far)), live, SYNC)
    refused(found, "unknown", "the leaf is away")
    assert "its domain is called leaf" in next(change for change in found.changes if change.key == A).reasons[0].way_out


def test_what_does_not_answer_is_not_called_missing() -> None:
    there = world(copier(managed()))
    at_leaf = replace(stream("EV", {"subjects": ["ev.>"]}), key=Key("Stream", "EV", "", "leaf"))
    unseen = {Key("Stream", EVERY_STREAM, "", "leaf"): "the leaf is away"}
    (far,) = plan(manifests(origin(), copier(managed()), at_leaf), replace(live_of(there.server), unknown=unseen), SYNC).changes
    assert (far.action, far.cause) == (Action.BLOCKED, Cause.UNKNOWN)
    there.remove("c")
    silent = replace(live_of(there.server), unknown={Key("Consumer", "c", "S"): "no answer"})
    change = the_change(plan(manifests(origin(), copier(managed())), silent, SYNC))
    assert (change.action, change.cause) == (Action.BLOCKED, Cause.UNKNOWN)
    assert the_change(after(there, copier(managed()))).cause is Cause.MISSING


@pytest.mark.parametrize(
    "now",
    [(copier(plain()),), (copier(managed()),), (copier(own("v")), user("v")), (copier(own(deliver="x")), user(deliver="x"))],
    ids=["none", "managed", "another one", "elsewhere"],
)
def test_no_durable_is_made_changed_or_removed_while_the_stream_that_reads_does_not_answer(now: tuple[Declared, ...]) -> None:
    there = world(copier(own()), user())
    live = live_of(there.server)
    streams = {key: seen for key, seen in live.streams.items() if key != A}
    found = plan(manifests(origin(), *now), replace(live, streams=streams, unknown={A: "no leader"}), SYNC)
    assert {change.action for change in found.changes} == {Action.BLOCKED}
    assert {code for change in found.changes for code in codes(change)} == {"unknown"}


def test_a_managed_durable_stays_while_a_stream_that_is_not_declared_any_more_does_not_answer() -> None:
    there = world(copier(managed()))
    live = live_of(there.server)
    streams = {key: seen for key, seen in live.streams.items() if key != A}
    found = plan(manifests(origin()), replace(live, streams=streams, unknown={A: "no leader"}), SYNC)
    assert found.changes == ()


def test_a_question_that_nobody_answers_blocks() -> None:
    there = world(copier(managed(filterSubject="s.a")), subjects=("s.a", "s.b"))
    wanted = manifests(origin(), copier(managed(filterSubject="s.>")))
    (question,) = plan(wanted, live_of(there.server), SYNC).questions
    found = plan(wanted, live_of(there.server, {question: Unanswered("no answer")}), SYNC)
    refused(found, "unknown", "no answer")
    assert question == StreamInfo(Key("Stream", "S"), "s.>")


@pytest.mark.parametrize("now", [managed("d"), plain()])
def test_nothing_is_begun_while_it_is_suspended_or_may_not_be_updated(now: dict[str, object]) -> None:
    there = world(copier(managed()))
    for intent, code in ((Intent(suspend=True), "suspended"), (Intent(prevent_update=True), "prevented")):
        found = after(there, copier(now, intent=intent))
        assert set(codes(the_change(found))) == {code}


def test_a_missing_durable_comes_back_even_where_nothing_may_be_updated() -> None:
    there = world(copier(managed()))
    there.remove("c")
    assert migrates(after(there, copier(managed(), intent=Intent(prevent_update=True))))
    assert codes(the_change(after(there, copier(managed(), intent=Intent(suspend=True))))) == ["suspended"]


@pytest.mark.parametrize("intent", [Intent(suspend=True), Intent(prevent_update=True)], ids=["suspended", "prevented"])
@pytest.mark.parametrize("now", [(copier(managed("d")),), (copier(own("v")), user("v"))], ids=["managed", "user"])
def test_what_has_begun_is_finished_all_the_same(now: tuple[Declared, ...], intent: Intent) -> None:
    there = world(copier(managed()))
    with contextlib.suppress(Killed):
        Keeper(there, crash=Crash(write=2)).attempt(manifests(origin(), *now))
    held, *others = now
    held = replace(held, intent=intent)
    found = after(there, held, *others)
    assert migrates(found)
    assert the_change(found).continues


# -- what belongs to which change ------------------------------------------------------------------------------------------------


def test_a_declared_durable_changes_by_itself_where_nothing_has_to_stand_still() -> None:
    there = world(copier(own()), user())
    found = after(there, copier(own()), user(description="x"))
    assert [(change.key, change.action) for change in found.changes] == [(U, Action.UPDATE)]
    found = after(there, copier(own(), maxAge="1d"), user(description="x"))
    assert {change.key: change.machine for change in found.changes} == {A: None, U: None}


def test_a_declared_durable_is_part_of_its_stream_s_change_where_it_has_to_stand_still() -> None:
    there = world(copier(own()), user())
    for now in ((copier(own(deliver="x")), user(deliver="x")), (copier(own("v")), user("v")), (copier(plain()),)):
        found = after(there, *now)
        assert migrates(found)
        assert U in the_change(found).touches


def test_a_durable_of_a_blocked_change_is_left_alone() -> None:
    there = world(copier(own()), user())
    held = copier(own("v"), intent=Intent(prevent_update=True))
    found = after(there, held, user("v"))
    assert [change.key for change in found.changes] == [A], "the old one must not go, nor the new one come"
    assert set(codes(the_change(found))) == {"prevented"}


def test_what_is_wrong_with_a_declared_durable_is_said_at_both() -> None:
    there = world(copier(plain()))
    there.consumer("u", "dlv.u")
    found = after(there, copier(own()), user())
    assert {change.key: set(codes(change)) for change in found.changes} == {U: {"not-owned"}, A: {"not-owned", "depends-on"}}


@pytest.mark.parametrize(
    "now",
    [(copier(managed("d")),), (copier(plain()),), (copier(managed()),), (copier(own("c")), user("c"))],
    ids=["renamed", "ephemeral", "missing", "user"],
)
def test_a_hint_about_a_durable_leads_to_the_change_of_its_stream(now: tuple[Declared, ...]) -> None:
    there = world(copier(managed()))
    if now == (copier(managed()),):
        there.remove("c")
    wanted = manifests(origin(), *now)
    whole = planned(wanted, there.server)
    assert migrates(whole)
    read = durables_read(wanted)
    for key in (A, *read, *(key.stream_key for key in read)):
        assert planned(wanted, there.server, scope=frozenset({key})).changes == whole.changes


# -- residue ---------------------------------------------------------------------------------------------------------------------


def residue(there: KeptWorld) -> int:
    return len(read_marker(there.server.streams["A"].config["metadata"], "Stream/A").residue)


def test_how_an_entry_had_to_be_varied_is_kept_until_it_is_declared_otherwise() -> None:
    there = world(copier(managed()))
    steps: tuple[tuple[Desired, int], ...] = (
        (manifests(origin(), copier(plain())), 1),
        (manifests(origin(), copier(plain(), maxAge="1d")), 1),
        (manifests(origin(), copier(plain(), {"name": "T"}, maxAge="1d"), origin(name="T", subject="t.>")), 1),
        (manifests(origin(), copier(managed())), 0),
        (manifests(origin(), copier(plain())), 1),
        (manifests(origin(), copier(own()), user()), 0),
    )
    for wanted, rows in steps:
        assert Keeper(there).bring(wanted).changes == ()
        assert residue(there) == rows
        there.live(1)
    there.settle()
    assert (there.missing(), there.duplicates()) == ([], [])


def test_a_varied_entry_that_somebody_changed_is_as_it_was() -> None:
    there = world(copier(managed()))
    wanted = manifests(origin(), copier(plain()))
    Keeper(there).bring(wanted)
    there.settle()
    config = there.server.streams["A"].config
    there.copy(max_age=10**15, metadata=config["metadata"])
    Keeper(there, Rules(policy="sync", allow=frozenset({("position-loss", "Stream/A")}))).bring(wanted)
    there.settle()
    assert (there.missing(), there.duplicates()) == ([], [])


# -- streams that go -------------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_no_longer_declared_takes_its_durables_along() -> None:
    there = world(copier(managed()))
    found = after(there)
    assert {change.key: change.action for change in found.changes} == {A: Action.BLOCKED}, "it holds messages"
    allowed = replace(SYNC, allow=frozenset({("data-loss", "Stream/A")}))
    found = after(there, rules=allowed)
    assert [(change.key, change.action) for change in found.changes] == [(A, Action.DELETE), (C, Action.DELETE)]
    assert found.changes[1].needs == (A,)
    assert after(there, rules=UPSERT).changes == ()
    Keeper(there, allowed).bring(manifests(origin()))
    assert (list(there.server.streams), list(there.server.consumers)) == (["S"], [])


@pytest.mark.parametrize("crash", range(2))
def test_a_tombstone_removes_a_stream_and_its_durables_whenever_it_is_killed(crash: int) -> None:
    there = world(copier(managed()))
    gone = copier(managed(), intent=Intent(state=State.ABSENT, allow=frozenset({"data-loss"})))
    wanted = manifests(origin(), gone)
    Keeper(there, UPSERT, Crash(write=crash)).bring(wanted)
    assert (list(there.server.streams), list(there.server.consumers)) == (["S"], [])


def test_a_stream_does_not_go_while_nobody_else_keeps_what_it_has_not_copied() -> None:
    there = world(copier(managed()), retention="interest")
    there.server.streams["A"].messages.clear()
    there.publish(2)
    found = after(there, retention="interest")
    refused(found, "data-loss", "not copied yet: 2 messages of Stream/S")
    assert len(found.changes) == 1


def test_a_declared_durable_stays_when_its_stream_goes_in_the_middle_of_a_change() -> None:
    there = world(copier(plain()))
    with contextlib.suppress(Killed):
        Keeper(there, crash=Crash(write=0)).attempt(manifests(origin(), copier(own()), user()))
    assert there.info("u")["paused"]
    found = after(there, user(), rules=UPSERT)
    assert codes(next(change for change in found.changes if change.key == U)) == ["procedure"]
    rules = replace(SYNC, allow=frozenset({("data-loss", "Stream/A")}))
    assert Keeper(there, rules).bring(manifests(origin(), user())).changes == ()
    assert "paused" not in there.info("u")


def test_a_durable_that_was_left_over_goes_with_the_next_plan() -> None:
    for now in (copier(), copier(plain())):
        there = world(now)
        kept = Marker(owner="default", source="Stream/A", key=durable("left").mark)
        there.consumer("left", metadata=kept.to_metadata())
        found = after(there, now)
        assert migrates(found)
        assert the_change(found).touches == (durable("left"),)
        Keeper(there).bring(manifests(origin(), now))
        assert ("S", "left") not in there.server.consumers


@pytest.mark.parametrize("level", [4, 5])
def test_an_origin_made_anew_is_read_through_a_new_durable(level: int) -> None:
    wanted = manifests(origin(), copier(managed()))
    there = world_of(wanted, level=level)
    there.settle()
    there.server.advance(1)
    there.server.streams["S"].messages.clear()
    there.server.streams["S"].last, there.server.streams["S"].born = 0, there.server.now
    del there.server.consumers["S", "c"]
    change = the_change(planned(wanted, there.server))
    assert [key.name.partition("-")[0] for key in change.touches] == ["c"]
    assert change.touches[0] != C


@pytest.mark.parametrize("lacks", [0, 1, 2])
def test_a_durable_of_an_origin_that_seems_younger_stays_where_it_may_have_delivered_what_was_copied(lacks: int) -> None:
    """The clocks of servers differ; what was copied last may also be gone from the stream."""
    wanted = manifests(origin(), copier(managed()))
    there = world_of(wanted, level=5, subjects=("s.a", "s.a"))
    there.settle()
    there.server.streams["A"].born -= 10**9
    there.server.streams["S"].born = there.server.now + 60 * 10**9
    there.server.consumers["S", "c"].delivered -= lacks
    assert bool(planned(wanted, there.server).changes) == (lacks > 0)


def test_nobody_is_asked_about_an_origin_that_is_as_it_was() -> None:
    there = world(copier(managed()), level=4)
    asked = plan(manifests(origin(), copier(managed())), live_of(there.server), SYNC).questions
    assert not [question for question in asked if isinstance(question, LastCopied)]
