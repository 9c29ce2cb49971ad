"""Proves on real servers what lands behind the fence of a new term of what the leader before had on its way.

    python -m tools.prove_fence                       everything, about half an hour
    python -m tools.prove_fence stopped --points 20   only these groups
    python -m tools.prove_fence killed --version 2.14.6 --servers 3

| group | what happens to the leader | the fence must say |
|---|---|---|
| stopped | stands still at one of `--points` places between look and send, goes on behind the fence; short pings | proven |
| patient | the same, with the pings that servers have by default | unproven |
| killed | dies with its change sent, behind `--queued` requests of another client | proven |
| server | its server stands still with its change in the kernel, and goes on behind the fence | unproven (1 server: proven) |
| routes | the same, and the successor's server has given up its routes to that server | unproven |
| listener | `stopped`, while somebody hears every subject | proven |
| account | `stopped`, and the successor is in another account (one server) | unproven |
| grant | `stopped`, and the successor may not ask for connections (one server) | unproven |

A line says how many rounds there were, how long the lease and the fence took beside the lease's TTL, and how many changes of what
exists landed behind the fence. Invariant: `ok` only when behind a proven fence not one did, behind an unproven one at most one
for each round, and every round ended as this table says.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from tests.support.account.wire import Wire
from tests.support.cluster.servers import Cluster
from tests.support.daemon.leadership import short_lease
from tests.support.fence.rounds import (
    SHORT_PINGS,
    Behind,
    Consumers,
    former,
    stopped_between_look_and_send,
    succeed,
    way_out,
)
from tests.support.server.binaries import DEFAULT_VERSIONS
from tests.support.server.process import Server
from tools import ending

_PATIENCE = 8.0
"""Seconds that a fence waits here for a proof: longer than short pings take, and shorter than those of a default server."""
_FILTERS = 200
_HURRY = 0.05
"""Seconds in which what was sent has reached a server, on loopback."""
_ACCOUNTS = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}]
      exports: [{service: "$JS.API.>"}, {service: "$KV.>"}] }
  B { users: [{user: b, password: b}]
      imports: [{service: {account: A, subject: "$JS.API.>"}, to: "A.API.>"}
                {service: {account: A, subject: "$KV.>"}, to: "A.API.$KV.>"}] }
}
"""
_GRANTS = """
authorization { users: [
  {user: a, password: a}
  {user: b, password: b, permissions: {publish: {deny: ["$SYS.REQ.ACCOUNT.PING.CONNZ"]}}}
] }
"""


@dataclass(frozen=True)
class Asked:
    """What is to be proven."""

    points: int
    queued: int
    rounds: int
    ttl: float
    beside: int


@dataclass(frozen=True)
class Place:
    """Where leaders change each other: their servers, the first being that of the leader before."""

    servers: tuple[Server, ...]
    wire: Wire

    @property
    def near(self) -> Server:
        """The server of the leader before."""
        return self.servers[0]

    @property
    def far(self) -> Server:
        """That of the next."""
        return self.servers[-1] if len(self.servers) == 1 else self.servers[1]

    @property
    def replicas(self) -> int:
        """Of what is changed."""
        return len(self.servers)


Group = Callable[[Place, Asked], Awaitable[list[Behind]]]


