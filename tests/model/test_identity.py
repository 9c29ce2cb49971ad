"""Keys: as they are printed, and which of them mean one thing on the server."""

from __future__ import annotations

import pytest

from reconciler.model.identity import MAX_NAME, Key, valid_name

PRINTED = {
    "Stream/ORDERS": Key("Stream", "ORDERS"),
    "Consumer/ORDERS/billing": Key("Consumer", "billing", "ORDERS"),
    "KeyValue/config": Key("KeyValue", "config"),
    "leaf:ObjectStore/files": Key("ObjectStore", "files", "", "leaf"),
    "leaf:Consumer/ORDERS/billing": Key("Consumer", "billing", "ORDERS", "leaf"),
}


@pytest.mark.parametrize(("text", "key"), PRINTED.items())
def test_what_is_printed_comes_back(text: str, key: Key) -> None:
    assert str(key) == text
    assert Key.parse(text) == key


@pytest.mark.parametrize("text", ["", "ORDERS", "Stream/", "stream/ORDERS", "Consumer/ORDERS", "Consumer//billing", "leaf:"])
def test_what_is_no_key_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected e\.g\. Stream/ORDERS"):
        Key.parse(text)


@pytest.mark.parametrize(
    ("key", "stream"),
    [
        (Key("Stream", "S"), Key("Stream", "S")),
        (Key("KeyValue", "b", "", "leaf"), Key("Stream", "KV_b", "", "leaf")),
        (Key("ObjectStore", "o"), Key("Stream", "OBJ_o")),
    ],
)
def test_a_bucket_is_its_stream_and_shown_as_the_bucket(key: Key, stream: Key) -> None:
    assert key.stream_key == key.live_key == stream
    assert stream.resource_key == key


def test_a_consumer_is_itself_and_lives_on_its_stream() -> None:
    key = Key("Consumer", "c", "S", "leaf")
    assert key.live_key == key.resource_key == key
    assert key.stream_key == Key("Stream", "S", "", "leaf")


def test_keys_sort_by_domain_then_in_the_order_of_creation() -> None:
    in_order = [
        Key("Stream", "z"),
        Key("KeyValue", "a"),
        Key("Consumer", "a", "A"),
        Key("Consumer", "a", "B"),
        Key("Stream", "a", "", "leaf"),
    ]
    assert sorted(set(in_order)) == in_order


@pytest.mark.parametrize(
    ("name", "valid"), [("a", True), ("a b", False), ("a.b", False), ("", False), ("a" * (MAX_NAME + 1), False)]
)
def test_names(name: str, valid: bool) -> None:
    assert valid_name(name) is valid
