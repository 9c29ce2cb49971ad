"""Proves on real servers that no change of how a stream copies others loses or repeats a message; one line per migration.

    python -m tools.prove_sourcing                      everything, some two hours
    python -m tools.prove_sourcing rows kills           only these groups: rows, cluster, elections, procedures, kills, …
    python -m tools.prove_sourcing rows --only renamed --retention interest --version 2.15.1

| group | what happens to each row |
|---|---|
| rows | nothing: at full rate for `--seconds`, on each version |
| cluster | the same on three servers |
| elections | the same, while leaders of streams and durables step down every `--step-downs` seconds |
| unchanged | nothing is changed, and leaders step down: what the servers copy again by themselves, on this machine as it is |
| procedures | the same to filters that are added, consumers that are made anew and subjects that move |
| kills | the daemon is killed at every write of each row, which never came or was executed, and it knows neither |
| restart | the server stops and starts in the middle |
| leaf | sources of one name in two leaf domains; the link of one is cut for 20 s in the middle |
| deaths | nothing is changed, and the server is killed 20 times |

Invariant: a line says `ok` only when every id that the server confirmed is in the aggregate once, nothing is left in a source
that keeps nothing, and afterwards three plans and a daemon that is started anew find nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.support.account.uneasy import uneasy
from tests.support.cluster.servers import Cluster
from tests.support.server.binaries import DEFAULT_VERSIONS
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.server.proxy import Verdict
from tests.support.sources.elections import Unrest, elected
from tests.support.sources.kills import Stop, Stops, disturbed, killed_at, server_killed
from tests.support.sources.load import RATE
from tests.support.sources.rows import MIRRORS, RETENTIONS, ROWS, Lane, Row, lanes
from tests.support.sources.runs import Batch, Outcome, Place, batch_of, run
from tools import ending

_SLOW = 500
"""Messages a second where many rows run side by side, since what counts there is when something dies."""
_MOST_STEPS = 14
_FATES = (Verdict.REFUSE, Verdict.DENY)
"""Of the write, and what the daemon hears: nothing would be no difference to the server, and holds up all that it has to do."""
_SIDE_BY_SIDE = 17
_AWAY = 20.0
_DEATHS = 20
_NEAR = 0.95
"""How much of the rate that was asked for has to be reached, on a machine that is busy with it."""

_DOMAINS = ("east", "west")
_ON_LEAVES = 6

Doing = Callable[[Batch, Server], Awaitable[list[Outcome]]]


@dataclass
class Proof:
    """What was asked for, and what came of it."""

    versions: list[str]
    rows: list[Row]
    retentions: tuple[str, ...]
    seconds: float
    rate: int
    beside: int
    steps: range
    seed: int
    step_downs: float = 0.5
    failed: int = 0

    @property
    def lanes(self) -> list[Lane]:
        """On one server."""
        return lanes(*self.rows, retentions=self.retentions)

    async def undisturbed(self) -> None:
        """The group `rows`."""
        for version, some in self._packs(self.lanes, self.beside):
            await self._on_a_server("rows", version, some, lambda batch, _: run(batch, seconds=self.seconds, rate=self.rate))

    async def clustered(self) -> None:
        """The group `cluster`."""
        for version, some in self._packs([replace(lane, replicas=3) for lane in self._changing], 1):
            with _scratch() as place, Cluster(place / "cluster", version=version) as cluster:
                async with batch_of(some, cluster.url, place / "batch") as batch:
                    await self._tell("cluster", version, batch, await run(batch, seconds=self.seconds, rate=self.rate))

    async def elected(self, *, changing: bool = True) -> None:
        """The groups `elections` and `unchanged`."""
        for version, some in self._packs([replace(lane, replicas=3) for lane in self._changing], self.beside):
            with _scratch() as place, Cluster(place / "cluster", version=version) as cluster:
                async with batch_of(some, cluster.url, place / "batch") as batch:
                    unrest = Unrest(random.Random(self.seed), self.step_downs)  # noqa: S311 - variety
                    outcomes = await elected(batch, unrest, seconds=self.seconds, rate=_SLOW, changing=changing)
                    what = "elections" if changing else "elections, unchanged"
                    await self._tell(f"{unrest.happened} {what}", version, batch, outcomes)

    async def uneasy(self) -> None:
        """The group `procedures`."""
        for version in self.versions:
            with _scratch() as place, Cluster(place / "cluster", version=version) as cluster:
                unrest = Unrest(random.Random(self.seed), self.step_downs)  # noqa: S311 - variety
                for verdict in await uneasy(cluster.url, place / "shops", unrest, self.seconds):
                    self.failed += not verdict.good
                    print(f"{version} procedures, {unrest.happened} elections: {verdict}", flush=True)

    async def killed(self) -> None:
        """The group `kills`."""
        for version in self.versions:
            to_come = {lane: [Stop(*each) for each in itertools.product(self.steps, _FATES)] for lane in self._changing}
            while some := sorted(to_come, key=lambda lane: -len(to_come[lane]))[:_SIDE_BY_SIDE]:
                stops = Stops({lane: to_come[lane].pop(0) for lane in some})
                doing = partial(killed_at, stops=stops, rate=_SLOW)
                await self._on_a_server(lambda lane, stops=stops: str(stops.at[lane]), version, some, doing)  # type: ignore[misc]
                to_come = {lane: left for lane, left in to_come.items() if left and lane not in {*some} - stops.stopped}

    async def restarted(self) -> None:
        """The group `restart`."""
        for version, some in self._packs(self._changing, _SIDE_BY_SIDE):
            doing: Doing = lambda batch, server: disturbed(batch, server.stop, server.start, away=1.0, rate=_SLOW)  # noqa: E731 - short
            await self._on_a_server("restart", version, some, doing)

    async def leaves(self) -> None:
        """The group `leaf`."""
        for version, some in self._packs([replace(lane, domains=_DOMAINS) for lane in self._changing], _ON_LEAVES):
            for cut in (False, True):
                with _scratch() as place:
                    async with hub_and_leaves(place, *_DOMAINS, version=version) as hub:
                        places = {name: Place(leaf.server.url, leaf.wire) for name, leaf in hub.leaves.items()}
                        link = hub.leaves["east"].link
                        async with batch_of(some, hub.server.url, place / "batch", **places) as batch:
                            if cut:
                                outcomes = await disturbed(batch, link.cut, link.mend, away=_AWAY, rate=_SLOW)
                            else:
                                outcomes = await run(batch, seconds=self.seconds, rate=_SLOW)
                            await self._tell("leaf, cut" if cut else "leaf", version, batch, outcomes)

    async def dying(self) -> None:
        """The group `deaths`."""
        lasting = [lane for lane in self._changing if "consumer" in lane.row.after.entry and lane.retention != "limits"]
        for version, some in self._packs(lasting, _SIDE_BY_SIDE):
            doing = partial(server_killed, dice=random.Random(self.seed), times=_DEATHS, rate=_SLOW)  # noqa: S311 - variety
            await self._on_a_server("deaths", version, some, doing)

    @property
    def _changing(self) -> list[Lane]:
        return [lane for lane in self.lanes if not lane.row.mirror]

    def _packs(self, everything: list[Lane], size: int) -> Iterator[tuple[str, list[Lane]]]:
        """So many at a time, on each version."""
        for version, start in itertools.product(self.versions, range(0, len(everything), size)):
            yield version, everything[start : start + size]

    async def _on_a_server(self, what: str | Callable[[Lane], str], version: str, some: list[Lane], doing: Doing) -> None:
        with _scratch() as place, Server(place / "server", version=version) as server:
            async with batch_of(some, server.url, place / "batch") as batch:
                await self._tell(what, version, batch, await doing(batch, server))

    async def _tell(self, what: str | Callable[[Lane], str], version: str, batch: Batch, outcomes: list[Outcome]) -> None:
        """A line for each, and one for whatever is still found to do."""
        wanted = self.rate * _NEAR if what in ("rows", "cluster") else 0
        for outcome in outcomes:
            slow = outcome.rate < wanted
            self.failed += slow or not outcome.exact
            named = what if isinstance(what, str) else what(outcome.lane)
            print(f"{version} {named}: {outcome}{' TOO SLOW to prove anything' if slow else ''}", flush=True)
        for found in await batch.nothing_to_do():
            self.failed += 1
            print(f"{version} {what if isinstance(what, str) else 'afterwards'}: FAIL {found}", flush=True)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reconciler-proof-") as place:
        yield Path(place)


async def prove(proof: Proof, groups: list[str]) -> int:
    """Runs the groups; the number of lines that are not ok."""
    everything: dict[str, Callable[[], Awaitable[None]]] = {
        "rows": proof.undisturbed,
        "cluster": proof.clustered,
        "elections": proof.elected,
        "unchanged": partial(proof.elected, changing=False),
        "procedures": proof.uneasy,
        "kills": proof.killed,
        "restart": proof.restarted,
        "leaf": proof.leaves,
        "deaths": proof.dying,
    }
    for group in groups or [name for name in everything if name != "unchanged"]:
        await everything[group]()
    return proof.failed


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.prove_sourcing")
    parser.add_argument(
        "groups",
        nargs="*",
        metavar="GROUP",
        help="rows, cluster, elections, procedures, kills, restart, leaf, deaths; all of them; or unchanged",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains it")
    parser.add_argument("--retention", action="append", choices=RETENTIONS)
    parser.add_argument("--version", action="append", help="of nats-server; repeats")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=RATE, help="messages a second of each row")
    parser.add_argument("--beside", type=int, default=2, metavar="N", help="rows at a time at full rate")
    parser.add_argument("--step", type=int, default=0, metavar="N", help="kill at this write alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-downs", type=float, default=0.5, metavar="SECONDS", help="between two elections")
    given = parser.parse_args()
    proof = Proof(
        versions=given.version or list(DEFAULT_VERSIONS),
        rows=[row for row in (*ROWS, *MIRRORS) if given.only in row.name],
        retentions=tuple(given.retention or RETENTIONS),
        seconds=given.seconds,
        rate=given.rate,
        beside=given.beside,
        steps=range(given.step, given.step + 1) if given.step else range(1, _MOST_STEPS + 1),
        seed=given.seed,
        step_downs=given.step_downs,
    )
    failed = asyncio.run(prove(proof, given.groups))
    print(f"{failed} not ok" if failed else "all ok", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    ending.in_order()
    main()
