"""One walk on a real server, under load: a daemon or an `apply` through a network that fails, killed at any moment.

Invariant: all that is chosen is chosen by the seed; when exactly something happens, the machine decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.account.wire import Json, Wire
from tests.support.daemon.command import Ended
from tests.support.daemon.leadership import release_for_the_dead
from tests.support.daemon.process import settled
from tests.support.daemon.running import ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.sources.rows import PLAIN, RETENTIONS, Lane, Row, Side, managed, user
from tests.support.sources.runs import FREELY, Batch, batch_of
from tests.support.values.catalogues import write

RATE = 200
"""Messages a second, of all lanes together."""
MOST_CHANGES = 5
_PATIENCE = 180.0
_TIMEOUT = "2s"
_FAR = "2099-01-01T00:00:00Z"
_ALL = {"src": "$P.>", "dest": "moved.$P.>"}
FORMS: tuple[Side, ...] = (
    PLAIN,
    managed("c"),
    managed("d"),
    user("u"),
    user("v"),
    user("c"),
    user("u", deliver="elsewhere.$P.u"),
    managed("c", subjectTransforms=[_ALL]),
)
_SILENCES = (Verdict.DROP, Verdict.MUTE)
_REFUSALS = (Verdict.REFUSE, Verdict.DENY)


@dataclass
class Network:
    """The rule of a proxy: now and then a write, or its answer, does not come through."""

    dice: Random
    silent: float
    refused: float
    happened: Counter[str]
    calm: bool = False

    def __call__(self, request: Request) -> Verdict:
        """What becomes of it."""
        if self.calm or not request.is_write:
            return Verdict.PASS
        chance = self.dice.random()
        if chance < self.silent:
            self.happened["silences"] += 1
            return self.dice.choice(_SILENCES)
        if chance < self.silent + self.refused:
            self.happened["refusals"] += 1
            return self.dice.choice(_REFUSALS)
        return Verdict.PASS


@dataclass
class RealWalked:
    """What became of it."""

    seed: int
    version: str
    happened: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    messages: int = 0
    lost: int = 0
    twice: int = 0
    stuck: int = 0
    excused: int = 0
    """Twice, lost or left over where a person had a hand in it that is known to cost that."""
    trouble: list[str] = field(default_factory=list)
    trail: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Nothing lost, nothing twice, nothing left over, and nothing to do any more."""
        return not (self.lost or self.twice or self.stuck or self.trouble)

    def __str__(self) -> str:
        happened = ", ".join(f"{count} {what}" for what, count in sorted(self.happened.items()))
        counts = f"{self.messages} messages, {self.lost} lost, {self.twice} twice, {self.stuck} left over"
        excused = f", {self.excused} excused" if self.excused else ""
        verdict = "ok  " if self.good else "FAIL"
        trouble = f": {'; '.join(self.trouble)[:600]}" if self.trouble else ""
        return f"{verdict} seed {self.seed}, {self.version}: {happened}: {counts}{excused}, {self.seconds:.0f} s{trouble}"


async def real_walk(seed: int, version: str, directory: Path) -> RealWalked:
    """The walk with this seed, on a server of its own."""
    walked, began = RealWalked(seed, version), time.monotonic()
    dice = Random(f"real {seed}")
    names = [f"{number}" for number in range(dice.choice((1, 1, 2)))]
    lanes = [Lane(Row(f"walk {name}", FORMS[0], FORMS[0]), dice.choice(RETENTIONS)) for name in names]
    try:
        with Server(directory / "server", version=version) as server:
            async with batch_of(lanes, server.url, directory / "batch") as batch:
                await _Walk(batch, server, dice, walked).to_end()
    except Exception as error:  # noqa: BLE001 - one walk, never the rest
        walked.trail.append(traceback.format_exc()[-3000:])
        walked.trouble.append(f"{error!r}")
    walked.seconds = time.monotonic() - began
    return walked


