"""The dashboard is what Grafana takes, asks for what there is, and answers on a real Prometheus once everything has happened."""

from __future__ import annotations

import asyncio
import json
import math
import re
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reconciler.observe.metrics import Metrics
from tests.support.clock.until import glances
from tests.support.grafana.schema import problems
from tests.support.incidents.eventful import eventful
from tests.support.incidents.stage import stage
from tests.support.prometheus.rules import DASHBOARD, RULES, matchers_in, metrics_in, rules
from tests.support.prometheus.server import Prometheus, prometheus

Json = dict[str, Any]
MADE: Json = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS: list[Json] = [panel for panel in MADE["panels"] if panel["type"] != "row"]
ROWS = [panel["title"].partition(" (")[0] for panel in MADE["panels"] if panel["type"] == "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_PROMETHEUS = {"ALERTS"}
NEVER = {
    "reconciler_audit_shed": "more than 3,000 messages a second",
    "reconciler_dry_run": "another way to run it",
    "reconciler_source_kicks_total": "servers since 2.15 attach by themselves",
}
"""Metrics that are still zero when everything has happened, and what they would take."""


def targets() -> list[tuple[str, str]]:
    """Each query with the title of its panel."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


# -- what Grafana takes ---------------------------------------------------------------------------------------------------------


def test_grafana_knows_every_field_and_value() -> None:
    assert problems(MADE) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("panels", 1, "fieldConfig", "defaults", "unitt"), "s"),
        (("panels", 1, "options", "colourMode"), "value"),
        (("panels", 1, "targets", 0, "expression"), "up"),
        (("panels", 1, "gridPos", "w"), "3"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "relative"),
        (("templating", "list", 1, "multi"), "yes"),
        (("refresh",), 30),
    ],
)
def test_a_field_that_grafana_does_not_know_and_a_value_that_it_does_not_take_are_noticed(
    path: tuple[Any, ...], value: Any
) -> None:
    wrong = deepcopy(MADE)
    *way, last = path
    inner: Any = wrong
    for step in way:
        inner = inner[step]
    inner[last] = value
    (problem,) = problems(wrong)
    assert str(last) in problem or last in {"w", "mode"}


def test_it_can_be_imported_anywhere() -> None:
    assert MADE["uid"] == "reconciler"
    assert MADE["editable"] is False
    assert "id" not in MADE
    variables = {variable["name"]: variable for variable in MADE["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    assert all(variables[name]["multi"] and variables[name]["includeAll"] for name in ("namespace", "job", "instance"))
    assert ROWS == [
        "Fleet",
        "Service levels",
        "Reconcile",
        "Drift, and who did it",
        "Procedures that run",
        "Sources and mirrors",
        "Consumers and worker pools",
        "JetStream API and NATS",
        "The lease",
        "Process",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows_in_which_unit_and_asks_what_is_chosen_above(panel: Json) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert target["expr"].count('job=~"$job"') == len(re.findall(r"\{", target["expr"]))
        assert not re.search(r"\b(rate|increase)\((?!\w+\{[^}]*\}\[\$__rate_interval\]\))", target["expr"])


def test_titles_ids_and_places_are_their_own() -> None:
    ids = [panel["id"] for panel in MADE["panels"]]
    titles = [panel["title"] for panel in MADE["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    taken: dict[tuple[int, int], str] = {}
    for panel in MADE["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len(taken) == 24 * (max(y for _, y in taken) + 1), "there is a hole"


# -- what it asks for -----------------------------------------------------------------------------------------------------------


def series() -> dict[str, set[str]]:
    """Every series of `/metrics` and of the recording rules, with its labels."""
    found: dict[str, set[str]] = {rule["record"]: set() for rule in rules(RULES)}
    for family in Metrics().registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize(("title", "query"), tuple(targets()))
def test_every_metric_and_label_of_a_query_exists(title: str, query: str) -> None:
    known = series()
    assert metrics_in(query) <= known.keys(), title
    assert metrics_in(query) or OF_PROMETHEUS & set(re.findall(r"\w+", query))
    for metric, label, *_ in matchers_in(query):
        if metric in known and ":" not in metric:
            assert label in known[metric] | {"namespace", "job", "instance"}, title
    for metric in metrics_in(query) & known.keys():
        legend = {label for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(", ")}
        assert legend <= known[metric] | {"namespace", "job", "instance"}, (title, metric)


def test_every_metric_of_the_daemon_is_shown() -> None:
    shown = {re.sub(r"_(bucket|sum|count)$", "", metric) for _, query in targets() for metric in metrics_in(query)}
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in Metrics().registry.collect()}
    unshown = exported - shown - {"reconciler_process_virtual_memory_bytes"}
    assert unshown == set()


# -- what it is answered --------------------------------------------------------------------------------------------------------


def asked(query: str) -> str:
    """With everything chosen, as Grafana would ask."""
    return query.replace("$namespace", ".*").replace("$job", ".+").replace("$instance", ".+").replace("$__rate_interval", "30s")


async def unanswered(watching: Prometheus) -> list[str]:
    """The queries that had no data since the beginning, or none that is not zero."""
    lacking = []
    for title, query in targets():
        values = [float(value) for one in await watching.since_the_beginning(asked(query)) for _, value in one["values"]]
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers or not (any(numbers) or metrics_in(query) & NEVER.keys()):
            lacking.append(f"{title}: {query}: {'0' if numbers else 'nothing'}")
    return lacking


@pytest.mark.slow
@pytest.mark.thorough(also="tests/alerts/test_dashboard.py::test_every_metric_and_label_of_a_query_exists")
async def test_every_query_answers_once_everything_has_happened(tmp_path: Path) -> None:
    async with prometheus(tmp_path / "prometheus") as watching, stage(tmp_path, scraped=watching.scrape) as here:
        await eventful(here, watching.until_answered)
        lacking = await unanswered(watching)
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                async for _ in glances():  # what happened last is not scraped yet
                    if not (lacking := await unanswered(watching)):
                        break
        assert not lacking, "\n".join(lacking)
        declared = len([one for one in (await here.daemons[-1].status())["resources"] if one["state"] != "Unmanaged"])
        for title in ("Declared", "Resources by state"):
            (query,) = (query for name, query in targets() if name == title)
            await watching.until_answered(f"sum({asked(query)}) == {declared}")
