"""The sources of a status as people read them."""

from __future__ import annotations

from typing import Any

from reconciler.model import units
from reconciler.render.status.sources_text import source_lines
from tests.support.values import build

NOW = build.NOW


def row(**more: Any) -> dict[str, Any]:
    known = {"key": "Stream/A", "origin": "leaf:Stream/S", "mode": "managed", "consumer": "c", "state": "Flowing", "message": ""}
    return {**known, "cause": None, "stalledSince": None, "lastSequence": 1200, "pending": 0, **more}


def test_each_entry_is_a_line_that_says_what_holds_it_up_and_for_how_long() -> None:
    stalled = {"state": "Stalled", "cause": "not-bound", "message": "nobody listens", "pending": 7, "lastSequence": None}
    since = units.format_time(NOW - 75 * units.SECOND)
    ephemeral = {"key": "Stream/LONGER", "mode": "ephemeral", "consumer": None}
    lines = [line.plain for line in source_lines([row(), row(**ephemeral, **stalled, stalledSince=since)], NOW)]
    assert lines == [
        "",
        "Sources:",
        "Flowing      Stream/A from leaf:Stream/S       managed consumer c; at 1,200",
        "Stalled      Stream/LONGER from leaf:Stream/S  ephemeral; 7 pending; not-bound for 1m15s: nobody listens",
    ]


def test_without_sources_nothing_is_said() -> None:
    assert not list(source_lines([], NOW))


def test_a_name_from_elsewhere_cannot_break_a_line() -> None:
    lines = [line.plain for line in source_lines([row(consumer="a\nb\x1b[31m", message="x\r\ny")], NOW)]
    assert len(lines) == 3
    assert not any(bad in line for line in lines for bad in ("\n", "\r", "\x1b"))
