"""What a process remembers from snapshot to snapshot, and from patch to patch."""

from __future__ import annotations

import timeit
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.memory import Recollection
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, Patch
from reconciler.plan.change import NO_MEMORY, Remembered
from tests.support.values.build import NOW, OLD, consumer, consumer_info, live, marked, stream, stream_info

ORDERS = stream("ORDERS")
BILLING = consumer("ORDERS", "billing")
SEEN = live(
    stream_info(marked(ORDERS)),
    stream_info(stream("THEIRS").config),
    consumer_info("ORDERS", marked(BILLING), ack_floor={"consumer_seq": 5, "stream_seq": 41}),
    consumer_info("ORDERS", consumer("ORDERS", "theirs").config),
)


def test_owners_and_floors_of_what_is_ours_are_remembered() -> None:
    memory = _recollection().memory
    assert dict(memory.owned) == {ORDERS.key: ORDERS.digest, BILLING.key: BILLING.digest}
    assert dict(memory.floors) == {BILLING.key: 41}


STREAMS, CONSUMERS = ("A", "B"), ("x", "y")
NEW = "2026-02-02T00:00:00Z"
OWNERS = st.sampled_from(["default", "default", "", "other"])


@st.composite
def _lives(draw: st.DrawFn) -> Live:
    infos: list[dict[str, Any]] = []
    unknown = draw(st.sampled_from([{}, {}, {Key("Stream", "A"): "silent"}, {Key("Consumer", "x", "A"): "silent"}]))
    for name in STREAMS:
        if not draw(st.sampled_from([True, True, False])):
            continue
        silent = Key("Stream", name) in unknown
        owner, created = ("default", OLD) if silent else (draw(OWNERS), draw(st.sampled_from([OLD, OLD, NEW])))
        infos.append(stream_info(marked(stream(name), owner)) | {"created": created})
        for reader in CONSUMERS:
            if not silent and draw(st.sampled_from([True, True, False])):
                floor = {"consumer_seq": 1, "stream_seq": draw(st.integers(0, 9))}
                infos.append(consumer_info(name, marked(consumer(name, reader), draw(OWNERS)), ack_floor=floor))
    return live(*infos, unknown=unknown)


def _remembered(memory: Remembered, seen: Live) -> Remembered:
    """The memory after this snapshot, made anew from all of it; of what did not answer, the old memory stays."""
    owned = {key: spec for key, spec in memory.owned.items() if seen.why_unknown(key)}
    created = {**memory.created, **{key: found.info["created"] for key, found in seen.streams.items()}}
    floors = {key: at for key, at in memory.floors.items() if created.get(key.stream_key) == memory.created.get(key.stream_key)}
    owned |= {key: found.spec for key, found in seen.streams.items() if found.owner == "default"}
    for stream_key, consumers in seen.consumers.items():
        for name, found in consumers.items():
            if found.owner == "default":
                key, info = Key("Consumer", name, stream_key.name, stream_key.domain), found.info
                owned[key], created[key], floors[key] = found.spec, info["created"], info["ack_floor"]["stream_seq"]
    return Remembered(owned, floors, created)


@given(st.lists(st.tuples(_lives(), st.booleans()), min_size=1, max_size=5))
def test_a_recollection_knows_what_snapshots_are_remembered_as_and_who_was_ours_before(looks: list[tuple[Live, bool]]) -> None:
    recollection, memory = Recollection("default"), NO_MEMORY
    ever: set[Key] = set()
    for seen, whole in looks:
        memory = _remembered(memory, seen)
        ever |= memory.owned.keys()
        if whole:
            recollection.learn(seen)
        else:
            recollection.learn_keys(seen, [Key("Stream", "A"), Key("Consumer", "x", "B")])
        owned, created = recollection.memory.owned, recollection.memory.created
        assert dict(recollection.memory.floors) == memory.floors
        for key in memory.owned:
            if not seen.why_unknown(key):
                assert (owned[key], created[key]) == (memory.owned[key], memory.created[key])
        assert all(key in ever and not _marked(seen, key) for key in owned if key not in memory.owned)


def test_silence_changes_no_recollection() -> None:
    recollection = _recollection()
    before = [dict(known) for known in _maps(recollection)]
    for silent in (
        live(unknown={Key("Stream", "*"): "no answer"}),
        live(stream_info(marked(ORDERS)), unknown={ORDERS.key: "no"}),
    ):
        recollection.learn(silent)
        assert [dict(known) for known in _maps(recollection)] == before


def _maps(recollection: Recollection) -> tuple[Mapping[Key, object], ...]:
    return recollection.memory.owned, recollection.memory.floors, recollection.memory.created


def _marked(seen: Live, key: Key) -> bool:
    found = seen.seen(key)
    return found is not None and found.owner == "default"


def _recollection() -> Recollection:
    recollection = Recollection("default")
    recollection.learn(SEEN)
    return recollection


def _without(key: Key) -> Live:
    return SEEN.patched(Patch(at=NOW + 1, consumers={key: None}))


def test_a_consumer_that_a_patch_shows_to_be_gone_leaves_its_floor() -> None:
    recollection = _recollection()
    recollection.learn_keys(_without(BILLING.key), [ORDERS.key])
    assert dict(recollection.memory.floors) == {BILLING.key: 41}


def test_who_was_ours_is_known_until_another_of_that_name_is_made() -> None:
    recollection = _recollection()
    bare = LiveConsumer.seen(consumer_info("ORDERS", BILLING.config))
    wiped = SEEN.patched(Patch(at=NOW + 1, consumers={BILLING.key: bare}))
    for _ in range(2):
        recollection.learn(wiped)
        assert recollection.memory.owned.get(BILLING.key) == BILLING.digest
        assert recollection.memory.created.get(BILLING.key) == OLD
    anew = stream_info(marked(ORDERS)) | {"created": NEW}
    recollection.learn(live(anew, consumer_info("ORDERS", BILLING.config) | {"created": NEW}))
    assert (BILLING.key in recollection.memory.owned, dict(recollection.memory.floors)) == (False, {})


def test_what_we_removed_ourselves_is_forgotten_before_and_after_it_is_seen_to_be_gone() -> None:
    for forgotten_first in (True, False):
        recollection = _recollection()
        if forgotten_first:
            recollection.forget([BILLING.key])
        recollection.learn_keys(_without(BILLING.key), [BILLING.key])
        recollection.forget([BILLING.key])
        assert (dict(recollection.memory.owned), dict(recollection.memory.floors)) == ({ORDERS.key: ORDERS.digest}, {})
    recollection.forget([ORDERS.key])
    assert dict(recollection.memory.owned) == {}


def test_a_patch_costs_a_recollection_no_more_than_its_stream() -> None:
    base = LiveConsumer.seen(consumer_info("ORDERS", marked(BILLING)))
    streams = {Key("Stream", f"S{number}"): SEEN.streams[ORDERS.key] for number in range(200)}
    everything = Live(SEEN.server, NOW, streams, {key: {f"c{one}": base for one in range(500)} for key in streams})
    recollection = Recollection("default")
    recollection.learn(everything)
    key = Key("Consumer", "c7", "S7")
    lives = [everything, everything.patched(Patch(at=NOW + 1, consumers={key: None}))]

    def learn() -> None:
        lives.reverse()
        recollection.learn_keys(lives[0], [key])

    copying = min(timeit.repeat(lambda: [dict(names) for names in everything.consumers.values()], number=1, repeat=5))
    assert min(timeit.repeat(learn, number=1, repeat=5)) < copying / 5
