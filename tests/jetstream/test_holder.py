"""What stands in a lease is what somebody has written there."""

from __future__ import annotations

import socket

import orjson
import pytest

from reconciler.jetstream.leading.holder import Holder


def test_what_is_written_is_read() -> None:
    holder = Holder(source="git", revision="abc", ttl=9.0)
    assert Holder.decode(holder.encode()) == holder


@pytest.mark.parametrize("value", [b"\xff", b"[1]", b"5", b"{}", b'{"host": 7, "pid": "x", "ttl": -1, "links": [5]}'])
def test_who_is_not_named_is_somebody_unknown_and_never_this_host(value: bytes) -> None:
    found = Holder.decode(value)
    assert str(found) == "somebody unknown (pid 0) since an unknown time"
    assert (found.holder, found.ttl, found.links) == ("", 0.0, ())
    assert socket.gethostname() not in str(found)


def test_fields_of_later_versions_say_nothing_here() -> None:
    holder = Holder()
    assert Holder.decode(orjson.dumps({**orjson.loads(holder.encode()), "mood": "fine"})) == holder
