"""The alerts and rules as data: fired by promtool below, at and above their thresholds, and each metric in them exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.observe.metrics import Metrics
from tests.support.pages.following import follow
from tests.support.prometheus.programs import program
from tests.support.prometheus.rules import ALERTS, RULES, RUNBOOKS, alerts, hurried, matchers_in, metrics_in, rules

CASES = Path(__file__).parent / "promtool"
FOUND = alerts()
EVERYTHING = [*rules(ALERTS), *rules(RULES)]

Json = dict[str, Any]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    command = [program("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cases(name: str) -> Json:
    """The unit tests of one alert, or of the rules."""
    document: Json = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))
    return document


# -- promtool -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ALERTS, RULES], ids=lambda path: path.name)
def test_promtool_finds_nothing_wrong(path: Path) -> None:
    ended = promtool("check", "rules", "--lint-fatal", path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", [*FOUND, "rules"])
def test_promtool_fires_it_when_it_should_and_never_otherwise(name: str) -> None:
    ended = promtool("test", "rules", CASES / f"{name}.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", FOUND)
def test_an_alert_is_tried_below_at_and_above_its_threshold(name: str) -> None:
    fired: dict[str, list[bool]] = {"below": [], "at": [], "above": [], "silent": []}
    for group in cases(name)["tests"]:
        for one in group["alert_rule_test"]:
            assert one["alertname"] == name
            fired[group["name"].partition(":")[0]].append(bool(one["exp_alerts"]))
    assert len(fired["below"]) > 0
    assert not any(fired["below"] + fired["silent"])
    assert fired["at"][:2] == [False, True], "just before its time, and at its time"
    assert any(fired["above"])


def mutations(rule: Json) -> dict[str, str]:
    """Expressions, or times, that are wrong by the least there is."""
    found = {}
    expression = str(rule["expr"])
    for place in re.finditer(r"(?<== )\d+|(?<=> )\d+|(?<=\) > )[\d.]+|(?<=\[)\d+(?=[mhd])|(?<=> )\d+(?= \*)", expression):
        value = float(place[0])
        for other in {value + 1, value * 0.9, value * 2 + 1} - {value}:
            wrong = f"{other:g}" if "." in place[0] or other != int(other) else str(int(other))
            if expression[place.end() : place.end() + 1] in "mhd" and "." in wrong:
                continue
            found[f"{place.start()}: {place[0]} → {wrong}"] = expression[: place.start()] + wrong + expression[place.end() :]
    for place in re.finditer(r" (unless|and|or)\s", expression):
        found[f"nothing after `{place[1]}`"] = expression[: place.start()]
    for label in ("namespace, ", "job, kind", "job, reason", "job, cause"):
        if label in expression:
            found[f"without {label}"] = expression.replace(label, "" if label == "namespace, " else "job")
    return found


@pytest.mark.parametrize("name", FOUND)
def test_an_alert_that_is_wrong_by_a_little_is_noticed(name: str, tmp_path: Path) -> None:
    """Each number, clause and grouping of the expression, and its time: with another one promtool has to fail."""
    rule = FOUND[name]
    wrong = [{**rule, "expr": expression} for expression in mutations(rule).values()]
    if "for" in rule:
        minutes = int(rule["for"].removesuffix("m"))
        wrong += [{**rule, "for": f"{minutes + off}m"} for off in (-1, 1)]
    assert len(wrong) > 1
    files = [tmp_path / f"{number}.yaml" for number in range(len(wrong))]
    for path, one in zip(files, wrong, strict=True):
        broken = path.with_suffix(".rules.yaml")
        broken.write_text(yaml.safe_dump({"groups": [{"name": "wrong", "rules": [one]}]}), encoding="utf-8")
        path.write_text(yaml.safe_dump({**cases(name), "rule_files": [broken.name]}), encoding="utf-8")
    said = promtool("test", "rules", *files).stdout
    unnoticed = re.findall(r"Unit Testing: +\S+/(\d+)\.yaml\n +SUCCESS", said)
    assert said.count("Unit Testing:") == len(wrong)
    assert [(wrong[int(number)]["expr"], wrong[int(number)].get("for")) for number in unnoticed] == []


# -- what they are made of ------------------------------------------------------------------------------------------------------


def exported() -> dict[str, dict[str, set[str]]]:
    """Every series of `/metrics`, with the values of its labels that are there from the start."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in Metrics().registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize("rule", EVERYTHING, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_metric_and_label_of_a_rule_exists(rule: Json) -> None:
    series, recorded = exported(), {rule["record"] for rule in rules(RULES)}
    assert metrics_in(rule["expr"]) - series.keys() - recorded == set()
    for metric, label, operator, value in matchers_in(rule["expr"]):
        if metric in series:
            assert set(value.split("|")) <= series[metric][label], (metric, label, operator, value)


@pytest.mark.parametrize("name", FOUND)
def test_no_alert_needs_a_recording_rule(name: str) -> None:
    assert not {metric for metric in metrics_in(FOUND[name]["expr"]) if ":" in metric}


@pytest.mark.parametrize("name", FOUND)
def test_an_alert_says_how_bad_it_is_and_where_to_go_on(name: str) -> None:
    rule = FOUND[name]
    assert re.fullmatch(r"Reconciler([A-Z][a-z]+)+", name)
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    others = {"README.md", "dashboard.md", "dashboard.svg"}
    assert {path.name for path in RUNBOOKS.iterdir()} - others == {f"{name}.md" for name in FOUND}


def test_the_index_lists_the_alerts_as_they_are() -> None:
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \| (.*?) \| (.*?) \|$", index, re.MULTILINE)
    assert rows == [
        (name, name, rule["labels"]["severity"], rule.get("for", ""), rule["annotations"]["summary"])
        for name, rule in FOUND.items()
    ]


def test_the_index_says_how_to_load_them(tmp_path: Path) -> None:
    for path in (ALERTS, RULES):
        shutil.copy(path, tmp_path)
    program("promtool")
    follow((RUNBOOKS / "README.md").read_text(encoding="utf-8"), tmp_path, {"PATH": os.environ["PATH"]})
    urls = {rule["annotations"]["runbook_url"] for rule in rules(tmp_path / "alerts.yaml")}
    assert urls == {f"https://git.example.com/reconciler/docs/runbooks/{name}.md" for name in FOUND}


TIMES = re.compile(r"(?:for|interval): \d+[mhd]\b|(?<=[\[:])\d+[mhd](?=[\]:])")


@pytest.mark.parametrize("path", [ALERTS, RULES], ids=lambda path: path.name)
def test_hurried_rules_have_no_time_left_as_it_was(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    after = hurried(before, 100)
    assert len(re.findall(r"\d+ms\b", after)) == len(TIMES.findall(before)) > 0
    assert not TIMES.search(after)
