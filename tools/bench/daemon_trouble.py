"""A daemon beside what does not answer, and under a commit a second: what it does elsewhere, and whether anything still ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reconciler.engine.daemon.keeper import SIDE_BY_SIDE
from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict, let_pass
from tests.support.values.catalogues import Json, consumer, stream, write
from tools.bench.daemon_latency import latency
from tools.bench.daemon_process import document, running
from tools.bench.measure import Measure, rounded

SILENT = 50
WAITING = 60
"""Procedures that there is no room for yet."""
_BESIDE = 100.0
"""Milliseconds for 99 of 100 repairs."""
_BESIDE_PROCEDURES = 50.0
_GROWS = 10
"""Commits from one filter more to the next."""
_ENDS = 15.0
"""Seconds within which everything is as declared after the last commit."""
_LOOK = 0.02
_PLACES = [(f"FEW{number}", "c") for number in range(4)]
_FEW = [one for name, _ in _PLACES for one in (stream(name, f"{name}.>"), consumer(name, "c", f"{name}.a"))]
"""What is edited."""


async def beside_silence(server: Server, scratch: Path, edits: int) -> Measure:
    """Repairs of a few resources while fifty streams and a whole domain do not answer, and everything is looked at meanwhile."""
    names = [f"SILENT{number}" for number in range(SILENT)]
    silent = [one for name in names for one in (stream(name, f"{name}.>"), consumer(name, "c", f"{name}.a"))]
    away = stream("AWAY", "away.>")
    away["spec"]["domain"] = "away"
    manifests = scratch / "manifests"
    manifests.mkdir(parents=True)
    write(manifests / "some.yaml", [*_FEW, *silent])
    name = f"{SILENT} streams and a domain do not answer"
    async with Proxy(server.port) as proxy, running(proxy.url, manifests, scratch, interval="10s") as process:
        proxy.rule = _nothing_there
        write(manifests / "away.yaml", [away])
        await process.post("/-/reload")
        await _looked(process)
        found = await latency(server.url, name, _PLACES, edits, limit=_BESIDE)
        proxy.rule = let_pass
        return found


async def beside_procedures(url: str, scratch: Path, edits: int) -> Measure:
    """Repairs of a few resources while as many procedures as may be wait for workers, and others for their turn."""
    manifests, many = scratch / "manifests", SIDE_BY_SIDE + WAITING
    manifests.mkdir(parents=True)

    def declare(*filters: str) -> None:
        consumers = (consumer("MANY", f"c{number}", *filters) for number in range(many))
        write(manifests / "all.yaml", [*_FEW, stream("MANY", "many.>"), *consumers])

    declare("many.a")
    async with await Wire.connect(url, name="workers") as wire, running(url, manifests, scratch, interval="10s") as process:
        await wire.publish("many.a")
        await wire.publish("many.b")
        taken = await wire.client.subscribe("taken")
        for number in range(many):
            await wire.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.MANY.c{number}", b"1", reply="taken")
            await taken.next_msg(5)  # nobody acknowledges it
        declare("many.a", "many.b")
        await process.post("/-/reload")
        while len((await document(process))["procedures"]) < SIDE_BY_SIDE:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_LOOK)
        name = f"{SIDE_BY_SIDE} procedures under way, {WAITING} wait"
        return await latency(url, name, _PLACES, edits, limit=_BESIDE_PROCEDURES)


async def _looked(process: Daemon) -> None:
    """Everything was held against the new manifests."""
    number = (await document(process))["lastPass"]["number"]
    while (await document(process))["lastPass"]["number"] == number:  # noqa: ASYNC110 - another process
        await asyncio.sleep(_LOOK)


def _nothing_there(request: Request) -> Verdict:
    silent = ".SILENT" in request.subject or request.subject.startswith("$JS.away.")
    return Verdict.DROP if silent else Verdict.PASS


async def a_commit_a_second(url: str, scratch: Path, seconds: float) -> Measure:
    """Each commit edits a consumer; every tenth gives another a filter that matches what is stored: that takes a procedure."""
    manifests, commits = scratch / "manifests", int(seconds)
    manifests.mkdir(parents=True)
    write(manifests / "all.yaml", _commit(0))
    in_time = 0
    async with await Wire.connect(url, name="somebody") as wire:
        cli = Command(scratch, url)
        async with daemon(cli, scratch / "log", "-f", manifests, "--max-change-percent", "100", "--interval", "1h") as process:
            for number in range(-(-commits // _GROWS)):
                await wire.publish(f"commits.{number}", 3)
            for number in range(1, commits + 1):
                began = time.monotonic()
                write(manifests / "all.yaml", _commit(number))
                await process.post("/-/reload")
                in_time += await _until(process, wire, number, began + 1.0)
                await asyncio.sleep(max(0.0, began + 1.0 - time.monotonic()))
            last = time.monotonic()
            ended = await _until(process, wire, commits, last + _ENDS, everything=True)
            took = time.monotonic() - last
            changes = [line for line in process.lines("change.ended") if line.get("result") == "applied"]
    procedures = sum("procedure" in line for line in changes)
    return Measure(
        measure="daemon, a commit a second",
        value=rounded(took),
        unit="s",
        limit=_ENDS,
        ok=ended,
        detail={"commits": commits, "in_place_within_a_second": in_time, "procedures_ended": procedures},
    )


def _commit(number: int) -> Sequence[Json]:
    filters = [f"commits.{one}" for one in range(number // _GROWS + 1)]
    growing, edited = consumer("COMMITS", "growing", *filters), consumer("COMMITS", "edited", "other", maxDeliver=number + 1)
    return [stream("COMMITS", "commits.>", "other", description=f"commit {number}"), growing, edited]


async def _until(process: Daemon, wire: Wire, number: int, deadline: float, *, everything: bool = False) -> bool:
    """Whether the edit of this commit, or everything, is in place by then."""
    filters = sorted(f"commits.{one}" for one in range(number // _GROWS + 1))
    while time.monotonic() < deadline:
        edited, growing = [(await _config(wire, name)) for name in ("edited", "growing")]
        grown = sorted(growing.get("filter_subjects") or [growing.get("filter_subject")]) == filters
        if edited.get("max_deliver") == number + 1 and (grown or not everything):
            return not everything or "journal" not in str(growing.get("metadata"))
        if process.ended:
            raise RuntimeError(process.log())
        await asyncio.sleep(_LOOK)
    return False


async def _config(wire: Wire, name: str) -> dict[str, Any]:
    found = await wire.call(f"CONSUMER.INFO.COMMITS.{name}")
    config: dict[str, Any] = found.get("config") or {}
    return config
