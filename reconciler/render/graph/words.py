"""What is written on the parts of a topology, the same in every format.

Invariant: every line is printable and of bounded length; what was cut is whole in the tooltip.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.render.values import counted, printable
from reconciler.sources.graph.topology import IMPORTED, Edge, Node, Reader, Topology
from reconciler.sources.health import SourceState

LONGEST = 36
"""Characters of a line."""
EMPTY = "nothing is copied here: no stream has a source or a mirror"

COLOURS = {
    SourceState.FLOWING.value: "#2e8540",
    SourceState.PAUSED.value: "#8250df",
    SourceState.WAITING.value: "#bf6a02",
    SourceState.STALLED.value: "#cf222e",
    SourceState.ERROR.value: "#cf222e",
}
"""Of entries by how they fare, where that is known; readable on white and on black."""


def cut(text: str) -> str:
    """A line of it."""
    shown = printable(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def places(topology: Topology) -> dict[str, str]:
    """What each domain that occurs in keys is called, in their order; empty where the only one has no name."""
    domains = sorted({node.key.domain for node in topology.nodes})
    if domains == [""] and not topology.home:
        return {"": ""}
    return {domain: place(topology, domain) for domain in domains}


def place(topology: Topology, domain: str) -> str:
    """A domain in words."""
    if domain.startswith(IMPORTED):
        return f"imported from {cut(domain.removeprefix(IMPORTED))}"
    name = topology.place(domain)
    return f"domain {cut(name)}" if name else "this domain"


def node_lines(node: Node) -> list[str]:
    """A stream."""
    return [cut(node.key.name), *filter(None, (cut(node.note.partition(": ")[0]) or node.retention,))]


def reader_lines(reader: Reader) -> list[str]:
    """A consumer."""
    kind = "push" if reader.push else "pull"
    return [cut(reader.key.name), f"{kind}, paused" if reader.paused else kind, *_several(_narrowing(reader.filters))]


def edge_lines(edge: Edge) -> list[str]:
    """An entry: how it reads, what it selects, and what is the matter with it."""
    said = f"{edge.mode}: {edge.durable}" if edge.durable else str(edge.mode)
    what = f"mirror, {said}" if edge.mirror else said
    changed = [src if src == dest else f"{src} → {dest}" for src, dest in edge.transforms]
    state = edge.state.lower() if edge.state != SourceState.FLOWING else ""
    wrong = f"{state}: {edge.cause}" if state and edge.cause else state
    return [cut(what), *_several(_narrowing(edge.filters) or changed), *filter(None, (cut(wrong),))]


def edge_tooltip(topology: Topology, edge: Edge) -> str:
    """The same, with nothing left out."""
    origin, aggregate = (f"{topology.place(key.domain)}:{key.name}".lstrip(":") for key in (edge.origin, edge.aggregate))
    return "\n".join(printable(line) for line in (f"{origin} → {aggregate}", *_details(edge)))


def _details(edge: Edge) -> Iterator[str]:
    yield f"{'mirror' if edge.mirror else 'source'}, {edge.mode}"
    if edge.durable:
        yield f"durable: {edge.durable}"
    if filters := _narrowing(edge.filters):
        yield f"filter: {', '.join(filters)}"
    for src, dest in edge.transforms:
        yield f"transform: {src} → {dest}"
    if edge.state:
        yield ": ".join(part for part in (edge.state, edge.message) if part)


def node_tooltip(topology: Topology, node: Node) -> str:
    """A stream, with nothing left out."""
    parts = (f"stream {node.key.name}", topology.place(node.key.domain), node.retention, node.note)
    return "\n".join(printable(part) for part in parts if part)


def reader_tooltip(reader: Reader) -> str:
    """A consumer, with nothing left out."""
    filters = _narrowing(reader.filters)
    chosen = f"filter: {', '.join(filters)}" if filters else ""
    parts = (f"consumer {reader.key.name} of {reader.key.stream}", chosen, "paused" if reader.paused else "")
    return "\n".join(printable(part) for part in parts if part)


def _narrowing(filters: tuple[str, ...]) -> tuple[str, ...]:
    """Filters that leave something out; a consumer for everything is made with `>`."""
    return () if ">" in filters else filters


def _several(subjects: tuple[str, ...] | list[str]) -> list[str]:
    """The first of them, and how many there are beside it."""
    if not subjects:
        return []
    if len(subjects) == 1 or len(", ".join(subjects)) <= LONGEST:
        return [cut(", ".join(subjects))]
    more = f" +{len(subjects) - 1}"
    first = printable(subjects[0])
    return [(first if len(first) + len(more) <= LONGEST else f"{first[: LONGEST - len(more) - 1]}…") + more]


def summary(topology: Topology) -> str:
    """How much there is of it."""
    copies = sum(not edge.mirror for edge in topology.edges)
    parts = [counted(len(topology.nodes), "stream"), counted(copies, "source"), counted(len(topology.edges) - copies, "mirror")]
    if topology.readers:
        parts.append(counted(len(topology.readers), "consumer"))
    return ", ".join(parts)
