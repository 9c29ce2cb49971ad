"""The live state in bulk: all streams, and the consumers of those that matter, from LIST pages.

⌈consumers/256⌉ + O(streams) requests, never one per resource; pages of different streams are fetched together.
Invariant: what did not answer (a page, a stream, a domain, a replica group without a leader) is in `Live.unknown` with the
reason, and nothing is concluded from its absence.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson

from reconciler.errors import NatsError, NoAnswer
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import ApiOf
from reconciler.jetstream.transport.servers import ServerIdentity
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM, Live, LiveConsumer, LiveStream, Server
from reconciler.model.seen.wanted import Wanted

_BETWEEN = b',{"stream_name":'
_NAME = b'","name":"'
_NOTHING: Mapping[str, LiveConsumer] = MappingProxyType({})


async def snapshot(api_of: ApiOf, wanted: Wanted, now: Callable[[], int], before: Live | None = None) -> Live:
    """Look at all that is wanted; raises the first domain's NatsError when no domain let us see anything.

    What looks as it did `before` is recognised by its bytes, which costs a fraction of reading it anew.
    """
    observed_at = now()
    look = _Look(wanted, before.consumers if before else {})
    domains = sorted(wanted.domains)
    with collector_paused():
        answers = await asyncio.gather(*(look.at_domain(api_of(domain), domain) for domain in domains), return_exceptions=True)
    servers: list[Server] = []
    failures: list[NatsError] = []
    for domain, answer in zip(domains, answers, strict=True):
        if isinstance(answer, Server):
            servers.append(answer)
        elif isinstance(answer, NatsError):
            failures.append(answer)
            look.unknown[Key("Stream", EVERY_STREAM, "", domain)] = str(answer)
        else:
            raise answer
    if not servers:
        raise failures[0]
    return Live(_weakest(servers), observed_at, look.streams, look.consumers, look.unknown)


def _weakest(servers: list[Server]) -> Server:
    """The first one, with the lowest level and the smallest requests of all: a plan must not need more than each can do."""
    sizes = (server.max_payload for server in servers if server.max_payload)
    return replace(servers[0], level=min(server.level for server in servers), max_payload=min(sizes, default=0))


class _Look:
    """One snapshot under way."""

    def __init__(self, wanted: Wanted, before: Mapping[Key, Mapping[str, LiveConsumer]]) -> None:
        self.streams: dict[Key, LiveStream] = {}
        self.consumers: dict[Key, Mapping[str, LiveConsumer]] = {}
        self.unknown: dict[Key, str] = {}
        self._wanted = wanted
        self._before = before

    async def at_domain(self, api: JetStreamApi, domain: str) -> Server:
        """Everything of one domain."""
        account, counts = await asyncio.gather(api.account_info(), self._list_streams(api, domain))
        due = [(key, count) for key, count in counts.items() if count and self._matters(key)]
        await asyncio.gather(*(self._list_consumers(api, key, count) for key, count in due))
        return server_facts(api.connection.server, account)

    def _matters(self, key: Key) -> bool:
        if self._wanted.everything or key in self._wanted.streams:
            return True
        return bool(self._wanted.owner) and self.streams[key].owner == self._wanted.owner

    async def _list_streams(self, api: JetStreamApi, domain: str) -> dict[Key, int]:
        """All streams with the number of their consumers."""
        counts: dict[Key, int] = {}
        async for page in api.stream_pages():
            listed = orjson.loads(page)
            for info in listed["streams"] or ():
                stream = LiveStream.seen(info)
                key = Key("Stream", stream.name, "", domain).stream_key
                self.streams[key] = stream
                counts[key] = info["state"]["consumer_count"]
            for name, reason in _silent(listed):
                self.unknown[Key("Stream", name, "", domain)] = reason
        for key in self.unknown.keys() & counts.keys():
            del self.streams[key], counts[key]  # shown from the cluster's records, with the state of an empty stream
        return counts

    async def _list_consumers(self, api: JetStreamApi, key: Key, count: int) -> None:
        try:
            self.consumers[key] = await list_consumers(api, key.name, count, self._before.get(key, {}))
        except NatsError as error:
            self.unknown[key] = str(error)


async def list_consumers(
    api: JetStreamApi, stream: str, count: int | None = None, before: Mapping[str, LiveConsumer] = _NOTHING
) -> dict[str, LiveConsumer]:
    """All consumers of a stream by name; raises NoAnswer when the server could not reach some of them."""
    found: dict[str, LiveConsumer] = {}
    silent: list[str] = []
    async for page in api.consumer_pages(stream, count):
        listed, between = split_page(page)
        for raw in between:
            known = before.get(_name_in(raw)) if before else None
            consumer = (known and known.seen_again(raw)) or LiveConsumer.read(raw)
            found[consumer.name] = consumer
        for info in listed["consumers"] or ():
            consumer = LiveConsumer.seen(info)
            found[consumer.name] = consumer
        silent += [f"consumer {name}: {reason}" for name, reason in _silent(listed)]
    if silent:
        raise NoAnswer("; ".join(silent))
    return found


def split_page(page: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    """A page of consumers in two parts: the page with its first and last entry only, and the raw entries between them.

    Entry by entry costs half of parsing whole pages, because each is small enough for the processor's cache. The servers
    write `stream_name` first in each entry, and within a JSON string these bytes cannot occur (its quotes are escaped);
    should a server ever write it elsewhere, the whole page is in the first part.
    """
    parts = page.split(_BETWEEN)
    listed: dict[str, Any] = orjson.loads(page if len(parts) == 1 else parts[0] + _BETWEEN + parts[-1])
    return listed, (_BETWEEN[1:] + part for part in parts[1:-1])


def _name_in(raw: bytes) -> str:
    """The name in a raw entry, as long as JSON writes it without escapes; otherwise a name that nothing has."""
    start = raw.find(_NAME) + len(_NAME)
    return raw[start : raw.find(b'"', start)].decode(errors="replace")


def _silent(listed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What a clustered list names but cannot show."""
    yield from ((name, "its leader did not answer") for name in listed.get("missing") or ())
    yield from ((listed.get("offline") or {}).items())


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection while pages are parsed: they make objects by the thousand, none of them in a circle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def server_facts(greeting: ServerIdentity, account: Mapping[str, Any]) -> Server:
    """The server as a plan sees it; its level is the lower of what the greeting and the account's INFO say."""
    level = account.get("api", {}).get("level", 0)
    if greeting.api_level is not None:
        level = min(level, greeting.api_level)
    return Server(
        version=greeting.version,
        level=level,
        cluster=greeting.cluster,
        domain=account.get("domain", "") or greeting.domain,
        clustered=bool(greeting.cluster),
        max_payload=greeting.max_payload,
    )
