"""Kafka's own sticky assignor on the same equal partitions, in the same run: what somebody would take who needs no weights.

It counts partitions, knows neither weights nor caps, and plans integers, not names. `kafka-clients` comes from Maven Central
once, into the cache of the user; without a JDK and Maven, or without a network, it is skipped, and a line says so.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reconciler.partitions.planning.planner import plan_locally
from tools.bench.measure import Measure, rounded, tell
from tools.bench.partitions.cases import RULES, UNIT, items, workers

TIME_LIMIT = 2.0
_ARTIFACTS = ("org.apache.kafka:kafka-clients:4.1.0", "org.slf4j:slf4j-api:1.7.36")
_SOURCE = Path(__file__).with_name("StickyAssignor.java")
_DOWNLOAD_SECONDS = 300
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Round:
    """One cold plan and one rebalance."""

    cold: float
    rebalance: float
    moved: int
    most: int
    placed: int


def kafka(scratch: Path, partitions: int, members: tuple[int, int], rounds: int) -> Iterator[Measure]:
    """Time of planning alone, moves and balance, theirs and ours."""
    name = f"{partitions:,} equal partitions, {members[0]:,} to {members[1]:,} workers"
    classpath, missing = _jars()
    if not classpath:
        yield Measure(measure=f"sticky assignor of Kafka, {name}", value=0.0, unit="s", ratio=0.0, detail={"skipped": missing})
        return
    scratch.mkdir(parents=True, exist_ok=True)
    javac = shutil.which("javac") or "javac"
    subprocess.run([javac, "-cp", classpath, "-d", str(scratch), str(_SOURCE)], check=True)
    tell(f"planning {name}, with Kafka's assignor and with ours")
    ours = _ours(partitions, members, rounds)
    theirs = _theirs(f"{scratch}:{classpath}", partitions, members, rounds)
    mean = partitions / members[1]
    shown = {"moved": theirs[-1].moved, "load": round(theirs[-1].most / mean, 4), "placed": theirs[-1].placed}
    yield from (_timed(name, what, ours, theirs) for what in ("cold", "rebalance"))
    yield Measure(
        measure=f"moves, by the sticky assignor of Kafka, {name}",
        value=ours[-1].moved,
        unit="partitions",
        ratio=round(ours[-1].moved / max(1, theirs[-1].moved), 4),
        limit=1.0,
        ok=ours[-1].moved <= theirs[-1].moved,
        detail={"load": round(ours[-1].most / mean, 4), **{f"kafka_{name}": value for name, value in shown.items()}},
    )


def _timed(name: str, what: str, ours: list[_Round], theirs: list[_Round]) -> Measure:
    """A plan from nothing is the first one of its process, theirs and ours; a rebalance is judged when both are warm."""
    warm, warm_theirs = (statistics.median(getattr(one, what) for one in found) for found in (ours, theirs[1:] or theirs))
    first, first_theirs = (float(getattr(found[0], what)) for found in (ours, theirs))
    pair = (first, first_theirs) if what == "cold" else (warm, warm_theirs)
    ratio = pair[0] / pair[1]
    return Measure(
        measure=f"planning, {what}, by the sticky assignor of Kafka, {name}",
        value=rounded(pair[0]),
        unit="s",
        ratio=rounded(ratio),
        limit=TIME_LIMIT,
        ok=ratio <= TIME_LIMIT,
        detail={
            "kafka": rounded(pair[1]),
            "warm": rounded(warm),
            "kafka_warm": rounded(warm_theirs),
            "first": rounded(first),
            "kafka_first": rounded(first_theirs),
        },
    )


def _jars() -> tuple[str, str]:
    """The class path, or why there is none."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return "", f"no {tool} on PATH: install a JDK (17) and Maven"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jetstream-reconciler-bench"
    cache.mkdir(parents=True, exist_ok=True)
    found = []
    for artifact in _ARTIFACTS:
        _, name, version = artifact.split(":")
        jar = cache / f"{name}-{version}.jar"
        if not jar.exists():
            tell(f"fetching {artifact} from Maven Central")
            copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
            done = subprocess.run(copy, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_SECONDS, cwd=cache)
            if done.returncode or not jar.exists():
                return "", f"Maven Central did not give {artifact}: {(done.stdout + done.stderr).strip()[:200]}"
        found.append(str(jar))
    return ":".join(found), ""


def _theirs(classpath: str, partitions: int, members: tuple[int, int], rounds: int) -> list[_Round]:
    """The first round is that of a virtual machine that has just been started."""
    command = ["java", "-cp", classpath, "StickyAssignor", *map(str, (partitions, *members, rounds + 1))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    rows = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return [_Round(cold / _SECOND, rebalance / _SECOND, *rest) for cold, rebalance, *rest in rows]


def _ours(partitions: int, members: tuple[int, int], rounds: int) -> list[_Round]:
    """The same partitions, with names, weights, capacities and caps."""
    given = items(np.full(partitions, UNIT))
    before, after = (workers(count) for count in members)
    after = replace(after, fresh=tuple(rank >= members[0] for rank in range(members[1])))
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        first = plan_locally(given, before, RULES).place
        between = time.perf_counter()
        second = plan_locally(given.at(first), after, RULES).place
        ended = time.perf_counter()
        most, moved = int(np.bincount(second).max()), int((second != first).sum())
        found.append(_Round(between - started, ended - between, moved, most, len(second)))
    return found
