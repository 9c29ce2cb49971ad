"""Long random walks: manifests change up to five times, while processes die, servers fail or elect, and people meddle.

    python -m tools.prove_walks --model 5000            on the model server, a fifth of a second each
    python -m tools.prove_walks --real 100              on real servers, with a daemon under load, some ten seconds each
    python -m tools.prove_walks --model 1 --seed 27     one of them again, with all its steps

Each walk has a seed, one after the other from `--seed` on. The same seed takes the same way on the model; on real servers it is
the same course, but not the same moment.

Invariant: a walk is good only when every id that was to arrive is there once, nothing is left over, and nothing is to be done.
What a person did may cost what `tests.support.world.deeds` says, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.server.binaries import DEFAULT_VERSIONS
from tests.support.walks.real import RealWalked, real_walk
from tests.support.walks.walk import Walked, walk
from tools import ending

_TOLD = ("kills", "refusals", "silences", "elections", "lags", "deeds")
_EVERY = 500
_SIDE_BY_SIDE = 3


@dataclass
class Sum:
    """Of many walks."""

    walks: int = 0
    changes: int = 0
    steps: int = 0
    messages: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    stuck: int = 0
    excused: int = 0
    not_converged: int = 0
    failed: list[int] = field(default_factory=list)
    """Their seeds."""

    def add(self, walked: Walked) -> None:
        """One more."""
        self.walks += 1
        self.changes += walked.course.changes
        self.steps += walked.steps
        self.messages += walked.messages
        self.happened.update(walked.happened)
        self.lost += len(walked.lost)
        self.excused += bool(walked.excused and walked.twice)
        self.twice += 0 if walked.excused else len(walked.twice)
        self.stuck += len(walked.stuck)
        self.not_converged += bool(walked.trouble)
        if not walked.good:
            self.failed.append(walked.course.seed)

    def line(self, seconds: float) -> str:
        """All in one."""
        happened = ", ".join(f"{self.happened[what]} {what}" for what in _TOLD)
        return (
            f"{self.walks} walks, {self.changes} changes, {self.steps} steps, {self.messages} messages, {happened}: "
            f"{self.lost} lost, {self.twice} twice, {self.stuck} left over, {self.not_converged} not converged, "
            f"{self.excused} excused; {seconds:.0f} s"
        )


def on_the_model(seeds: Iterable[int], *, steps: bool) -> Sum:
    """One walk after the other."""
    total, began = Sum(), time.monotonic()
    for seed in seeds:
        walked = walk(seed)
        total.add(walked)
        if steps:
            print("\n".join(walked.trail), flush=True)
        if steps or not walked.good:
            print(walked, flush=True)
        if total.walks % _EVERY == 0:
            print(f"so far: {total.line(time.monotonic() - began)}", flush=True)
    print(f"model: {total.line(time.monotonic() - began)}", flush=True)
    return total


async def on_real_servers(seeds: Iterable[int], versions: list[str], beside: int, *, steps: bool) -> list[int]:
    """Some at a time, on one version after the other; the seeds of those that are not good."""
    room, found, began = asyncio.Semaphore(beside), list[RealWalked](), time.monotonic()

    async def one(seed: int, version: str) -> None:
        async with room:
            with tempfile.TemporaryDirectory(prefix="reconciler-walk-") as place:
                walked = await real_walk(seed, version, Path(place))
        found.append(walked)
        if steps or not walked.good:
            print("\n".join(walked.trail), flush=True)
        print(walked, flush=True)

    await asyncio.gather(*(one(seed, version) for seed, version in zip(seeds, itertools.cycle(versions), strict=False)))
    happened = sum((walked.happened for walked in found), Counter[str]())
    told = ", ".join(f"{happened[what]} {what}" for what in ("kills", "refusals", "silences", "deeds"))
    counts = ", ".join(f"{sum(getattr(one, what) for one in found)} {what}" for what in ("lost", "twice", "stuck", "excused"))
    failed = [walked.seed for walked in found if not walked.good]
    print(
        f"real: {len(found)} walks, {sum(one.changes for one in found)} changes, {sum(one.messages for one in found)} messages, "
        f"{told}: {counts}, {sum(bool(one.trouble) for one in found)} not converged; {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return failed


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.prove_walks")
    parser.add_argument("--model", type=int, default=0, metavar="N", help="walks on the model server")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="walks on real servers")
    parser.add_argument("--version", action="append", help="of nats-server, for walks on real ones; repeats")
    parser.add_argument("--beside", type=int, default=_SIDE_BY_SIDE, metavar="N", help="walks on real servers at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the first walk; a single walk tells all its steps")
    given = parser.parse_args()
    failed = list[int]()
    if given.model:
        failed += on_the_model(range(given.seed, given.seed + given.model), steps=given.model == 1).failed
    if given.real:
        seeds = range(given.seed, given.seed + given.real)
        versions = given.version or list(DEFAULT_VERSIONS)
        failed += asyncio.run(on_real_servers(seeds, versions, given.beside, steps=given.real == 1))
    print(f"failed: {', '.join(map(str, failed))}" if failed else "all ok", flush=True)
    sys.exit(bool(failed))


def _hashing_alike() -> None:
    """Sets of texts have another order in each process, else."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tools.prove_walks", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - ourselves


if __name__ == "__main__":
    _hashing_alike()
    ending.in_order()
    main()
