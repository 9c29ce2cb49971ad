"""What is for pools with very many workers or subjects: files in directories, and several consumers for one worker."""

from __future__ import annotations

import hashlib

import pytest

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from reconciler.manifests.files.loader import Loader
from tests.support.partitions.files import Desk

POOL = """apiVersion: reconciler/v1
kind: Stream
metadata: {name: DC}
spec: {subjects: ["dc.>"]}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: processor}
spec: {stream: DC, limits: {maxSubjects: 10}SHARDS}
"""


def beside_a_pool(desk: Desk, shards: str, *more: str) -> None:
    (desk.root / "manifests").mkdir(exist_ok=True)
    (desk.root / "manifests" / "pool.yaml").write_text(POOL.replace("SHARDS", shards))
    desk.plan("manifests: [manifests/pool.yaml]", *more)


def hashed(worker: str) -> str:
    return f"{hashlib.sha256(worker.encode()).hexdigest()[:2]}/w-{worker}.yaml"


def test_files_lie_in_directories_that_a_new_worker_does_not_change(desk: Desk) -> None:
    desk.plan("layout: hashed")
    desk()
    before = {path for path in desk.manifests() if "w-" in path}
    assert before == {hashed(f"w-{letter}") for letter in "abcd"}
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    report = desk.report()
    assert report["pools"]["processor"]["workers"]["new"] == 1  # so the others were known
    assert {path for path in desk.manifests() if "w-" in path} == {*before, hashed("w-e")}
    assert run(["validate", "-f", str(desk.root)], Terminal({})) == 0
    assert desk.report()["changed"] is False
    (desk.output / "_plan" / "assignment.parquet").unlink()
    assert desk.report()["previous"] == "manifests"


def test_another_layout_moves_files_and_no_partition(desk: Desk) -> None:
    desk()
    desk.plan("layout: hashed", "gates: {maxMovedFraction: 1}")
    report = desk.report()
    assert (report["changed"], report["pools"]["processor"]["moved"]["count"]) == (True, 0)
    loaded = Loader().load([str(desk.root)])
    assert "not-in-index" in {problem.code for problem in loaded.warnings}  # the old files, until they are pruned
    assert desk.report("--prune")["pools"]["processor"]["files"]["pruned"] == 4
    assert "not-in-index" not in {problem.code for problem in Loader().load([str(desk.root)]).warnings}
    desk.plan("gates: {maxMovedFraction: 1}")
    assert desk.report("--prune")["pools"]["processor"]["files"] == {"written": 4, "unchanged": 0, "pruned": 4}
    assert {path.name for path in desk.output.iterdir() if path.is_dir()} == {"_plan"}


def test_a_worker_gets_several_consumers_only_where_the_pool_asks_for_it(desk: Desk) -> None:
    beside_a_pool(desk, "")
    err = desk(code=4).err
    assert "over-the-cap: the pool allows 10" in err
    assert "with shardOverCap: true there, a worker that has more gets several consumers" in err
    beside_a_pool(desk, ", shardOverCap: true", "maxSubjects: 30")
    ended = desk()
    assert "  consumers 12: a worker with too many subjects for one has several" in ended.out
    assert desk.report()["pools"]["processor"]["consumers"] == 12
    (pool,) = Loader().load([str(desk.root)]).desired.pools.values()
    assert sum(len(pool.consumer_names(worker)) for worker in pool.workers.values()) == 12
    assert run(["validate", "-f", str(desk.root)], Terminal({})) == 0


@pytest.mark.parametrize(("shards", "code"), [("", 3), (", shardOverCap: true", 0)])
def test_what_travels_in_one_request_is_the_part_of_one_consumer(desk: Desk, shards: str, code: int) -> None:
    beside_a_pool(desk, shards, "maxSubjects: 10" if not shards else "maxSubjects: 30", "gates: {maxManifestBytes: 400}")
    if not shards:
        desk.workers(*(f"w-{number:02}" for number in range(10)))
    assert ("may be sent at once" in desk(code=code).err) == bool(code)
