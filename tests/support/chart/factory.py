"""A repository with a plan, served over HTTP, and the planner's CronJob that is run on it, container by container."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.chart.git import READER, WRITER, git_server
from tests.support.chart.helm import CHART, Json, containers, only, rendered
from tests.support.chart.image import Image
from tests.support.chart.node import ran
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


def git(*arguments: str | Path) -> str:
    """What it says."""
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", *identity, *map(str, arguments)], check=True, capture_output=True, text=True).stdout.strip()


class Factory:
    """A repository with a plan, its tables, and the planner's runs."""

    def __init__(self, folder: Path, port: int, image: Image | None) -> None:
        self._folder, self._relays, self._image, self._runs = folder, {PORT: port}, image, 0
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

    async def step(self, name: str, volumes: Volumes, **instead: Any) -> tuple[int, str]:
        """One container to its end."""
        return await ran(self.job["template"], name, volumes, relays=self._relays, image=self._image, **instead)

    async def run(self) -> None:
        """All of them, as they stand, each after the one before has ended well."""
        volumes = self.pod()
        for each in containers(self.job["template"]):
            code, said = await self.step(each["name"], volumes)
            assert code == 0, (each["name"], said)

    def log(self) -> list[str]:
        """Who committed what, the last first."""
        return git("-C", self.origin, "log", "--format=%an: %s", "plans").splitlines()


@contextmanager
def factory(folder: Path, image: Image | None = None) -> Iterator[Factory]:
    """100 partitions on four workers, planned by nobody yet; the containers are those of `image`, where it was built."""
    (folder / "served").mkdir()
    with git_server(folder / "served") as port:
        made = Factory(folder, port, image)
        made.table(100, 4)
        yield made