class _Walk:
    """A walk under way."""

    def __init__(self, batch: Batch, server: Server, dice: Random, walked: RealWalked) -> None:
        self.batch, self.server, self.dice, self.walked = batch, server, dice, walked
        self.wire: Wire = batch.places[""].wire
        self.meddled = dice.random() < 0.3
        self.by_hand = dice.random() < 0.3
        """There is no daemon: somebody applies, again and again."""
        self.network = Network(dice, dice.choice((0.0, 0.0, 0.05)), dice.choice((0.0, 0.05, 0.1)), walked.happened)
        self.killing = dice.choice((0.0, 0.4, 0.8))
        self.forms = [dice.choice(FORMS) for _ in batch.lanes]
        self.words = 0
        self.costly: set[Lane] = set()
        """A person did something to their durables that may cost duplicates, or leave some behind;"""
        self.losing: set[Lane] = set()
        """or, on interest, messages."""
        walked.changes = dice.randint(1, MOST_CHANGES)

    async def to_end(self) -> None:
        """All of it."""
        self._declare()
        await ran(self.batch.cli, "apply", "-f", self.batch.manifests, "--yes", *FREELY)
        await self.batch.flowing()
        async with self.batch.loaded(RATE // len(self.batch.lanes)):
            await asyncio.sleep(0.5)
            async with Proxy(self.server.port, self.network) as proxy:
                for _ in range(self.walked.changes):
                    self._change()
                    await self._live(proxy.url)
            self.network.calm = True
            await self._converge()
        await self._judge()

    def _declare(self) -> None:
        spec = {"description": f"words {self.words}"} if self.words else {}
        some = zip(self.batch.lanes, self.forms, strict=True)
        write(self.batch.manifests, [one for lane, form in some for one in form.documents(lane, **spec)])

    def _change(self) -> None:
        self.forms = [self.dice.choice(FORMS) if self.dice.random() < 0.8 else form for form in self.forms]
        self.words += self.dice.random() < 0.3
        self._note(f"manifests: {[(form.entry, form.consumers) for form in self.forms]}, words {self.words}")
        self._declare()

    async def _live(self, url: str) -> None:
        """The new manifests are in force for a while, and whoever applies them may die."""
        for _ in range(self.dice.choice((1, 1, 2, 3))):
            dies = self.dice.random() < self.killing
            async with self._process(url, dies=dies):
                for _ in range(self.dice.randint(1, 3)):
                    await asyncio.sleep(self.dice.uniform(0.1, 1.2))
                    await self._meddle()
            if not dies:
                return
            self.walked.happened["kills"] += 1
            self._note("killed")
            await release_for_the_dead(self.wire)

    @contextlib.asynccontextmanager
    async def _process(self, url: str, *, dies: bool) -> AsyncIterator[None]:
        """Killed at the end of the block, with whatever it is about, or asked to end; an apply is let come to its end."""
        if self.by_hand:
            impatient = {"NATS_TIMEOUT": _TIMEOUT, "NATS_URL": url}
            arguments = ("apply", "-f", self.batch.manifests, "--yes", "--continue", "--timeout", "20s", *FREELY)
            async with started(self.batch.cli, *arguments, **impatient) as applying:
                yield
                if not dies:
                    await applying.wait(_PATIENCE)
            return
        async with self.batch.running(url, ready=False, NATS_TIMEOUT=_TIMEOUT) as daemon:
            await daemon.listening()
            yield
            if not dies:
                await daemon.stop()

    async def _meddle(self) -> None:
        if not self.meddled or self.dice.random() < 0.5:
            return
        lane = self.dice.choice(self.batch.lanes)
        here = (await self.wire.call(f"CONSUMER.NAMES.{lane.source}")).get("consumers") or []
        own = [name for name in here if name in ("c", "d", "u", "v")]
        deed = self.dice.choice(("pause", "resume", "delete", "wipe", "wipe aggregate"))
        if deed == "wipe aggregate":
            config = await self._wiped(f"STREAM.INFO.{lane.aggregate}")
            await self.wire.call(f"STREAM.UPDATE.{lane.aggregate}", config)
        elif own:
            await self._to_durable(deed, lane, self.dice.choice(own))
        else:
            return
        self.walked.happened["deeds"] += 1
        self._note(f"a person: {deed} {lane.source} {own}")

    async def _to_durable(self, deed: str, lane: Lane, name: str) -> None:
        path = f"{lane.source}.{name}"
        if deed in ("pause", "resume"):
            self.costly |= {lane} if deed == "resume" else set()
            await self.wire.call(f"CONSUMER.PAUSE.{path}", {"pause_until": _FAR} if deed == "pause" else {})
        elif deed == "delete":
            self.costly.add(lane)
            self.losing |= {lane} if lane.retention == "interest" else set()
            await self.wire.call(f"CONSUMER.DELETE.{path}")
        else:
            self.costly.add(lane)
            config = await self._wiped(f"CONSUMER.INFO.{path}")
            body = {"stream_name": lane.source, "config": config, "action": "update"}
            await self.wire.call(f"CONSUMER.CREATE.{path}", body)

    async def _wiped(self, request: str) -> Json:
        config: Json = (await self.wire.call(request)).get("config", {})
        return {**config, "metadata": {}}

    async def _converge(self) -> None:
        """A daemon that nobody disturbs; what a person has paused, or made look so, that person resumes."""
        more = ["--adopt"] if self.meddled else []
        for lane in self.batch.lanes if self.meddled else ():
            more += ["--allow", f"data-loss=Stream/{lane.aggregate}"]
            more += [part for name in "cduv" for part in ("--allow", f"data-loss=Consumer/{lane.source}/{name}")]
        deadline = time.monotonic() + _PATIENCE
        said = ""
        while time.monotonic() < deadline:
            if self.meddled:
                await self._resume_all()
            arguments: tuple[str | Path, ...] = ("-f", self.batch.manifests, *FREELY, *more)
            ended = await self._ended("apply", *arguments, "--yes", "--continue")
            said = (ended.out + ended.err)[-500:]
            if (await self._ended("plan", *arguments, "--detailed-exitcode")).code == 0:
                await self._settled()
                return
            await asyncio.sleep(0.5)
        self.walked.trouble.append(f"not converged after {_PATIENCE:g} s: {said}")

    async def _ended(self, *arguments: str | Path) -> Ended:
        """A command, however long it takes: a server of 2.14 looks for a source again after 40 s."""
        async with started(self.batch.cli, *arguments) as running:
            return await running.wait(_PATIENCE)

    async def _settled(self) -> None:
        async with self.batch.running() as daemon:
            await daemon.until(settled, _PATIENCE)
            await daemon.stop()

    async def _resume_all(self) -> None:
        for lane in self.batch.lanes:
            for one in (await self.wire.call(f"CONSUMER.LIST.{lane.source}")).get("consumers") or []:
                if one.get("paused"):
                    await self.wire.call(f"CONSUMER.PAUSE.{lane.source}.{one['name']}", {})

    async def _judge(self) -> None:
        walked = self.walked
        for outcome in await self.batch.judged():
            lane, verdict = outcome.lane, outcome.verdict
            walked.messages += verdict.published
            lost, twice, stuck = len(verdict.missing), len(verdict.duplicates), outcome.stuck
            self._note(str(outcome))
            if lane in self.losing:
                walked.excused, lost = walked.excused + lost, 0
            if lane in self.costly:
                walked.excused, twice, stuck = walked.excused + twice + stuck, 0, 0
            walked.lost, walked.twice, walked.stuck = walked.lost + lost, walked.twice + twice, walked.stuck + stuck
        plan = await ran(self.batch.cli, "plan", "-f", self.batch.manifests, *FREELY, "--format", "json")
        walked.trouble += [f"still to do: {change['key']} {change['action']}" for change in plan.json["changes"]]

    def _note(self, text: str) -> None:
        self.walked.trail.append(text)
