"""A durable that delivers something else than is declared is not called flowing, whatever is heard from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.sourcing import with_durables
from reconciler.model.units import SECOND
from reconciler.sources.health import NO_HISTORY, SourceHealth, judge
from reconciler.sources.look import Answer, Entrance, Look, declared_durable, entrances
from tests.support.values import build

A, C = Key("Stream", "A"), Key("Consumer", "c", "S")
ENTRY = {"name": "S", "consumer": {"name": "c", "deliver_subject": "d"}}
FLOW = {"ackPolicy": "flow_control", "deliverSubject": "d"}
STAND = {"consumer_seq": 30, "stream_seq": 30}


def looked(declared: Declared, config: dict[str, Any], seconds: Sequence[int] = (0,)) -> SourceHealth:
    """How an entry fares whose durable is live like this, at the last of these looks."""
    entrance = Entrance(aggregate=A, entry=ENTRY, origin=Key("Stream", "S"), durable=C, declared=declared)
    told = {"name": "S", "active": SECOND // 2, "lag": 0}
    stream = Answer({"config": {"name": "A", "sources": [ENTRY]}, "sources": [told], "state": {"last_seq": 30}})
    live = {"delivered": STAND, "ack_floor": STAND, "num_pending": 5, "num_ack_pending": 0, "push_bound": True}
    durable = Answer(build.consumer_info("S", config) | {"created": "one", **live})
    history = NO_HISTORY
    for second in seconds:
        history, _ = judge(Look(at=1000 * SECOND + second * SECOND, entrance=entrance, stream=stream, durable=durable), history)
    assert history.health is not None
    return history.health


def declared_with(**spec: Any) -> Declared:
    return build.consumer("S", "c", {**FLOW, **spec})


def test_a_filter_that_somebody_has_changed_is_a_stall_at_once() -> None:
    declared = declared_with(filterSubjects=["s.>"])
    health = looked(declared, build.marked(declared, filter_subjects=["s.none"]))
    assert (health.state, health.cause) == ("Stalled", "filter")
    assert health.message.startswith("Consumer/S/c delivers s.none, and not s.>, as is declared")


def test_one_that_its_manifest_has_changed_is_about_to_follow_and_a_stall_when_it_does_not() -> None:
    declared = declared_with(filterSubjects=["s.>"])
    before = build.marked(declared_with(filterSubjects=["s.a"]))
    assert looked(declared, before, (0, 3, 6)).state != "Stalled"
    assert looked(declared, before, (0, 3, 6, 9)).cause == "filter"


@pytest.mark.parametrize(
    ("spec", "live"),
    [
        ({}, {}),
        ({}, {"filter_subject": ">"}),
        ({"filterSubjects": ["s.a"]}, {"filter_subjects": None, "filter_subject": "s.a"}),
        ({"filterSubjects": ["s.a", "s.b"]}, {"filter_subjects": ["s.b", "s.a"]}),
    ],
)
def test_other_words_for_the_same_filters_are_the_same(spec: dict[str, Any], live: dict[str, Any]) -> None:
    declared = declared_with(**spec)
    assert looked(declared, build.marked(declared, **live), (0, 3, 6, 9)).state == "Flowing"


def test_the_durable_of_an_entry_is_declared_or_kept_for_it_or_somebody_elses() -> None:
    declared = declared_with()
    assert declared_durable(build.desired(declared), C) is declared
    absent = build.consumer("S", "c", FLOW, Intent(state=State.ABSENT))
    assert declared_durable(build.desired(absent), C) is None
    assert declared_durable(build.desired(), C) is None
    managed = {"name": "S", "consumer": {"name": "c", "serverManaged": True}, "filterSubject": "s.a"}
    kept: Desired = with_durables(build.desired(build.stream("A", {"sources": [managed]})), "default")
    (entrance,) = entrances(kept, A, kept.streams[A].config)
    assert entrance.declared is kept.durables[C].declared
