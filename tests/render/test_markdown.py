"""The plan as a comment on a pull request."""

from __future__ import annotations

import re

import orjson

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Reason
from reconciler.render.plan.markdown import LIMIT, plan_markdown
from tests.support.values.plans import everything, plan_of


def many(count: int) -> list[Change]:
    wire = orjson.dumps({"subjects": ["a.>"], "description": "x" * 200})
    return [
        Change(key=Key("Stream", f"S{number:05}"), action=Action.CREATE, cause=Cause.MISSING, config=wire)
        for number in range(count)
    ]


def test_it_shows_sum_rows_details_and_fingerprint() -> None:
    text = plan_markdown(everything())
    assert text.startswith("### Plan (prod): 1 to create")
    assert "| `-/+` | Stream/MADE | recreate | manifest changed |" in text
    assert "2 resources will be deleted or recreated" in text
    assert "-  ackWait: 30s" in text
    assert "+  ackWait: 45s" in text
    assert "fingerprint `sha256:f00`" in text


def test_a_procedure_says_what_else_it_touches_and_what_to_mind() -> None:
    text = plan_markdown(everything())
    assert "- workers stand still" in text
    assert "Also touches Consumer/BILLING/z." in text


def test_it_always_fits_and_counts_what_did_not() -> None:
    text = plan_markdown(plan_of(*many(3000)))
    assert len(text) < LIMIT
    rows = text.count("| `+` |")
    (left,) = re.findall(r"and (\d+) of 3000 changes that did not fit", text)
    assert rows + int(left) == 3000
    details = text.count("<details>")
    (hidden,) = re.findall(r"Details of (\d+) of 3000 changes did not fit", text)
    assert details + int(hidden) == 3000


def test_it_fits_with_reasons_without_end() -> None:
    assert len(plan_markdown(plan_of(refused=(Reason("empty", "y" * 100_000),)))) < LIMIT


def test_nothing_in_it_can_break_out_of_its_place() -> None:
    fields = (FieldDiff("description", "a\n```\n# heading", None),)
    change = Change(key=Key("Stream", "a|b<script>"), action=Action.UPDATE, cause=Cause.DRIFT, fields=fields, live_config=b"{}")
    text = plan_markdown(plan_of(change))
    assert "a\\|b\\<script\\>" in text
    outside = re.sub(r"````diff.*?````", "", text, flags=re.DOTALL)
    assert "<script>" not in outside.replace("\\<script\\>", "")
    assert "\n# heading" not in text
