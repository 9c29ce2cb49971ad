"""The rendered CronJob, container by container as Kubernetes runs them: from a table to a commit that is pushed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.chart.git import READER, WRITER, git_server
from tests.support.chart.helm import CHART, Json, containers, only, rendered
from tests.support.chart.node import needs_root, ran
from tests.support.chart.volumes import Volumes

PORT = 8090
PLAN = """\
apiVersion: reconciler/v1
kind: PartitionPlan
metadata: {name: processor}
spec:
  pool: processor
  stream: DC
  partitions: {format: csv, path: /tables/partitions.csv}
  workers: {format: csv, path: /tables/workers.csv}
  output: ../manifests/processor
"""
REFUSED = 3


@pytest.fixture(autouse=True)
def _as_root() -> None:
    needs_root()


def git(*arguments: str | Path) -> str:
    """What it says."""
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", *identity, *map(str, arguments)], check=True, capture_output=True, text=True).stdout.strip()


class Factory:
    """A repository with a plan, its tables, and the planner's runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._relays, self._runs = folder, {PORT: port}, 0
        self.origin, self.tables, self.checkout = folder / "served" / "pools.git", folder / "tables", folder / "mine"
        values: Json = {"planner": {"git": {"repository": f"http://git.example.org:{PORT}/pools.git", "cloneSecretName": "git"}}}
        objects = rendered(CHART / "ci" / "planner-https-values.yaml", values)
        self.job: Json = only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
        self.tables.mkdir()
        git("init", "-q", "--bare", "-b", "plans", self.origin)
        git("clone", "-q", self.origin, self.checkout)
        git("-C", self.checkout, "checkout", "-q", "-b", "plans")
        (self.checkout / "plans").mkdir()
        (self.checkout / "plans" / "processor.yaml").write_text(PLAN, encoding="utf-8")
        self.push("The plan")

    def push(self, message: str) -> None:
        """Somebody's own commit."""
        git("-C", self.checkout, "add", "--all")
        git("-C", self.checkout, "commit", "-qm", message)
        git("-C", self.checkout, "push", "-q", "origin", "plans")

    def table(self, partitions: int, workers: int) -> None:
        """So many equal partitions, and workers for them."""
        rows = "".join(f"dc.tool{number}.completion,1\n" for number in range(partitions))
        (self.tables / "partitions.csv").write_text(f"subject,weight\n{rows}", encoding="utf-8")
        (self.tables / "workers.csv").write_text("worker\n" + "".join(f"w-{n}\n" for n in range(workers)), encoding="utf-8")

    def pod(self) -> Volumes:
        """The volumes of a new one."""
        self._runs += 1
        secrets = {"git": {"password": READER.encode()}, "git-push": {"password": WRITER.encode()}}
        return Volumes(self.job["template"], self._folder / f"run-{self._runs}", secrets, {"tables": self.tables})

    async def step(self, name: str, volumes: Volumes, **instead: object) -> tuple[int, str]:
        """One container to its end."""
        return await ran(self.job["template"], name, volumes, relays=self._relays, **instead)

    async def run(self) -> None:
        """All of them, as they stand, each after the one before has ended well."""
        volumes = self.pod()
        for each in containers(self.job["template"]):
            code, said = await self.step(each["name"], volumes)
            assert code == 0, (each["name"], said)

    def log(self) -> list[str]:
        """Who committed what, the last first."""
        return git("-C", self.origin, "log", "--format=%an: %s", "plans").splitlines()


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Factory]:
    """100 partitions on four workers, planned by nobody yet."""
    (tmp_path / "served").mkdir()
    with git_server(tmp_path / "served") as port:
        made = Factory(tmp_path, port)
        made.table(100, 4)
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
