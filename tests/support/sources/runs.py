"""Runs rows through a real daemon under load, and tells what became of every message.

Invariant: rows run side by side on streams of their own, and one that fails does not keep the others from being judged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.daemon.running import ran
from tests.support.promises import saw_migration
from tests.support.sources import aggregate
from tests.support.sources.aggregate import Verdict
from tests.support.sources.load import RATE, Sent, publishing
from tests.support.sources.rows import Lane, Side
from tests.support.values.catalogues import Json, write

FREELY = ("--prune", "--max-change-percent", "100")
PATIENCE = 60.0
"""Seconds for all the migrations of a batch."""
ARRIVAL = 60.0
"""A server of 2.14 looks for its source again after up to 40 s."""
_REFUSED_FOR_GOOD = 5.0
_GLANCE = 0.1
_LOG = 20_000
"""Characters of a log that are shown."""
_HEALTHY = 2 * 10**9


@dataclass(frozen=True)
class Outcome:
    """What became of one lane."""

    lane: Lane
    verdict: Verdict
    rate: float
    stuck: int
    seconds: float | None
    """From the manifests to the end of the migration; None where nothing was changed, or nothing came of it."""
    trouble: str = ""
    revived: int = 0
    """Acknowledged messages that a server which was killed has in its stream again; nobody is given them any more."""

    @property
    def exact(self) -> bool:
        """Nothing lost, nothing twice, nothing left over, and it came to its end."""
        return self.verdict.exact and not self.stuck and not self.trouble

    def __str__(self) -> str:
        verdict = "ok  " if self.exact else "FAIL"
        trouble = f": {self.trouble}" if self.trouble else ""
        revived = f", revived {self.revived}" if self.revived else ""
        took = "" if self.seconds is None else f", {self.seconds:.1f} s"
        return f"{verdict} {self.lane.name}: {self.rate:.0f}/s, {self.verdict}, stuck {self.stuck}{revived}{took}{trouble}"


@dataclass(frozen=True)
class Place:
    """A domain: where its clients connect to, and one of them."""

    url: str
    wire: Wire


@dataclass
class Batch:
    """Lanes, the manifests of all of them, and the publishers."""

    lanes: Sequence[Lane]
    places: Mapping[str, Place]
    """By domain; the aggregates are in that without a name."""
    cli: Command
    directory: Path
    number: int = 0
    """Of the daemons so far."""
    sent: dict[Lane, list[Sent]] = field(default_factory=dict)
    took: dict[Lane, float] = field(default_factory=dict)
    trouble: dict[Lane, str] = field(default_factory=dict)

    @property
    def manifests(self) -> Path:
        """One file."""
        return self.directory / "all.yaml"

    def declare(self, *, after: bool, **spec: Any) -> None:
        """Everything as it was, or as it shall be; `spec` is more about the aggregates."""
        write(self.manifests, [one for lane in self.lanes for one in side_of(lane, after=after).documents(lane, **spec)])

    def logs(self) -> str:
        """The end of what each daemon has logged, for whoever has to find out what went wrong."""
        found = ((self.directory / f"log{number}", number) for number in range(1, self.number + 1))
        parts = (f"-- daemon {number}\n{log.read_text(encoding='utf-8')[-_LOG:]}" for log, number in found if log.exists())
        return "\n".join(parts)

    @asynccontextmanager
    async def running(self, url: str = "", *, ready: bool = True, **environ: str) -> AsyncIterator[Daemon]:
        """A daemon for these manifests."""
        self.number += 1
        cli = replace(self.cli, url=url) if url else self.cli
        log = self.directory / f"log{self.number}"
        async with daemon(cli, log, "-f", self.manifests, *FREELY, ready=ready, **environ) as running:
            yield running

    async def flowing(self) -> None:
        """Waits until every source is connected: what is published on interest before that is nobody's."""
        for lane in self.lanes:
            await until(partial(self._connected, lane), PATIENCE)

    async def _connected(self, lane: Lane) -> bool:
        """Whether the aggregate hears its sources, and every durable on them is heard."""
        info = await self.places[""].wire.call(f"STREAM.INFO.{lane.aggregate}")
        if "error" in info:
            return False  # not made yet
        entries = info.get("sources") or [info.get("mirror") or {}]
        if not all(0 <= entry.get("active", -1) < _HEALTHY for entry in entries):
            return False
        for domain in lane.domains:
            request = f"CONSUMER.LIST.{lane.source}"
            found: list[Json] = (await self.places[domain].wire.expect(request))["consumers"] or []
            if not all(one.get("push_bound") for one in found) or (not found and lane.retention != "limits"):
                return False
        return True

    @asynccontextmanager
    async def loaded(self, rate: int = RATE) -> AsyncIterator[None]:
        """All publishers, as long as the block; `sent` afterwards."""
        async with AsyncExitStack() as stack:
            loads = [
                (
                    lane,
                    await stack.enter_async_context(
                        publishing(self.places[domain].url, lane.subjects(domain), rate=rate, tag=tag)
                    ),
                )
                for number, lane in enumerate(self.lanes)
                for domain in lane.domains
                for tag in [f"m{number}{domain}"]
            ]
            yield
            for (lane, _), sent in zip(loads, await asyncio.gather(*(load.stop() for _, load in loads)), strict=True):
                self.sent.setdefault(lane, []).append(sent)

    async def migrated(self, running: Daemon, since: float = 0.0, patience: float = PATIENCE) -> None:
        """Waits until all lanes are as declared (mirrors: refused); notes how long each took, or why it is not over."""
        since = since or time.monotonic()
        waiting, refused = list(self.lanes), dict[Lane, float]()
        while waiting and time.monotonic() - since < patience:
            document, now = await running.status(), time.monotonic()
            for lane in list(waiting):
                state = _state(document, lane)
                if state == "Synced":
                    self.took[lane] = now - since
                if state != "Blocked":
                    refused.pop(lane, None)
                elif now - refused.setdefault(lane, now) > _REFUSED_FOR_GOOD and not lane.row.mirror:
                    self.trouble[lane] = _reasons(document, lane)
                if state == "Synced" or (state == "Blocked" and (lane.row.mirror or lane in self.trouble)):
                    waiting.remove(lane)
            await asyncio.sleep(_GLANCE)
        document = await running.status()
        self.trouble |= {lane: f"not over after {patience:g} s: {_reasons(document, lane)}" for lane in waiting}
        self.trouble |= {lane: "a mirror was changed" for lane in self.lanes if lane.row.mirror and lane in self.took}

    async def judged(self, *, killed: bool = False) -> list[Outcome]:
        """Every lane, once everything has arrived; `killed`: the server was."""
        return list(await asyncio.gather(*(self._judge(lane, killed=killed) for lane in self.lanes)))

    async def _judge(self, lane: Lane, *, killed: bool) -> Outcome:
        sent, home = self.sent[lane], self.places[""]
        await aggregate.settled(home.wire, lane.aggregate, sum(len(each.ids()) for each in sent), ARRIVAL)
        held = await aggregate.held(home.url, lane.aggregate)
        verdict = aggregate.judge(held, sent)
        if verdict.duplicates:
            self.trouble.setdefault(lane, aggregate.copied_again(held, verdict.duplicates))
        stuck = revived = 0
        for domain in lane.domains if lane.retention != "limits" else ():
            left = await aggregate.stuck(self.places[domain].wire, lane.source, ARRIVAL)
            if left and killed and not await aggregate.due(self.places[domain].wire, lane.source):
                revived += left
            elif left:
                stuck += left
                self.trouble.setdefault(lane, await aggregate.readers(self.places[domain].wire, lane.source))
        config = (await home.wire.stream_info(lane.aggregate))["config"]
        assert not config.get("duplicate_window"), "the aggregate would hide what arrives twice"
        slowest = min(each.rate for each in sent)
        return Outcome(lane, verdict, slowest, stuck, self.took.get(lane), self.trouble.get(lane, ""), revived)

    async def nothing_to_do(self) -> list[str]:
        """Three plans, and a daemon that is started anew: what any of them finds to do."""
        found: list[str] = []
        refused = {f"Stream/{lane.aggregate}" for lane in self.lanes if lane.row.mirror}
        for _ in range(3):
            ended = await ran(self.cli, "plan", "-f", self.manifests, *FREELY, "--format", "json")
            found += [f"planned: {change}" for change in ended.json["changes"] if change["key"] not in refused]
        async with self.running() as again:
            await again.looked()
            found += [f"done anew: {line}" for line in again.lines("change.ended") if line["resource"] not in refused]
            await again.stop()
        return found


