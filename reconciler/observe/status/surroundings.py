"""What there is to say about a running process besides its resources: connection, lease, manifests, audit and passes.

Invariant: pure, and no secret in it: addresses are stored without a login.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.errors import Problem
from reconciler.jetstream.leading.fence import FenceNews
from reconciler.jetstream.transport.settings import redact
from reconciler.model import units
from reconciler.model.generation import Generation
from reconciler.model.identity import Key
from reconciler.model.seen.live import Server
from reconciler.observe.status.pools import pool_rows
from reconciler.observe.telemetry import PassReport
from reconciler.plan.change import Reason
from reconciler.sources.health import SourceState

Json = dict[str, Any]
_PROBLEMS = 1000
"""Of all that is wrong with the manifests, as many as anybody can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Which process this is."""

    pid: int
    host: str
    version: str
    owner: str


class Surroundings:
    """Told by the daemon as things happen."""

    def __init__(self, now: Callable[[], int], process: Process) -> None:
        self.now = now
        self.process = process
        self.started = self.changed_connection = now()
        self.connected = False
        self.server = Server()
        self._url = ""
        self._leading = False
        self._leader = ""
        self._leader_unknown = "not looked at yet"
        self._manifests: Json = {"revision": "", "problems": [], "loadedAt": None}
        self._fence: Json = {"state": "", "why": "", "seconds": 0.0, "at": None}
        self._audit: Json = {"state": "", "rate": 0.0}
        self._plan: Json = {"fingerprint": "", "changes": 0, "refused": []}
        self._passes: dict[str, Json] = {}
        self._sources: list[Json] = []
        self._sources_unseen = ""
        self._generations: Mapping[Key, Generation] = {}

    def connection(self, connected: bool, server_url: str) -> None:  # noqa: FBT001 - as connections tell it
        """NATS is there, or has gone."""
        if connected is not self.connected:
            self.changed_connection = self.now()
        self.connected = connected
        self._url = redact(server_url)

    def leadership(self, leading: bool, holder_text: str, unknown: str = "") -> None:  # noqa: FBT001 - as leases tell it
        """Who may write: this process, or the holder; nobody with an empty text, unless it says why that is unknown."""
        self._leading = leading
        self._leader = holder_text
        self._leader_unknown = unknown

    def manifests(self, revision: str, problems: Iterable[Problem] = ()) -> None:
        """Which revision is in force, and what is wrong with what is there now (it is not loaded, if anything is)."""
        found = [_problem(problem) for problem in problems]
        loaded = all(problem["severity"] != "error" for problem in found)
        loaded_at = units.format_time(self.now()) if loaded else self._manifests["loadedAt"]
        self._manifests = {"revision": revision, "problems": found[:_PROBLEMS], "loadedAt": loaded_at}

    def generations(self, known: Mapping[Key, Generation]) -> None:
        """What was last loaded whole of each worker pool."""
        self._generations = known

    def pools(self) -> list[Json]:
        """The worker pools as they are shown."""
        return pool_rows(self._generations.values())

    def fence(self, news: FenceNews) -> None:
        """How the term of this process stands to the one before: a change of that may still land, or not."""
        at = units.format_time(self.now())
        self._fence = {"state": news.state.value, "why": news.why, "seconds": round(news.seconds, 3), "at": at}

    def audit(self, state: str, rate: float) -> None:
        """Whether we hear who changes things (on, off, shed, denied), and how many messages a second that takes."""
        self._audit = {"state": state, "rate": round(rate, 1)}

    def sources_seen(self, rows: list[Json]) -> None:
        """The sources as the last look found them (see `render.status.sources`)."""
        self._sources, self._sources_unseen = rows, ""

    def sources_unseen(self, why: str) -> None:
        """Until they are seen again, nobody knows how the sources fare."""
        self._sources_unseen = why

    def sources(self) -> list[Json]:
        """The sources as they are shown: nobody knows about them while there is no connection."""
        why = self._sources_unseen if self.connected else "not connected"
        if not why:
            return self._sources
        unknown = {"state": SourceState.UNKNOWN.value, "cause": None, "message": why, "stalledSince": None}
        since = None if self.connected else units.format_time(self.changed_connection)
        return [{**row, **unknown, "since": since} for row in self._sources]

    def full_plan(self, *, counts: Mapping[str, int], refused: Iterable[Reason | str] = (), fingerprint: str = "") -> None:
        """What the last plan of everything came to; `counts` is its summary."""
        changes = sum(counts.values()) - counts.get("unchanged", 0)
        self._plan = {"fingerprint": fingerprint, "changes": changes, "refused": [str(reason) for reason in refused]}

    def pass_ended(self, report: PassReport) -> None:
        """A pass is over, a full one or one of a few keys."""
        self._passes[report.scope] = {
            "at": units.format_time(self.now()),
            "number": report.number,
            "result": report.result,
            "revision": report.revision,
            "seconds": dict(report.seconds),
            "results": dict(report.results),
            "keys": report.keys,
            "error": report.error,
        }

    def surroundings(self) -> Json:
        """This part of the status document."""
        process = {"pid": self.process.pid, "host": self.process.host, "version": self.process.version}
        server = {"version": self.server.version, "apiLevel": self.server.level, "cluster": self.server.cluster}
        return {
            "owner": self.process.owner,
            "leader": self._leader or None,
            "leaderUnknown": self._leader_unknown,
            "leading": self._leading,
            "fence": self._fence,
            "connected": self.connected,
            "server": {**server, "url": self._url},
            "lastPass": {"at": None, **self._passes.get("full", {}), **self._plan},
            "lastHint": self._passes.get("hint"),
            "refused": self._plan["refused"],
            "audit": self._audit,
            "manifests": self._manifests,
            "process": {**process, "startedAt": units.format_time(self.started)},
        }


def _problem(problem: Problem) -> Json:
    names = ("file", "line", "column", "code", "message", "field", "severity")
    return {name: getattr(problem, name) for name in names}
