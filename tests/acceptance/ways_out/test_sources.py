"""Ways out about streams that copy others: each is printed, then taken; by their ids, all messages have arrived, each once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.account.guarded import Guarded, Spec, consumer, stream
from tests.support.account.ways import allowing, commands_in
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.promises import tried
from tests.support.sources.aggregate import stuck
from tests.support.values.manifests import written
from tests.support.world.declared import Entry, managed, own, plain

ANEW = ("--policy", "sync", "--allow", "recreate=Stream/A", "--allow", "data-loss=Stream/A")
SECONDS = 20.0
LATER = 100
"""The number of the first message that is published once the way out was taken."""
BOTH = ("s.a", "s.b")


def origin(retention: str = "limits") -> str:
    """What is copied."""
    return stream("S", subjects=["s.>"], retention=retention)


def copying(*entries: Entry, name: str = "A", **spec: object) -> str:
    """A stream that copies it."""
    return stream(name, **{"subjects": [f"{name}.>"], **({"sources": entries} if entries else {}), **spec})


def mirroring(entry: Entry, name: str = "A") -> str:
    """A stream that is a mirror of it."""
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {json.dumps({'mirror': entry})}"


def durable(name: str = "u", **spec: object) -> str:
    """What a declared entry reads through."""
    return consumer("S", name, ackPolicy="flow_control", deliverSubject=f"dlv.{name}", **spec)


async def has(wire: Wire, numbers: Iterable[int], name: str = "A") -> None:
    """It has each of them as often as it is given here, and no other; the last ones come after all that could come before."""
    wanted = Counter(numbers)

    async def arrived() -> bool:
        return Counter(map(int, await wire.payloads(name))) >= wanted

    await until(arrived, SECONDS)
    assert Counter(map(int, await wire.payloads(name))) == wanted


async def goes_on(wire: Wire, before: Iterable[int], subjects: Iterable[str] = ("s.a",), name: str = "A") -> None:
    """What was there before is there once, and so is what is published by now on each of the subjects."""
    more = list[int]()
    for subject in subjects:
        first = LATER + len(more)
        await wire.publish(subject, 3, first=first)
        more += range(first, first + 3)
    await has(wire, [*before, *more], name)


async def acknowledged(wire: Wire, name: str = "c") -> None:
    """The server has told the durable that all of it is stored."""

    async def nothing_left() -> bool:
        info = await wire.consumer_info("S", name)
        return not info["num_pending"] and not info["num_ack_pending"]

    await until(nothing_left, SECONDS)


async def way_out(guarded: Guarded, *documents: str, code: str, key: str = "Stream/A", flags: Iterable[str] = ()) -> str:
    """What is offered where this is refused for that reason."""
    return (await guarded.offered(*documents, flags=flags))[key][code]


async def copied(guarded: Guarded, wire: Wire, *documents: str, subjects: Iterable[str] = ("s.a",)) -> range:
    """It is as these want it, and has copied what was published, ten messages on each subject; their numbers."""
    guarded.apply(*documents)
    count = 0
    for subject in subjects:
        await wire.publish(subject, 10, first=count)
        count += 10
    await has(wire, range(count))
    return range(count)


# -- what an entry copies, and through what --------------------------------------------------------------------------------------


async def behind_its_position(guarded: Guarded, wire: Wire) -> str:
    """An entry gets a subject that its durable has passed already."""
    guarded.apply(origin(), copying(managed(filterSubject="s.a")))
    await wire.publish("s.b", 5)
    await wire.publish("s.a", 5, first=5)
    await has(wire, range(5, 10))  # of which the durable may not have been told yet
    return await way_out(guarded, origin(), copying(managed(filterSubject="s.>")), code="position-loss")


async def test_an_entry_of_its_own_for_what_the_position_has_passed(guarded: Guarded, wire: Wire) -> None:
    way = await behind_its_position(guarded, wire)
    assert way == "add an entry with a consumer of its own for them, or accept it with `reconciler/allow: position-loss`"
    guarded.apply(origin(), copying(managed("c", filterSubject="s.a"), managed("d", filterSubject="s.b")))
    await goes_on(wire, range(10), BOTH)
    tried(way)


async def test_what_the_position_has_passed_is_left_where_that_was_accepted(guarded: Guarded, wire: Wire) -> None:
    way = await behind_its_position(guarded, wire)
    guarded.apply(origin(), allowing(copying(managed(filterSubject="s.>")), "position-loss"))
    await goes_on(wire, range(5, 10), BOTH)
    tried(way)


async def test_first_the_consumer_then_what_it_copies(guarded: Guarded, wire: Wire) -> None:
    before = await copied(guarded, wire, origin(), copying(plain(filterSubject="s.a")))
    way = await way_out(guarded, origin(), copying(managed()), code="position-loss")
    assert way == "do it in two steps: first give the entry its `consumer`, then change what it copies"
    guarded.apply(origin(), copying(managed(filterSubject="s.a")))
    guarded.apply(origin(), copying(managed()))
    await goes_on(wire, before, BOTH)
    tried(way)


@pytest.mark.parametrize("now", [plain(), managed("d")], ids=["without one", "another one"])
async def test_first_what_it_copies_then_the_consumer(guarded: Guarded, wire: Wire, now: Entry) -> None:
    before = await copied(guarded, wire, origin(), copying(managed(filterSubject="s.a")))
    way = await way_out(guarded, origin(), copying(now), code="position-loss")
    assert way == "do it in two steps: first change what the entry copies, then its `consumer`"
    guarded.apply(origin(), copying(managed()))
    guarded.apply(origin(), copying(now))
    await goes_on(wire, before, BOTH)
    tried(way)


async def test_another_name_for_a_durable_that_cannot_become_what_it_shall_be(guarded: Guarded, wire: Wire) -> None:
    before = await copied(guarded, wire, origin(), copying(managed("c")))
    way = await way_out(guarded, origin(), copying(managed("c", optStartSeq=2)), code="immutable")
    assert way == "give it another name: its position is kept"
    guarded.apply(origin(), copying(managed("d", optStartSeq=2)))
    await goes_on(wire, before)
    assert (await wire.expect("CONSUMER.NAMES.S"))["consumers"] == ["d"]
    tried(way)


LAST: Spec = {"deliverPolicy": "last_per_subject", "filterSubjects": ["s.>"]}


async def cannot_be_moved(guarded: Guarded, wire: Wire) -> str:
    """A durable that begins with the last message is wanted for a stream that has copied ten."""
    await copied(guarded, wire, origin(), copying(plain()))
    return await way_out(guarded, origin(), copying(own()), durable(**LAST), code="position-loss")


async def test_a_new_stream_for_a_durable_that_cannot_be_moved(guarded: Guarded, wire: Wire) -> None:
    way = await cannot_be_moved(guarded, wire)
    assert way == "declare a new stream, or accept it by name with `reconciler/allow: position-loss`"
    guarded.apply(origin(), copying(plain()), copying(own(), name="B"), durable(**LAST))
    await goes_on(wire, [9], name="B")
    await has(wire, [*range(10), *range(LATER, LATER + 3)])
    tried(way)


async def test_a_durable_that_cannot_be_moved_repeats_what_was_accepted(guarded: Guarded, wire: Wire) -> None:
    way = await cannot_be_moved(guarded, wire)
    guarded.apply(origin(), allowing(copying(own()), "position-loss"), durable(**LAST))
    await wire.publish("s.a", 3, first=LATER)
    await has(wire, [*range(10), 9, *range(LATER, LATER + 3)])
    tried(way)


async def other_filter(guarded: Guarded, wire: Wire) -> str:
    """An ephemeral entry is to copy more."""
    await copied(guarded, wire, origin(), copying(plain(filterSubject="s.a")))
    await wire.publish("s.b", 5, first=10)
    return await way_out(guarded, origin(), copying(plain(filterSubject="s.>")), code="position-loss")


async def test_a_new_stream_for_another_filter(guarded: Guarded, wire: Wire) -> None:
    way = await other_filter(guarded, wire)
    assert way == "declare a new stream, or accept the duplicates by name with `reconciler/allow: position-loss`"
    old = copying(plain(filterSubject="s.a"))
    guarded.apply(origin(), old, copying(plain(filterSubject="s.>"), name="B"))
    await goes_on(wire, range(15), BOTH, name="B")
    tried(way)


async def test_another_filter_where_its_duplicates_were_accepted(guarded: Guarded, wire: Wire) -> None:
    way = await other_filter(guarded, wire)
    guarded.apply(origin(), allowing(copying(plain(filterSubject="s.>")), "position-loss"))
    await wire.publish("s.a", 3, first=LATER)
    await has(wire, [*range(10), *range(15), *range(LATER, LATER + 3)])
    tried(way)


# -- subjects that pass from one entry to another --------------------------------------------------------------------------------


SPLIT = (managed("e", filterSubject="s.a"), managed("f", filterSubject="s.b"))


async def to_be_split(guarded: Guarded, wire: Wire, retention: str) -> dict[str, str]:
    """One entry is to become two."""
    await copied(guarded, wire, origin(retention), copying(managed("c")), subjects=BOTH)
    assert await stuck(wire, "S") == 0
    return (await guarded.offered(origin(retention), copying(*SPLIT)))["Stream/A"]


async def test_a_new_stream_for_entries_that_are_split(guarded: Guarded, wire: Wire) -> None:
    ways = await to_be_split(guarded, wire, "interest")
    assert ways["data-loss"] == "declare a new stream, or accept it by name with `reconciler/allow: data-loss`"
    assert ways["position-loss"] == "declare a new stream, or accept it by name with `reconciler/allow: position-loss`"
    guarded.apply(origin("interest"), copying(managed("c")), copying(*SPLIT, name="B"))
    await goes_on(wire, (), BOTH, name="B")
    await has(wire, [*range(20), *range(LATER, LATER + 6)])
    for way in ways.values():
        tried(way)


async def test_entries_are_split_where_that_was_accepted(guarded: Guarded, wire: Wire) -> None:
    ways = await to_be_split(guarded, wire, "interest")
    guarded.apply(origin("interest"), allowing(copying(*SPLIT), '"position-loss,data-loss"'))
    await goes_on(wire, range(20), BOTH)
    for way in ways.values():
        tried(way)


async def test_a_work_queue_s_entries_are_split_in_two_steps(guarded: Guarded, wire: Wire) -> None:
    way = (await to_be_split(guarded, wire, "workqueue"))["swap"]
    assert way == "do it in two steps: first take the subjects away from the one, then give them to the other"
    guarded.apply(origin("workqueue"), copying(managed("c", filterSubject="s.a")))
    await wire.publish("s.b", 5, first=20)
    guarded.apply(origin("workqueue"), copying(managed("c", filterSubject="s.a"), managed("d", filterSubject="s.b")))
    await goes_on(wire, range(25), BOTH)
    tried(way)


# -- whose a durable is ----------------------------------------------------------------------------------------------------------


async def nobodys(wire: Wire, name: str = "c", **config: object) -> None:
    """A durable that somebody has made by hand."""
    spec: Spec = {"durable_name": name, "deliver_subject": f"d.{name}", "ack_policy": "flow_control", **config}
    spec = {"idle_heartbeat": 10**9, "flow_control": True, **spec}
    await wire.expect(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": spec})


async def taken_by_nobody(guarded: Guarded, wire: Wire) -> tuple[str, range]:
    """The name that a durable shall have is that of one which carries no mark."""
    before = await copied(guarded, wire, origin(), copying(plain()))
    await nobodys(wire)
    return await way_out(guarded, origin(), copying(managed("c")), code="not-owned"), before


async def test_a_durable_of_nobody_is_taken_over(guarded: Guarded, wire: Wire) -> None:
    way, before = await taken_by_nobody(guarded, wire)
    assert way == "take it over with --adopt, or give the `consumer` of the entry another name"
    guarded.apply(origin(), copying(managed("c")), flags=["--adopt"])
    await goes_on(wire, before)
    assert (await wire.consumer_info("S", "c"))["config"]["metadata"]["reconciler.owner"] == "default"
    tried(way)


async def test_a_durable_of_nobody_is_left_alone(guarded: Guarded, wire: Wire) -> None:
    way, before = await taken_by_nobody(guarded, wire)
    guarded.apply(origin(), copying(managed("d")))
    await goes_on(wire, before)
    assert "reconciler.owner" not in ((await wire.consumer_info("S", "c"))["config"].get("metadata") or {})
    tried(way)


async def test_a_durable_that_is_read_and_has_lost_its_mark_is_taken_over(guarded: Guarded, wire: Wire) -> None:
    before = await copied(guarded, wire, origin(), copying(managed("c")))
    await marked(wire, "c", {})
    way = await way_out(guarded, origin(), copying(managed("d")), code="not-owned")
    assert way == "take it over with --adopt"
    guarded.apply(origin(), copying(managed("d")), flags=["--adopt"])
    await goes_on(wire, before)
    tried(way)


async def marked(wire: Wire, name: str, mark: Spec) -> None:
    """Somebody gives a durable other metadata."""
    config = (await wire.consumer_info("S", name))["config"] | {"metadata": mark}
    await wire.expect(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config, "action": "update"})


async def test_a_durable_of_another_owner_that_is_read_is_given_up_first(guarded: Guarded, wire: Wire) -> None:
    by_owner(guarded, "theirs", origin(), durable("u"))
    guarded.apply(copying(own("u")))
    await wire.publish("s.a", 10)
    now = copying(managed("d"))
    way = await way_out(guarded, now, code="not-owned")
    assert way == "have it given up (`reconciler --owner theirs disown Consumer/S/u`), then take it over with --adopt"
    (command,) = commands_in(way)
    guarded.cli(*command, "--yes")
    guarded.apply(now, flags=["--adopt"])
    await goes_on(wire, range(10))
    tried(way)


def by_owner(guarded: Guarded, owner: str, *documents: str) -> None:
    """Another owner applies these."""
    guarded.cli("--owner", owner, "apply", "-f", written(guarded.directory / owner, *documents), "--yes")


async def test_a_stream_of_another_owner_is_taken_over_once_its_durable_has_gone(guarded: Guarded, wire: Wire) -> None:
    by_owner(guarded, "theirs", origin(), copying(managed("c")))
    await wire.publish("s.a", 10)
    take = ["--adopt", "--take-from", "theirs", "--target", "Stream/A"]
    way = await way_out(guarded, copying(managed("c")), code="not-owned", flags=take)
    assert way == "let 'theirs' declare the entry without its `consumer` first"
    by_owner(guarded, "theirs", origin(), copying(plain()))
    guarded.apply(copying(managed("c")), flags=take)
    await goes_on(wire, range(10))
    assert (await wire.consumer_info("S", "c"))["config"]["metadata"]["reconciler.owner"] == "default"
    tried(way)


async def test_the_name_of_another_owner_s_durable_stays_that_owner_s(guarded: Guarded, wire: Wire) -> None:
    by_owner(guarded, "theirs", origin(), copying(managed("c"), name="B"))
    guarded.apply(copying(plain()))
    way = await way_out(guarded, copying(managed("c")), code="not-owned")
    assert way == "give the `consumer` of the entry another name"
    guarded.apply(copying(managed("d")))
    await goes_on(wire, ())
    await has(wire, range(LATER, LATER + 3), name="B")
    tried(way)


async def test_a_durable_that_is_kept_for_another_stream_keeps_its_name(guarded: Guarded, wire: Wire) -> None:
    await copied(guarded, wire, origin(), copying(managed("c")))
    both = (origin(), copying(managed("d"), name="B"))
    way = await way_out(guarded, origin(), copying(managed("c"), name="B"), code="not-owned", key="Stream/B")
    assert way == "give the `consumer` of the entry another name"
    guarded.apply(*both)
    await goes_on(wire, range(10), name="B")
    await has(wire, [*range(10), *range(LATER, LATER + 3)])
    tried(way)


async def test_what_somebody_else_reads_from_a_work_queue_is_left_to_one_of_them(guarded: Guarded, wire: Wire) -> None:
    queue = origin("workqueue")
    before = await copied(guarded, wire, queue, copying(plain(filterSubject="s.a")))
    await overlapping(wire)
    way = await way_out(guarded, queue, copying(managed(filterSubject="s.a")), code="position-loss")
    assert way == "let only one reader have these subjects"
    await wire.expect("CONSUMER.DELETE.S.other")
    guarded.apply(queue, copying(managed(filterSubject="s.a")))
    await goes_on(wire, before)
    tried(way)


async def overlapping(wire: Wire) -> None:
    """Somebody else reads the same subject of the work queue."""
    config = {"durable_name": "other", "ack_policy": "explicit", "filter_subject": "s.b"}
    await wire.expect("CONSUMER.CREATE.S.other", {"stream_name": "S", "config": config})
    wider = {**config, "filter_subject": "s.a"}
    await wire.expect("CONSUMER.CREATE.S.other", {"stream_name": "S", "config": wider, "action": "update"})


# -- a stream that is made anew --------------------------------------------------------------------------------------------------


async def test_it_is_made_anew_before_it_gets_a_consumer(guarded: Guarded, wire: Wire) -> None:
    before = await copied(guarded, wire, origin(), copying(plain()))
    now = (origin(), copying(managed(), storage="memory"))
    way = await way_out(guarded, *now, code="depends-on", flags=ANEW)
    assert way == "do it in two steps: first make it anew with the `sources` it has now, then change them"
    guarded.apply(origin(), copying(plain(), storage="memory"), flags=ANEW)
    guarded.apply(*now)
    await goes_on(wire, before)
    tried(way)


async def test_it_is_made_anew_before_it_gives_up_its_consumer(guarded: Guarded, wire: Wire) -> None:
    await copied(guarded, wire, origin(), copying(managed()))
    await acknowledged(wire)
    now = (origin(), copying(plain(), storage="memory"))
    way = await way_out(guarded, *now, code="depends-on", flags=ANEW)
    assert way == "do it in two steps: first make it anew with the `sources` it has now, then change them"
    (anew,) = guarded.apply(origin(), copying(managed(), storage="memory"), flags=ANEW)["changes"]
    assert "it goes on behind sequence 10 of Stream/S" in " ".join(anew["notes"])
    guarded.apply(*now)
    await goes_on(wire, ())
    tried(way)


async def test_it_is_made_anew_once_its_consumer_is_another(guarded: Guarded, wire: Wire) -> None:
    before, moved = managed(), managed(subjectTransforms=[{"src": "s.>", "dest": "moved.>"}])
    await copied(guarded, wire, origin(), copying(before))
    await acknowledged(wire)
    way = await way_out(guarded, origin(), copying(moved, storage="memory"), code="depends-on", flags=ANEW)
    assert way == "do it in two steps: first change its `sources` with the rest as it is now, then make it anew"
    guarded.apply(origin(), copying(moved))
    guarded.apply(origin(), copying(moved, storage="memory"), flags=ANEW)
    await goes_on(wire, ())
    assert set((await wire.expect("STREAM.INFO.A", {"subjects_filter": ">"}))["state"]["subjects"]) == {"moved.a"}
    tried(way)


# -- mirrors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [managed(optStartSeq=2), managed("d")], ids=["another start", "another durable"])
async def test_a_new_stream_for_another_mirror(guarded: Guarded, wire: Wire, now: Entry) -> None:
    before = await copied(guarded, wire, origin(), mirroring(managed()))
    way = await way_out(guarded, origin(), mirroring(now), code="immutable")
    assert way == "declare a new stream with that mirror, or remove `mirror` to promote this one"
    guarded.apply(origin(), mirroring(managed()), mirroring(managed("d", optStartSeq=2), name="B"))
    await goes_on(wire, before[1:], name="B")
    tried(way)


async def test_a_mirror_is_promoted(guarded: Guarded, wire: Wire) -> None:
    before = await copied(guarded, wire, origin(), mirroring(managed()))
    way = await way_out(guarded, origin(), mirroring(managed(optStartSeq=2)), code="immutable")
    guarded.apply(origin(), copying())
    await goes_on(wire, before, ["A.a"])
    tried(way)


async def as_source(guarded: Guarded, wire: Wire, retention: str) -> tuple[str, range]:
    """A mirror is to become a source of the same stream at once."""
    guarded.apply(origin(retention), mirroring(plain()))
    if retention != "limits":
        await until(lambda: are_read_by(wire, 1), SECONDS)
    await wire.publish("s.a", 10)
    await has(wire, range(10))
    return await way_out(guarded, origin(retention), copying(plain()), code="depends-on"), range(10)


async def are_read_by(wire: Wire, copies: int) -> bool:
    """Whether the server keeps a consumer for each of these: what is published before, an interest stream drops."""
    return len((await wire.expect("CONSUMER.NAMES.S"))["consumers"] or ()) == copies


async def test_a_mirror_becomes_a_source_that_starts_behind_it(guarded: Guarded, wire: Wire) -> None:
    way, before = await as_source(guarded, wire, "limits")
    start = "an `optStartSeq` one above the last sequence that was mirrored"
    assert way == f"remove `mirror` first, in a step of its own, then add the source, with {start}"
    guarded.apply(origin(), copying())
    mirrored = (await wire.stream_info("A"))["state"]["last_seq"]
    await wire.publish("A.own", 4, first=10)
    await wire.publish("s.a", 4, first=14)
    guarded.apply(origin(), copying(plain(optStartSeq=mirrored + 1)))
    await goes_on(wire, [*before, *range(10, 18)])
    tried(way)


async def test_a_mirror_of_a_work_queue_becomes_a_source(guarded: Guarded, wire: Wire) -> None:
    way, before = await as_source(guarded, wire, "workqueue")
    purge = "`nats stream purge S` with `--seq` one above the last sequence that was mirrored"
    assert way == f"remove `mirror` first, in a step of its own, then purge what was mirrored ({purge}), then add the source"
    guarded.apply(origin("workqueue"), copying())
    mirrored = (await wire.stream_info("A"))["state"]["last_seq"]
    await wire.publish("s.a", 4, first=10)
    await wire.expect("STREAM.PURGE.S", {"seq": mirrored + 1})
    guarded.apply(origin("workqueue"), copying(plain()))
    await goes_on(wire, [*before, *range(10, 14)])
    assert await stuck(wire, "S") == 0
    tried(way)


async def test_a_new_stream_with_the_source_where_interest_keeps_nothing(guarded: Guarded, wire: Wire) -> None:
    way, before = await as_source(guarded, wire, "interest")
    assert way == "declare a new stream with that source: between two steps an interest stream would drop what is published"
    assert await stuck(wire, "S") == 0
    guarded.apply(origin("interest"), mirroring(plain()), copying(plain(), name="B"))
    await until(lambda: are_read_by(wire, 2), SECONDS)
    await goes_on(wire, (), name="B")
    await has(wire, [*before, *range(LATER, LATER + 3)])
    tried(way)


@pytest.mark.parametrize("how", ["declared again", "no entry"])
async def test_a_durable_that_is_read_through_is_not_pruned(guarded: Guarded, wire: Wire, how: str) -> None:
    before = await copied(guarded, wire, origin(), copying(own("u")), durable())
    await acknowledged(wire, "u")
    left = origin(), copying(own("u"))
    way = (await guarded.offered(*left, flags=["--prune", "--max-change-percent", "100"]))["Consumer/S/u"]["depends-on"]
    assert way == "declare it again, or take the entry that reads through it out of the manifest of Stream/A"
    if how == "declared again":
        guarded.apply(*left, durable())
        await goes_on(wire, before)
    else:
        guarded.apply(origin(), copying(), flags=["--prune", "--max-change-percent", "100"])
        assert (await wire.expect("CONSUMER.NAMES.S"))["consumers"] in (None, [])
        await has(wire, before)
    tried(way)
