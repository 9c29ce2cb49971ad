"""The topology as a server shows it, and how its entries fare by that one look.

Invariant: what did not answer, or was not asked, is unknown, and not missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from reconciler.model.flow import copied_entries, copies, domain_of, filters_of, imported
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.model.seen.wanted import Wanted
from reconciler.model.sourcing import DELIVERED, Entry, detached, durable_of, origin_of
from reconciler.sources.graph.topology import IMPORTED, Edge, Mode, Node, Topology, arranged
from reconciler.sources.graph.views import edge_of, reader_of
from reconciler.sources.health import NO_HISTORY, judge
from reconciler.sources.look import UNASKED, Answer, Entrance, Look

Config = Mapping[str, Any]


def live_topology(live: Live, looked: AbstractSet[str]) -> Topology:
    """What is on the server, and how it fares; `looked` are the domains that were asked, the one connected to as ""."""
    view = _View(live, looked)
    nodes, edges, durables = [], [], set()
    for key, stream in live.streams.items():
        info = stream.info
        nodes.append(Node(key, info["config"].get("retention") or "limits"))
        for entry in copied_entries(info["config"]) if copies(stream.raw) else ():
            durable = view.durable(entry, key.domain)
            durables.add(durable)
            edges.append(view.edge(key, info, entry, durable))
    readers = [
        reader_of(key, consumer.config, paused=_paused(consumer))
        for key, consumer in _consumers(live)
        if not consumer.server_made and key not in durables
    ]
    return arranged(nodes, edges, readers, live.server.domain, view.absence)


def needed(live: Live, wanted: Wanted) -> Wanted:
    """What has to be looked at as well, as far as this look shows: other domains, and consumers where there is a durable."""
    view = _View(live, wanted.domains)
    found = [
        (entry, key)
        for key, stream in live.streams.items()
        if copies(stream.raw)
        for entry in copied_entries(stream.config)
        if not imported(entry)
    ]
    domains = {*wanted.domains, *(domain_of(entry, key.domain) for entry, key in found)}
    durables = (view.durable(entry, key.domain) for entry, key in found)
    return replace(
        wanted,
        domains=frozenset("" if domain == live.server.domain else domain for domain in domains),
        streams=wanted.streams | {durable.stream_key for durable in durables if durable},
    )


@dataclass(frozen=True, slots=True)
class _View:
    """One look at the server."""

    live: Live
    looked: AbstractSet[str]

    def durable(self, entry: Entry, domain: str) -> Key | None:
        """The durable that an entry reads through, or that it is a placeholder for."""
        name, origin = detached(entry), origin_of(entry, domain)
        found = Key("Consumer", name, origin.name, origin.domain) if name and origin else durable_of(entry, domain)
        return self._here(found) if found else None

    def edge(self, aggregate: Key, info: Config, entry: Entry, durable: Key | None) -> Edge:
        """An entry, and how it fares."""
        seen = self.live.consumer(durable) if durable else None
        selecting = seen.config if seen else {}
        edge = edge_of(aggregate, info["config"], entry, selecting)
        if detached(entry):
            edge = replace(edge, filters=tuple(filters_of(selecting)))
        if durable is not None:
            edge = replace(edge, mode=_mode(entry, seen), durable=durable.name)
        elif entry.get("consumer"):
            edge = replace(edge, mode=Mode.UNMANAGED)
        health = judge(self._look(edge, info, entry, durable), NO_HISTORY, patience=0)[0].health
        if health is None:
            return edge
        return replace(edge, state=health.state.value, cause=health.cause.value if health.cause else "", message=health.message)

    def absence(self, key: Key) -> str:
        """Why a stream that an entry names is not among those that were seen."""
        if key.domain.startswith(IMPORTED):
            return ""
        if key.domain not in self.looked:
            return "not looked at"
        unknown = self.live.why_unknown(key)
        return f"not seen: {unknown}" if unknown else "missing"

    def _here(self, key: Key) -> Key:
        """The key under which a snapshot knows it: there, the domain that is connected to has no name."""
        return key._replace(domain="") if key.domain == self.live.server.domain else key

    def _look(self, edge: Edge, info: Config, entry: Entry, durable: Key | None) -> Look:
        origin = origin_of(entry, edge.aggregate.domain)
        journal = seen.marker.journal if durable and (seen := self.live.consumer(durable)) else None
        return Look(
            at=self.live.observed_at,
            entrance=Entrance(
                aggregate=edge.aggregate,
                entry=entry,
                mirror=edge.mirror,
                mode=edge.mode,
                origin=origin,
                durable=durable,
            ),
            stream=Answer(info),
            durable=self._answer(durable) if durable else UNASKED,
            origin=self._answer(self._here(origin)) if origin else UNASKED,
            procedure=journal.name if journal else "",
            level=self.live.server.level,
        )

    def _answer(self, key: Key) -> Answer:
        """What asking for it alone would have brought; of a stream only whether it is there, since its state is older."""
        if key.domain not in self.looked:
            return Answer(silence="not looked at")
        consumer = self.live.consumer(key) if key.kind == "Consumer" else None
        if consumer is not None:
            return Answer(consumer.info)
        if key in self.live.streams:
            return UNASKED
        unknown = self.live.why_unknown(key)
        return Answer(silence=unknown) if unknown else Answer(gone=True)


def _mode(entry: Entry, seen: LiveConsumer | None) -> Mode:
    """Whose the durable is: by its marker, and while it is not seen by where it would deliver."""
    if (seen and seen.marker.source) or (entry.get("consumer") or {}).get("deliver_subject", "").startswith(DELIVERED):
        return Mode.MANAGED
    return Mode.UNMANAGED if seen and not seen.owner else Mode.USER_MANAGED


def _consumers(live: Live) -> Iterator[tuple[Key, LiveConsumer]]:
    for stream, named in live.consumers.items():
        for name, consumer in named.items():
            yield Key("Consumer", name, stream.name, stream.domain), consumer


def _paused(consumer: LiveConsumer | None) -> bool:
    return consumer is not None and bool(consumer.info.get("paused"))
