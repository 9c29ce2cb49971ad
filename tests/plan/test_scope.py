"""A plan for a few keys says about them what the plan of everything says, and removes nothing for not being declared."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.marker import Journal, Marker
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Patch
from reconciler.plan.change import NO_MEMORY, Action, Cause, Change, Plan, Remembered, Rules
from reconciler.procedures.move_subject import MoveSubject
from reconciler.procedures.requests import Absent, Fact, Message, NextMessage, Read, Unanswered
from tests.support.choice import examples
from tests.support.values.build import NOW, OLD, consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

STREAMS = ("A", "B", "C")
CONSUMERS = ("x", "y", "z")
HOLD = "_reconciler_hold_x"
SUBJECTS = ("s.1", "s.2", "s.3", "s.4", "t.>")


def _mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Nearly everything is as usual nearly always, or no two things would ever meet."""
    return st.integers(0, 12).flatmap(lambda number: st.sampled_from(others) if number == 5 else st.just(usual))


OWNERS = _mostly("default", "", "other")
INTENTS = st.builds(
    Intent,
    state=_mostly(State.PRESENT, State.ABSENT, State.ABSENT, State.UNMANAGED),
    adopt=st.booleans(),
    suspend=_mostly(False, True),
    allow=st.sampled_from([frozenset(), frozenset({"data-loss"}), frozenset({"recreate", "data-loss"})]),
)
STREAM_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "storage": _mostly("file", "memory"),
        "maxMsgs": _mostly(9, 3),
        "maxConsumers": _mostly(9, 2),
        "consumerLimits": _mostly({}, {"maxAckPending": 7}),
        "sources": _mostly([], [{"name": "A"}], [{"name": "B"}], [{"name": "GONE"}]),
    },
)
RETENTIONS = st.sampled_from(["limits", "interest", "workqueue"])
FILTERS = st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=2, unique=True)
CONSUMER_SPECS = st.fixed_dictionaries(
    {}, optional={"ackWait": _mostly(30 * 10**9, 5 * 10**9), "deliverPolicy": _mostly("all", "new")}
)
RULES = st.builds(Rules, policy=st.sampled_from(["create-only", "upsert-only", "sync", "sync"]), adopt=st.booleans())
FACTS: st.SearchStrategy[Fact] = st.sampled_from([Absent(), Message(3, OLD), Unanswered("nobody answered")])


@st.composite
def _holders(draw: st.DrawFn, before: dict[str, str | None]) -> dict[str, str | None]:
    """Who listens to which subject, after some of them have moved."""
    moved = draw(st.sets(st.sampled_from(SUBJECTS), max_size=2))
    return before | {subject: draw(st.sampled_from([*STREAMS, None])) for subject in sorted(moved)}


@st.composite
def _streams(draw: st.DrawFn) -> tuple[list[Declared], list[dict[str, Any]]]:
    """What is declared, and what is live."""
    owners = st.sampled_from([*STREAMS, *STREAMS, None])
    before: dict[str, str | None] = {subject: draw(owners) for subject in SUBJECTS}
    after = draw(_holders(before))
    declared: list[Declared] = []
    infos: list[dict[str, Any]] = []
    for name in STREAMS:
        spec = {"retention": draw(RETENTIONS), **draw(STREAM_SPECS)}
        now = {**spec, "subjects": [subject for subject in SUBJECTS if before[subject] == name] or [f"own.{name}"]}
        then = {**spec, "subjects": [subject for subject in SUBJECTS if after[subject] == name] or [f"own.{name}"]}
        then |= draw(_mostly({}, {"maxMsgs": 2}, {"storage": "memory"}, {"retention": "interest"}))
        state = {"messages": draw(_mostly(0, 4)), "bytes": 4, "last_seq": 4}
        if draw(_mostly(True, False)):
            infos.append(stream_info(marked(stream(name, now), draw(OWNERS)), **state))
        if draw(_mostly(True, False)):
            declared.append(replace(stream(name, then), intent=draw(INTENTS)))
    return declared, infos


