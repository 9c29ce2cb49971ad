"""How a source fares, judged look by look; the numbers are those that real servers of 2.14 and 2.15 have shown."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.marker import PAUSE_UNTIL, PROCEDURE
from reconciler.model.sourcing import placeholder
from reconciler.model.units import SECOND
from reconciler.sources.graph.topology import Mode
from reconciler.sources.health import HELD_UP, NO_HISTORY, PATIENCE, History, SourceHealth, judge
from reconciler.sources.incidents import Incident
from reconciler.sources.look import UNASKED, Answer, Entrance, Look

AGGREGATE, ORIGIN, DURABLE = Key("Stream", "A"), Key("Stream", "S"), Key("Consumer", "c", "S")
ENTRY = {"name": "S", "consumer": {"name": "c", "deliver_subject": "d"}}
BEHIND = {**ENTRY, "external": {"api": "JS.there.API"}}
MIRRORED = {"name": "S"}
GONE, SILENT = Answer(gone=True), Answer(silence="nobody answers")
NEVER = -1
START = 1_000 * SECOND


def stream(active: int = SECOND // 2, *, entry: Any = ENTRY, error: Any = None, **told: Any) -> Answer:
    """The stream that copies, and what it tells of its only entry."""
    kept = {name: entry[name] for name in ("name", "external", "filter_subject") if name in entry}
    one = {**kept, "active": active, "lag": 0, **({"error": error} if error else {}), **told}
    return Answer({"config": {"name": "A", "sources": [entry]}, "sources": [one], "state": {"last_seq": 7}})


def durable(delivered: int = 5, floor: int | None = None, *, begun: int = 0, bound: bool = True, **more: Any) -> Answer:
    """A durable whose count began after `begun`."""
    floor = delivered if floor is None else floor
    config = {"ack_policy": "flow_control", "deliver_subject": "d", **more.pop("config", {})}
    info = {
        "stream_name": "S",
        "name": "c",
        "created": "one",
        "config": config,
        "delivered": {"consumer_seq": delivered - begun, "stream_seq": delivered},
        "ack_floor": {"consumer_seq": floor - begun, "stream_seq": floor},
        "num_pending": 0,
        "num_ack_pending": delivered - floor,
        **({"push_bound": True} if bound else {}),
        **more,
    }
    return Answer(info)


def origin(last: int = 5, *, created: str = "first", retention: str = "limits", **state: int) -> Answer:
    """The stream that is copied."""
    counts = {"first_seq": 1, "last_seq": last, "num_deleted": 0, **state}
    return Answer({"created": created, "config": {"name": "S", "retention": retention}, "state": counts})


@dataclass
class Watch:
    """Looks one after the other."""

    entry: Any = field(default_factory=lambda: ENTRY)
    mode: Mode = Mode.USER_MANAGED
    mirror: bool = False
    level: int = 5
    history: History = NO_HISTORY
    now: int = START
    told: list[Incident] = field(default_factory=list)

    def look(self, seen: Answer, *, after: float = 3.0, **more: Any) -> SourceHealth:
        """The next look, so many seconds later."""
        self.now += int(after * SECOND)
        known = None if self.entry.get("external", {}).get("api") == "JS.there.API" else ORIGIN
        through = DURABLE if known and self.entry.get("consumer") else None
        place = Entrance(aggregate=AGGREGATE, entry=self.entry, mirror=self.mirror, mode=self.mode, origin=known, durable=through)
        look = Look(at=self.now, entrance=place, stream=seen, level=self.level, **more)
        self.history, incidents = judge(look, self.history)
        self.told += incidents
        assert self.history.health is not None
        return self.history.health

    def begin(self) -> Watch:
        """It flows."""
        assert self.look(stream(), durable=durable(), origin=origin()).state == "Flowing"
        return self

    def until_held_up(self, seen: Any, *, most: float = 15.0, **more: Any) -> SourceHealth:
        """Looks every three seconds until it is held up; `seen` is asked with the seconds since it began to be odd."""
        began = self.now
        while True:
            after = (self.now + 3 * SECOND - began) / SECOND
            health = self.look(seen(after) if callable(seen) else seen, **more)
            if health.state in HELD_UP:
                return health
            assert self.now - began < most * SECOND, health


def silent_since(seconds: float) -> Answer:
    return stream(int(seconds * SECOND))


STALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "consumer-missing": (silent_since, {"durable": GONE, "origin": origin()}),
    "stream-missing": (silent_since, {"durable": GONE, "origin": GONE}),
    "deliver-subject": (silent_since, {"durable": durable(bound=False, config={"deliver_subject": "other"})}),
    "wrong-consumer": (stream(NEVER, error={"code": 400, "err_code": 10217, "description": "requires"}), {"durable": durable()}),
    "not-bound": (silent_since, {"durable": durable(bound=False)}),
    "flow-control": (stream(), {"durable": durable(1000, 0)}),
    "position": (stream(), {"durable": durable(4999, begun=4999), "origin": origin(150)}),
    "unknown-cause": (silent_since, {"durable": durable()}),
    "domain": (silent_since, {"durable": SILENT, "origin": SILENT}),
    "server-error": (stream(error={"code": 500, "err_code": 1, "description": "odd"}), {"durable": durable()}),
}


@pytest.mark.parametrize("cause", STALLS)
def test_a_stall_is_named_within_fifteen_seconds_but_not_at_once(cause: str) -> None:
    watch = Watch().begin()
    seen, more = STALLS[cause]
    began = watch.now
    health = watch.until_held_up(seen, **more)
    assert health.cause == cause
    assert health.message
    assert watch.now - began >= PATIENCE
    state = {"domain": "Waiting", "server-error": "Error"}.get(cause, "Stalled")
    assert health.state == state
    assert began <= health.stalled_since <= began + 3 * SECOND


@pytest.mark.parametrize("cause", STALLS)
def test_what_never_flowed_stalls_as_well(cause: str) -> None:
    seen, more = STALLS[cause]
    first = Watch()
    assert first.look(seen(1) if callable(seen) else seen, **more).state in {"Unknown", "Flowing"}
    assert first.until_held_up(seen, **more).cause == cause


def test_the_error_of_a_newer_server_about_flow_control_is_no_matter_of_patience() -> None:
    watch = Watch().begin()
    error = {"code": 500, "err_code": 10228, "description": "stream source consumer stalled on flow control"}
    health = watch.look(stream(error=error), durable=durable(20, 0))
    assert (health.state, health.cause) == ("Stalled", "flow-control")
    assert "10228" in health.error


def test_behind_an_import_nothing_but_silence_is_known_and_a_server_that_tries_again_does_not_hide_it() -> None:
    watch = Watch(entry=BEHIND)
    tries_again = [3, 6, 9, 1, 4, 7, 10, 13, 16, 19, 2, 5, 8]
    states = [watch.look(stream(seconds * SECOND, entry=BEHIND)).state for seconds in tries_again]
    assert states[2:] == ["Stalled"] * (len(tries_again) - 2)
    health = watch.history.health
    assert health is not None
    assert "$JS.FC.>" in health.message


def test_a_start_of_five_seconds_is_no_stall() -> None:
    watch = Watch()
    for _ in range(2):
        assert watch.look(stream(NEVER), durable=durable(bound=False), after=2.5).state == "Unknown"
    assert watch.look(stream(), durable=durable(), after=2.5).state == "Flowing"


@given(st.lists(st.integers(0, 2 * SECOND), min_size=2, max_size=12), st.lists(st.integers(1, 900), min_size=12, max_size=12))
def test_what_is_heard_and_acknowledged_flows_however_busy(silences: list[int], steps: list[int]) -> None:
    watch, delivered = Watch(), 0
    for silence, step in zip(silences, steps, strict=False):
        floor, delivered = delivered, delivered + step
        assert watch.look(stream(silence), durable=durable(delivered, floor), origin=origin(delivered)).state == "Flowing"
    assert not watch.told


@pytest.mark.parametrize("rate", [1, 50, 140])
def test_steady_messages_flow_though_the_server_acknowledges_only_every_thousandth(rate: int) -> None:
    """An acknowledgement is due at a heartbeat, which comes when a second is quiet, or when a thousand wait for it."""
    watch = Watch()
    for delivered in range(0, rate * 120, rate * 3):
        health = watch.look(stream(), durable=durable(delivered, delivered // 1000 * 1000), origin=origin(delivered))
        assert health.state == "Flowing"


def test_without_acknowledgements_it_is_stalled_once_nothing_more_is_delivered() -> None:
    watch = Watch().begin()
    for delivered in range(100, 1000, 100):
        assert watch.look(stream(), durable=durable(delivered, 0), origin=origin(delivered)).state == "Flowing"
    stopped = watch.now + 3 * SECOND
    health = watch.until_held_up(stream(), durable=durable(1000, 0), origin=origin(2000))
    assert (health.cause, health.stalled_since) == ("flow-control", stopped)


def test_recovery_takes_two_looks_and_begins_a_new_count() -> None:
    watch = Watch().begin()
    held = watch.until_held_up(silent_since, durable=durable(bound=False))
    assert watch.look(stream(), durable=durable()).stalled_since == held.stalled_since
    health = watch.look(stream(), durable=durable())
    assert (health.state, health.cause, health.stalled_since) == ("Flowing", None, 0)
    assert watch.look(silent_since(3), durable=durable(bound=False)).state == "Flowing"


def test_a_stall_keeps_its_beginning_when_its_cause_changes() -> None:
    watch = Watch().begin()
    missing = watch.until_held_up(silent_since, durable=GONE, origin=origin())
    health = watch.look(silent_since(13), durable=durable(0, bound=False))
    assert (health.cause, health.since, health.stalled_since) == ("not-bound", missing.since, missing.stalled_since)


def test_a_pause_is_no_stall_and_says_whose_it_is() -> None:
    until = units.format_time(4_000_000_000 * SECOND)
    watch = Watch().begin()

    def paused(metadata: dict[str, str]) -> SourceHealth:
        config = {"pause_until": until, "metadata": {"reconciler.owner": "me", **metadata}}
        return watch.look(stream(), durable=durable(config=config, paused=True, num_pending=10))

    person = paused({})
    assert person.pause is not None
    assert (person.state, person.pause.by, person.pause.until, person.pending) == ("Paused", "person", until, 10)
    manifest = paused({PAUSE_UNTIL: until})
    assert manifest.pause is not None
    assert manifest.pause.by == "manifest"
    data = '{"stream": "Stream/A", "entry": null}'
    procedure = paused({PROCEDURE: json.dumps({"name": "migrate-source", "step": "drain", "data": data})})
    assert procedure.pause is not None
    assert procedure.pause.by == "migrate-source"


def test_what_a_procedure_works_on_is_neither_judged_nor_taken_for_somebodys_doing() -> None:
    watch = Watch().begin()
    health = watch.look(stream(NEVER), durable=durable(bound=False), procedure="migrate-source")
    assert (health.state, health.pause and health.pause.by) == ("Paused", "migrate-source")
    watch.look(stream(), durable=durable(200, begun=150))
    assert not watch.told


def test_a_placeholder_that_a_crash_left_is_a_stall() -> None:
    watch = Watch(entry=placeholder(ENTRY))
    seen = stream(entry=placeholder(ENTRY))
    assert watch.until_held_up(seen).cause == "detached"


def test_a_stream_that_does_not_answer_is_unknown_and_a_stall_goes_on_behind_that() -> None:
    watch = Watch().begin()
    held = watch.until_held_up(silent_since, durable=durable(bound=False))
    assert watch.look(SILENT).state == "Unknown"
    assert watch.look(GONE).message == "Stream/A is not there"
    assert watch.look(silent_since(18), durable=durable(bound=False)).stalled_since == held.stalled_since


def test_two_entries_that_look_alike_are_told_apart_by_their_durables() -> None:
    both = stream()
    assert both.info is not None
    alike = Answer({**both.info, "sources": [{**both.info["sources"][0], "active": NEVER}, both.info["sources"][0]]})
    assert Watch().look(alike, durable=durable()).state == "Flowing"
    assert Watch().until_held_up(alike, durable=durable(bound=False)).cause == "not-bound"


def test_an_entry_whose_durable_delivers_elsewhere_by_now_flows_with_a_warning() -> None:
    watch = Watch().begin()
    health = watch.look(stream(), durable=durable(config={"deliver_subject": "other"}))
    assert health.state == "Flowing"
    assert "other" in health.message


def test_a_server_that_attaches_again_is_no_reset() -> None:
    watch = Watch().begin()
    watch.look(stream(), durable=durable(100), origin=origin(100))
    watch.look(stream(), durable=durable(100, begun=100), origin=origin(100))
    watch.look(stream(), durable=durable(150, begun=100), origin=origin(150))
    watch.look(stream(), durable=durable(180, 150, begun=150), origin=origin(180))
    assert not watch.told


@pytest.mark.parametrize("begun", [0, 100])
def test_a_reset_backwards_is_told_once_though_the_server_has_reset_it_before(begun: int) -> None:
    watch = Watch().begin()
    watch.look(stream(), durable=durable(100), origin=origin(100))
    watch.look(stream(), durable=durable(100, begun=begun), origin=origin(100))
    watch.look(stream(), durable=durable(100, 39, begun=39), origin=origin(100))
    watch.look(stream(), durable=durable(100, begun=39), origin=origin(100))
    (told,) = watch.told
    assert (told.kind, told.first, told.last) == ("reset", 40, 100)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_reset_forwards_is_told_with_what_it_skipped(acknowledged: bool) -> None:
    watch = Watch().begin()
    watch.look(stream(), durable=durable(100), origin=origin(150))
    later = durable(150, 150 if acknowledged else 139, begun=139)
    watch.look(stream(), durable=later, origin=origin(150), stored_below=120)
    assert [(told.kind, told.first, told.last) for told in watch.told] == [("reset", 121, 139), ("lost", 121, 139)]


@pytest.mark.parametrize("stored", [139, None])
def test_a_durable_that_was_attached_again_further_on_has_skipped_nothing_that_is_stored(stored: int | None) -> None:
    watch = Watch().begin()
    watch.look(stream(), durable=durable(100), origin=origin(150))
    watch.look(stream(), durable=durable(150, 139, begun=139), origin=origin(150), stored_below=stored)
    assert not watch.told


def test_where_sequences_are_missing_nothing_is_called_skipped_that_may_have_been_delivered() -> None:
    watch = Watch().begin()
    watch.look(stream(), durable=durable(100), origin=origin(150))
    watch.look(stream(), durable=durable(150, begun=139), origin=origin(150, num_deleted=39), stored_below=100)
    assert not watch.told


@pytest.mark.parametrize(("retention", "told"), [("interest", [(6, 15)]), ("limits", []), ("workqueue", [])])
def test_a_durable_that_comes_back_has_a_gap_on_interest(retention: str, told: list[tuple[int, int]]) -> None:
    watch = Watch().begin()
    watch.look(silent_since(3), durable=GONE, origin=origin(15, retention=retention))
    again = durable(15, begun=15, created="two")
    watch.look(stream(), durable=again, origin=origin(15, retention=retention))
    watch.look(stream(), durable=again, origin=origin(15, retention=retention))
    assert [(one.first, one.last) for one in watch.told if one.kind == "lost"] == told


@pytest.mark.parametrize("level", [4, 5])
def test_an_origin_made_anew_is_told_and_on_2_14_stalls_until_it_has_passed_the_old_one(level: int) -> None:
    watch = Watch(level=level)
    watch.look(stream(), durable=durable(50), origin=origin(50))
    anew: dict[str, Any] = {"durable": durable(10, created="two"), "origin": origin(10, created="second")}
    health = watch.look(stream(), **anew)
    (told,) = watch.told
    assert told.kind == "recreated"
    if level == 5:
        assert (health.state, told.last) == ("Flowing", 0)
        return
    assert (health.cause, told.first, told.last) == ("origin-recreated", 1, 50)
    assert watch.look(stream(), **anew).cause == "origin-recreated"
    beyond: dict[str, Any] = {"durable": durable(70, created="two"), "origin": origin(70, created="second")}
    watch.look(stream(), **beyond)
    assert watch.look(stream(), **beyond).state == "Flowing"
    assert len(watch.told) == 1


def mirror(at: int, *, last_ts: str = "2026-01-01T00:00:00Z", active: int = SECOND // 2) -> Answer:
    """The stream that mirrors, and has copied up to there."""
    state = {"last_seq": at, "last_ts": last_ts}
    told = {"name": "S", "active": active, "lag": 0}
    return Answer({"config": {"name": "A", "mirror": MIRRORED}, "mirror": told, "state": state})


@pytest.mark.parametrize("level", [4, 5])
def test_a_mirror_whose_origin_was_made_anew_stalls_on_every_server_until_it_has_copied_something_of_it(level: int) -> None:
    watch = Watch(entry=MIRRORED, mirror=True, level=level)
    assert watch.look(mirror(30), origin=origin(30)).state == "Flowing"
    for last in (0, 12, 30):
        health = watch.look(mirror(30), origin=origin(last, created="second"))
        assert (health.state, health.cause, health.copied) == ("Stalled", "origin-recreated", 30)
        assert "nothing it has up to 30 is in this mirror" in health.message
        assert "declare a new stream with that mirror, or remove `mirror`" in health.message
    assert [(one.kind, one.first, one.last) for one in watch.told] == [("recreated", 1, 30)]
    for _ in range(2):
        health = watch.look(mirror(37), origin=origin(37, created="second"))
    assert (health.state, health.cause) == ("Flowing", None)
    assert len(watch.told) == 1


def test_a_mirror_that_stands_beyond_its_origin_is_known_to_at_the_first_look() -> None:
    watch = Watch(entry=MIRRORED, mirror=True)
    health = watch.look(mirror(30), origin=origin(12, created="second"))
    assert (health.state, health.cause) == ("Stalled", "origin-recreated")
    assert "ends at 12" in health.message


@pytest.mark.parametrize(
    ("at", "last_ts", "origin_last"),
    [(30, "2026-01-01T00:00:00Z", 5000), (30, "2026-01-01T00:00:00Z", 30), (99, "0001-01-01T00:00:00Z", 0)],
    ids=["lags", "has all of an origin that was purged", "is to begin at 100"],
)
def test_a_mirror_that_lags_or_has_stored_nothing_is_none_of_another_origin(at: int, last_ts: str, origin_last: int) -> None:
    watch = Watch(entry=MIRRORED, mirror=True)
    for _ in range(2):
        health = watch.look(mirror(at, last_ts=last_ts), origin=origin(origin_last))
        assert (health.state, health.cause) == ("Flowing", None)
    assert not watch.told


@pytest.mark.parametrize(("copied_at", "cause"), [("2026-01-01T00:00:00Z", "origin-recreated"), ("2026-01-03T00:00:00Z", None)])
def test_at_the_first_look_an_origin_younger_than_what_was_copied_is_another_one(copied_at: str, cause: str | None) -> None:
    watch = Watch(level=4)
    anew = origin(10, created="2026-01-02T00:00:00Z")
    health = watch.look(stream(), durable=durable(10), origin=anew, copied=(50, copied_at))
    assert health.cause == cause
    assert [(one.kind, one.last) for one in watch.told] == ([("recreated", 50)] if cause else [])


def test_an_ephemeral_entry_is_judged_by_what_it_tells_alone() -> None:
    watch = Watch(entry={"name": "S"}, mode=Mode.EPHEMERAL)
    health = watch.look(stream(entry={"name": "S"}, seq=12), durable=UNASKED, origin=origin())
    assert (health.state, health.copied) == ("Flowing", 12)
    missing = {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert watch.until_held_up(stream(NEVER, entry={"name": "S"}, error=missing), origin=GONE).cause == "stream-missing"
