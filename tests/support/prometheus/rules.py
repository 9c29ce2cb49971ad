"""Our alerts and rules, as Prometheus reads them, and what is used in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FILES = ROOT / "charts" / "reconciler" / "files"
ALERTS, RULES, DASHBOARD = FILES / "alerts.yaml", FILES / "rules.yaml", FILES / "dashboard.json"
RUNBOOKS = ROOT / "docs" / "runbooks"

Json = dict[str, Any]
_METRIC = re.compile(r"\b(?:namespace_\w+:)?reconciler_\w+(?::\w+)?")
_SELECTOR = re.compile(r"\b(\w+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIMES = re.compile(r"(?<=\[)[\dsmhd:]+(?=\])|(?<=for: )\w+|(?<=interval: )\w+|(?<=_oldest_seconds\) > )\d+")


def rules(path: Path = ALERTS) -> list[Json]:
    """Every rule of a file."""
    document: Json = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Json]:
    """Every alert by its name."""
    return {rule["alert"]: rule for rule in rules()}


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics, and of recorded series."""
    return set(_METRIC.findall(expression))


def matchers_in(expression: str) -> Iterator[tuple[str, str, str, str]]:
    """Metric, label, operator and value of each matcher."""
    for metric, inside in _SELECTOR.findall(expression):
        for label, operator, value in _MATCHER.findall(inside):
            yield metric, label, operator, value


def hurried(text: str, times: int) -> str:
    """The rules with all their times divided: of `for`, of ranges, of intervals, and the age of a procedure."""
    return _TIMES.sub(lambda found: _divided(found[0], times), text)


def _divided(text: str, times: int) -> str:
    if text.isdecimal():
        return f"{int(text) / times:g}"
    return _DURATION.sub(lambda found: f"{int(found[1]) * _UNITS[found[2]] * 1000 // times}ms", text)
