"""A topology in Graphviz's DOT language.

Invariant: names reach the text only inside quoted strings, in which quotes, backslashes and ampersands are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.render.graph.words import (
    COLOURS,
    edge_lines,
    edge_tooltip,
    node_lines,
    node_tooltip,
    places,
    reader_lines,
    reader_tooltip,
)
from reconciler.sources.graph.topology import Edge, Topology


def dot(topology: Topology) -> str:
    """The whole graph."""
    return "\n".join(["digraph sourcing {", *_body(topology), "}"]) + "\n"


def _body(topology: Topology) -> Iterator[str]:
    yield "  rankdir=LR"
    yield "  newrank=true"  # else some versions of dot fail on links between clusters
    yield '  node [shape=box, style=rounded, fontname="Helvetica", fontsize=11]'
    yield '  edge [fontname="Helvetica", fontsize=9]'
    ids = {node.key: f"s{number}" for number, node in enumerate(topology.nodes)}
    for number, (domain, name) in enumerate(places(topology).items()):
        indent = "    " if name else "  "
        if name:
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={_quoted([name])}"
        for node in topology.nodes:
            if node.key.domain == domain:
                style = {"style": '"rounded,dashed"'} if node.note else {}
                yield indent + ids[node.key] + _attributes(node_lines(node), node_tooltip(topology, node), style)
        for index, reader in enumerate(topology.readers):
            if reader.key.domain == domain:
                shape = {"shape": "ellipse"}
                yield f"{indent}c{index}" + _attributes(reader_lines(reader), reader_tooltip(reader), shape)
        if name:
            yield "  }"
    for edge in topology.edges:
        text = _attributes(edge_lines(edge), edge_tooltip(topology, edge), _drawn(edge))
        yield f"  {ids[edge.origin]} -> {ids[edge.aggregate]}{text}"
    for index, reader in enumerate(topology.readers):
        yield f"  {ids[reader.key.stream_key]} -> c{index} [style=dotted]"


def _drawn(edge: Edge) -> dict[str, str]:
    width = {"penwidth": "2"} if edge.mirror else {}
    return {**width, "color": f'"{COLOURS[edge.state]}"'} if edge.state in COLOURS else width


def _attributes(lines: list[str], tooltip: str, more: dict[str, str]) -> str:
    found = {"label": _quoted(lines), "tooltip": _quoted(tooltip.split("\n")), **more}
    return f" [{', '.join(f'{name}={value}' for name, value in found.items())}]"


def _quoted(lines: Iterable[str]) -> str:
    """Lines as one string; Graphviz reads entities in it, and escapes after a backslash."""
    escaped = (line.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
