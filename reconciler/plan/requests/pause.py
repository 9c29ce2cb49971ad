"""What a person's command does to one consumer: why it is refused, and what has to be said about it.

Invariant: INFO answers in, a Decision out; whatever is refused, is refused before anything was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.marker import Journal
from reconciler.model.seen.live import LiveConsumer, Server
from reconciler.plan.change import Reason
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.requests import Fact, Message, NextMessage, PauseConsumer, Read, Write

_LIMITS = (("max_msgs", "maxMsgs"), ("max_bytes", "maxBytes"), ("max_msgs_per_subject", "maxMsgsPerSubject"))


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell; a warning is about what may not be wanted."""

    code: str
    message: str
    warning: bool = False


def warning(code: str, message: str) -> Note:
    """A note about what may not be wanted."""
    return Note(code, message, warning=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated:
    """A consumer as it is found, and what the judgement of a command needs beside it."""

    key: Key
    owner: str
    """Of whoever gives the command."""
    server: Server
    stream: Mapping[str, Any]
    """INFO."""
    info: dict[str, Any]
    """INFO of the consumer."""
    held: Journal | None = None
    """Of the hold that keeps the consumer's place, if there is one."""
    readers: tuple[Key, ...] = ()
    """Streams that are known to source or mirror through it."""
    facts: Mapping[Read, Fact] = field(default_factory=dict)
    """Answers to what the command wanted to read."""

    @property
    def seen(self) -> ConsumerSeen:
        """The consumer as procedures see it."""
        return ConsumerSeen(self.info)

    @property
    def journal(self) -> Journal | None:
        """The procedure under way."""
        return self.seen.journal or self.held

    @property
    def server_made(self) -> bool:
        """Whether the server itself keeps it for a source or a mirror."""
        return LiveConsumer.seen(self.info).server_made

    @property
    def sourcing(self) -> bool:
        """Whether a stream's source or mirror reads through it."""
        return bool(self.seen.config.get("ack_policy") == "flow_control")

    @property
    def reader(self) -> str:
        """The streams that read through it, as a subject of a sentence in the singular."""
        return " and ".join(str(key) for key in self.readers) or "the stream that sources through it"

    @property
    def declared_pause(self) -> int:
        """The deadline that the manifest declares, as far as the marker remembers; 0 when that is none, or over."""
        text = self.seen.marker.pause_until
        until = units.parse_time(text) if text else 0
        return until if until > self.seen.time else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What comes of a command. Nothing is written when it is refused, or when there is nothing to write."""

    refusals: tuple[Reason, ...] = ()
    notes: tuple[Note, ...] = ()
    write: Write | None = None

    @property
    def gist(self) -> tuple[str, ...]:
        """What somebody who said yes to it relied on; the numbers may have moved."""
        return tuple(note.code for note in self.notes)


class Command(Protocol):
    """One thing to do to a consumer."""

    def reads(self, found: Operated) -> tuple[Read, ...]:
        """What it wants to know beside the INFOs."""
        ...

    def decide(self, found: Operated) -> Decision:
        """What comes of it."""
        ...


@dataclass(frozen=True, slots=True)
class Pause:
    """Deliver nothing before a deadline on the server's clock: a moment, or so long from now."""

    until: int = 0
    lasting: int = 0

    def deadline(self, found: Operated) -> int:
        """The moment."""
        return self.until or found.seen.time + self.lasting

    def reads(self, found: Operated) -> tuple[Read, ...]:
        """The oldest message that it has not done with: a message limit of age meets that one first."""
        return (_oldest(found),)

    def decide(self, found: Operated) -> Decision:
        """Refused are a moment that is over, and a consumer that is not to be touched."""
        until = self.deadline(found)
        refusals = [*under_procedure(found), *made_by_server(found, "pausing")]
        if until <= found.seen.time:
            message = f"{shown(until)} is over: the server's clock says {shown(found.seen.time)}"
            refusals.append(Reason("past", message, "give a moment to come (`--until`), or how long (`--for`)"))
        notes = [Note("pauses", f"{found.key} delivers nothing until {shown(until)}"), *foreign(found), *_paused_already(found)]
        if found.sourcing:
            message = f"{found.reader} receives nothing meanwhile, and on the server its source looks as healthy as ever"
            notes.append(warning("source-stops", message))
        notes += _expiring(found, until)
        if found.declared_pause and found.declared_pause != until:
            message = f"the manifest declares a pause until {shown(found.declared_pause)}: the next reconcile sets that again"
            notes.append(warning("declared", message))
        return Decision(refusals=tuple(refusals), notes=tuple(notes), write=PauseConsumer(found.key, units.format_time(until)))


@dataclass(frozen=True, slots=True)
class Resume:
    """End a pause, whoever began it."""

    def reads(self, found: Operated) -> tuple[Read, ...]:
        """Nothing more."""
        del found
        return ()

    def decide(self, found: Operated) -> Decision:
        """Refused while a procedure is under way: its messages would be delivered twice."""
        refusals = tuple(under_procedure(found))
        if not found.seen.paused:
            return Decision(refusals=refusals, notes=(Note("not-paused", f"{found.key} is not paused"),))
        notes = [Note("resumes", f"{found.key} delivers again; {_who(found)}"), *foreign(found)]
        if found.declared_pause:
            message = f"the manifest declares a pause until {shown(found.declared_pause)}: the next reconcile pauses it again"
            notes.append(warning("declared", message))
        return Decision(refusals=refusals, notes=tuple(notes), write=PauseConsumer(found.key, ""))


def under_procedure(found: Operated) -> list[Reason]:
    """A procedure relies on the consumer staying as it left it."""
    journal = found.journal
    if journal is None:
        return []
    message = f"{found.key} is in the middle of the procedure {journal.name} (step {journal.step})"
    end = "wait for its end (without a daemon the next `reconciler apply` brings it there)"
    return [Reason("procedure", message, f"{end}, or stop it: `reconciler procedure abort {found.key}`")]


def made_by_server(found: Operated, doing: str) -> list[Reason]:
    """Whatever is done to such a consumer, the server moves it back to its acknowledgement floor."""
    if not found.server_made:
        return []
    message = (
        f"the server itself keeps {found.key} for a source or mirror, and {doing} moves it back to its acknowledgement floor"
    )
    way_out = "give the source a durable of its own (`consumer: {name: NAME, serverManaged: true}` in its manifest) to control it"
    return [Reason("server-made", message, way_out)]


def foreign(found: Operated) -> list[Note]:
    """A consumer of another owner: our lease does not hold off that owner's reconciler."""
    owner = found.seen.marker.owner
    if not owner or owner == found.owner:
        return []
    return [
        warning("other-owner", f"{found.key} belongs to the owner {owner}, whom the lease of {found.owner} does not hold off")
    ]


def paused_until(found: Operated) -> str:
    """The deadline of the pause in effect; empty without one."""
    return units.format_time(found.seen.pause_until) if found.seen.paused else ""


def shown(moment: int) -> str:
    """To the second, as nobody types more."""
    return units.format_time(moment // units.SECOND * units.SECOND)


def _paused_already(found: Operated) -> list[Note]:
    return [Note("was-paused", _who(found))] if found.seen.paused else []


def _who(found: Operated) -> str:
    """Until when it was paused, and by whom: only a manifest leaves its deadline in the marker."""
    remembered = found.seen.marker.pause_until
    ours = remembered and units.parse_time(remembered) == found.seen.pause_until
    return f"it was paused until {shown(found.seen.pause_until)} by {'its manifest' if ours else 'a person, not by a manifest'}"


def _oldest(found: Operated) -> NextMessage:
    return NextMessage(found.key.stream_key, ">", found.seen.floor + 1)


def _expiring(found: Operated, until: int) -> list[Note]:
    """Limits of the stream that may remove what nobody received, which no pause holds back."""
    config, state = found.stream["config"], found.stream["state"]
    oldest = found.facts.get(_oldest(found))
    since = units.parse_time(oldest.time) if isinstance(oldest, Message) else found.seen.time
    said: list[str] = []
    age = config.get("max_age") or 0
    if age and since + age < until:
        said.append(f"messages older than maxAge {units.format_duration(age)}, the first of them at {shown(since + age)}")
    drops = config.get("discard", "old") == "old"
    limits = ", ".join(f"{name} {config[field]:,}" for field, name in _LIMITS if config.get(field, -1) > 0)
    if limits and drops:
        said.append(f"the oldest messages beyond {limits} ({state['messages']:,} stored now)")
    if config.get("allow_msg_ttl"):
        said.append("messages whose own TTL ends")
    notes = [warning("may-expire", f"the stream removes undelivered messages meanwhile: {'; '.join(said)}")] if said else []
    if limits and not drops:
        notes.append(warning("may-refuse", f"the stream may fill up and refuse publishers meanwhile: {limits}"))
    return notes
