"""The rendered CronJob, container by container as Kubernetes runs them: from a table to a commit that is pushed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.chart import factory as factories
from tests.support.chart.factory import Factory, git
from tests.support.chart.helm import containers
from tests.support.chart.node import needs_root

REFUSED = 3


@pytest.fixture(autouse=True)
def _as_root() -> None:
    needs_root()


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Factory]:
    with factories.factory(tmp_path) as made:
        yield made


async def test_from_a_table_to_a_commit_that_is_pushed(factory: Factory) -> None:
    await factory.run()
    assert factory.log() == ["The planner: Plan processor: 0 partitions moved (0.00% of the weight), 100 new", "me: The plan"]
    index = yaml.safe_load(git("-C", factory.origin, "show", "plans:manifests/processor/_index.yaml"))
    assert len(index["spec"]["files"]) == 4
    await factory.run()
    assert len(factory.log()) == 2, "the same tables again are no commit"
    factory.table(100, 5)
    await factory.run()
    assert "20 partitions moved" in factory.log()[0]


async def test_only_the_last_container_may_push(factory: Factory) -> None:
    volumes = factory.pod()
    assert (await factory.step("clone", volumes))[0] == 0
    assert (await factory.step("plan", volumes))[0] == 0
    push = next(one for one in containers(factory.job["template"]) if one["name"] == "push")["command"]
    code, said = await factory.step("clone", volumes, command=push)
    assert (code, "403" in said) == (128, True), said
    code, said = await factory.step("plan", volumes, command=push, args=[])
    assert code == 128, said
    assert factory.log() == ["me: The plan"]
    mounts = {one["name"]: {mount["name"] for mount in one["volumeMounts"]} for one in containers(factory.job["template"])}
    assert mounts == {
        "clone": {"checkout", "tmp", "clone"},
        "plan": {"checkout", "tmp", "tables"},
        "push": {"checkout", "tmp", "push"},
    }


async def test_a_push_that_came_too_late_is_tried_again_on_a_new_clone(factory: Factory) -> None:
    volumes = factory.pod()
    assert (await factory.step("clone", volumes))[0] == 0
    assert (await factory.step("plan", volumes))[0] == 0
    (factory.checkout / "README").write_text("somebody was here\n", encoding="utf-8")
    factory.push("In between")
    code, said = await factory.step("push", volumes)
    assert code != 0, said
    assert factory.job["backoffLimit"] > 0
    await factory.run()
    assert factory.log()[1:] == ["me: In between", "me: The plan"]


async def test_what_the_planner_refuses_is_not_tried_again(factory: Factory) -> None:
    await factory.run()
    factory.table(10, 4)
    volumes = factory.pod()
    assert (await factory.step("clone", volumes))[0] == 0
    code, said = await factory.step("plan", volumes)
    assert (code, "maxInputShrink" in said) == (REFUSED, True), said
    (rule,) = factory.job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["containerName"] == "plan"
    assert code in rule["onExitCodes"]["values"]
    assert len(factory.log()) == 2
