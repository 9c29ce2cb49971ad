"""Every runbook ends the incident it is for: its commands are run, in the order of the page, while the fault is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.observe.metrics import cause_label
from reconciler.sources.symptoms import StallCause
from tests.support.incidents.runbooks import PARTS, page, part
from tests.support.incidents.scenes import SCENES
from tests.support.incidents.stage import stage
from tests.support.pages.following import FENCE, Command, steps
from tests.support.prometheus.rules import RUNBOOKS, alerts


def test_every_alert_has_an_incident() -> None:
    assert SCENES.keys() == alerts().keys()


@pytest.mark.parametrize("alert", SCENES)
async def test_a_runbook_ends_its_incident(alert: str, tmp_path: Path) -> None:
    scene = SCENES[alert]
    async with stage(tmp_path, scene.config) as here:
        await scene.fault(here)
        await here.follow(part(alert, "Diagnosis"))
        await scene.mended(here)
        await here.follow(part(alert, "Mitigation"))
        await scene.over(here)


@pytest.mark.parametrize("alert", SCENES)
def test_a_runbook_says_what_it_means_what_it_does_how_to_find_out_and_what_to_do(alert: str) -> None:
    text = page(alert)
    assert text.startswith(f"# {alert}\n")
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == PARTS
    assert all(part(alert, name).strip() for name in PARTS)
    assert f"{alerts()[alert]['labels']['severity'].capitalize()}" in text.partition("\n## ")[0]
    commands = [step.line for step in steps(part(alert, "Diagnosis")) if isinstance(step, Command)]
    assert any("reconciler " in line for line in commands)


@pytest.mark.parametrize("cause", StallCause)
def test_every_cause_of_a_stall_has_something_to_do_about_it(cause: StallCause) -> None:
    rows = [line for line in part("ReconcilerSourceStalled", "Mitigation").splitlines() if line.startswith("| `")]
    assert any(f"`{cause_label(cause)}`" in row.split(" | ")[0] for row in rows)
    manual = (RUNBOOKS.parent / "sourcing.md").read_text(encoding="utf-8")
    assert any(f"`{cause}`" in line.split(" | ")[0] for line in manual.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize("alert", SCENES)
def test_every_command_of_a_runbook_is_run(alert: str) -> None:
    """In the parts that are followed, and in a way that can be followed; what else is named is a command that exists."""
    followed = {step for name in ("Diagnosis", "Mitigation") for step in steps(part(alert, name))}
    assert followed == set(steps(page(alert)))
    assert {language for language, _ in FENCE.findall(page(alert))} <= {"console", "yaml"}
