"""The status as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.render.status.judged import Condition, StatusView, judged, status_document, statuses
from reconciler.render.status.text import procedure_lines, status_lines
from tests.support.values import build
from tests.support.values.plans import changes, plan_of

NOW = build.NOW
GONE = {"key": "Consumer/S/c", "client": "x", "user": "app"}
FIGHT = {"field": "ackWait", "value": "45s", "times": 21}


def resource(**more: Any) -> dict[str, Any]:
    return {"key": "Stream/S", "state": "Synced", "message": "", "since": None, "lastDrift": None, **more}


def line_of(**more: Any) -> str:
    document = {"resources": [resource(**more)], "summary": {"Synced": 1, "Error": 0}}
    return next(line.plain for line in status_lines(document, NOW))


def drift(seconds: float, **more: Any) -> dict[str, Any]:
    at = units.format_time(NOW - int(seconds * units.SECOND))
    return {"at": at, "fields": ["ackWait"], "client": None, "user": None, "repairedAt": None, **more}


def test_what_was_read_from_nats_is_a_table_with_its_sum() -> None:
    desired = build.desired(build.stream("A"), build.stream("LONGER"))
    view = StatusView(statuses(desired, build.live(), plan_of()), build.live(), plan_of())
    assert [line.plain for line in status_lines(status_document(view, None), NOW)] == [
        "Synced       Stream/A",
        "Synced       Stream/LONGER",
        "",
        "Status: 2 Synced",
    ]
    nothing = status_document(StatusView((), build.live(), plan_of()), None)
    assert [line.plain for line in status_lines(nothing, NOW)] == ["", "Status: nothing to show"]


def test_every_change_of_a_plan_is_out_of_sync_or_blocked_and_never_synced() -> None:
    found = statuses(build.desired(), build.live(), plan_of(*changes()))
    assert {status.condition for status in found} == {Condition.OUT_OF_SYNC, Condition.BLOCKED}
    assert len(found) == len(changes())


@pytest.mark.parametrize(
    ("intent", "condition"),
    [
        (Intent(), Condition.SYNCED),
        (Intent(suspend=True), Condition.SUSPENDED),
        (Intent(state=State.UNMANAGED), Condition.UNMANAGED),
        (Intent(state=State.UNMANAGED, suspend=True), Condition.UNMANAGED),
    ],
)
def test_what_needs_no_change_is_what_its_manifest_wants(intent: Intent, condition: Condition) -> None:
    desired, key = build.desired(build.stream("S", intent=intent)), Key("Stream", "S")
    assert judged(desired, build.live(), key, None).condition is condition
    silent = build.live(unknown={key: "offline"})
    assert judged(desired, silent, key, None) == (Condition.UNKNOWN, "offline")


@pytest.mark.parametrize("declared", ["", "2099-01-01T00:00:00Z"])
def test_a_pause_that_nobody_has_declared_is_told_with_the_way_to_end_it(declared: str) -> None:
    held = build.consumer("S", "c", intent=Intent(pause_until=declared))
    info = build.consumer_info("S", build.marked(held, pause_until="2099-01-01T00:00:00Z"), paused=True)
    found = judged(build.desired(held), build.live(info), held.key, None)
    said = "paused until 2099-01-01T00:00:00Z by somebody; `reconciler consumer resume S c` ends that"
    assert found == (Condition.SYNCED, "" if declared else said)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (drift(12), "drifted 12 s ago: ackWait"),
        (
            drift(150, client="nats CLI", user="app", repairedAt="x"),
            "drifted 2 min ago: ackWait by nats CLI (user app), repaired",
        ),
        (drift(8000, user="app"), "drifted 2 h ago: ackWait by an unnamed client (user app)"),
        (drift(-3, fields=[]), "drifted 0 s ago: deleted with all that it held"),
        (
            drift(9, fields=[], client="x", repairedAt="y"),
            "drifted 9 s ago: deleted by x with all that it held, made again",
        ),
        (
            drift(9, fields=[], client="x", deleted=[GONE]),
            "drifted 9 s ago: Consumer/S/c deleted by x (user app)",
        ),
        (
            drift(
                9, fields=[], client="x", repairedAt="y", deleted=[GONE, {"key": "Consumer/S/d", "client": None, "user": None}]
            ),
            "drifted 9 s ago: Consumer/S/c deleted by x (user app), Consumer/S/d deleted, made again",
        ),
        (
            drift(9, client="y", repairedAt="y", deleted=[GONE]),
            "drifted 9 s ago: ackWait by y, repaired; Consumer/S/c deleted by x (user app), made again",
        ),
        (
            drift(5, changes=[{"field": "ackWait", "declared": "30s", "live": None}], client="x"),
            "drifted 5 s ago: ackWait 30s → (none) by x",
        ),
        (
            drift(5, changes=[{"field": "ackWait", "declared": "a" * 70, "live": 1}]),
            f"drifted 5 s ago: ackWait {'a' * 60}… → 1",
        ),
        ({"at": None, "fields": ["ackWait"], "client": None, "user": None}, ""),
    ],
)
def test_a_drift_says_when_what_and_who(found: dict[str, Any], said: str) -> None:
    assert line_of(lastDrift=found) == f"Synced       Stream/S  {said}".rstrip()


def test_a_fight_and_a_message_stand_beside_it() -> None:
    line = line_of(state="Error", message="no answer", lastDrift=drift(1), fight=FIGHT)
    assert line.endswith("no answer; drifted 1 s ago: ackWait; another client sets ackWait to 45s again and again (21 times)")


@pytest.mark.parametrize(
    ("client", "user", "who"),
    [
        ("nats CLI", "bob", "nats CLI (user bob)"),
        ("nats CLI", "", "nats CLI"),
        ("", "bob", "an unnamed client (user bob)"),
        (None, None, "another client"),
    ],
)
def test_a_fight_says_who_it_is_with(client: str | None, user: str | None, who: str) -> None:
    assert f"  {who} sets ackWait to 45s again" in line_of(fight={**FIGHT, "client": client, "user": user})


def test_nothing_that_comes_from_elsewhere_steers_the_terminal() -> None:
    evil = "\x1b[2J\nforged"
    hostile = drift(1, client=evil, user=evil, fields=[evil])
    fight = {"field": evil, "value": evil, "times": 2, "client": evil, "user": evil}
    line = line_of(key=f"Stream/{evil}", message=evil, lastDrift=hostile, fight=fight)
    assert line.isprintable()
    listed = {"procedures": [{"key": evil, "message": evil, "state": "running", "since": None}]}
    assert all(line.plain.isprintable() for line in procedure_lines(listed, NOW))


def test_a_fight_is_not_blamed_on_who_made_another_drift() -> None:
    line = line_of(lastDrift=drift(1, client="nats CLI", fields=["maxDeliver"]), fight=FIGHT)
    assert "another client sets ackWait to 45s again" in line


def rows(**states: str) -> list[dict[str, Any]]:
    return [
        {"key": f"Stream/{name}", "state": state, "message": "", "since": None, "lastDrift": None}
        for name, state in states.items()
    ]


def test_what_is_wrong_comes_first() -> None:
    document = {"resources": rows(A="Synced", B="Blocked", C="Unmanaged", D="Error", E="OutOfSync"), "summary": {"Synced": 1}}
    keys = [line.plain.split()[1] for line in status_lines(document, NOW) if line.plain.count("Stream/")]
    assert keys == ["Stream/D", "Stream/B", "Stream/E", "Stream/C", "Stream/A"]


def test_after_the_first_time_only_news_are_shown() -> None:
    before = {"resources": rows(A="Synced", B="Blocked"), "summary": {"Synced": 1, "Blocked": 1}}
    after = {"resources": rows(A="Synced", B="Synced", C="Synced"), "summary": {"Synced": 3, "Blocked": 0}}
    shown = [line.plain.split() for line in status_lines(after, NOW, before)]
    assert shown == [["Synced", "Stream/B"], ["Synced", "Stream/C"], [], ["Status:", "3", "Synced"]]
