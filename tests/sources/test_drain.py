"""Holding a durable still: it is at rest only when nothing that it delivered is on its way any more."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.marker import Journal, Marker
from reconciler.model.units import format_time
from reconciler.procedures.consumer import DEFAULT_DEADLINE, ConsumerSeen, deadline
from reconciler.procedures.machine import Abort, Do, Wait
from reconciler.procedures.requests import PauseConsumer, UpdateConsumer
from reconciler.sources.migration.drain import QUIET, Held, hold
from tests.support.values.build import NOW

KEY = Key("Consumer", "c", "S")
UNTIL = deadline(NOW + 2 * DEFAULT_DEADLINE)
PERSON = format_time(NOW + 2 * DEFAULT_DEADLINE)
KNOWN = {"stream": "Stream/A", "entry": None}
JOURNAL = Journal("migrate-source", "drain", "", orjson.dumps({**KNOWN, "until": UNTIL}).decode())
RESTING = Held(of="c", began=NOW, floor=5, since=NOW)


def _seen(marker: Marker, delivered: int = 5, in_flight: int = 0, until: str = UNTIL) -> ConsumerSeen:
    """A paused durable with everything up to 5 acknowledged."""
    config: dict[str, Any] = {"durable_name": "c", "pause_until": until, "metadata": marker.to_metadata()}
    at = {"delivered": {"consumer_seq": 9, "stream_seq": delivered}, "ack_floor": {"consumer_seq": 9, "stream_seq": 5}}
    named = {"stream_name": KEY.stream, "name": KEY.name, "config": config}
    return ConsumerSeen({**named, "paused": True, "ts": format_time(NOW), "num_ack_pending": in_flight, **at})


def _held(seen: ConsumerSeen, held: Held, later: int = 0) -> Any:
    """The last sequence that was copied, or the next step."""
    found = hold(KEY, seen, b"{}", NOW + later, held)
    return found if isinstance(found, int) else found[0]


def test_it_is_at_rest_when_two_looks_far_enough_apart_show_the_same() -> None:
    seen = _seen(Marker(owner="default", journal=JOURNAL))
    assert isinstance(_held(seen, Held(of="c")), Wait)
    assert isinstance(_held(seen, RESTING, QUIET - 1), Wait)
    assert _held(seen, RESTING, QUIET) == 5


@pytest.mark.parametrize(("delivered", "in_flight"), [(5, 1), (6, 0), (6, 1)])
def test_what_was_delivered_is_waited_for_and_not_for_ever(delivered: int, in_flight: int) -> None:
    seen = _seen(Marker(owner="default", journal=JOURNAL), delivered, in_flight)
    assert isinstance(_held(seen, RESTING, 10 * QUIET), Wait)
    late = _held(seen, RESTING, DEFAULT_DEADLINE + 1)
    assert isinstance(late, Abort)
    assert late.code == "not-drained"


def test_only_a_pause_with_the_deadline_in_the_journal_counts() -> None:
    refused = _held(_seen(Marker(owner="default", journal=JOURNAL), until=PERSON), RESTING, QUIET)
    assert isinstance(refused, Abort)
    assert refused.code == "paused-by-person"
    earlier = _seen(Marker(owner="default", journal=JOURNAL), until=deadline(NOW + DEFAULT_DEADLINE))
    again = _held(earlier, RESTING, QUIET + DEFAULT_DEADLINE)
    assert isinstance(again, Do)
    assert again.write == PauseConsumer(KEY, UNTIL)
    without = Journal("migrate-source", "drain", "", orjson.dumps(KNOWN).decode())
    noted = _held(_seen(Marker(owner="default", journal=without), until=PERSON), RESTING, QUIET)
    assert isinstance(noted, Do)
    assert isinstance(noted.write, UpdateConsumer)
    damaged = Journal("migrate-source", "drain", "", "damaged")
    nobodys = _held(_seen(Marker(owner="default", journal=damaged), until=PERSON), RESTING, QUIET)
    assert isinstance(nobodys, Abort)
    assert nobodys.code == "paused-by-person"


def test_a_pause_that_neither_a_journal_nor_a_manifest_explains_is_a_person_s() -> None:
    refused = _held(_seen(Marker(owner="default"), until=PERSON), Held(of="c"))
    assert isinstance(refused, Abort)
    assert refused.code == "paused-by-person"
    assert isinstance(_held(_seen(Marker(owner="default", pause_until=PERSON), until=PERSON), Held(of="c")), Do)
