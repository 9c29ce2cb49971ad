"""Which stream is filled from which: streams, the source and mirror entries between them, and who reads them.

`sources.graph.views` reads one off manifests, off a server, and off what a daemon tells.

Invariant: the same graph for the same input, whatever the order of it; a cycle is a graph like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from reconciler.model.identity import Key

IMPORTED = "import "
"""Before the API prefix of an import, in the place of a domain: no domain has a name with a space in it."""


class Mode(StrEnum):
    """Through what an entry reads, and who looks after that."""

    EPHEMERAL = "ephemeral"
    MANAGED = "managed"
    USER_MANAGED = "user-managed"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True)
class Node:
    """A stream; `note` says why nothing more is known of it, in short, and after `: ` in full."""

    key: Key
    retention: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """An ordinary consumer."""

    key: Key
    filters: tuple[str, ...] = ()
    push: bool = False
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """One source or mirror entry: messages flow from the origin to the aggregate."""

    origin: Key
    aggregate: Key
    mode: Mode
    mirror: bool = False
    durable: str = ""
    filters: tuple[str, ...] = ()
    transforms: tuple[tuple[str, str], ...] = ()
    state: str = ""
    """How it fares, as `sources.health` calls it; empty for what is only declared."""
    cause: str = ""
    message: str = ""

    @property
    def sort_key(self) -> tuple[object, ...]:
        """From left to right, then by what is written on it."""
        what = (self.mirror, self.mode.value, self.durable, self.filters, self.transforms, self.state, self.cause, self.message)
        return (self.origin.sort_key, self.aggregate.sort_key, what)


@dataclass(frozen=True, slots=True)
class Topology:
    """All of it, sorted; see `arranged`."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    readers: tuple[Reader, ...] = ()
    home: str = ""
    """The name of the domain that is connected to, where it is known; in keys that domain is empty."""

    def place(self, domain: str) -> str:
        """What a domain of a key is called; empty where there is but the one without a name."""
        return domain or self.home

    def sourcing(self) -> Topology:
        """Without the streams that copy nothing and are not copied."""
        return self._of({key for edge in self.edges for key in (edge.origin, edge.aggregate)})

    def around(self, stream: str) -> Topology:
        """What is connected with the streams of this name (or `DOMAIN:NAME`), over however many entries."""
        neighbours: dict[Key, list[Key]] = {}
        for edge in self.edges:
            neighbours.setdefault(edge.origin, []).append(edge.aggregate)
            neighbours.setdefault(edge.aggregate, []).append(edge.origin)
        keys = (node.key for node in self.nodes)
        due = [key for key in keys if stream in (key.name, f"{self.place(key.domain)}:{key.name}")]
        found: set[Key] = set()
        while due:
            key = due.pop()
            if key not in found:
                found.add(key)
                due += neighbours.get(key, ())
        return self._of(found)

    def without_readers(self) -> Topology:
        """Streams and entries alone."""
        return replace(self, readers=())

    def _of(self, streams: set[Key]) -> Topology:
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.key in streams),
            edges=tuple(edge for edge in self.edges if edge.origin in streams),
            readers=tuple(reader for reader in self.readers if reader.key.stream_key in streams),
        )


def arranged(
    nodes: Iterable[Node], edges: Iterable[Edge], readers: Iterable[Reader], home: str, absence: Callable[[Key], str]
) -> Topology:
    """A topology of these; a stream that only an entry names gets a node, whose note is what `absence` says of it."""
    by_key = {_local(node.key, home): replace(node, key=_local(node.key, home)) for node in nodes}
    moved = [replace(edge, origin=_local(edge.origin, home), aggregate=_local(edge.aggregate, home)) for edge in edges]
    for key in (end for edge in moved for end in (edge.origin, edge.aggregate)):
        if key not in by_key:
            by_key[key] = Node(key, note=absence(key))
    return Topology(
        nodes=tuple(sorted(by_key.values(), key=lambda node: node.key.sort_key)),
        edges=tuple(sorted(moved, key=lambda edge: edge.sort_key)),
        readers=tuple(
            sorted((replace(one, key=_local(one.key, home)) for one in readers), key=lambda one: one.key.sort_key),
        ),
        home=home,
    )


def _local(key: Key, home: str) -> Key:
    """One key for one stream: the domain that is connected to has no name in keys, whoever names it."""
    return key._replace(domain="") if home and key.domain == home else key
