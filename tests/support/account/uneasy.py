"""Consumers and streams that procedures change on a cluster whose leaders step down, with publishers and workers that go on.

Invariant: judged by the numbers that clients published and handled; a publisher tries again, under the same id, until the server
has confirmed a number, and a worker has handled what it was given and has begun to acknowledge.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import nats.errors

from tests.support.account.shops import FREELY, Case
from tests.support.account.wire import Wire
from tests.support.account.work import no_leftovers
from tests.support.daemon.command import Command
from tests.support.daemon.running import ran
from tests.support.sources.elections import Unrest
from tests.support.values.catalogues import everything, write

_PAUSE = 0.02
_PATIENCE = 240.0
"""Seconds until everything is as declared."""
_DRAINED = 20.0
REPLICAS = 3

CASES = (
    Case("move", replicas=REPLICAS),
    *(Case("recreate", retention, replicas=REPLICAS) for retention in ("limits", "interest", "workqueue")),
    *(Case("filter-add", retention, replicas=REPLICAS) for retention in ("limits", "workqueue")),
)
"""A filter is not added to a consumer of a replicated interest stream: nothing moves one back."""


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    case: Case
    published: int
    lost: list[int]
    twice: list[int]
    """Handled, and delivered again; of a move: stored by both streams."""
    seconds: float
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Nothing lost, nothing left over, and it came to its end."""
        return not self.lost and not self.trouble

    def __str__(self) -> str:
        verdict, trouble = "ok  " if self.good else "FAIL", f": {self.trouble}" if self.trouble else ""
        counts = f"published {self.published}, lost {len(self.lost)}, twice {len(self.twice)}"
        return f"{verdict} {self.case.name}: {counts}, {self.seconds:.1f} s{trouble}"


@dataclass
class Hands:
    """The publisher and the worker of one case."""

    wire: Wire
    case: Case
    published: dict[int, str] = field(default_factory=dict)
    handled: set[int] = field(default_factory=set)
    twice: list[int] = field(default_factory=list)

    async def publish(self, over: asyncio.Event) -> None:
        """One number after the other, going round the subjects."""
        subjects = self.case.subjects("abc" if self.case.kind == "move" else "ab")
        while not over.is_set():
            number = len(self.published)
            subject = subjects[number % len(subjects)]
            await self._store(subject, number)
            self.published[number] = subject
            await asyncio.sleep(_PAUSE)

    async def _store(self, subject: str, number: int) -> None:
        while True:
            with suppress(nats.errors.Error, TimeoutError):
                headers = {"Nats-Msg-Id": f"{self.case.name}-{number}"}
                reply = await self.wire.client.request(subject, str(number).encode(), timeout=1, headers=headers)
                if "error" not in json.loads(reply.data):
                    return
            await asyncio.sleep(_PAUSE)

    async def work(self, over: asyncio.Event) -> None:
        """Take and acknowledge what comes; every tenth message is left to come again."""
        while not over.is_set():
            with suppress(nats.errors.Error, TimeoutError):
                await self._take_one()

    async def _take_one(self) -> bool:
        request = json.dumps({"batch": 1, "expires": 200_000_000}).encode()
        place = f"$JS.API.CONSUMER.MSG.NEXT.{self.case.name}.c"
        message = await self.wire.client.request(place, request, timeout=1, old_style=True)
        if (message.headers or {}).get("Status") or not message.reply:
            await asyncio.sleep(_PAUSE)
            return False
        number = int(message.data)
        if number in self.handled:
            self.twice.append(number)
        if number % 10 or len(message.reply.split(".")) < 4 or int(message.reply.split(".")[4]) > 1:
            self.handled.add(number)  # done, whether or not its acknowledgement is confirmed
            await self.wire.client.request(message.reply, b"+ACK", timeout=1)
        return True

    async def drain(self) -> None:
        """Until everything that it shall have was handled, or nothing comes for long."""
        wanted = {number for number, subject in self.published.items() if subject in self.case.wanted}
        since = time.monotonic()
        while wanted - self.handled and time.monotonic() - since < _DRAINED:
            with suppress(nats.errors.Error, TimeoutError):
                await self._take_one()

    def lost(self) -> list[int]:
        """What its consumer shall deliver, and nobody has handled."""
        return [
            number for number, subject in self.published.items() if subject in self.case.wanted and number not in self.handled
        ]


@asynccontextmanager
async def _going_on(hands: list[Hands]) -> AsyncIterator[None]:
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for one in hands:
            group.create_task(one.publish(over))
            if one.case.kind != "move":
                group.create_task(one.work(over))
        try:
            yield
        finally:
            over.set()


async def uneasy(url: str, directory: Path, unrest: Unrest, seconds: float, cases: tuple[Case, ...] = CASES) -> list[Verdict]:
    """Before, load, after, judged; leaders step down from the load on."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - at once
    cli = Command(directory, url)
    for name, after in (("before", False), ("after", True)):
        write(directory / f"{name}.yaml", (document for case in cases for document in case.documents(after=after)))
    await ran(cli, "apply", "-f", directory / "before.yaml", "--yes")
    async with await Wire.connect(url, error_cb=_unheard) as wire:
        hands = [Hands(wire, case) for case in cases]
        streams = [name for case in cases for name in ((case.name, f"{case.name}-2") if case.kind == "move" else (case.name,))]
        async with _going_on(hands):
            stepping = asyncio.create_task(unrest.during(wire, streams))
            try:
                await asyncio.sleep(seconds / 4)
                since = time.monotonic()
                trouble = await _applied(cli, directory / "after.yaml")
                took = time.monotonic() - since
                await asyncio.sleep(max(1.0, seconds * 3 / 4 - took))
            finally:
                stepping.cancel()
                with suppress(asyncio.CancelledError):
                    await stepping
            await asyncio.sleep(1)
        live = await everything(wire)
        return [await _judged(one, live, took, trouble) for one in hands]


async def _applied(cli: Command, manifests: Path) -> str:
    """Again and again, until there is nothing to do; why there still is."""
    since, said = time.monotonic(), ""
    while time.monotonic() - since < _PATIENCE:
        ended = await ran(cli, "apply", "-f", manifests, "--yes", "--continue", *FREELY, code=None)
        said = (ended.out + ended.err)[-500:]
        if (await ran(cli, "plan", "-f", manifests, "--detailed-exitcode", code=None)).code == 0:
            return ""
        await asyncio.sleep(random.uniform(0.2, 1.0))
    return said


async def _judged(hands: Hands, live: dict[str, dict[str, object]], took: float, trouble: str) -> Verdict:
    case = hands.case
    if case.kind == "move":
        stored = [int(text) for name in (case.name, f"{case.name}-2") for text in await hands.wire.payloads(name)]
        lost = [number for number in hands.published if number not in set(stored)]
        return Verdict(case, len(hands.published), lost, sorted({one for one in stored if stored.count(one) > 1}), took, trouble)
    await hands.drain()
    no_leftovers(live[f"{case.name}/c"], {name.partition("/")[2] for name in live if name.startswith(f"{case.name}/")})
    if (await hands.wire.consumer_info(case.name, "c")).get("paused"):
        trouble = f"{trouble} it is paused"
    return Verdict(case, len(hands.published), hands.lost(), hands.twice, took, trouble)


async def _unheard(_: Exception) -> None:
    """Leaders go away here on purpose."""
