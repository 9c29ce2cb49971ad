"""Every runbook ends the incident it is for: its commands are run, in the order of the page, while the fault is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.incidents.scenes import SCENES
from tests.support.incidents.stage import stage
from tests.support.prometheus.rules import RUNBOOKS

PARTS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def page(alert: str) -> str:
    return (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")


def part(alert: str, name: str) -> str:
    """The text below one heading."""
    return page(alert).partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("alert", SCENES)
async def test_a_runbook_ends_its_incident(alert: str, tmp_path: Path) -> None:
    scene = SCENES[alert]
    async with stage(tmp_path, scene.config) as here:
        await scene.fault(here)
        await here.follow(part(alert, "Diagnosis"))
        await scene.mended(here)
        await here.follow(part(alert, "Mitigation"))
        await scene.over(here)
