"""The sources of a status document as people read them: one line per entry, trouble with its cause.

Invariant: made from the document alone; a name from elsewhere can neither break a line nor steer the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from reconciler.model import units
from reconciler.render.values import printable
from reconciler.sources.health import SourceState

Json = Mapping[str, Any]

_STYLES = {
    SourceState.FLOWING: "green",
    SourceState.PAUSED: "cyan",
    SourceState.STALLED: "bold red",
    SourceState.WAITING: "yellow",
    SourceState.ERROR: "bold red",
    SourceState.UNKNOWN: "yellow",
}


def source_lines(sources: Sequence[Json], now: int) -> Iterator[Text]:
    """Nothing where there are none; `now` is nanoseconds since the epoch."""
    if not sources:
        return
    yield Text()
    yield Text("Sources:")
    ways = [f"{printable(source['key'])} from {printable(source['origin'])}" for source in sources]
    width = max(map(len, ways))
    for source, way in zip(sources, ways, strict=True):
        state = SourceState(source["state"])
        line = Text.assemble((f"{state.value:<11}", _STYLES[state]), f"  {way:<{width}}")
        said = "; ".join(part for part in (_through(source), _stand(source), _trouble(source, now)) if part)
        yield line.append(f"  {said}", style="dim")


def _through(source: Json) -> str:
    name = printable(source["consumer"] or "")
    declared = printable(source.get("declaredConsumer") or "")
    meant = f" (declared: {declared})" if declared else ""
    return f"{printable(source['mode'])} consumer {name}{meant}" if name else printable(source["mode"])


def _stand(source: Json) -> str:
    """`at 1,200, 30 pending`."""
    at = f"at {source['lastSequence']:,}" if source["lastSequence"] is not None else ""
    pending = f"{source['pending']:,} pending" if source["pending"] else ""
    return ", ".join(part for part in (at, pending) if part)


def _trouble(source: Json, now: int) -> str:
    message = printable(source["message"])
    if not source["stalledSince"]:
        return message
    seconds = max(0, now - units.parse_time(source["stalledSince"])) // units.SECOND
    return f"{printable(source['cause'] or '')} for {units.format_duration(seconds * units.SECOND)}: {message}"
