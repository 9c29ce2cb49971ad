"""Every gate: exit code 3, its message, nothing written; forced by name it is done and recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.partitions.gates import NAMES
from tests.support.partitions.files import Desk


def heavier(desk: Desk) -> None:
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e", "w-f", "w-g", "w-h")


def fewer_workers(desk: Desk) -> None:
    desk.workers("w-a", "w-b")


def fewer_partitions(desk: Desk) -> None:
    desk.partitions(70)


def hardly_any_workers(desk: Desk) -> None:
    desk.plan("gates: {minWorkers: 5}")


def no_partitions(desk: Desk) -> None:
    desk.partitions(0)


def long_requests(desk: Desk) -> None:
    desk.plan("gates: {maxManifestBytes: 100}")


def an_edit(desk: Desk) -> None:
    path = desk.output / "w-w-b.yaml"
    path.write_bytes(path.read_bytes() + b"# mine\n")


CASES: tuple[tuple[str, Callable[[Desk], None], str], ...] = (
    ("maxMovedFraction", heavier, "48.0% of the weight would move, at most 20% may"),
    ("maxWorkersRemovedFraction", fewer_workers, "2 of 4 workers are gone or draining, at most 30% may be"),
    ("maxInputShrink", fewer_partitions, "70 partitions, 100 before: at most 20% may go at once"),
    ("minWorkers", hardly_any_workers, "4 active workers, at least 5 are asked for"),
    ("zeroPartitions", no_partitions, "the table of partitions has no rows"),
    ("maxManifestBytes", long_requests, "at most 100 may be sent at once"),
    ("edited", an_edit, "changed since they were written: w-w-b.yaml"),
)


def test_every_gate_has_a_case() -> None:
    assert {gate for gate, _, _ in CASES} == set(NAMES)


@pytest.mark.parametrize(("gate", "change", "said"), CASES, ids=[gate for gate, _, _ in CASES])
def test_a_gate_refuses_and_can_be_forced_by_name(desk: Desk, gate: str, change: Callable[[Desk], None], said: str) -> None:
    desk()
    change(desk)
    before = desk.files()
    ended = desk(code=3)
    assert f"{gate}: " in ended.err
    assert said in ended.err
    assert f"--force {gate}" in ended.err
    assert desk.files() == before
    others = [name for name in NAMES if name != gate]
    desk(*(part for name in others for part in ("--force", name)), code=3)
    every = [part for name in NAMES for part in ("--force", name)]
    verdicts = {verdict["gate"]: verdict for verdict in desk.report(*every)["gates"]}
    assert verdicts[gate] == {"gate": gate, "passed": False, "forced": True, "message": verdicts[gate]["message"]}


def test_a_dry_run_says_what_would_be_refused(desk: Desk) -> None:
    desk()
    fewer_partitions(desk)
    assert "maxInputShrink: 70 partitions, 100 before" in desk("--dry-run", code=3).err


def test_a_gate_that_does_not_exist_is_a_usage_error(desk: Desk) -> None:
    assert "there is no such gate; did you mean minWorkers?" in desk("--force", "minWorker", code=64).err


def test_too_many_subjects_cannot_be_forced(desk: Desk) -> None:
    desk.plan("maxSubjects: 20")
    err = desk("--force", "edited", code=3).err
    assert "maxSubjects: 100 subjects, room for 80 on 4 active workers; 5 workers of 20 would do" in err
    assert not desk.output.exists()


def test_more_pins_than_fit_name_the_subjects(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,pin", [f"s.{number},1,w-a" for number in range(8)])
    desk.plan("maxSubjects: 4")
    assert "8 subjects are pinned to w-a, which may have 4: s.0, s.1, s.2, s.3, s.4, …" in desk(code=3).err


def test_units_that_do_not_fit_say_how_many_would(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,unit", [f"s.{number},1,u{number // 3}" for number in range(24)])
    desk.plan("maxSubjects: 8")
    desk.workers("w-a", "w-b", "w-c")
    assert "6 of 8 units of 3 subjects that need a worker fit: 24 subjects, room for 24 on 3 workers" in desk(code=3).err


POOLS = """apiVersion: reconciler/v1
kind: Stream
metadata: {name: DC}
spec: {subjects: ["dc.>"]}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: processor}
spec: {stream: DC, limits: {maxSubjects: 500}}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: other}
spec:
  stream: DC
  workers: [{id: w, filterSubjects: [SUBJECT]}]
"""


@pytest.mark.parametrize(
    ("subject", "named"), [("dc.tool1.chamber2", "dc.tool1.chamber2 also"), ("dc.tool1.*", "dc.tool1.chamber0, ")]
)
def test_what_another_pool_of_the_stream_has_is_never_planned(desk: Desk, subject: str, named: str) -> None:
    (desk.root / "pools.yaml").write_text(POOLS.replace("SUBJECT", subject))
    desk.plan("manifests: [pools.yaml]")
    err = desk(code=3).err
    assert f"collision: {named}" in err
    assert "WorkerPool/other of the same stream" in err


def test_pools_that_do_not_meet_are_no_obstacle(desk: Desk) -> None:
    (desk.root / "pools.yaml").write_text(POOLS.replace("SUBJECT", "dc.else.*"))
    desk.plan("manifests: [pools.yaml]")
    desk()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: processor}", "name: processors}", 'the manifests declare no WorkerPool "processor"; did you mean processors?'),
        ("{stream: DC, limits", "{stream: DCX, limits", 'another-stream: the pool reads "DCX"'),
        ("maxSubjects: 500", "maxSubjects: 100", "over-the-cap: the pool allows 100"),
    ],
)
def test_plan_and_manifests_have_to_agree(desk: Desk, old: str, new: str, said: str) -> None:
    (desk.root / "pools.yaml").write_text(POOLS.replace("SUBJECT", "dc.x").replace(old, new, 1))
    desk.plan("manifests: [pools.yaml]")
    assert said in desk(code=4).err
