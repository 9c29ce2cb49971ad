"""Looking once, or again and again: what `status --watch` and `--wait` mean, wherever the status comes from.

Invariant: what cannot be reached for a while ends no watching; a look that could never work ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session
from reconciler.errors import NatsError
from reconciler.render.status.judged import SETTLED

POLL_SECONDS = 2.0
_TELLING = ("resources", "procedures", "leader", "connected", "ready", "refused", "manifests")
"""The parts of a document whose change is worth another print."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchManner:
    """How long is looked, and how it is shown."""

    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, and print whenever something has changed")] = False
    wait: Annotated[bool, typer.Option("--wait", help="Return when all is in place; exit with 1 when that takes too long")] = (
        False
    )
    timeout: Annotated[str, typer.Option(metavar="D", help="How long --wait waits")] = "5m"
    format_: TextOrJson = "text"


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look showed."""

    document: Json
    lines: Callable[[Json | None], list[Text]]
    """The same for people: all of it, or what is another than in the document that was shown before."""

    @property
    def settled(self) -> bool:
        """Whether all is in place."""
        return all(state in SETTLED or not count for state, count in self.document["summary"].items()) and not any(
            problem["severity"] == "error" for problem in self.document.get("manifests", {}).get("problems", ())
        )

    @property
    def telling(self) -> Json:
        """What must differ for another print."""
        sources = self.document.get("sources", ())
        fares = [(source["key"], source["origin"], source["state"], source["cause"]) for source in sources]
        return {name: self.document[name] for name in _TELLING if name in self.document} | {"sources": fares}


async def look(session: Session, seen: Callable[[], Awaitable[Sight]], manner: WatchManner, limit: float) -> ExitCode:
    """Looks until there is no more reason to; --wait alone prints only its last look."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + limit
    shown: Sight | None = None
    trouble = ""
    while True:
        late = manner.wait and clock() + POLL_SECONDS > deadline
        try:
            with session.terminal.working("looking"):
                sight = await seen()
        except NatsError as error:
            if late or not error.transient or not (manner.wait or shown is not None):
                raise
            if str(error) != trouble:
                trouble = str(error)
                session.terminal.say(f"{trouble}; trying again")
        else:
            trouble = ""
            done = sight.settled or late if manner.wait else not manner.watch
            if (done or manner.watch) and (shown is None or sight.telling != shown.telling):
                _show(session, sight, manner.format_, shown)
                shown = sight
            if done and manner.wait and not sight.settled:
                session.terminal.fail(f"not in place after {manner.timeout}")
                return ExitCode.FAILED
            if done:
                return ExitCode.OK
        await asyncio.sleep(POLL_SECONDS)


def _show(session: Session, sight: Sight, how: str, before: Sight | None) -> None:
    if how == "json":
        session.terminal.json(sight.document)
    else:
        session.terminal.lines(sight.lines(before.document if before else None))
