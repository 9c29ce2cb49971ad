"""The pages that end incidents, by their headings."""

from __future__ import annotations

from tests.support.prometheus.rules import RUNBOOKS

PARTS = ("Meaning", "Impact", "Diagnosis", "Mitigation")


def page(alert: str) -> str:
    """All of it."""
    return (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")


def part(alert: str, name: str) -> str:
    """The text below one heading."""
    return page(alert).partition(f"\n## {name}\n")[2].partition("\n## ")[0]
