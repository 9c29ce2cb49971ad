"""Buckets are the streams that the official clients make for the same options."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.kinds.buckets import (
    KeyValueSpec,
    ObjectStoreSpec,
    compile_key_value,
    compile_object_store,
    key_value_options,
    object_store_options,
)
from reconciler.model.normal import normal_stream

SECOND = 10**9
# What nats.go's CreateKeyValue sends for a bucket "b".
GO_KEY_VALUE: dict[str, Any] = {
    "name": "KV_b",
    "subjects": ["$KV.b.>"],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "discard": "new",
    "max_msgs_per_subject": 1,
    "max_msg_size": -1,
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * SECOND,
    "deny_delete": True,
    "allow_rollup_hdrs": True,
    "compression": "none",
    "allow_direct": True,
}


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ({}, {}),
        ({"history": 5}, {"max_msgs_per_subject": 5}),
        ({"ttl": "60s"}, {"max_age": 60 * SECOND, "duplicate_window": 60 * SECOND}),
        ({"ttl": "10m"}, {"max_age": 600 * SECOND}),
        ({"maxBytes": "1KB"}, {"max_bytes": 1000}),
        ({"maxValueSize": 100}, {"max_msg_size": 100}),
        ({"compression": True}, {"compression": "s2"}),
        ({"limitMarkerTtl": "60s"}, {"allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * SECOND}),
        (
            {"sources": [{"name": "x"}]},
            {"sources": [{"name": "KV_x", "subject_transforms": [{"src": "$KV.x.>", "dest": "$KV.b.>"}]}]},
        ),
    ],
)
def test_a_key_value_bucket_is_what_the_go_client_makes(spec: dict[str, Any], changed: dict[str, Any]) -> None:
    ours = compile_key_value("b", KeyValueSpec.model_validate(spec))
    assert normal_stream(ours, "KV_b") == normal_stream(GO_KEY_VALUE | changed, "KV_b")


def test_a_mirrored_bucket_has_no_subjects() -> None:
    ours = compile_key_value("b", KeyValueSpec.model_validate({"mirror": {"name": "x"}}))
    theirs = {key: value for key, value in GO_KEY_VALUE.items() if key != "subjects"} | {"mirror": {"name": "KV_x"}}
    assert normal_stream(ours, "KV_b") == normal_stream(theirs, "KV_b")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"history": 5, "ttl": "60s"},
        {"maxValueSize": 100, "compression": True},
        {"allowMsgTtl": True},
        {"limitMarkerTtl": "5s"},
    ],
)
def test_the_options_of_a_bucket_come_back(spec: dict[str, Any]) -> None:
    normal = normal_stream(compile_key_value("b", KeyValueSpec.model_validate(spec)), "KV_b")
    plain = {
        name: f"{value}ns" if name in ("ttl", "limitMarkerTtl") else value for name, value in key_value_options(normal).items()
    }
    assert normal_stream(compile_key_value("b", KeyValueSpec.model_validate(plain)), "KV_b") == normal


def test_the_options_of_an_object_store_come_back() -> None:
    spec = ObjectStoreSpec.model_validate({"maxBytes": "1MB", "description": "files", "replicas": 3})
    normal = normal_stream(compile_object_store("o", spec), "OBJ_o")
    assert object_store_options(normal) == {"maxBytes": 1000000, "description": "files", "replicas": 3}
