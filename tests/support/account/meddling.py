"""Somebody else: edits live streams and consumers behind the product's back, with raw requests and a client name of its own.

Invariant: an edit changes what it names and nothing else; the rest of a configuration travels back as it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.account.wire import Json, Wire, without_everything
from tests.support.clock.until import glances
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, everything, stream, write
from tests.support.values.field_cases import ABSENT

Settled = Callable[[Json], bool]
SOMEBODY = "a-script"
PATIENCE = 30.0
"""Seconds for what takes a few milliseconds on a quiet machine."""
FEW = [stream("S", "s.>"), consumer("S", "a", "s.a"), consumer("S", "b", "s.b")]
"""A stream and two consumers."""
_FILTERS = {"filter_subject": "filter_subjects", "filter_subjects": "filter_subject"}


class Somebody(Wire):
    """`async with await Somebody.arrive(url) as somebody:`."""

    @classmethod
    async def arrive(cls, url: str, **options: Any) -> Somebody:
        """Connects under a name of its own."""
        return await cls.connect(url, **{"name": SOMEBODY, **options})

    async def config(self, stream: str, consumer: str = "") -> Json:
        """What is live; empty when it is not there."""
        answer = await self.call(f"CONSUMER.INFO.{stream}.{consumer}" if consumer else f"STREAM.INFO.{stream}")
        config: Json = answer.get("config", {})
        return without_everything(config)

    async def put(self, config: Json, stream: str, consumer: str = "") -> Json:
        """Replaces the whole configuration."""
        if consumer:
            body = {"stream_name": stream, "config": config, "action": "update"}
            return await self.expect(f"CONSUMER.CREATE.{stream}.{consumer}", body)
        return await self.expect(f"STREAM.UPDATE.{stream}", config)

    async def edit(self, stream: str, consumer: str = "", **fields: Any) -> None:
        """Changes these fields (ABSENT: removes them) of what is live now; our marker stays where it is."""
        await self.put(edited(await self.config(stream, consumer), fields), stream, consumer)

    async def until_like(self, wanted: Mapping[str, Any], stream: str, consumer: str = "", seconds: float = 60.0) -> None:
        """Waits until these fields are live."""
        found: Json = {}
        try:
            async with asyncio.timeout(seconds):
                async for _ in glances():
                    found = await self.config(stream, consumer)
                    if wanted.items() <= found.items():
                        return
        except TimeoutError:
            odd = {name: (found.get(name), value) for name, value in wanted.items() if found.get(name) != value}
            msg = f"{stream} {consumer}: not like that within {seconds} s (live, wanted): {odd}"
            raise AssertionError(msg) from None


def edited(config: Json, fields: Mapping[str, Any]) -> Json:
    """The configuration with these fields changed."""
    after = dict(config)
    for field, value in fields.items():
        after.pop(_FILTERS.get(field, ""), None)
        if field == "metadata":
            ours = {name: text for name, text in config["metadata"].items() if name.startswith("reconciler.")}
            after[field] = {**ours, **({} if value is ABSENT else value)}
        elif value is ABSENT:
            after.pop(field, None)
        else:
            after[field] = value
    return after


def heard(document: Json) -> bool:
    """Whether everything is in place, and who changes it from now on is known."""
    return settled(document) and document["audit"]["state"] == "on"


async def level_of(somebody: Somebody) -> int:
    """What the server can do."""
    return int((await somebody.expect("INFO"))["api"].get("level", 0))


async def is_again(wire: Wire, before: dict[str, Json]) -> bool:
    """Whether everything is as it was."""
    return await everything(wire) == before


@dataclass
class Watched:
    """A running daemon, its manifests, and somebody else."""

    daemon: Daemon
    somebody: Somebody
    manifests: Path

    async def drift(self, key: str, client: str | None = SOMEBODY) -> Json:
        """The last drift of a resource, once it is repaired and that client named (by the audit, which comes a little later)."""

        def repaired(document: Json) -> bool:
            found = next(resource for resource in document["resources"] if resource["key"] == key)
            drift = found["lastDrift"] or {}
            return bool(found["state"] == "Synced" and drift.get("repairedAt") and drift["client"] == client)

        document = await self.daemon.until(repaired)
        found: Json = next(resource["lastDrift"] for resource in document["resources"] if resource["key"] == key)
        return found

    async def commit(self, documents: Iterable[Json]) -> None:
        """Other manifests, and word of it; when this returns they are in force, and everything was compared with them."""
        before = (await self.daemon.status())["manifests"]["loadedAt"]
        write(self.manifests, documents)
        await self.daemon.post("/-/reload")
        await self.daemon.until(lambda document: bool(document["manifests"]["loadedAt"] != before))
        await self.daemon.looked()


@asynccontextmanager
async def watched(
    server: Server, directory: Path, documents: Iterable[Json], *arguments: str, like: Settled = heard, **environ: str
) -> AsyncIterator[Watched]:
    """A daemon that has put these manifests in place, or whose status is otherwise `like` what is expected."""
    manifests = write(directory / "all.yaml", documents)
    async with (
        await Somebody.arrive(server.url) as somebody,
        daemon(
            Command(directory, server.url), directory / "log", "-f", manifests, "--audit", "on", *arguments, ready=True, **environ
        ) as running,
    ):
        await running.until(like)
        yield Watched(running, somebody, manifests)


def state_of(document: Json, key: str) -> str:
    """The state of one resource."""
    return str(next(resource["state"] for resource in document["resources"] if resource["key"] == key))


async def repaired_at_once(somebody: Somebody, name: str, member: str = "", **fields: object) -> None:
    """An edit of somebody is put back as fast as ever."""
    before = await somebody.config(name, member)
    await somebody.edit(name, member, **(fields or {"max_deliver": 77}))
    await somebody.until_like(before, name, member, PATIENCE)


def many(streams: int, consumers: int) -> list[Json]:
    """Streams with that many consumers each."""
    found: list[Json] = []
    for number in range(streams):
        found.append(stream(f"M{number}", f"m{number}.>"))
        found += [consumer(f"M{number}", f"c{member}", f"m{number}.{member}") for member in range(consumers)]
    return found
