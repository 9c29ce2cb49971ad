"""Ways out about subjects that pass between streams or consumers: by their ids, nothing is lost, and nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.account.guarded import Guarded, consumer, stream
from tests.support.account.wire import Wire
from tests.support.account.work import Work
from tests.support.promises import tried

ANEW = ("--policy", "sync", "--allow", "recreate=Stream/T", "--allow", "data-loss=Stream/T")


async def got(wire: Wire, name: str, expected: Iterable[int], on: str = "S") -> None:
    """A worker of this consumer gets these, each once, and nothing else; and finishes them."""
    work, wanted = Work(wire, on, name), list(expected)
    await work.pull(len(wanted))
    await work.pull(1)
    assert (sorted(work.handled), work.duplicates) == (wanted, [])


async def holds(wire: Wire, **expected: Iterable[int]) -> None:
    """These are in the streams of these names, in this order, and nothing else."""
    found = {name: [int(each) for each in await wire.payloads(name)] for name in expected}
    assert found == {name: list(numbers) for name, numbers in expected.items()}


def readers(retention: str, **filters: str) -> list[str]:
    """A stream, and a consumer for each of these with a letter for every subject it reads."""
    own = [consumer("S", name, filterSubjects=[f"S.{letter}" for letter in letters]) for name, letters in filters.items()]
    return [stream("S", retention=retention), *own]


# -- between consumers -----------------------------------------------------------------------------------------------------------


async def to_be_swapped(guarded: Guarded, wire: Wire, retention: str) -> list[str]:
    """What two consumers shall be that swap a subject, and are refused to; they have handled what there was."""
    guarded.apply(*readers(retention, c="xa", d="yb"))
    await wire.publish("S.a", 3)
    await wire.publish("S.b", 3, first=3)
    await got(wire, "c", range(3))
    await got(wire, "d", range(3, 6))
    return readers(retention, c="xb", d="ya")


async def swap_refused(guarded: Guarded, *swapped: str) -> str:
    """The way out, which is the same for both."""
    said = await guarded.offered(*swapped)
    way = said["Consumer/S/c"]["swap"]
    assert way == "do it in two steps (interest: first let both have the subjects; workqueue: first take them away)"
    assert said["Consumer/S/d"]["swap"] == way
    return way


async def test_consumers_of_an_interest_stream_swap_when_both_have_the_subjects(guarded: Guarded, wire: Wire) -> None:
    swapped = await to_be_swapped(guarded, wire, "interest")
    way = await swap_refused(guarded, *swapped)
    guarded.apply(*readers("interest", c="xab", d="yab"))
    await wire.publish("S.a", 3, first=6)
    await wire.publish("S.b", 3, first=9)
    await got(wire, "c", range(6, 12))
    await got(wire, "d", range(6, 12))
    guarded.apply(*swapped)
    await wire.publish("S.a", 1, first=12)
    await wire.publish("S.b", 1, first=13)
    await got(wire, "c", [13])
    await got(wire, "d", [12])
    await holds(wire, S=[])
    tried(way)


async def test_consumers_of_a_work_queue_swap_when_nobody_has_the_subjects(guarded: Guarded, wire: Wire) -> None:
    swapped = await to_be_swapped(guarded, wire, "workqueue")
    way = await swap_refused(guarded, *swapped)
    guarded.apply(*readers("workqueue", c="x", d="y"))
    await wire.publish("S.a", 3, first=6)
    await wire.publish("S.b", 3, first=9)
    guarded.apply(*swapped)
    await wire.publish("S.a", 1, first=12)
    await wire.publish("S.b", 1, first=13)
    await got(wire, "c", [*range(9, 12), 13])
    await got(wire, "d", [*range(6, 9), 12])
    await holds(wire, S=[])
    tried(way)


# -- a stream that begins to store what nobody reads yet -------------------------------------------------------------------------


LIMITS = {
    "consumerLimits": ({"maxAckPending": 10}, {"maxAckPending": 20}),
    "maxConsumers": (5, 6),
}


@pytest.mark.parametrize("field", LIMITS)
async def test_limits_of_a_stream_before_its_subjects(guarded: Guarded, wire: Wire, field: str) -> None:
    before, after = LIMITS[field]
    one = consumer("S", "c", filterSubjects=["s.a"], maxAckPending=5)
    two = consumer("S", "d", filterSubjects=["s.b"], maxAckPending=5)

    def declared(limit: object, *subjects: str) -> str:
        return stream("S", subjects=subjects, retention="interest", **{field: limit})

    guarded.apply(declared(before, "s.a"), one)
    await wire.publish("s.a", 3)
    now = (declared(after, "s.a", "s.b"), one, two)
    way = (await guarded.offered(*now))["Stream/S"]["interest-gap"]
    assert way == "first change consumerLimits, maxConsumers and replicas, then the subjects"
    guarded.apply(declared(after, "s.a"), one)
    guarded.apply(*now)
    await wire.publish("s.b", 3, first=3)
    await got(wire, "c", range(3))
    await got(wire, "d", range(3, 6))
    tried(way)


@pytest.mark.parametrize("own", [(), ("t.a",)], ids=["no other subject", "a subject of its own"])
async def test_a_new_interest_stream_has_its_consumers_before_it_gets_a_subject(
    guarded: Guarded, wire: Wire, own: tuple[str, ...]
) -> None:
    guarded.apply(stream("S", subjects=["s.a", "s.b"]))
    await wire.publish("s.b", 3)

    def declared(*subjects: str) -> str:
        return stream("T", subjects=subjects, retention="interest")

    given = stream("S", subjects=["s.a"])
    said = await guarded.offered(given, declared(*own, "s.b"), consumer("T"))
    way = said["Stream/T"]["interest-gap"]
    assert way == "first declare it without those subjects and with its consumers, apply, then move them"
    assert said["Stream/S"]["depends-on"] == "see Stream/T"
    guarded.apply(stream("S", subjects=["s.a", "s.b"]), declared(*own), consumer("T"))
    await wire.publish("s.b", 3, first=3)
    guarded.apply(given, declared(*own, "s.b"), consumer("T"))
    await wire.publish("s.b", 3, first=6)
    await holds(wire, S=range(6), T=range(6, 9))
    await got(wire, "c", range(6, 9), on="T")
    tried(way)
    tried(said["Stream/S"]["depends-on"])


# -- between streams -------------------------------------------------------------------------------------------------------------


async def moving_and_anew(guarded: Guarded, s: tuple[str, str], t: tuple[str, str]) -> str:
    """What is said where a subject moves between S and T, which is to be kept in memory by now; each before and after."""
    guarded.apply(of("S", s[0]), of("T", t[0]))
    said = await guarded.offered(of("S", s[1]), of("T", t[1], storage="memory"), flags=ANEW)
    return said["Stream/T"]["depends-on"]


def of(name: str, letters: str, **spec: object) -> str:
    """A stream with a subject for each letter."""
    return stream(name, subjects=[f"s.{letter}" for letter in letters], **spec)


async def test_it_is_made_anew_before_it_gets_a_subject(guarded: Guarded, wire: Wire) -> None:
    way = await moving_and_anew(guarded, ("ab", "a"), ("c", "cb"))
    assert way == "do it in two steps: first make Stream/T anew with the subjects it has now, then move them"
    await wire.publish("s.b", 3)
    guarded.apply(of("S", "ab"), of("T", "c", storage="memory"), flags=ANEW)
    await wire.publish("s.b", 3, first=3)
    guarded.apply(of("S", "a"), of("T", "cb", storage="memory"))
    await wire.publish("s.b", 3, first=6)
    await holds(wire, S=range(6), T=range(6, 9))
    assert (await wire.stream_info("T"))["config"]["storage"] == "memory"
    tried(way)


async def test_it_has_given_a_subject_away_before_it_is_made_anew(guarded: Guarded, wire: Wire) -> None:
    way = await moving_and_anew(guarded, ("a", "ab"), ("cb", "c"))
    assert way == "do it in two steps: first move the subjects with the rest of Stream/T as it is now, then make it anew"
    guarded.apply(of("S", "ab"), of("T", "c"))
    await wire.publish("s.b", 3)
    guarded.apply(of("S", "ab"), of("T", "c", storage="memory"), flags=ANEW)
    await wire.publish("s.b", 3, first=3)
    await wire.publish("s.c", 1, first=6)
    await holds(wire, S=range(6), T=[6])
    assert (await wire.stream_info("T"))["config"]["storage"] == "memory"
    tried(way)


async def theirs(guarded: Guarded, wire: Wire) -> str:
    """A subject that we want is in a stream of somebody else."""
    await wire.expect("STREAM.CREATE.THEIRS", {"name": "THEIRS", "subjects": ["s.a", "s.b"]})
    await wire.publish("s.a", 3)
    way = (await guarded.offered(stream("S", subjects=["s.a", "s.c"])))["Stream/S"]["subject-overlap"]
    assert way == "take the subject away from Stream/THEIRS first, or narrow one of them"
    return way


async def test_a_subject_is_taken_away_from_another_stream_first(guarded: Guarded, wire: Wire) -> None:
    way = await theirs(guarded, wire)
    config = (await wire.stream_info("THEIRS"))["config"] | {"subjects": ["s.b"]}
    await wire.expect("STREAM.UPDATE.THEIRS", config)
    guarded.apply(stream("S", subjects=["s.a", "s.c"]))
    await wire.publish("s.a", 3, first=3)
    await holds(wire, THEIRS=range(3), S=range(3, 6))
    tried(way)


async def test_a_stream_is_narrowed_to_what_another_one_does_not_keep(guarded: Guarded, wire: Wire) -> None:
    way = await theirs(guarded, wire)
    guarded.apply(stream("S", subjects=["s.c"]))
    await wire.publish("s.a", 3, first=3)
    await wire.publish("s.c", 3, first=6)
    await holds(wire, THEIRS=range(6), S=range(6, 9))
    tried(way)