def all_exact(outcomes: Iterable[Outcome], found_to_do: Iterable[str], seed: int) -> None:
    """Tells about each that is not, and about all that was still found to do."""
    judged = list(outcomes)
    for outcome in judged:
        if outcome.exact:
            saw_migration(outcome.lane.row.name)
    wrong = [str(outcome) for outcome in judged if not outcome.exact]
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)
    found = list(found_to_do)
    assert not found, "\n".join(found)


def side_of(lane: Lane, *, after: bool) -> Side:
    """How its entry is declared."""
    return lane.row.after if after else lane.row.before


def over(document: Json, lane: Lane) -> bool:
    """Whether nothing is to be done about it any more."""
    return _state(document, lane) == "Synced"


def _state(document: Json, lane: Lane) -> str:
    """Of all its resources together: Synced, Blocked, or on its way."""
    states = {one["state"] for one in _resources(document, lane)}
    busy = any(one["state"] == "running" and lane.aggregate in one["key"] for one in document["procedures"])
    if busy or not states <= {"Synced", "Blocked"}:
        return "Progressing"
    return "Blocked" if "Blocked" in states else "Synced"


def _resources(document: Json, lane: Lane) -> list[Json]:
    return [one for one in document["resources"] if one["key"].split("/")[1] in (lane.source, lane.aggregate)]


