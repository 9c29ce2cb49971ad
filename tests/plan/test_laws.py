"""Laws of the planner, for arbitrary declarations: what is in place stays in place, and applying a plan leaves nothing to do."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Declared
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import table
from reconciler.model.kinds.stream import StreamSpec
from reconciler.model.normal import default_duplicate_window
from reconciler.plan.change import Action, Rules
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

COUNT = st.integers(1, 10**6)
NANOSECONDS = st.integers(10**9, 10**15)
SUBJECT = st.sampled_from(["a", "b.c", "b.*", "d.>"])
WORDS = st.dictionaries(st.sampled_from(["team", "tier"]), st.text(max_size=5), max_size=2)

STREAM = st.fixed_dictionaries(
    {"subjects": st.just(["s.>"])},
    optional={
        "description": st.text(max_size=9),
        "retention": st.sampled_from(["limits", "interest", "workqueue"]),
        "storage": st.sampled_from(["file", "memory"]),
        "maxAge": NANOSECONDS,
        "maxMsgs": COUNT,
        "maxBytes": COUNT,
        "maxMsgsPerSubject": COUNT,
        "maxMsgSize": COUNT,
        "maxConsumers": COUNT,
        "discard": st.sampled_from(["old", "new"]),
        "noAck": st.booleans(),
        "compression": st.sampled_from(["none", "s2"]),
        "allowDirect": st.booleans(),
        "denyDelete": st.booleans(),
        "allowMsgTtl": st.booleans(),
        "subjectDeleteMarkerTtl": NANOSECONDS,
        "allowAtomic": st.booleans(),
        "consumerLimits": st.fixed_dictionaries({}, optional={"maxAckPending": COUNT, "inactiveThreshold": NANOSECONDS}),
        "republish": st.fixed_dictionaries({"dest": st.just("r.>")}, optional={"headersOnly": st.booleans()}),
        "sources": st.just([{"name": "ORIGIN", "filterSubject": "o.>"}]),
        "metadata": WORDS,
    },
)
CONSUMER = st.fixed_dictionaries(
    {"ackPolicy": st.sampled_from(["none", "all", "explicit"])},
    optional={
        "description": st.text(max_size=9),
        "filterSubjects": st.lists(SUBJECT, min_size=1, max_size=2, unique=True),
        "ackWait": NANOSECONDS,
        "maxDeliver": st.integers(-1, 20),
        "backoff": st.lists(NANOSECONDS, min_size=1, max_size=3),
        "maxAckPending": st.integers(-1, 5000),
        "maxWaiting": COUNT,
        "inactiveThreshold": NANOSECONDS,
        "headersOnly": st.booleans(),
        "sampleFreq": st.sampled_from(["50", "50%"]),
        "metadata": WORDS,
        "deliverPolicy": st.sampled_from(["all", "new", "last"]),
    },
)


def _echo(declared: Declared) -> dict[str, Any]:
    """What a server answers: everything that was not sent is filled in."""
    config = marked(declared)
    model = ConsumerSpec if declared.key.kind == "Consumer" else StreamSpec
    defaults = {name: column.wire.default for name, column in table(model).items() if column.wire.default is not None}
    if declared.key.kind == "Consumer":
        if config.get("backoff"):
            config["ack_wait"] = config["backoff"][0]
        elif config.get("ack_policy", "none") == "none":
            defaults.pop("ack_wait")
        if config.get("ack_policy", "none") == "none":
            defaults.pop("max_ack_pending")
    else:
        defaults["duplicate_window"] = default_duplicate_window(config)
        if config.get("subject_delete_marker_ttl"):
            config |= {"allow_msg_ttl": True, "allow_rollup_hdrs": True}
    return {**defaults, **config}


@given(STREAM)
def test_a_stream_in_place_has_no_difference(spec: dict[str, Any]) -> None:
    declared = stream("S", spec)
    assert plan(desired(declared), live(stream_info(_echo(declared))), Rules()).changes == ()


@given(CONSUMER)
def test_a_consumer_in_place_has_no_difference(spec: dict[str, Any]) -> None:
    base, declared = stream("S", {"subjects": [">"]}), consumer("S", "c", spec)
    state = live(stream_info(_echo(base)), consumer_info("S", _echo(declared)))
    assert plan(desired(base, declared), state, Rules()).changes == ()


@given(STREAM, STREAM)
def test_applying_an_update_of_a_stream_leaves_nothing_to_do(before: dict[str, Any], after: dict[str, Any]) -> None:
    was, declared = stream("S", before), stream("S", after)
    changes = plan(desired(declared), live(stream_info(_echo(was))), Rules()).changes
    if changes and changes[0].action is Action.UPDATE:
        left = live(stream_info(orjson.loads(changes[0].config)))
        assert plan(desired(declared), left, Rules()).changes == ()
        assert changes[0].fields


@given(CONSUMER, CONSUMER)
def test_applying_an_update_of_a_consumer_leaves_nothing_to_do(before: dict[str, Any], after: dict[str, Any]) -> None:
    base, was, declared = stream("S", {"subjects": [">"]}), consumer("S", "c", before), consumer("S", "c", after)
    state = live(stream_info(_echo(base)), consumer_info("S", _echo(was)))
    changes = plan(desired(base, declared), state, Rules()).changes
    if changes and changes[0].action is Action.UPDATE:
        left = live(stream_info(_echo(base)), consumer_info("S", orjson.loads(changes[0].config)))
        assert plan(desired(base, declared), left, Rules()).changes == ()


@given(STREAM)
def test_an_adopted_stream_stays_as_it_is(spec: dict[str, Any]) -> None:
    declared = stream("S", spec)
    unmarked = _echo(declared) | {"metadata": declared.config.get("metadata", {})}
    changes = plan(desired(declared), live(stream_info(unmarked)), Rules(adopt=True)).changes
    assert [(change.action, change.fields) for change in changes] == [(Action.ADOPT, ())]
