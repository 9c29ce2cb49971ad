"""Full passes of a running daemon that change nothing, against fetching and discarding the very same pages."""

from __future__ import annotations

import statistics
from collections import Counter

from tests.support.account.wire import Audit, Wire
from tests.support.daemon.process import Daemon
from tools.bench.daemon_process import pass_now, requests
from tools.bench.measure import Measure, rounded, seconds
from tools.bench.noop_pass import LIMIT, NoopPass

_PHASES = ("load", "snapshot", "diff")
_WRITES = frozenset({"CREATE", "UPDATE", "DELETE", "PURGE", "PAUSE", "RESET"})
_DAEMON = "reconciler-"


async def passes(process: Daemon, reference: NoopPass, consumers: int, rounds: int) -> list[Measure]:
    """Elapsed by phase, and requests, of passes that are asked for one by one."""
    taken: list[dict[str, float]] = []
    fetched: list[float] = []
    asked: list[int] = []
    made: Counter[str] = Counter()
    for number in range(rounds + 1):
        fetch = await seconds(reference.fetch)
        before = await requests(process)
        found = await pass_now(process)
        after = await requests(process)
        if number:  # the first round warms up
            fetched.append(fetch)
            taken.append(found)
            asked.append((after - before).total())
            made += after - before
    writes = sum(count for operation, count in made.items() if operation.rpartition(".")[2] in _WRITES)
    return [_elapsed(consumers, taken, fetched), _requests(consumers, asked, reference.most_requests, writes)]


async def audited(process: Daemon, url: str, consumers: int) -> Measure:
    """What the server itself says was asked of it by a daemon that makes a pass."""
    async with await Wire.connect(url) as wire, wire.audit() as audit:
        await pass_now(process)
    daemons = {record["client"].get("name", "") for record in audit.records}
    writes, lists = _asked_by({name for name in daemons if name.startswith(_DAEMON)}, audit)
    return Measure(
        measure=f"daemon pass, {consumers} consumers, writes by the server's audit",
        value=writes,
        unit="requests",
        ratio=float(writes),
        limit=0,
        ok=not writes and lists > 0,
        detail={"lists": lists},
    )


def _asked_by(clients: set[str], audit: Audit) -> tuple[int, int]:
    writes = sum(len(audit.writes(name)) for name in clients)
    return writes, sum(".CONSUMER.LIST." in subject for name in clients for subject in audit.subjects(name))


def _elapsed(consumers: int, taken: list[dict[str, float]], fetched: list[float]) -> Measure:
    whole = [sum(phases.values()) for phases in taken]
    ratio = statistics.median(one / other for one, other in zip(whole, fetched, strict=True))
    phases = {name: rounded(statistics.median(one.get(name, 0.0) for one in taken)) for name in _PHASES}
    return Measure(
        measure=f"daemon pass, {consumers} consumers",
        value=rounded(statistics.median(whole)),
        unit="s",
        ratio=rounded(ratio),
        limit=LIMIT,
        ok=ratio <= LIMIT,
        detail={"fetch_seconds": rounded(statistics.median(fetched)), "phases": phases},
    )


def _requests(consumers: int, asked: list[int], most: int, writes: int) -> Measure:
    made = statistics.median(asked)
    return Measure(
        measure=f"daemon pass, {consumers} consumers, requests",
        value=made,
        unit="requests",
        ratio=rounded(made / most),
        limit=most,
        ok=made <= most and not writes,
        detail={"writes": writes},
    )
