"""The normal form: one meaning, one form; nothing the server fills in is a difference.

The echoes below were given by nats-server 2.15.1 for the requests beside them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.normal import complete_stream, digest, normal_consumer, normal_stream

SECOND = 10**9
STREAM_ECHO: dict[str, Any] = {
    "name": "F",
    "subjects": ["b.>"],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * SECOND,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "allow_msg_ttl": False,
    "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"},
}
PULL_ECHO: dict[str, Any] = {
    "durable_name": "c",
    "name": "c",
    "deliver_policy": "all",
    "ack_policy": "explicit",
    "ack_wait": 30 * SECOND,
    "max_deliver": -1,
    "replay_policy": "instant",
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "num_replicas": 0,
    "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"},
}
FLOW_ECHO: dict[str, Any] = {
    "durable_name": "c",
    "name": "c",
    "deliver_policy": "all",
    "ack_policy": "flow_control",
    "max_deliver": -1,
    "replay_policy": "instant",
    "max_ack_pending": 1000,
    "flow_control": True,
    "deliver_subject": "dd.c",
    "idle_heartbeat": SECOND,
    "num_replicas": 0,
    "metadata": {"_nats.req.level": "4"},
}


@pytest.mark.parametrize(
    ("sent", "changed"),
    [
        ({}, {}),
        ({"max_consumers": 0, "max_msgs": 0}, {}),
        ({"description": ""}, {}),
        ({"num_replicas": 0, "duplicate_window": 0}, {}),
        ({"subjects": ["z.2", "b.>", "a.1"]}, {"subjects": ["a.1", "b.>", "z.2"]}),
        ({"max_age": 60 * SECOND}, {"max_age": 60 * SECOND, "duplicate_window": 60 * SECOND}),
        ({"max_age": 36000 * SECOND}, {"max_age": 36000 * SECOND}),
        ({"placement": {}}, {}),
        ({"placement": {"tags": ["b", "a"]}}, {"placement": {"tags": ["a", "b"]}}),
        ({"republish": {"dest": "rp.>"}}, {"republish": {"src": ">", "dest": "rp.>"}}),
        ({"allow_msg_schedules": True}, {"allow_msg_schedules": True, "allow_rollup_hdrs": True}),
        ({"allow_msg_schedules": True, "deny_purge": True}, {"allow_msg_schedules": True, "allow_rollup_hdrs": True}),
        (
            {"subject_delete_marker_ttl": 10 * SECOND},
            {"subject_delete_marker_ttl": 10 * SECOND, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
        ),
        ({"persist_mode": "default"}, {}),
        ({"metadata": {"k": "v"}}, {"metadata": {"k": "v", "_nats.req.level": "0"}}),
        ({"consumer_limits": {"max_ack_pending": 50}}, {"consumer_limits": {"max_ack_pending": 50}}),
    ],
)
def test_what_a_stream_was_sent_as_and_what_came_back_are_the_same(sent: dict[str, Any], changed: dict[str, Any]) -> None:
    request = {"name": "F", "subjects": ["b.>"]} | sent
    assert normal_stream(request, "F") == normal_stream(STREAM_ECHO | changed, "F")


def test_a_stream_without_subjects_listens_on_its_own_name() -> None:
    assert normal_stream({"name": "F"}, "F") == normal_stream(STREAM_ECHO | {"subjects": ["F"]}, "F")


def test_a_mirror_shows_no_window_and_the_origins_direct() -> None:
    echo = {key: value for key, value in STREAM_ECHO.items() if key not in ("subjects", "duplicate_window")}
    echo |= {"mirror": {"name": "OD"}, "mirror_direct": True}
    assert normal_stream({"name": "F", "mirror": {"name": "OD"}}, "F") == normal_stream(echo, "F")


def test_sources_are_a_set_and_their_times_instants() -> None:
    sent = {"sources": [{"name": "B"}, {"name": "A", "opt_start_time": "2024-01-01T02:00:00.120+02:00"}]}
    echo = {"sources": [{"name": "A", "opt_start_time": "2024-01-01T00:00:00.12Z"}, {"name": "B", "opt_start_seq": 0}]}
    assert normal_stream(sent, "F") == normal_stream(echo, "F")


def test_an_external_api_comes_back_with_an_empty_deliver_prefix() -> None:
    sent = {"sources": [{"name": "A", "external": {"api": "$JS.leaf.API"}}]}
    echo = {"sources": [{"name": "A", "external": {"api": "$JS.leaf.API", "deliver": ""}}]}
    assert normal_stream(sent, "F") == normal_stream(echo, "F")


@pytest.mark.parametrize(
    ("sent", "changed"),
    [
        ({}, {}),
        ({"max_deliver": 0}, {}),
        ({"max_deliver": -5}, {}),
        ({"max_waiting": 0, "max_ack_pending": 0}, {}),
        ({"max_ack_pending": -5}, {"max_ack_pending": -1}),
        ({"backoff": [SECOND, 5 * SECOND]}, {"ack_wait": SECOND, "backoff": [SECOND, 5 * SECOND]}),
        ({"backoff": []}, {}),
        ({"filter_subject": "s.a"}, {"filter_subjects": ["s.a"]}),
        ({"filter_subjects": ["s.b", "s.a"]}, {"filter_subjects": ["s.a", "s.b"]}),
        ({"sample_freq": "50"}, {"sample_freq": "50%"}),
        (
            {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00.000Z"},
            {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z"},
        ),
        ({"priority_policy": "none", "priority_groups": []}, {}),
        (
            {"priority_groups": ["A"], "priority_policy": "pinned_client"},
            {"priority_groups": ["A"], "priority_policy": "pinned_client", "priority_timeout": 120 * SECOND},
        ),
        ({"pause_until": "2099-01-01T00:00:00Z"}, {}),
    ],
)
def test_what_a_consumer_was_sent_as_and_what_came_back_are_the_same(sent: dict[str, Any], changed: dict[str, Any]) -> None:
    request = {"durable_name": "c", "ack_policy": "explicit"} | sent
    assert normal_consumer(request) == normal_consumer(PULL_ECHO | changed)


def test_the_server_decides_flow_control_and_heartbeat_of_a_sourcing_consumer() -> None:
    request = {"durable_name": "c", "ack_policy": "flow_control", "deliver_subject": "dd.c"}
    assert normal_consumer(request) == normal_consumer(FLOW_ECHO)


def test_a_named_consumer_is_not_a_durable() -> None:
    echo = {key: value for key, value in PULL_ECHO.items() if key != "durable_name"} | {"inactive_threshold": 5 * SECOND}
    request = {"name": "c", "ack_policy": "explicit"}
    assert normal_consumer(request) == normal_consumer(echo)
    assert normal_consumer(request) != normal_consumer(PULL_ECHO)


def test_the_streams_limits_are_its_consumers_defaults() -> None:
    limits = {"max_ack_pending": 50, "inactive_threshold": 60 * SECOND}
    echo = PULL_ECHO | limits
    assert normal_consumer({"durable_name": "c", "ack_policy": "explicit"}, limits) == normal_consumer(echo, limits)
    assert normal_consumer({"durable_name": "c", "ack_policy": "explicit"}) != normal_consumer(echo)


def test_a_dead_letter_subject_is_a_difference_and_the_marker_is_not() -> None:
    plain = {"durable_name": "c", "ack_policy": "explicit"}
    marked = plain | {"metadata": {"reconciler.owner": "me", "reconciler.spec": "1"}}
    dead = plain | {"metadata": {"reconciler.deadLetter": "dlq.x"}}
    assert normal_consumer(plain) == normal_consumer(marked)
    assert normal_consumer(plain) != normal_consumer(dead)


STREAM_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "subjects": st.lists(st.sampled_from(["a", "b.>", "F", "c.*"]), max_size=3),
    "retention": st.sampled_from(["limits", "interest", "workqueue"]),
    "max_msgs": st.integers(-2, 3),
    "max_bytes": st.integers(-2, 3),
    "max_age": st.sampled_from([0, SECOND, 60 * SECOND, 3600 * SECOND]),
    "duplicate_window": st.sampled_from([0, SECOND, 60 * SECOND, 120 * SECOND]),
    "num_replicas": st.integers(0, 3),
    "sealed": st.booleans(),
    "deny_purge": st.booleans(),
    "allow_rollup_hdrs": st.booleans(),
    "allow_msg_schedules": st.booleans(),
    "subject_delete_marker_ttl": st.sampled_from([0, SECOND]),
    "placement": st.sampled_from([{}, {"cluster": ""}, {"tags": ["b", "a"]}]),
    "republish": st.sampled_from([{"src": "", "dest": "r"}, {"src": ">", "dest": "r"}, {"src": "a", "dest": "r"}]),
    "mirror": st.sampled_from([{"name": "O"}, {"name": "O", "opt_start_seq": 0}]),
    "sources": st.lists(st.sampled_from([{"name": "O"}, {"name": "P", "filter_subject": ""}]), max_size=2),
    "metadata": st.sampled_from([{}, {"a": "b"}, {"_nats.ver": "1"}, {"reconciler.owner": "x", "a": "c"}]),
}
CONSUMER_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "durable_name": st.just("c"),
    "ack_policy": st.sampled_from(["none", "all", "explicit", "flow_control"]),
    "ack_wait": st.sampled_from([0, SECOND, 30 * SECOND]),
    "backoff": st.lists(st.sampled_from([SECOND, 2 * SECOND]), max_size=2),
    "max_deliver": st.integers(-2, 3),
    "max_ack_pending": st.sampled_from([-2, -1, 0, 50, 1000]),
    "filter_subject": st.sampled_from(["", "a"]),
    "filter_subjects": st.lists(st.sampled_from(["a", "b"]), max_size=2),
    "inactive_threshold": st.sampled_from([0, 5 * SECOND, 60 * SECOND]),
    "priority_policy": st.sampled_from(["none", "overflow", "pinned_client"]),
    "idle_heartbeat": st.sampled_from([0, SECOND]),
    "sample_freq": st.sampled_from(["", "50", "50%"]),
    "metadata": st.sampled_from([{}, {"a": "b"}, {"reconciler.deadLetter": "d"}]),
}


@given(st.fixed_dictionaries({}, optional=STREAM_VALUES))
def test_the_normal_form_of_a_stream_is_its_own_normal_form(config: dict[str, Any]) -> None:
    once = normal_stream(config, "F")
    assert normal_stream(once, "F") == once
    assert digest(normal_stream(dict(reversed(config.items())), "F")) == digest(once)


@given(st.fixed_dictionaries({}, optional=STREAM_VALUES))
def test_saying_what_the_server_does_anyway_changes_nothing(config: dict[str, Any]) -> None:
    assert normal_stream(complete_stream(config), "F") == normal_stream(config, "F")


@given(st.fixed_dictionaries({}, optional=CONSUMER_VALUES), st.sampled_from([{}, {"max_ack_pending": 50}]))
def test_normalising_a_consumer_changes_nothing_it_means(config: dict[str, Any], limits: dict[str, Any]) -> None:
    once = normal_consumer(config, limits)
    again = {name: value for name, value in once.items() if name not in ("durable", "dead_letter")}
    again |= {"durable_name": "c"} if once["durable"] else {}
    again |= (
        {"metadata": {**once.get("metadata", {}), "reconciler.deadLetter": once["dead_letter"]}} if "dead_letter" in once else {}
    )
    assert normal_consumer(again, limits) == once
