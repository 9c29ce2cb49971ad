"""A topology as Mermaid text, which GitHub and many wikis draw.

Invariant: names reach the text only inside quoted labels, and there only as letters, digits and entity codes, so that nothing
in them is a keyword, markup or markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from reconciler.render.graph.words import COLOURS, edge_lines, node_lines, places, reader_lines
from reconciler.sources.graph.topology import Topology

_PLAIN = re.compile(r"[A-Za-z0-9 .,>+…→]|(?<=[A-Za-z0-9])[_-](?=[A-Za-z0-9])|:(?= )")
MOST_EDGES, MOST_TEXT = 500, 50_000
"""Mermaid draws no more unless it is configured to."""


def mermaid(topology: Topology) -> str:
    """The whole graph."""
    return "\n".join(["flowchart LR", *_body(topology)]) + "\n"


def too_large(topology: Topology, text: str) -> bool:
    """Whether Mermaid would refuse to draw it as it is usually configured."""
    return len(topology.edges) + len(topology.readers) > MOST_EDGES or len(text) > MOST_TEXT


def _body(topology: Topology) -> Iterator[str]:
    ids = {node.key: f"s{number}" for number, node in enumerate(topology.nodes)}
    for number, (domain, name) in enumerate(places(topology).items()):
        indent = "    " if name else "  "
        if name:
            yield f'  subgraph d{number}["{_label([name])}"]'
            yield "    direction LR"
        for node in topology.nodes:
            if node.key.domain == domain:
                yield f'{indent}{ids[node.key]}["{_label(node_lines(node))}"]' + (":::absent" if node.note else "")
        for index, reader in enumerate(topology.readers):
            if reader.key.domain == domain:
                yield f'{indent}c{index}(["{_label(reader_lines(reader))}"]):::reader'
        if name:
            yield "  end"
    for edge in topology.edges:
        arrow = "==>" if edge.mirror else "-->"
        yield f'  {ids[edge.origin]} {arrow}|"{_label(edge_lines(edge))}"| {ids[edge.aggregate]}'
    for index, reader in enumerate(topology.readers):
        yield f"  {ids[reader.key.stream_key]} -.-> c{index}"
    yield from _styles(topology)


def _styles(topology: Topology) -> Iterator[str]:
    if any(node.note for node in topology.nodes):
        yield "  classDef absent stroke-dasharray: 4 3"
    if topology.readers:
        yield "  classDef reader stroke-width: 1px"
    for colour in sorted(set(COLOURS.values())):
        numbers = [str(number) for number, edge in enumerate(topology.edges) if COLOURS.get(edge.state) == colour]
        if numbers:
            yield f"  linkStyle {','.join(numbers)} stroke: {colour}"


def _label(lines: Iterable[str]) -> str:
    return "<br/>".join("".join(_escaped(line)) for line in lines)


def _escaped(line: str) -> Iterator[str]:
    """Each character as it is where that is safe, else as Mermaid's entity code of it."""
    for at, character in enumerate(line):
        yield character if _PLAIN.match(line, at) else f"#{ord(character)};"
