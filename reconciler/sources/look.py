"""One look at a source or mirror entry: the answers to a few INFO requests, and what can be read off them.

Invariant: an answer that did not come is `silence`, and never taken for absence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.model import units
from reconciler.model.desired import Declared, Desired
from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.marker import read_marker
from reconciler.model.normal import canonical, normal_source
from reconciler.model.residue import SOURCES
from reconciler.model.seen.resource import mark_of
from reconciler.model.sourcing import Entry, durable_of, origin_of
from reconciler.sources.graph.topology import Mode
from reconciler.sources.graph.views import declared_mode

Json = Mapping[str, Any]
NO_TIME = "0001-01-01T"
"""How the time of a message begins that never was."""
_TOLD = ("name", "external", "filter_subject", "subject_transforms")
"""What an INFO repeats of an entry."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one INFO; nothing of the three: it was not asked."""

    info: Json | None = None
    gone: bool = False
    """The server said that it is not there."""
    silence: str = ""
    """Why nothing is known."""
    refused: bool = False
    """It was not allowed to ask."""


UNASKED = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """An entry, where it is, and who looks after the durable that it reads through."""

    aggregate: Key
    """The stream that has it."""
    entry: Entry
    """As it is live."""
    mirror: bool = False
    mode: Mode = Mode.EPHEMERAL
    origin: Key | None = None
    """None behind an account's import."""
    durable: Key | None = None
    declared: Declared | None = None
    """The durable as it is declared, or as we keep it for the entry; None: it is somebody else's."""

    @property
    def consumer(self) -> str:
        """The name of the durable; empty for an ephemeral entry."""
        name: str = (self.entry.get("consumer") or {}).get("name", "")
        return name

    @property
    def meant(self) -> str:
        """The name that its durable is declared under, where it has another one since its origin was made anew; else empty."""
        name = self.declared.key.name if self.declared else self.consumer
        return name if name != self.consumer else ""

    @property
    def deliver(self) -> str:
        """Where it listens."""
        subject: str = (self.entry.get("consumer") or {}).get("deliver_subject", "")
        return subject


def entrances(desired: Desired, aggregate: Key, config: Json) -> list[Entrance]:
    """The entries of a live stream."""
    residue = read_marker(config.get("metadata"), aggregate.mark).residue
    said = {canonical(row.live): row.declared for row in residue if row.field == SOURCES}
    return [_entrance(desired, aggregate, entry, said, mirror=bool(config.get("mirror"))) for entry in copied_entries(config)]


def _entrance(desired: Desired, aggregate: Key, entry: Entry, said: Mapping[bytes, Entry], *, mirror: bool) -> Entrance:
    durable = durable_of(entry, aggregate.domain)
    meant = durable
    if durable is not None and durable not in desired.durables and durable not in desired.resources:
        meant = durable_of(said.get(canonical(normal_source(entry)), entry), aggregate.domain)
    return Entrance(
        aggregate=aggregate,
        entry=entry,
        mirror=mirror,
        mode=declared_mode(desired, entry, meant),
        origin=origin_of(entry, aggregate.domain),
        durable=durable,
        declared=declared_durable(desired, meant),
    )


def declared_durable(desired: Desired, durable: Key | None) -> Declared | None:
    """What an entry shall read through, as far as that is ours."""
    if durable is None:
        return None
    if durable in desired.durables:
        return desired.durables[durable].declared
    declared = desired.resources.get(durable)
    return declared if declared is not None and declared.intent.state is State.PRESENT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything one look at one entry showed."""

    at: int
    """Nanoseconds since the epoch."""
    entrance: Entrance
    stream: Answer
    """The stream that has the entry."""
    durable: Answer = UNASKED
    origin: Answer = UNASKED
    """Asked after the durable, so that it is not behind it."""
    stored_below: int | None = None
    """The last origin sequence stored before the place where the durable goes on; None: not asked, or nobody can tell."""
    copied: tuple[int, str] = (0, "")
    """The origin's sequence copied last, and when; asked at the first look at an origin that is younger than the stream."""
    procedure: str = ""
    """What owns one of the two just now."""
    level: int = 0
    """The API level of the server that has the stream."""

    @property
    def told(self) -> Json | None:
        """How the server says that the entry fares; None when it does not."""
        info = self.stream.info or {}
        if self.entrance.mirror:
            mirror: Json | None = info.get("mirror")
            return mirror
        return told_of(info, self.entrance.entry)

    @property
    def mirrored(self) -> int:
        """How far a mirror has copied, which has the sequences of its origin; 0: it has stored nothing so far, or is none.

        An empty one that is told where to start stands right before that place, whatever its origin has.
        """
        state = self.stream.info["state"] if self.stream.info and self.entrance.mirror else {}
        return int(state["last_seq"]) if not state.get("last_ts", NO_TIME).startswith(NO_TIME) else 0

    @property
    def ended(self) -> int | None:
        """The last sequence of an origin that ends before what its mirror has copied; None: it does not, or was not asked."""
        last = int(self.origin.info["state"]["last_seq"]) if self.origin.info else None
        return last if last is not None and last < self.mirrored else None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a durable stands."""

    created: str
    delivered: int
    """As its own count, which begins again with each RESET."""
    reached: int
    """The origin's sequence delivered last."""
    counted: int
    """The count up to which all is acknowledged."""
    floor: int
    """The origin's sequence up to which all is acknowledged."""
    pending: int
    unacknowledged: int

    @property
    def began(self) -> int:
        """Where its count began, or a little later, where sequences are missing; without a RESET it never goes down."""
        return self.reached - self.delivered

    @classmethod
    def of(cls, durable: Json) -> Position:
        """From an INFO answer."""
        delivered, floor = durable["delivered"], durable["ack_floor"]
        return cls(
            created=durable["created"],
            delivered=delivered["consumer_seq"],
            reached=delivered["stream_seq"],
            counted=floor["consumer_seq"],
            floor=floor["stream_seq"],
            pending=durable["num_pending"],
            unacknowledged=durable["num_ack_pending"],
        )


@dataclass(frozen=True, slots=True)
class SeenPause:
    """A durable that is held."""

    by: str
    """manifest, person, or the procedure."""
    until: str


def pause_of(durable: Json) -> SeenPause | None:
    """Whether a durable is paused, and whose doing that is."""
    if durable.get("paused") is not True:
        return None
    config = durable["config"]
    marker = read_marker(config.get("metadata"), mark_of(durable))
    until = units.format_time(units.parse_time(config["pause_until"])) if config.get("pause_until") else ""
    if marker.journal is not None:
        return SeenPause(marker.journal.name, until)
    return SeenPause("manifest" if until and marker.pause_until == until else "person", until)


def told_of(stream: Json, entry: Entry) -> Json | None:
    """How the INFO of a stream says that a source fares; None when it does not.

    Two entries that differ by nothing but their durable look the same here: then it is the one that was heard last.
    """
    wanted = _told(entry)
    alike = [one for one in stream.get("sources") or () if _told(one) == wanted]
    return min(alike, key=lambda one: (one["active"] < 0, one["active"]), default=None)


def _told(entry: Json) -> Json:
    external = {name: value for name, value in (entry.get("external") or {}).items() if value}
    return {name: entry[name] for name in _TOLD if entry.get(name) and name != "external"} | {"external": external}
