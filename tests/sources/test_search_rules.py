"""The model server minds the rules of sourcing: what it refuses, and what becomes of durables that come late, pause or go."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.errors import ApiError
from reconciler.procedures.requests import CreateConsumer, CreateStream, DeleteStream
from tests.support.world.sources import PLAIN, S, SourceWorld, attached, durable, flowing, through

LEVELS = pytest.mark.parametrize("level", [4, 5])
TRANSFORMED = through("c", subject_transforms=[{"src": "s.>", "dest": "s.>"}])


def test_an_interest_stream_drops_what_only_the_deleted_durable_needed() -> None:
    world = attached("interest")
    world.drained("c")
    world.remove("c")
    world.live()
    assert world.server.streams["S"].messages == {}
    world.consumer("c")
    missing, duplicates, stuck = world.outcome()
    assert missing > 0
    assert (duplicates, stuck) == (0, 0)


@pytest.mark.parametrize(("level", "seconds"), [(5, 5.0), (4, 40.0)])
def test_b1_a_durable_that_comes_late_is_found_by_and_by(level: int, seconds: float) -> None:
    world = SourceWorld(level=level)
    world.copy(through("c"))
    world.publish(5)
    world.consumer("c")
    world.server.advance(seconds - 1)
    assert world.source()["active"] == -1
    assert "push_bound" not in world.info("c")
    world.server.advance(1)
    assert world.source()["active"] == 0
    world.assert_exact()


def test_f2_a_paused_durable_is_bound_and_copies_nothing() -> None:
    world = attached()
    world.drained("c")
    held = world.held()
    world.live()
    assert world.held() == held
    info = world.info("c")
    assert (info["paused"], info["push_bound"], world.source()["active"]) == (True, True, 0)
    assert info["num_pending"] > 0


@LEVELS
def test_d10b_a_new_origin_of_the_same_name(level: int) -> None:
    world = attached(level=level)
    world.settle()
    stream = world.server.streams["S"]
    world.server.write(DeleteStream(S))
    world.server.write(CreateStream(S, orjson.dumps(stream.config)))
    world.published.clear()
    world.consumer("c")
    world.server.advance(41)
    world.live()
    world.settle()
    assert (world.missing() == []) == (level == 5)  # a server of 2.14 skips as many as it had copied before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"deliver_subject": ""}, 10218),
        ({"ack_wait": 10**9}, 10221),
        ({"max_deliver": 3}, 10222),
        ({"max_ack_pending": -1}, 10220),
        ({"deliver_subject": "s.x"}, 10081),
    ],
)
def test_b3_a_durable_with_wrong_fields_is_refused(fields: dict[str, Any], code: int) -> None:
    world = SourceWorld()
    with pytest.raises(ApiError) as refused:
        world.server.write(CreateConsumer(durable("c"), flowing("c", **{"deliver_subject": "dlv.c", **fields})))
    assert refused.value.err_code == code


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([through("c", filter_subject="s.a")], 10215),
        ([through("c", opt_start_seq=3)], 10215),
        ([{"name": "S", "consumer": {"name": "c"}}], 10215),
        ([PLAIN, PLAIN], 10140),
        ([through("c"), TRANSFORMED], 10216),
    ],
)
def test_b4_a_wrong_entry_is_refused(entries: list[dict[str, Any]], code: int) -> None:
    world = SourceWorld()
    with pytest.raises(ApiError) as refused:
        world.copy(*entries)
    assert refused.value.err_code == code


def test_a1_what_servers_below_level_4_make_of_a_consumer() -> None:
    with pytest.raises(ApiError) as refused:
        SourceWorld(level=3).copy(through("c"))
    assert refused.value.err_code == 10025
    world = SourceWorld(level=1)
    world.copy(through("c"))
    assert world.server.streams["A"].config["sources"] == [PLAIN]
