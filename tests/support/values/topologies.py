"""Topologies to draw: small ones, large ones, and ones whose names are made to break a format."""

from __future__ import annotations

from reconciler.model.identity import Key
from reconciler.sources.graph.topology import IMPORTED, Edge, Mode, Node, Reader, Topology, arranged

NASTY = (
    '"quote"',
    "end",
    "<script>alert(1)</script>",
    "a]b[c",
    "x|y",
    "`md`",
    "**bold**",
    "__init__",
    "%%comment",
    "subgraph",
    "style:a#60;b",
    "&amp;",
    "#quot;",
    "graph",
    "{{x}}",
    "($JS)",
    "-->",
    "1.",
    "---",
    "日本語",
    "]]>",
    "<!--",
    "'single'",
    "\\N\\",
)
STATES = (("Flowing", ""), ("Paused", ""), ("Waiting", "domain"), ("Stalled", "consumer-missing"), ("Error", "server-error"))


def key(name: str, domain: str = "") -> Key:
    """A stream."""
    return Key("Stream", name, "", domain)


def edge(origin: Key, aggregate: Key, mode: Mode = Mode.EPHEMERAL, **more: object) -> Edge:
    """An entry."""
    return Edge(origin, aggregate, mode, **more)  # type: ignore[arg-type]  # whatever a test gives


def topology(*edges: Edge, alone: tuple[Key, ...] = (), readers: tuple[Reader, ...] = (), home: str = "") -> Topology:
    """These entries, and the streams they need."""
    streams = {end for one in edges for end in (one.origin, one.aggregate)} | set(alone)
    return arranged([Node(one, "limits") for one in streams], edges, readers, home, lambda _: "")


def nasty() -> Topology:
    """A ring of bad names, each a stream, a durable, a filter and a message as well; two of them in bad domains."""
    modes, ring = list(Mode), zip(NASTY, NASTY[1:] + NASTY[:1], strict=True)
    edges = []
    for number, (one, other) in enumerate(ring):
        state, cause = STATES[number % len(STATES)]
        said = {"state": state, "cause": cause, "message": one, "filters": (other,), "mirror": number % 7 == 0}
        edges.append(edge(key(one), key(other), modes[number % 4], durable=one, **said))
    edges.append(edge(key("a", '"dom"]'), key("end", "end"), transforms=(("<a>", "|b|"),)))
    edges.append(edge(key("a", f"{IMPORTED}acme.$JS.<x>"), key("end", "end"), Mode.UNMANAGED))
    return topology(*edges, readers=tuple(Reader(Key("Consumer", name, "end"), (name,)) for name in NASTY), home="x];y")


def many(streams: int) -> Topology:
    """Groups of five streams, of which four are copied into the fifth, and each third of those into one of all."""
    edges = []
    for group in range(streams // 5):
        total = key(f"TOTAL_{group:03}", f"d{group % 3}")
        edges += [edge(key(f"PART_{group:03}_{part}"), total, Mode.MANAGED, durable=f"d{part}") for part in range(4)]
        if group % 3 == 0:
            edges.append(edge(total, key("ALL"), filters=("a.>", "b.>")))
    return topology(*edges, home="hub")
