"""How the panels of a dashboard lie, as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from tools.dashboard.grafana import WIDTH

Json = dict[str, Any]
CELL_WIDTH, CELL_HEIGHT = 40, 15
_MARKS = {
    "timeseries": "M0 14 l8 -6 l6 3 l8 -9 l8 5",
    "stat": "M0 14 h30",
    "bargauge": "M0 2 h28 M0 8 h20 M0 14 h9",
    "state-timeline": "M0 4 h18 m4 0 h8 M0 12 h8 m4 0 h18",
}


def drawn(made: Json) -> str:
    """How the panels lie, as SVG."""
    panels = made["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * CELL_HEIGHT
    size = f'width="{WIDTH * CELL_WIDTH}" height="{height}" viewBox="0 0 {WIDTH * CELL_WIDTH} {height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="sans-serif" font-size="12">']
    lines.append(f'<rect width="{WIDTH * CELL_WIDTH}" height="{height}" fill="#f4f5f5"/>')
    for panel in panels:
        lines += _panel(panel)
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Json) -> Iterator[str]:
    place = panel["gridPos"]
    left, top = place["x"] * CELL_WIDTH + 2, place["y"] * CELL_HEIGHT + 2
    width, height = place["w"] * CELL_WIDTH - 4, place["h"] * CELL_HEIGHT - 4
    if panel["type"] == "row":
        yield f'<text x="{left + 4}" y="{top + 10}" font-weight="bold">{escape(panel["title"])}</text>'
        return
    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="3" fill="#fff" stroke="#c7d0d9"/>'
    yield f'<text x="{left + 7}" y="{top + 15}">{escape(panel["title"])}</text>'
    unit = panel["fieldConfig"]["defaults"]["unit"]
    small = 'text-anchor="end" fill="#6e7781" font-size="10"'
    yield f'<text x="{left + width - 7}" y="{top + height - 7}" {small}>{escape(unit)}</text>'
    mark = f'<path d="{_MARKS[panel["type"]]}" stroke="#1f78c1" stroke-width="2" fill="none"/>'
    yield f'<g transform="translate({left + 8},{top + height - 24})">{mark}</g>'
