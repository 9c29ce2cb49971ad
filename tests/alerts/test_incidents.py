"""Every alert is fired by a real daemon that a real Prometheus scrapes, alone, and its runbook makes it silent again.

The rules are a copy with all times divided by a hundred (`tests.support.prometheus.server`): half an hour is 18 seconds here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.incidents.runbooks import part
from tests.support.incidents.scenes import SCENES
from tests.support.incidents.stage import stage
from tests.support.prometheus.server import prometheus

EVERY_DAY = ("ReconcilerInvalidManifests", "ReconcilerNatsDisconnected")
"""In `make test`, too."""
PATIENCE = 120.0


def incidents() -> list[Any]:
    also = pytest.mark.thorough(also="tests/alerts/test_rules.py::test_promtool_fires_it_when_it_should_and_never_otherwise")
    return [pytest.param(alert, marks=[pytest.mark.slow] + [also] * (alert not in EVERY_DAY)) for alert in SCENES]


QUIET = 25.0
"""Seconds: longer than any alert waits here."""


@pytest.mark.parametrize("alert", incidents())
async def test_an_incident_fires_its_alert_alone_until_the_runbook_was_followed(alert: str, tmp_path: Path) -> None:
    scene = SCENES[alert]
    async with prometheus(tmp_path / "prometheus") as watching, stage(tmp_path, scene.config, watching.scrape) as here:
        await scene.fault(here)
        await watching.until_firing(alert, seconds=PATIENCE)
        await here.follow(part(alert, "Diagnosis"))
        await scene.mended(here)
        await here.follow(part(alert, "Mitigation"))
        await scene.over(here)
        await watching.until_firing(seconds=PATIENCE)


@pytest.mark.slow
@pytest.mark.thorough(also="tests/alerts/test_rules.py::test_promtool_fires_it_when_it_should_and_never_otherwise")
async def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    """Longer than any alert waits; a commit, a repair and a change of leader are no incidents.

    Nor is it one that nothing is scraped for a while because this machine has other things to do.
    """
    async with prometheus(tmp_path / "prometheus", lookback=60) as watching, stage(tmp_path, scraped=watching.scrape) as here:
        first = await here.start()
        await here.start(like=lambda now: bool(now["leader"] and not now["leading"]))
        await watching.until_answered("count(reconciler_build_info) == 2")
        here.commit("# Declares nothing, on purpose.\n", "nothing.yaml")
        await here.somebody.edit("ORDERS", max_age=3600 * 10**9)
        await here.somebody.until_like({"max_age": 7 * 24 * 3600 * 10**9}, "ORDERS")
        await first.stop()
        watching.forget(first.url)
        fired = set()
        over = time.monotonic() + QUIET
        while time.monotonic() < over:
            fired |= await watching.alerts()
            await here.daemons[1].looked()
        assert fired == set()
        await watching.until_answered("namespace_job:reconciler_looked_after:bool == 1")
