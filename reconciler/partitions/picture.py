"""Load per worker before and after, as an SVG small enough for a pull request.

Invariant: at most some hundred shapes, however many workers there are; everything in it is a number or our own text.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 720, 240
_LEFT, _TOP, _BOTTOM, _RIGHT = 44, 28, 34, 12
_MOST_BARS = 60
_MOST_POINTS = 240
_BEFORE, _AFTER, _LINE = "#9aa7b4", "#2f6db3", "#c0504d"


def svg(before: Sequence[float], after: Sequence[float], trigger: float) -> str:
    """Both loads by share, highest first; bars for a few workers, lines for many."""
    highest = max([*before, *after, 1 + trigger], default=1.0) * 1.05
    parts = [_axis(highest, level) for level in (0.0, 1.0)]
    parts.append(_rule(highest, 1 + trigger))
    columns = (sorted(before, reverse=True), sorted(after, reverse=True))
    draw = _bars if max(map(len, columns)) <= _MOST_BARS else _lines
    parts += draw(columns, highest)
    legend = (
        f'<text x="{_LEFT}" y="16"><tspan fill="{_BEFORE}">■ before</tspan> <tspan fill="{_AFTER}">■ after</tspan> '
        f'<tspan fill="{_LINE}">― trigger</tspan></text>'
    )
    count = max(map(len, columns))
    foot = f'<text x="{_LEFT}" y="{HEIGHT - 10}">{count} workers, load by share, highest first</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
        f"<title>Load per worker before and after</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{legend}{"".join(parts)}{foot}</svg>\n'
    )


def _y(highest: float, value: float) -> float:
    return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / highest), 1)


def _axis(highest: float, level: float) -> str:
    y = _y(highest, level)
    line = f'<line x1="{_LEFT}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>'
    return f'{line}<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{level:g}</text>'


def _rule(highest: float, level: float) -> str:
    y = _y(highest, level)
    return f'<line x1="{_LEFT}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}" stroke="{_LINE}" stroke-dasharray="4 3"/>'


def _bars(columns: tuple[Sequence[float], ...], highest: float) -> list[str]:
    step = (WIDTH - _LEFT - _RIGHT) / max(1, *map(len, columns))
    floor = _y(highest, 0)
    found = []
    for number, (loads, colour) in enumerate(zip(columns, (_BEFORE, _AFTER), strict=True)):
        for place, load in enumerate(loads):
            x = _LEFT + step * (place + 0.1 + 0.4 * number)
            y = _y(highest, load)
            found.append(f'<rect x="{x:.1f}" y="{y}" width="{step * 0.4:.1f}" height="{floor - y:.1f}" fill="{colour}"/>')
    return found


def _lines(columns: tuple[Sequence[float], ...], highest: float) -> list[str]:
    found = []
    for loads, colour in zip(columns, (_BEFORE, _AFTER), strict=True):
        last = max(1, len(loads) - 1)
        places = sorted({round(last * point / _MOST_POINTS) for point in range(_MOST_POINTS + 1)}) if loads else []
        points = " ".join(
            f"{_LEFT + (WIDTH - _LEFT - _RIGHT) * place / last:.1f},{_y(highest, loads[place])}"
            for place in places
            if place < len(loads)
        )
        found.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return found