@st.composite
def _readers(draw: st.DrawFn, name: str) -> tuple[list[Declared], list[dict[str, Any]]]:
    declared: list[Declared] = []
    infos: list[dict[str, Any]] = []
    for reader in CONSUMERS:
        before = {"filterSubjects": draw(FILTERS), **draw(CONSUMER_SPECS)}
        after = {**before, **draw(st.one_of(st.just({}), st.fixed_dictionaries({"filterSubjects": FILTERS}), CONSUMER_SPECS))}
        if draw(st.sampled_from([True, True, False])):
            declared.append(replace(consumer(name, reader, after), intent=draw(INTENTS)))
        if draw(st.sampled_from([True, True, False])):
            found = marked(consumer(name, reader, before), draw(OWNERS))
            infos.append(consumer_info(name, found, num_pending=draw(_mostly(0, 1))))
    return declared, infos


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[Desired, Live, Remembered]:
    declared, infos = draw(_streams())
    there = [info["config"]["name"] for info in infos]
    for name in STREAMS:
        readers, found = draw(_readers(name))
        declared += readers
        infos += found if name in there else []
        if name in there and draw(_mostly(False, True)):
            infos.append(_hold(name))
    unknown = draw(_mostly({}, {Key("Stream", "A"): "silent"}, {Key("Consumer", "x", "B"): "silent"}))
    owned = {entry.key: "spec" for entry in declared if draw(st.booleans())}
    floors = {entry.key: 2 for entry in declared if draw(st.booleans())}
    memory = Remembered(owned, floors, {Key("Stream", name): OLD for name in STREAMS})
    return desired(*declared), live(*infos, unknown=unknown), memory


def _hold(stream_name: str) -> dict[str, Any]:
    journal = Journal("recreate-consumer", "hold", "x", '{"consumer":"x","start":1}')
    metadata = Marker(owner="default", journal=journal, key=f"Consumer/{stream_name}/{HOLD}").to_metadata()
    return consumer_info(stream_name, {"name": HOLD, "durable_name": HOLD, "metadata": metadata})