def _reasons(document: Json, lane: Lane) -> str:
    odd: list[dict[str, Any]] = [
        {name: value for name, value in one.items() if value and name in ("key", "state", "reason", "message", "reasons")}
        for one in _resources(document, lane)
        if one["state"] != "Synced"
    ]
    under_way = [one for one in document["procedures"] if lane.aggregate in one["key"]]
    return f"{odd} {under_way}"


async def run(batch: Batch, *, seconds: float, rate: int = RATE) -> list[Outcome]:
    """Before, load, after, judged: the whole of it, undisturbed."""
    batch.declare(after=False)
    async with batch.running() as running:
        await running.until(settled)
        await batch.flowing()
        async with batch.loaded(rate):
            begun = time.monotonic()
            await asyncio.sleep(seconds / 4)
            since = time.monotonic()
            await changed(batch, running)
            await batch.migrated(running, since)
            await asyncio.sleep(max(1.0, seconds - (time.monotonic() - begun)))
        outcomes = await batch.judged()
        await running.stop()
    return outcomes


async def changed(batch: Batch, running: Daemon, *, after: bool = True) -> None:
    """The manifests after (or before, again), and word of them; when this returns everything was compared with them."""
    before = (await running.status())["manifests"]["loadedAt"]
    batch.declare(after=after)
    await running.post("/-/reload")
    await running.until(lambda document: bool(document["manifests"]["loadedAt"] != before))
    await running.looked()


async def _unheard(_: Exception) -> None:
    """Servers go away here on purpose."""


@asynccontextmanager
async def batch_of(lanes: Iterable[Lane], url: str, directory: Path, **leaves: Place) -> AsyncIterator[Batch]:
    """A batch in an empty directory."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - at once
    async with await Wire.connect(url, error_cb=_unheard) as wire:
        batch = Batch(tuple(lanes), {"": Place(url, wire), **leaves}, Command(directory, url), directory)
        try:
            yield batch
        except Exception as error:
            error.add_note(batch.logs())
            raise
