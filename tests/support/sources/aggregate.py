"""What an aggregate holds, judged by ids against what was published; and what is left over in its source.

Invariant: every message of the aggregate is read; a verdict never rests on a count.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.account.wire import Json, Wire
from tests.support.server.plain_socket import Frame, PlainSocket
from tests.support.sources.load import Sent

SETTLE_SECONDS = 30.0
_BATCH = 5000
_READ_SECONDS = 120.0
_GLANCE = 0.1
_SOURCE = re.compile(rb"Nats-Stream-Source: ?(\S+) (\d+)")


@dataclass(frozen=True, slots=True)
class Held:
    """One message of an aggregate."""

    id: bytes
    origin: int
    """Its sequence in the source; 0 for a message that was published to the aggregate itself, or is in a mirror."""
    under: bytes = b""
    """What its entry was known by when it was copied."""


@dataclass(frozen=True)
class Verdict:
    """Each a list of ids."""

    published: int
    missing: list[bytes]
    duplicates: list[bytes]
    disordered: list[bytes]
    strangers: list[bytes]
    """Held, and never published."""
    twice: list[bytes]
    """Stored twice in the source, since a publisher that got no answer sent it again: a workqueue that was killed does not know
    any more what it had before."""

    @property
    def exact(self) -> bool:
        """Every id once for each time the source has stored it, in order, and nothing else."""
        return not (self.missing or self.duplicates or self.disordered or self.strangers)

    def __str__(self) -> str:
        parts = (f"{name} {len(found)}{_few(found)}" for name, found in vars(self).items() if name != "published")
        return f"published {self.published}, {', '.join(parts)}"


def _few(found: list[bytes]) -> str:
    return f" ({', '.join(each.decode() for each in found[:3])}…)" if found else ""


def judge(held: Iterable[Held], loads: Iterable[Sent]) -> Verdict:
    """Compares what is held with what was published."""
    loads = list(loads)
    wanted = set[bytes]().union(*(load.ids() for load in loads))
    doubtful = set[bytes]().union(*(load.doubtful() for load in loads))
    resent = sum(load.resent for load in loads)
    times: Counter[bytes] = Counter()
    origins: dict[bytes, set[int]] = {}
    newest: dict[bytes, int] = {}
    disordered: list[bytes] = []
    for message in held:
        times[message.id] += 1
        origins.setdefault(message.id, set()).add(message.origin)
        tag = message.id.rpartition(b".")[0]
        if times[message.id] == 1 and message.origin <= newest.get(tag, 0) and message.origin:
            disordered.append(message.id)
        newest[tag] = max(newest.get(tag, 0), message.origin)
    again = [each for each, number in times.items() if number > 1]
    twice = [each for each in again if len(origins[each]) == times[each]] if resent else []
    return Verdict(
        published=len(wanted),
        missing=sorted(wanted - times.keys()),
        duplicates=sorted({*again} - {*twice}),
        disordered=disordered,
        strangers=sorted(times.keys() - wanted - doubtful),
        twice=twice,
    )


def copied_again(held: Iterable[Held], duplicates: Iterable[bytes]) -> str:
    """Under which entries, and how far apart, what is there twice was copied: whose doing it is."""
    wanted, places = set(duplicates), dict[bytes, list[tuple[int, bytes]]]()
    for place, message in enumerate(held, 1):
        if message.id in wanted:
            places.setdefault(message.id, []).append((place, message.under))
    ways = Counter(" then ".join(under.decode() for _, under in found) for found in places.values())
    first = min(places.values(), default=[])
    where = ", ".join(str(place) for place, _ in first)
    return (
        f"{'; '.join(f'{count} under {way}' for way, count in ways.items())}; the first at {where} of the aggregate"
        if first
        else ""
    )


async def held(url: str, stream: str, domain: str = "") -> list[Held]:
    """All messages of a stream, in its order."""
    return await asyncio.to_thread(_read, url.split(",", maxsplit=1)[0], stream, f"$JS.{domain}.API" if domain else "$JS.API")


async def settled(wire: Wire, stream: str, at_least: int, seconds: float = SETTLE_SECONDS) -> None:
    """Waits until it holds that many messages and no more come; or until the time is over, for the verdict to say what lacks."""
    deadline, last, quiet = time.monotonic() + seconds, -1, 0.0
    while time.monotonic() < deadline:
        now = int((await wire.stream_info(stream))["state"]["messages"])
        if now != last:
            last, quiet = now, time.monotonic()
        if now >= at_least and time.monotonic() - quiet > 1.0:
            return
        await asyncio.sleep(_GLANCE)


async def stuck(wire: Wire, source: str, seconds: float = 10.0) -> int:
    """Messages that a source of the retention interest or workqueue still holds though nobody has them to come."""
    deadline = time.monotonic() + seconds
    while left := int((await wire.stream_info(source))["state"]["messages"]):
        if time.monotonic() > deadline:
            return left
        await asyncio.sleep(_GLANCE)
    return 0


async def due(wire: Wire, source: str) -> int:
    """Messages that some consumer is to be given, or has not acknowledged."""
    return sum(each["num_pending"] + each["num_ack_pending"] for each in await _consumers(wire, source))


async def readers(wire: Wire, source: str) -> str:
    """Who could have read what is left, and where each stands: for whoever has to find out why it is."""
    state = (await wire.stream_info(source))["state"]
    there = (
        f"{one['name']} ({one['config'].get('ack_policy')}, {'bound' if one.get('push_bound') else 'unbound'}) "
        f"acknowledged {one['ack_floor']['stream_seq']}, {one['num_ack_pending']} not, {one['num_pending']} to come"
        for one in await _consumers(wire, source)
    )
    return f"{state['first_seq']} to {state['last_seq']} left: {'; '.join(there) or 'nobody reads it'}"


async def _consumers(wire: Wire, source: str) -> list[Json]:
    found: list[Json] = (await wire.expect(f"CONSUMER.LIST.{source}"))["consumers"] or []
    return found


def _read(url: str, stream: str, api: str) -> list[Held]:
    connection = PlainSocket(url)
    try:
        made = json.loads(connection.ask(f"{api}.CONSUMER.CREATE.{stream}", json.dumps(_reader(stream)).encode()))
        left, name = made["num_pending"], made["name"]
        subject, inbox = f"{api}.CONSUMER.MSG.NEXT.{stream}.{name}".encode(), connection.inbox.encode()
        found: list[Held] = []
        deadline = time.monotonic() + _READ_SECONDS
        while len(found) < left and time.monotonic() < deadline:
            body = b'{"batch": %d, "expires": 10000000000}' % min(_BATCH, left - len(found))
            connection.send(b"PUB %b %b.batch %d\r\n%b\r\n" % (subject, inbox, len(body), body))
            found += _batch(connection, min(_BATCH, left - len(found)))
        connection.ask(f"{api}.CONSUMER.DELETE.{stream}.{name}")
        assert len(found) == left, f"only {len(found)} of {left} messages of {stream} could be read"
        return found
    finally:
        connection.close()


def _reader(stream: str) -> dict[str, object]:
    config = {
        "ack_policy": "none",
        "deliver_policy": "all",
        "inactive_threshold": 30 * 10**9,
        "mem_storage": True,
        "num_replicas": 1,
    }
    return {"stream_name": stream, "config": config}


def _batch(connection: PlainSocket, count: int) -> list[Held]:
    found: list[Held] = []
    deadline = time.monotonic() + 15
    while len(found) < count:
        if time.monotonic() > deadline:
            msg = f"{len(found)} of {count} messages arrived"
            raise TimeoutError(msg)
        for frame in connection.frames(0.1):
            if frame.headers.startswith(b"NATS/1.0 "):  # a cluster has nobody to answer yet, or has been slow
                time.sleep(_GLANCE)
                return found
            found.append(_held(frame))
    return found


def _held(frame: Frame) -> Held:
    source = _SOURCE.search(frame.headers)
    return Held(frame.body, int(source[2]), source[1]) if source else Held(frame.body, 0)
