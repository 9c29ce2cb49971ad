"""What a measure is: one figure, judged against its limit, printed as one line of JSON.

Invariant: a ratio compares two things done alternately in the same run, so that what else the machine does hits both.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything is measured."""

    consumers: tuple[int, ...]
    """Numbers of consumers for passes and memory."""
    streams: int
    rounds: int
    creates: int
    documents: int
    filtered: int
    """Consumers with many filters."""
    filters: int
    edits: int
    """By others, to be repaired by a daemon."""
    churn: float
    """Seconds for which others change what a daemon keeps."""
    plans: tuple[tuple[int, int], ...]
    """Partitions and workers of the large plans; speed is measured with the first."""
    spark: tuple[tuple[int, int], ...]
    """The same, of those that Spark plans."""


FULL = Sizes(
    consumers=(10_000, 100_000),
    streams=100,
    rounds=5,
    creates=2_000,
    documents=100_000,
    filtered=10_000,
    filters=500,
    edits=200,
    churn=600.0,
    plans=((1_000_000, 2_000), (10_000_000, 10_000)),
    spark=((1_000_000, 2_000), (10_000_000, 10_000)),
)
QUICK = Sizes(
    consumers=(2_000,),
    streams=20,
    rounds=3,
    creates=1_000,
    documents=2_000,
    filtered=300,
    filters=500,
    edits=200,
    churn=20.0,
    plans=((100_000, 200),),
    spark=((1_000_000, 2_000),),
)
TINY = Sizes(
    consumers=(300,),
    streams=3,
    rounds=1,
    creates=64,
    documents=200,
    filtered=8,
    filters=50,
    edits=10,
    churn=2.0,
    plans=((20_000, 40),),
    spark=((20_000, 40),),
)
"""Proves that every measure still runs; its figures mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the result. Without a limit it is only reported."""

    measure: str
    value: float
    unit: str
    ratio: float | None = None
    limit: float | None = None
    ok: bool = True
    detail: dict[str, object] | None = None

    def line(self) -> bytes:
        """As JSON."""
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "detail"}
        return orjson.dumps(shown | (self.detail or {}))


def rounded(value: float) -> float:
    """Three significant digits are more than a noisy machine can promise."""
    return float(f"{value:.3g}")


async def alternating(first: Work, second: Work, rounds: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of `first`/`second` pairs; each has one run before that does not count."""
    await second()
    await first()
    pairs = [(await seconds(first), await seconds(second)) for _ in range(rounds)]
    ratio = statistics.median(one / other for one, other in pairs)
    return statistics.median(one for one, _ in pairs), statistics.median(other for _, other in pairs), ratio


async def seconds(work: Work) -> float:
    """How long it takes."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def tell(text: str) -> None:
    """Progress: the long measures should not look like a hang."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
