"""Resources that a procedure is to change, with real messages in them, and the judgement of what became of those.

Invariant: judged by the numbers that clients published and received, never by counts of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.account.wire import Wire
from tests.support.account.work import Work, no_leftovers
from tests.support.daemon.command import Command
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.server.proxy import Verdict
from tests.support.values.catalogues import Json, consumer, everything, stream, write

RETENTIONS = ("limits", "interest", "workqueue")
ACK_WAIT = "1s"
FREELY = ("--max-change-percent", "100")


@dataclass(frozen=True)
class Case:
    """One resource and what is to happen to it."""

    kind: str
    """filter-add, recreate or move."""
    retention: str = "limits"
    step: int = 0
    """The write at which it is stopped, counted from 1; 0: none."""
    fate: Verdict = Verdict.PASS
    replicas: int = 1

    @property
    def name(self) -> str:
        """The stream (and, with `-2` behind it, the other one of a move)."""
        return f"{self.kind}-{self.retention}-{self.step}-{self.fate.value}"

    def subject(self, last: str) -> str:
        """A subject of its stream."""
        return f"{self.name}.{last}"

    def subjects(self, lasts: str) -> list[str]:
        """Several, one per letter."""
        return [self.subject(last) for last in lasts]

    @property
    def wanted(self) -> list[str]:
        """What its consumer shall deliver in the end."""
        return self.subjects("ab" if self.kind == "filter-add" else "a")

    def documents(self, *, after: bool) -> Iterator[Json]:
        """The manifests before or after the change."""
        several = {"replicas": self.replicas} if self.replicas > 1 else {}
        if self.kind == "move":
            first, second = ("a", "bc") if after else ("ab", "c")
            yield stream(self.name, *self.subjects(first), **several)
            yield stream(f"{self.name}-2", *self.subjects(second), **several)
            return
        yield stream(self.name, self.subject("*"), retention=self.retention, **several)
        filters = self.wanted if after else self.subjects("a")
        spec = {"maxWaiting": 7} if after and self.kind == "recreate" else {}
        yield consumer(self.name, "c", *filters, allow="recreate", ackWait=ACK_WAIT, **spec)
        if self.retention == "interest":
            yield consumer(self.name, "other", self.subject(">"))

    @property
    def key(self) -> str:
        """The change's key in a plan."""
        return f"Stream/{self.name}" if self.kind == "move" else f"Consumer/{self.name}/c"


class Shop:
    """Many cases on one server, applied together."""

    def __init__(self, server: Server, cli: Command, wire: Wire, directory: Path) -> None:
        self.server = server
        self.cli = cli
        self.wire = wire
        self.directory = directory
        self.cases: tuple[Case, ...] = ()
        self.work: dict[Case, Work] = {}
        self.promised: dict[Case, int] = {}
        """The duplicates that the plan expects."""

    @property
    def manifests(self) -> Path:
        """The manifests after the change."""
        return self.directory / "after.yaml"

    async def open(self, cases: Iterable[Case]) -> None:
        """Everything before the change: some messages handled, one taken and not acknowledged, the rest not delivered yet."""
        self.cases = tuple(cases)
        for name, after in (("before", False), ("after", True)):
            write(self.directory / f"{name}.yaml", (document for case in self.cases for document in case.documents(after=after)))
        await ran(self.cli, "apply", "-f", self.directory / "before.yaml", "--yes")
        for case in self.cases:
            work = self.work[case] = Work(self.wire, case.name)
            await work.publish(*case.subjects("babbacaa" if case.kind != "move" else "abcabc"))
            if case.kind == "move":
                continue
            assert await work.pull(2) == 2
            assert await work.pull(1, finish=False) == 1
            await work.publish(*case.subjects("ba"))
        plan = (await ran(self.cli, "plan", "-f", self.manifests, *FREELY, "--format", "json")).json
        changes = {change["key"]: change for change in plan["changes"]}
        for case in self.cases:
            assert changes[case.key]["action"] == "procedure", changes[case.key]
            self.promised[case] = changes[case.key]["procedure"]["expectedDuplicates"]

    async def look_again(self) -> None:
        """After a crash: what the plan of the rest promises is what counts."""
        plan = (await ran(self.cli, "plan", "-f", self.manifests, *FREELY, "--format", "json")).json
        for change in plan["changes"]:
            if change["procedure"]:
                case = next(case for case in self.cases if change["key"] in (case.key, f"{case.key}-2"))
                self.promised[case] = change["procedure"]["expectedDuplicates"]

    async def apply(self) -> None:
        """Make the change."""
        await ran(self.cli, "apply", "-f", self.manifests, "--yes", *FREELY)

    async def judge(self) -> None:
        """Nothing lost, no more duplicates than promised, nothing left over, and nothing to do any more."""
        for _ in range(3):
            await ran(self.cli, "plan", "-f", self.manifests, "--detailed-exitcode")
        live = await everything(self.wire)
        for case in self.cases:
            if case.kind == "move":
                await self._judge_move(case)
                continue
            work = self.work[case]
            await work.publish(*case.subjects("a"))
            await work.drain()
            assert work.lost(*case.wanted) == [], case
            assert len(work.duplicates) <= self.promised[case], (case, work.duplicates)
            info = await self.wire.consumer_info(case.name, "c")
            assert not info.get("paused"), case
            beside = {name.partition("/")[2] for name in live if name.startswith(f"{case.name}/")}
            no_leftovers(live[f"{case.name}/c"], beside)
            assert live[f"{case.name}/c"].get("max_waiting") == (7 if case.kind == "recreate" else 512), case
            assert sorted(live[f"{case.name}/c"].get("filter_subjects", [])) in (case.wanted, []), case

    async def _judge_move(self, case: Case) -> None:
        """What was stored stays where it is; what is published now is stored by the other stream."""
        work, second = self.work[case], f"{case.name}-2"
        await work.publish(*case.subjects("b"))
        stored = {name: [int(text) for text in await self.wire.payloads(name)] for name in (case.name, second)}
        assert stored == {case.name: [0, 1, 3, 4], second: [2, 5, 6]}, case