async def stopped(
    place: Place, asked: Asked, *, near: str = "", far: str = "", patience: float = _PATIENCE, **how: object
) -> list[Behind]:
    """At so many points, some side by side."""
    lines = await way_out(near or place.near.url, place.wire, "lines")
    points = sorted({lines[number * len(lines) // asked.points] for number in range(asked.points)})
    room = asyncio.Semaphore(asked.beside)

    async def one(point: int) -> Behind:
        async with room:
            return await stopped_between_look_and_send(
                far or place.far.url,
                place.wire,
                f"p{point}",
                point,
                asked.ttl,
                near=near or place.near.url,
                replicas=place.replicas,
                patience=patience,
                **how,
            )

    return list(await asyncio.gather(*map(one, points)))


async def patient(place: Place, asked: Asked) -> list[Behind]:
    """Nobody gives up a stopped client for minutes."""
    return await stopped(place, Asked(asked.rounds, 0, 0, asked.ttl, asked.beside), patience=1.0)


async def listener(place: Place, asked: Asked) -> list[Behind]:
    """Somebody hears everything."""

    async def hear(_: object) -> None:
        """And says nothing."""

    everything = await place.wire.client.subscribe(">", cb=hear)
    try:
        return await stopped(place, Asked(asked.rounds, 0, 0, asked.ttl, asked.beside))
    finally:
        await everything.unsubscribe()


async def account(place: Place, asked: Asked) -> list[Behind]:
    """The successor reaches the same JetStream from another account."""
    few = Asked(asked.rounds, 0, 0, asked.ttl, asked.beside)
    settings = {"js_api_prefix": "A.API"}
    return await stopped(place, few, near=_as(place.near, "a"), far=_as(place.far, "b"), settings=settings)


async def grant(place: Place, asked: Asked) -> list[Behind]:
    """The successor may not ask servers for connections."""
    few = Asked(asked.rounds, 0, 0, asked.ttl, asked.beside)
    return await stopped(place, few, near=_as(place.near, "a"), far=_as(place.far, "b"))


async def killed(place: Place, asked: Asked) -> list[Behind]:
    """One round after the other: each fills the server's queue."""
    lines = await way_out(place.near.url, place.wire, "lines")
    found = []
    for number in range(asked.rounds):
        owner = f"k{number}"
        consumers = Consumers(place.wire, f"S-{owner}", ("w", "load"))
        await consumers.made(place.replicas, _FILTERS)
        await short_lease(place.wire, asked.ttl, owner)
        others = await Wire.connect(place.near.url)
        async with others, former(place.near.url, owner, consumers.stream, lines[-1]) as before:
            await before.change("w")
            await before.until_stopped()
            await Consumers(others, consumers.stream, ("load",)).queue("load", asked.queued)
            before.send(signal.SIGCONT)
            await asyncio.sleep(_HURRY)
            before.send(signal.SIGKILL)
            watched = Consumers(place.wire, consumers.stream, ("w",))
            found.append(await succeed(place.far.url, owner, watched.seen, _nothing, patience=60.0))
        await place.wire.expect(f"STREAM.DELETE.{consumers.stream}")
    return found


async def server(place: Place, asked: Asked) -> list[Behind]:
    """Its server has its change in the kernel, and does not read it."""
    lines = await way_out(place.near.url, place.wire, "lines")
    found = []
    for number in range(asked.rounds):
        owner = f"s{number}"
        consumers = Consumers(place.wire, f"S-{owner}", ("w",))
        await consumers.made(place.replicas)
        await short_lease(place.wire, asked.ttl, owner)
        async with former(place.near.url, owner, consumers.stream, lines[-1]) as before:
            await before.change("w")
            await before.until_stopped()
            place.near.freeze()
            before.send(signal.SIGCONT)
            await asyncio.sleep(_HURRY)
            before.send(signal.SIGKILL)
            if place.near is place.far:
                await asyncio.sleep(asked.ttl)
                place.near.thaw()
                found.append(await succeed(place.far.url, owner, consumers.seen, _nothing, patience=_PATIENCE))
                continue

            async def goes_on() -> None:
                place.near.thaw()
                await asyncio.to_thread(place.near.wait_ready)

            found.append(await succeed(place.far.url, owner, consumers.seen, goes_on, patience=_PATIENCE))
    return found


GROUPS: dict[str, tuple[Group, bool | None, str]] = {
    "stopped": (stopped, True, SHORT_PINGS),
    "patient": (patient, False, ""),
    "killed": (killed, True, ""),
    "server": (server, None, ""),
    "routes": (server, None, "routes"),
    "listener": (listener, True, SHORT_PINGS),
    "account": (account, False, SHORT_PINGS + _ACCOUNTS),
    "grant": (grant, False, SHORT_PINGS + _GRANTS),
}
"""By name: what is done, whether it has to be proven (None: on one server), and the configuration of the servers."""


_ONLY = {"routes": (3,), "account": (1,), "grant": (1,)}
"""How many servers there have to be, where that is not all the same."""


async def _nothing() -> None:
    """Nobody goes on."""


def _as(at: Server, user: str) -> str:
    return at.url.replace("nats://", f"nats://{user}:{user}@")


@asynccontextmanager
async def _place(version: str, number: int, config: str) -> AsyncIterator[Place]:
    with (
        tempfile.TemporaryDirectory(prefix="prove-fence-") as directory,
        _servers(Path(directory), version, number, config) as found,
    ):
        login = {"user": "a", "password": "a"} if "user: a" in config else {}
        # Asked of the server that goes on, whichever that is.
        async with await Wire.connect(found[-1].url, **login) as wire:
            yield Place(found, wire)


@contextmanager
def _servers(directory: Path, version: str, number: int, config: str) -> Iterator[tuple[Server, ...]]:
    if number == 1:
        with Server(directory / "s1", version=version, config=config) as one:
            yield (one,)
        return
    cluster = Cluster(directory, version=version, config="" if config == "routes" else config)
    if config == "routes":
        hasty = cluster.servers[1]
        hasty._extra = hasty._extra.replace("name: test,", 'name: test, ping_interval: "1s", ping_max: 2,')  # noqa: SLF001
    with cluster:
        yield cluster.servers


def _line(what: str, asked: Asked, found: Sequence[Behind], *, proven: bool) -> tuple[bool, str]:
    late = sum(one.late for one in found)
    said = sum(one.proven for one in found)
    well = all(one.proven is proven and one.late <= (0 if proven else 1) for one in found)
    lease, passed = ([f"{value:.1f}" for value in _spread(values)] for values in _times(found))
    why = "" if proven and well else next((f": {one.last.why}" for one in found if one.proven is not True), "")
    line = (
        f"{'ok    ' if well else 'FAILED'} {what} {len(found):>4} rounds, {said} proven, {late} late; "
        f"TTL {asked.ttl:g} s, lease {'/'.join(lease)} s, fence {'/'.join(passed)} s{why}"
    )
    return well, line


def _times(found: Sequence[Behind]) -> tuple[list[float], list[float]]:
    return [one.lease_after for one in found], [one.passed_after for one in found]


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The least, the one in the middle, the most."""
    ordered = sorted(values)
    return ordered[0], ordered[len(ordered) // 2], ordered[-1]


async def _prove(asked: Asked, groups: Sequence[str], versions: Sequence[str], numbers: Sequence[int]) -> bool:
    fine = True
    for name in groups:
        group, proven, config = GROUPS[name]
        for version in versions:
            for number in numbers:
                if number not in _ONLY.get(name, (1, 3)):
                    continue
                async with _place(version, number, config) as place:
                    found = await group(place, asked)
                well, line = _line(
                    f"{name:<9} {version} x{number}", asked, found, proven=number == 1 if proven is None else proven
                )
                fine = fine and well
                print(line, flush=True)
    return fine


def main() -> int:
    """From the command line; 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], help="default: all of them")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--queued", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--ttl", type=float, default=4.0)
    parser.add_argument("--beside", type=int, default=10)
    parser.add_argument("--version", action="append", choices=DEFAULT_VERSIONS)
    parser.add_argument("--servers", action="append", type=int, choices=(1, 3))
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    asked = Asked(given.points, given.queued, given.rounds, given.ttl, given.beside)
    proving = _prove(asked, given.groups or list(GROUPS), given.version or DEFAULT_VERSIONS, given.servers or (1, 3))
    return 0 if asyncio.run(proving) else 1


if __name__ == "__main__":
    ending.in_order()
    sys.exit(main())
