"""A journal counts in the shapes that procedures write."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.journals import is_known, misfit

ENTRY = {"name": "S", "consumer": {"name": "c", "deliver_subject": "dlv.c"}}
UNTIL = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("procedure", "step", "data"),
    [
        ("filter-add", "pause", {"added": ["a"], "until": UNTIL, "duplicates": 3}),
        ("recreate-consumer", "pause", {"added": [], "continues": "filter-add"}),
        ("recreate-consumer", "hold", {"consumer": "c"}),
        ("restore-consumer", "move", {"start": 7}),
        ("migrate-source", "drain", {"stream": "Stream/A", "entry": None}),
        ("migrate-source", "attach", {"stream": "Stream/A", "start": 0, "left": ENTRY, "made": True}),
        ("migrate-source", "attach", {"stream": "Stream/A", "least": 0, "from": {"name": "S"}}),
        ("migrate-source", "resume", {"stream": "Stream/A", "entry": ENTRY}),
        ("of a later version", "whatever", {"start": "x"}),
    ],
)
def test_what_procedures_write_fits(procedure: str, step: str, data: dict[str, Any]) -> None:
    assert misfit(procedure, step, data) == ""
    assert is_known(procedure) is (procedure != "of a later version")


@pytest.mark.parametrize(
    ("step", "data", "told"),
    [
        ("nonsense", {}, "no step 'nonsense'"),
        ("attach", {"stream": "Stream/A"}, "without 'start'"),
        ("attach", {"stream": "Stream/A", "least": 3}, "without 'start'"),
        ("drain", {"entry": None}, "without 'stream'"),
        ("resume", {"stream": "Stream/A"}, "without 'entry'"),
        *(("attach", {"stream": "Stream/A", "start": one}, "'start'") for one in (-1, True, 1.0, "1", None, 2**63)),
        ("attach", {"stream": "Stream/A", "start": 1, "made": 1}, "'made'"),
        ("attach", {"stream": "Stream/A", "start": 1, "left": {"name": 5}}, "'left'"),
        ("attach", {"stream": "A", "start": 1}, "'stream'"),
        ("attach", {"stream": ["Stream/A"], "start": 1}, "'stream'"),
        ("attach", {"stream": "Stream/A", "start": 1, "until": "soon"}, "'until'"),
        ("attach", {"stream": "Stream/A", "start": 1, "until": 5}, "'until'"),
    ],
)
def test_what_makes_no_sense_is_told(step: str, data: dict[str, Any], told: str) -> None:
    assert told in misfit("migrate-source", step, data)
