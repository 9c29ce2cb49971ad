"""What a plan meets half-done leads back to the machine that finishes it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.errors import ApiError
from reconciler.model.marker import KEY, PROCEDURE
from reconciler.procedures.consumer import ConsumerSeen, encode, immutable_differences
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.holds import HOLD_PREFIX, create_hold, held_consumer, hold_key
from reconciler.procedures.machine import Abort, Done, Procedure
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.requests import CreateConsumer, DeleteConsumer, StreamInfo, Write
from reconciler.procedures.restore_consumer import RestoreConsumer
from reconciler.procedures.resume import resume
from tests.support.world.consumers import STREAM, C, World
from tests.support.world.driver import run

CHANGE: dict[str, Any] = {"max_waiting": 7}


def at_work(*, gone: bool = False) -> World:
    """A consumer that has passed by what its new filter would match."""
    world = World()
    world.consume("s.a")
    world.publish("b", "c", "a", "a")
    world.work(9)
    if gone:
        world.server.write(DeleteConsumer(C))
        world.publish("a")
    return world


def machine(kind: type[Procedure], world: World) -> Procedure:
    """A machine of this kind, as first planned."""
    if kind is RestoreConsumer:
        return RestoreConsumer(world.target("s.a"), floor=4)
    return RecreateConsumer(world.target("s.a", **CHANGE)) if kind is RecreateConsumer else FilterAdd(world.target("s.a", "s.b"))


@pytest.mark.parametrize("changed", [{}, CHANGE, {"max_waiting": 9}], ids=str)
@pytest.mark.parametrize("filters", [("s.a", "s.b"), ("s.a", "s.b", "s.c"), ("s.*",)])
@pytest.mark.parametrize("writes", range(1, 9))
@pytest.mark.parametrize("kind", [FilterAdd, RecreateConsumer, RestoreConsumer])
def test_whatever_is_half_done_is_finished_towards_the_target_of_today(
    kind: type[Procedure], writes: int, filters: tuple[str, ...], changed: dict[str, Any]
) -> None:
    world = at_work(gone=kind is RestoreConsumer)
    allowed = iter(range(writes))

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    world.server.veto = die
    try:
        run(machine(kind, world), world.server)
    except InterruptedError:
        world.server.veto = lambda _: None
    else:
        return
    target = world.target(*filters, **changed)
    there = ("S", "c") in world.server.consumers
    finisher = resume(target, world.info()) if there else RecreateConsumer(target)
    assert finisher is not None
    assert isinstance(run(finisher, world.server, between=world.living(*["rush"] * 40)).end, Done)
    if kind is RestoreConsumer:  # has no opinion on filters: what is new by now is a change of its own
        live = ConsumerSeen(world.info())
        follow = RecreateConsumer if immutable_differences(live.config, target) else FilterAdd
        assert isinstance(run(follow(target), world.server).end, Done)
    world.assert_tidy(target)
    world.drain()
    assert world.lost() == []


def test_a_takeover_that_is_refused_leaves_the_first_journal_s_knowledge() -> None:
    world = at_work()
    allowed = iter(range(4))  # up to the filters; not yet released

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    def refuse(write: Write) -> None:
        if isinstance(write, CreateConsumer):
            raise ApiError(400, 10026, "maximum consumers limit reached")

    world.server.veto = die
    with pytest.raises(InterruptedError):
        run(machine(FilterAdd, world), world.server)
    world.server.veto = refuse
    takeover = RecreateConsumer(world.target("s.a", "s.b", **CHANGE))
    assert isinstance(run(takeover, world.server).end, Abort)
    left = ConsumerSeen(world.info())
    assert left.journal is not None
    assert left.data["added"] == ["s.b"]


def test_nothing_under_way_is_nothing_to_resume() -> None:
    world = at_work()
    assert resume(world.target("s.a"), world.info()) is None


def test_a_hold_names_its_consumer() -> None:
    world = at_work()
    run_until_hold = RecreateConsumer(world.target("s.a", **CHANGE))

    def die(write: Write) -> None:
        if isinstance(write, DeleteConsumer):
            raise InterruptedError

    world.server.veto = die
    with pytest.raises(InterruptedError):
        run(run_until_hold, world.server)
    config = orjson.loads(orjson.dumps(world.server.read_config(hold_key(C))))
    assert held_consumer(hold_key(C), config) == C
    assert held_consumer(C, world.server.read_config(C)) is None


def as_before(world: World) -> None:
    """What the version before would have left: marks without names, holds that name no stream, and none for a restored one."""
    for (_, name), seen in list(world.server.consumers.items()):
        metadata = dict(seen.config.get("metadata") or {})
        metadata.pop(KEY, None)
        if PROCEDURE in metadata:
            journal = orjson.loads(metadata[PROCEDURE])
            data = {part: value for part, value in orjson.loads(journal["data"]).items() if part != "created"}
            metadata[PROCEDURE] = orjson.dumps(journal | {"data": orjson.dumps(data).decode()}).decode()
        seen.config = {**seen.config, "metadata": metadata}
        live = world.server.consumers.get(("S", "c"))
        restored = live is not None and '"restore-consumer"' in live.config["metadata"].get(PROCEDURE, "")
        if name.startswith(HOLD_PREFIX) and restored:
            del world.server.consumers["S", name]


@pytest.mark.parametrize(
    ("retention", "policy"),
    [("workqueue", "all"), *((retention, policy) for retention in ("limits", "interest") for policy in ("all", "new", "last"))],
)
@pytest.mark.parametrize("writes", range(1, 9))
@pytest.mark.parametrize("kind", [FilterAdd, RecreateConsumer, RestoreConsumer])
def test_what_the_version_before_left_half_done_ends_without_a_loss(
    kind: type[Procedure], writes: int, retention: str, policy: str
) -> None:
    world = World(retention=retention)
    world.consume("s.a", deliver_policy=policy)
    world.publish("b", "c", "a", "a")
    world.work(9)
    if kind is RestoreConsumer:
        world.server.write(DeleteConsumer(C))
    world.publish("a")
    allowed = iter(range(writes))

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    fields = {"deliver_policy": policy}
    targets = {FilterAdd: world.target("s.a", "s.b", **fields), RestoreConsumer: world.target("s.a", **fields)}
    target = targets.get(kind) or world.target("s.a", **CHANGE | fields)
    first = RestoreConsumer(target, floor=4) if kind is RestoreConsumer else kind(target)  # type: ignore[call-arg]  # both have one
    world.server.veto = die
    try:
        run(first, world.server)
    except InterruptedError:
        world.server.veto = lambda _: None
    else:
        return
    as_before(world)
    world.publish("a")
    there = ("S", "c") in world.server.consumers
    finisher = (resume(target, world.info()) if there else None) or RecreateConsumer(target)
    assert isinstance(run(finisher, world.server).end, Done)
    if retention == "interest" and kind is RestoreConsumer:
        world.stored = {seq: text for seq, text in world.stored.items() if seq in world.server.streams["S"].messages}
    world.assert_tidy(target)
    world.drain()
    assert world.lost() == []


def forged(world: World, *, start: int, **said: Any) -> None:
    """Somebody puts what looks like a hold beside the consumer, at the end of its stream."""
    stream = world.server.read(StreamInfo(STREAM))
    assert isinstance(stream, dict)
    hold = create_hold(world.target("s.a"), (), start, {**stream, **said}, world.server.now)
    world.server.write(hold)


@pytest.mark.parametrize("name", ["recreate-consumer", "restore-consumer"])
@pytest.mark.parametrize("held", [False, True])
def test_no_journal_moves_a_consumer_forward(name: str, *, held: bool) -> None:
    world = World(retention="interest")
    world.consume("s.a")
    world.publish(*"aaaaa")
    world.server.advance(1)
    if held:
        forged(world, start=6)
    live, target = world.server.consumers["S", "c"], world.target("s.a")
    live.config = orjson.loads(encode(C.mark, live.config, target.journal(name, "move", {"start": 6}), "test"))
    finisher = resume(target, world.info())
    assert finisher is not None
    assert isinstance(run(finisher, world.server).end, Done)
    world.assert_tidy(target)
    world.drain()
    assert (world.lost(), len(world.handled)) == ([], 5)


@pytest.mark.parametrize(
    ("start", "said", "begins"),
    [(4, {}, 4), (4, {"created": "2020-01-01T00:00:00Z"}, 1), (6, {}, 6), (7, {}, 1), (10**9, {}, 1)],
)
def test_a_hold_is_believed_only_by_what_it_names(start: int, said: dict[str, Any], begins: int) -> None:
    world = World()
    world.publish(*"aaaaa")
    forged(world, start=start, **said)
    target = world.target("s.a")
    assert isinstance(run(RecreateConsumer(target), world.server).end, Done)
    world.assert_tidy(target)
    world.drain()
    assert sorted(world.handled) == list(range(begins, 6))
