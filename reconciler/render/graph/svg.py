"""A topology as a picture: one SVG file with its own styles, for light and dark pages, that needs nothing else.

Invariant: well-formed whatever is in a name, and the same bytes for the same topology.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from reconciler.render.graph.layout import LINE, Box, Connector, Layout, Path, Rectangle, layout
from reconciler.render.graph.widths import text_width
from reconciler.render.graph.words import (
    COLOURS,
    EMPTY,
    edge_lines,
    edge_tooltip,
    node_lines,
    node_tooltip,
    place,
    places,
    reader_lines,
    reader_tooltip,
    summary,
)
from reconciler.sources.graph.topology import Edge, Mode, Topology

_NAME, _SMALL = 12.0, 10.0
_PAD = 10.0
_EDGE = 20.0
_ROW, _SAMPLE = 18.0, 46.0
_DASHED = {Mode.EPHEMERAL: "ephemeral", Mode.MANAGED: "managed", Mode.USER_MANAGED: "", Mode.UNMANAGED: "unmanaged"}
_MEANINGS = {
    Mode.EPHEMERAL: "ephemeral: through a consumer of the server's own",
    Mode.MANAGED: "managed: through a durable that we keep",
    Mode.USER_MANAGED: "user-managed: through a declared durable",
    Mode.UNMANAGED: "unmanaged: through somebody else's durable",
}
_STYLE = """
svg { background: #ffffff; }
text { font-family: Helvetica, Arial, "Liberation Sans", sans-serif; font-size: 10px; fill: #59636e; }
.name { font-size: 12px; font-weight: 500; fill: #1f2328; }
.frame { fill: #f6f8fa; stroke: #d1d9e0; }
.box { fill: #ffffff; stroke: #818b98; }
.absent { stroke-dasharray: 4 3; }
.reader { fill: none; stroke: #d1d9e0; }
.link { fill: none; stroke: #818b98; stroke-width: 1.4; }
.head { fill: #818b98; }
.managed { stroke-width: 2; }
.mirror { stroke-width: 3.2; }
.reads { stroke-width: 1; stroke-dasharray: 1 3; }
.ephemeral { stroke-dasharray: 6 3; }
.unmanaged { stroke-dasharray: 2 3; }
g:hover > .link { stroke-width: 3.4; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  text { fill: #9198a1; }
  .name { fill: #f0f6fc; }
  .frame { fill: #151b23; stroke: #3d444d; }
  .box { fill: #212830; stroke: #7d8590; }
  .reader { stroke: #3d444d; }
  .link { stroke: #7d8590; }
  .head { fill: #7d8590; }
}
""".strip()


def svg(topology: Topology) -> str:
    """The whole picture."""
    lanes = places(topology)
    found = _laid_out(topology, list(lanes), framed=any(lanes.values()))
    legend = list(_legend(topology))
    width = max([found.width, text_width(EMPTY, _SMALL), *(_SAMPLE + text_width(text, _SMALL) for _, text in legend)]) + 2 * _EDGE
    height = found.height + _ROW * (len(legend) + 1) + 2 * _EDGE
    size = f'width="{_n(width)}" height="{_n(height)}" viewBox="{_n(-_EDGE)} {_n(-_EDGE)} {_n(width)} {_n(height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        f"<title>Sourcing: {summary(topology)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        *_markers(topology),
        *_frames(topology, list(lanes), found),
        *_links(topology, found),
        *_boxes(topology, found),
        *_explained(legend, found.height + _ROW),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _laid_out(topology: Topology, lanes: list[str], *, framed: bool) -> Layout:
    """Boxes are the streams, then the consumers; links the entries, then from each consumer's stream to it."""
    of = {node.key: number for number, node in enumerate(topology.nodes)}
    boxes = [_box(node_lines(node), lanes.index(node.key.domain)) for node in topology.nodes]
    boxes += [_box(reader_lines(reader), lanes.index(reader.key.domain)) for reader in topology.readers]
    links = []
    for edge in topology.edges:
        said = edge_lines(edge)
        links.append(Connector(of[edge.origin], of[edge.aggregate], max(text_width(line, _SMALL) for line in said), len(said)))
    first = len(topology.nodes)
    links += [Connector(of[reader.key.stream_key], first + number) for number, reader in enumerate(topology.readers)]
    return layout(boxes, links, framed=framed)


def _box(lines: list[str], lane: int) -> Box:
    width = max(text_width(lines[0], _NAME), *(text_width(line, _SMALL) for line in lines[1:]), 40.0)
    return Box(width + 2 * _PAD, _NAME + LINE * (len(lines) - 1) + 2 * _PAD, lane)


def _frames(topology: Topology, lanes: list[str], found: Layout) -> Iterator[str]:
    for lane, frame in found.frames:
        yield f'<rect class="frame" {_rectangle(frame)} rx="8"/>'
        yield _text(frame.x + _PAD, frame.y + 17, place(topology, lanes[lane]))


def _boxes(topology: Topology, found: Layout) -> Iterator[str]:
    for number, node in enumerate(topology.nodes):
        style = "box absent" if node.note else "box"
        yield from _drawn(found.boxes[number], style, node_lines(node), node_tooltip(topology, node))
    for number, reader in enumerate(topology.readers, len(topology.nodes)):
        yield from _drawn(found.boxes[number], "reader", reader_lines(reader), reader_tooltip(reader))


def _drawn(box: Rectangle, style: str, lines: list[str], tooltip: str) -> Iterator[str]:
    yield f'<g><title>{_escaped(tooltip)}</title><rect class="{style}" {_rectangle(box)} rx="5"/>'
    first = box.y + (box.height - LINE * (len(lines) - 1)) / 2 + _NAME / 3
    for number, line in enumerate(lines):
        yield _text(box.x + _PAD, first + LINE * number, line, "" if number else "name")
    yield "</g>"


def _links(topology: Topology, found: Layout) -> Iterator[str]:
    for number, edge in enumerate(topology.edges):
        path, colour = found.paths[number], COLOURS.get(edge.state, "")
        inked = f' style="stroke: {colour}"' if colour else ""
        yield f"<g><title>{_escaped(edge_tooltip(topology, edge))}</title>"
        yield f'<path class="{_style(edge)}"{inked} marker-end="url(#{_marker(colour)})" d="{_curve(path)}"/>'
        for line, text in enumerate(edge_lines(edge)):
            yield _text(path.label[0], path.label[1] + (LINE * line if line else -4.0), text)
        yield "</g>"
    for number in range(len(topology.edges), len(topology.edges) + len(topology.readers)):
        yield f'<path class="link reads" d="{_curve(found.paths[number])}"/>'


def _style(edge: Edge) -> str:
    return " ".join(filter(None, ("link", "mirror" if edge.mirror else "", _DASHED.get(edge.mode, ""))))


def _curve(path: Path) -> str:
    """Straight and curved pieces in turn."""
    (x, y), *rest = path.knots
    if len(rest) == 1:  # from a box to itself
        (a, b) = rest[0]
        return f"M{_n(x)} {_n(y)}C{_n(x)} {_n(y - _EDGE)} {_n(a)} {_n(b - _EDGE)} {_n(a)} {_n(b)}"
    text = f"M{_n(x)} {_n(y)}"
    for number, (a, b) in enumerate(rest):
        if number % 2:
            text += f"C{_n((x + a) / 2)} {_n(y)} {_n((x + a) / 2)} {_n(b)} {_n(a)} {_n(b)}"
        elif (a, b) != (x, y):
            text += f"L{_n(a)} {_n(b)}"
        x, y = a, b
    return text


def _markers(topology: Topology) -> Iterator[str]:
    """An arrow head of each colour."""
    yield "<defs>"
    for colour in ["", *sorted({COLOURS[edge.state] for edge in topology.edges if edge.state in COLOURS})]:
        filled = f'style="fill: {colour}"' if colour else 'class="head"'
        size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
        yield f'<marker id="{_marker(colour)}" {size} orient="auto"><path {filled} d="M0 0L8 4L0 8z"/></marker>'
    yield "</defs>"


def _marker(colour: str) -> str:
    return f"head{colour.removeprefix('#')}"


def _legend(topology: Topology) -> Iterator[tuple[str, str]]:
    """A sample line (its attributes) and what it means, of what occurs alone."""
    modes, states = {edge.mode for edge in topology.edges}, {edge.state for edge in topology.edges}
    for mode in Mode:
        if mode in modes:
            yield f'class="link {_DASHED.get(mode, "")}"', _MEANINGS[mode]
    if any(edge.mirror for edge in topology.edges):
        yield 'class="link mirror"', "mirror: an exact copy"
    for colour in dict.fromkeys(COLOURS.values()):
        if meant := [state.lower() for state in COLOURS if COLOURS[state] == colour and state in states]:
            yield f'class="link" style="stroke: {colour}"', ", ".join(meant)
    if topology.readers:
        yield 'class="link reads"', "read by an ordinary consumer"


def _explained(legend: list[tuple[str, str]], top: float) -> Iterator[str]:
    for row, (sample, meaning) in enumerate(legend):
        y = top + _ROW * row
        yield f'<path {sample} d="M0 {_n(y)}L{_n(_SAMPLE - _PAD)} {_n(y)}"/>'
        yield _text(_SAMPLE, y + 3.5, meaning)
    if not legend:
        yield _text(0, top, EMPTY)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{_n(x)}" y="{_n(y)}">{_escaped(text)}</text>'


def _rectangle(place_: Rectangle) -> str:
    return f'x="{_n(place_.x)}" y="{_n(place_.y)}" width="{_n(place_.width)}" height="{_n(place_.height)}"'


def _escaped(text: str) -> str:
    """For XML, which has no entity for what is not printable: none of that comes here."""
    return escape(text, quote=False)


def _n(number: float) -> str:
    """With one digit after the point at most."""
    return f"{number:.1f}".removesuffix(".0")