SCOPES = st.frozensets(
    st.one_of(
        st.builds(Key, st.just("Stream"), st.sampled_from(STREAMS)),
        st.builds(Key, st.just("Consumer"), st.sampled_from(CONSUMERS), st.sampled_from(STREAMS)),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(200))
@given(_worlds(), RULES, SCOPES, st.booleans(), st.data())
def test_it_is_a_part_of_the_plan_of_everything(
    world: tuple[Desired, Live, Remembered], rules: Rules, scope: frozenset[Key], answered: bool, data: st.DataObject
) -> None:
    wanted, state, memory = world
    if answered:
        questions = plan(wanted, state, rules, memory).questions
        state = replace(state, facts={read: _answer(read, data) for read in questions})
    full, part = plan(wanted, state, rules, memory), plan(wanted, state, rules, memory, scope)
    waiting = _waiting_for_removals(full)
    expected = _expected(full, {key.stream_key for key in scope})
    found = {change.key: change for change in part.changes}
    assert found.keys() == expected.keys()
    for key, change in expected.items():
        if key in waiting:
            assert found[key].action is Action.BLOCKED
        else:
            assert found[key] == change
    assert part.questions <= full.questions


def _answer(read: Read, data: st.DataObject) -> Fact:
    if isinstance(read, NextMessage):
        return data.draw(FACTS)
    return Unanswered("nobody answered")


def _expected(full: Plan, touched: set[Key]) -> dict[Key, Change]:
    """The changes that touch these streams, and what they need, but no removals of what is not declared."""
    left = {change.key: change for change in full.changes if change.cause is not Cause.PRUNE}
    found = {key: change for key, change in left.items() if _touches(change, touched)}
    while needed := {key for change in found.values() for key in change.needs if key in left} - found.keys():
        found |= {key: left[key] for key in needed}
    return found


def _touches(change: Change, streams: set[Key]) -> bool:
    return any(key.stream_key in streams for key in (change.key, *change.touches))


def _waiting_for_removals(full: Plan) -> set[Key]:
    """What needs something gone that is no longer declared, or needs what needs it."""
    waiting = {change.key for change in full.changes if change.cause is Cause.PRUNE}
    before = 0
    while len(waiting) > before:
        before = len(waiting)
        waiting |= {change.key for change in full.changes if waiting & set(change.needs)}
    return waiting


ORDERS, OTHER = stream("ORDERS", {"subjects": ["o.>"]}), stream("OTHER", {"subjects": ["p.>"]})
BILLING, AUDIT = consumer("ORDERS", "billing"), consumer("ORDERS", "audit")
FAR = consumer("OTHER", "far")


def _world(*drifted: Declared) -> tuple[Desired, Live]:
    """All of it in place, but for what drifted."""
    changes: dict[str, dict[str, Any]] = {"Stream": {"description": "by hand"}, "Consumer": {"max_deliver": 9}}
    config = {entry.key: marked(entry) for entry in (ORDERS, OTHER, BILLING, AUDIT, FAR)}
    config |= {entry.key: marked(entry, **changes[entry.key.kind]) for entry in drifted}
    streams = (stream_info(config[entry.key]) for entry in (ORDERS, OTHER))
    consumers = (consumer_info(entry.key.stream, config[entry.key]) for entry in (BILLING, AUDIT, FAR))
    return desired(ORDERS, OTHER, BILLING, AUDIT, FAR), live(*streams, *consumers)


def _of(scope: Iterable[Declared], world: tuple[Desired, Live], rules: Rules | None = None) -> Plan:
    return plan(*world, rules or Rules(), NO_MEMORY, frozenset(entry.key for entry in scope))


def test_only_the_touched_streams_are_counted_and_changed() -> None:
    result = _of([BILLING], _world(BILLING, FAR, OTHER))
    assert ([change.key for change in result.changes], result.unchanged) == ([BILLING.key], 2)


@pytest.mark.parametrize(
    ("silent", "drifted", "expected"),
    [
        (ORDERS, (), (0, {ORDERS.key, BILLING.key, AUDIT.key})),
        (BILLING, (), (2, {BILLING.key})),
        (BILLING, (BILLING, AUDIT), (1, set())),
        (OTHER, (), (3, set())),
    ],
    ids=["a stream", "a consumer", "one that differs", "elsewhere"],
)
def test_what_was_not_seen_is_counted_as_unknown(
    silent: Declared, drifted: tuple[Declared, ...], expected: tuple[int, set[Key]]
) -> None:
    declared, state = _world(*drifted)
    world = declared, replace(state, unknown={silent.key: "silent"})
    result = _of([ORDERS], world)
    assert (result.unchanged, set(result.unknown)) == expected
    whole = plan(*world, Rules())
    assert whole.unchanged + len(whole.unknown) + len(whole.changes) == len(declared.resources)


def test_all_consumers_of_a_touched_stream_are_shown() -> None:
    result = _of([ORDERS], _world(BILLING, AUDIT))
    assert {change.key for change in result.changes} == {BILLING.key, AUDIT.key}


def test_nothing_is_removed_for_not_being_declared() -> None:
    _, state = _world()
    result = _of([ORDERS], (desired(ORDERS), state), Rules(policy="sync"))
    assert (result.changes, result.unchanged, result.notes) == ((), 1, ())


def test_what_needs_such_a_removal_waits_for_the_plan_of_everything() -> None:
    queue = stream("Q", {"subjects": ["q.>"], "retention": "workqueue"})
    old, new = consumer("Q", "old", {"filterSubjects": ["q.a"]}), consumer("Q", "new", {"filterSubjects": ["q.a"]})
    world = (desired(queue, new), live(stream_info(marked(queue)), consumer_info("Q", marked(old))))
    (change,) = _of([new], world, Rules(policy="sync")).changes
    assert (change.key, change.action, [reason.code for reason in change.reasons]) == (new.key, Action.BLOCKED, ["depends-on"])
    assert [c.action for c in plan(*world, Rules(policy="sync")).changes] == [Action.DELETE, Action.CREATE]


@pytest.mark.parametrize("asked", ["GIVES", "TAKES"])
def test_a_move_of_subjects_is_whole_whichever_side_was_asked_for(asked: str) -> None:
    before = [stream("GIVES", {"subjects": ["g.>", "h.>"]}), stream("TAKES", {"subjects": ["t.>"]})]
    after = [stream("GIVES", {"subjects": ["g.>"]}), stream("TAKES", {"subjects": ["t.>", "h.>"]})]
    world = (desired(*after), live(*(stream_info(marked(entry)) for entry in before)))
    (change,) = plan(*world, Rules(), NO_MEMORY, frozenset([Key("Stream", asked)])).changes
    assert isinstance(change.machine, MoveSubject)
    assert change == plan(*world, Rules()).changes[0]


def test_a_move_waits_for_readers_of_the_other_stream_as_well() -> None:
    before = [stream("GIVES", {"subjects": ["g.>", "h.>"]}), stream("TAKES", {"subjects": ["t.>"], "retention": "interest"})]
    after = [stream("GIVES", {"subjects": ["g.>"]}), stream("TAKES", {"subjects": ["t.>", "h.>"], "retention": "interest"})]
    reader = consumer("TAKES", "reader", {"filterSubjects": ["h.>"]})
    world = (desired(*after, reader), live(*(stream_info(marked(entry)) for entry in before)))
    first, then = plan(*world, Rules(), NO_MEMORY, frozenset([Key("Stream", "GIVES")])).changes
    assert (first.key, then.action, then.needs) == (reader.key, Action.PROCEDURE, (reader.key,))


def test_a_pass_over_nothing_declared_is_refused_for_a_part_as_well() -> None:
    _, state = _world()
    assert [reason.code for reason in _of([ORDERS], (desired(), state)).refused] == ["empty"]


def test_how_much_of_everything_would_change_is_not_judged_by_a_part() -> None:
    names = [f"c{number}" for number in range(20)]
    before, after = ([consumer("ORDERS", name, {"maxDeliver": most}) for name in names] for most in (3, 4))
    infos = [stream_info(marked(ORDERS)), *(consumer_info("ORDERS", marked(entry)) for entry in before)]
    world = (desired(ORDERS, *after), live(*infos))
    assert [reason.code for reason in plan(*world, Rules()).refused] == ["mass-change"]
    assert _of([ORDERS], world).refused == ()


def _many(streams: int, consumers: int) -> tuple[Desired, Live]:
    """Everything in place."""
    declared: list[Declared] = []
    infos: list[dict[str, Any]] = []
    for name in (f"S{number}" for number in range(streams)):
        declared.append(stream(name, {"subjects": [f"{name}.>"]}))
        infos.append(stream_info(marked(declared[-1]), consumer_count=consumers))
        like = consumer(name, "like")
        for reader in (f"c{number}" for number in range(consumers)):
            wire = orjson.dumps(like.config | {"name": reader, "durable_name": reader})
            declared.append(Declared(Key("Consumer", reader, name), wire, like.digest, like.location))
            infos.append(consumer_info(name, marked(declared[-1])))
    return desired(*declared), live(*infos)


def test_it_costs_what_its_streams_cost_not_what_everything_costs() -> None:
    wanted, state = _many(streams=50, consumers=100)
    key, upper = Key("Consumer", "c7", "S3"), Key("Stream", "S3")
    far = consumer("S3", "c7", {"ackWait": 9 * 10**9})
    one = LiveConsumer.seen(consumer_info("S3", marked(far)))
    whole = LiveStream.seen(stream_info(marked(stream("S3", {"subjects": ["q.>"]})), consumer_count=100))
    by_hand = state.patched(Patch(at=NOW, consumers={key: one}, streams={upper: whole}))
    full = _seconds(wanted, by_hand, None)
    assert _seconds(wanted, by_hand, frozenset([key])) < full / 3
    assert _seconds(wanted, by_hand, frozenset([upper])) < full / 3


def _seconds(wanted: Desired, state: Live, scope: frozenset[Key] | None) -> float:
    """The fastest of several."""
    times = []
    for _ in range(7):
        started = time.process_time()
        assert plan(wanted, state, Rules(), NO_MEMORY, scope).changes
        times.append(time.process_time() - started)
    return min(times)
