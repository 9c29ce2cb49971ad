"""One consumer as a procedure sees it: where it shall end, what its INFO says now, and the journal in its metadata.

Invariant: while a procedure is under way the consumer carries a journal; a paused consumer without one was paused by a person.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import orjson

from reconciler.model import flow, units
from reconciler.model.identity import Key
from reconciler.model.journals import DUPLICATES, STREAM, UNTIL
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import Mutability, table
from reconciler.model.marker import Journal, Marker, read_marker, with_mark
from reconciler.model.normal import EVERYTHING, Config, normal_consumer
from reconciler.model.residue import Residue
from reconciler.model.seen.resource import mark_of
from reconciler.model.subjects import covered

DEFAULT_DEADLINE = 60 * 10**9
DEFAULT_ACK_WAIT = 30 * 10**9
RESET_LEVEL = 4
REWINDABLE = frozenset({"all", "by_start_sequence", "by_start_time"})
_SIGNATURE, _SIGNED = 271_828, 10**6
"""How the deadline of a pause of ours ends: whatever became of its journal, no person has set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTarget:
    """Where a consumer shall end, and what of its stream and server the way there depends on."""

    key: Key
    config: bytes
    """Wire JSON, marker included, without a journal."""
    level: int
    """The API level of the server."""
    retention: str = "limits"
    replicas: int = 1
    """Of the stream."""
    deadline: int = DEFAULT_DEADLINE
    """How long one phase may take; pauses last twice as long."""
    expected_duplicates: int = 0

    @property
    def wire(self) -> Config:
        """The configuration, a fresh dict each time."""
        parsed: Config = orjson.loads(self.config)
        return parsed

    @property
    def marker(self) -> Marker:
        """What the consumer's metadata shall say about us."""
        return read_marker(self.wire.get("metadata"), self.key.mark)

    @property
    def filters(self) -> tuple[str, ...]:
        """What it shall deliver."""
        return delivered_by(self.wire)

    @property
    def rewindable(self) -> bool:
        """Whether RESET may move this consumer to a sequence.

        Never on a replicated interest stream: the server's interest check then deletes what the consumer was moved back to.
        """
        if self.retention == "interest" and self.replicas > 1:
            return False
        return self.level >= RESET_LEVEL and self.wire.get("deliver_policy", "all") in REWINDABLE

    @property
    def declared_start(self) -> int:
        """The first sequence the manifest wants delivered, whatever a residue has made of it."""
        rows = [row.declared for row in self.marker.residue if row.field == "opt_start_seq"]
        return int((rows[0] if rows else self.wire.get("opt_start_seq")) or 1)

    def with_residue(self, rows: tuple[Residue, ...]) -> Self:
        """As it has to live with these differences, as far as they stand for what it says."""
        declared = normal_consumer(self.as_declared().wire)
        kept = tuple(row for row in rows if declared.get(row.field) == row.declared)
        return self._with({row.field: row.live for row in kept}, kept)

    def as_declared(self) -> Self:
        """Without the residue of earlier procedures: what the manifest says."""
        return self._with({row.field: row.declared for row in self.marker.residue}, ())

    def _with(self, fields: Mapping[str, Any], residue: tuple[Residue, ...]) -> Self:
        config = {name: value for name, value in (self.wire | dict(fields)).items() if value is not None}
        metadata = with_mark(config.get("metadata"), replace(self.marker, residue=residue), self.key.mark)
        return replace(self, config=orjson.dumps(config | ({"metadata": metadata} if metadata else {})))

    def journal(self, name: str, step: str, data: Mapping[str, Any]) -> Journal:
        """An entry about the step that is about to be taken; it keeps the promised duplicates for whoever goes on."""
        promised = {DUPLICATES: self.expected_duplicates} if self.expected_duplicates else {}
        return Journal(name, step, self.marker.spec, orjson.dumps({**data, **promised}).decode())


@dataclass(frozen=True, slots=True)
class ConsumerSeen:
    """One INFO answer."""

    info: Config

    @property
    def config(self) -> Config:
        """The live configuration, with everything we do not know."""
        config: Config = self.info["config"]
        return config

    @property
    def marker(self) -> Marker:
        """What we wrote into its metadata."""
        return read_marker(self.config.get("metadata"), mark_of(self.info))

    @property
    def journal(self) -> Journal | None:
        """The procedure under way."""
        return self.marker.journal

    @property
    def data(self) -> Config:
        """What the journal keeps for its own procedure; empty when somebody damaged it."""
        return journal_data(self.journal)

    def sequence(self, part: str) -> int | None:
        """A sequence that the journal names; None when it names none, or somebody damaged it."""
        found = self.data.get(part)
        return found if isinstance(found, int) and 0 <= found <= units.MAX_INT64 else None

    @property
    def filters(self) -> tuple[str, ...]:
        """What it delivers now."""
        return delivered_by(self.config)

    @property
    def floor(self) -> int:
        """Everything up to here is done with.

        INFO's `delivered` is not the cursor, except before the first delivery; there 2.11 shows a floor of 0 wherever it starts.
        """
        part = "ack_floor" if self.info["delivered"]["consumer_seq"] else "delivered"
        return int(self.info[part]["stream_seq"])

    @property
    def delivered(self) -> int:
        """The last sequence that was handed out, or the one before the first."""
        return int(self.info["delivered"]["stream_seq"])

    @property
    def in_flight(self) -> int:
        """Messages delivered and not yet acknowledged."""
        return int(self.info.get("num_ack_pending", 0))

    @property
    def unacknowledged(self) -> bool:
        """Whether something that was delivered is not acknowledged."""
        return bool(self.in_flight) or self.delivered != self.floor

    @property
    def paused(self) -> bool:
        """Whether the pause is in effect (a cluster answers the request before it is)."""
        return self.info.get("paused") is True

    @property
    def pause_until(self) -> int:
        """The deadline of the last pause, past or future; 0 after a resume."""
        text = self.config.get("pause_until")
        return units.parse_time(text) if text else 0

    @property
    def chosen(self) -> int:
        """The deadline of the pause that its procedure has chosen; 0 before it chose one, and in a journal of old."""
        try:
            return units.parse_time(self.data[UNTIL])
        except (KeyError, TypeError, ValueError, AttributeError):
            return 0

    @property
    def paused_as_chosen(self) -> bool:
        """Whether it has stood still since its procedure paused it: a pause that ran out does not come back by itself."""
        return self.paused and self.pause_until == self.chosen

    @property
    def paused_by_other(self) -> bool:
        """Whether it is paused, though neither by a procedure nor as its manifest says; a journal of old does not tell."""
        declared = self.marker.pause_until
        ours = self.pause_until % _SIGNED == _SIGNATURE or (self.journal and not self.chosen)
        return self.paused and not ours and not (declared and self.pause_until == units.parse_time(declared))

    @property
    def left_paused(self) -> bool:
        """Whether a procedure has paused it that is over: a pause that landed late, which nobody else would end."""
        return self.paused and self.journal is None and self.pause_until % _SIGNED == _SIGNATURE

    def chosen_again(self, until: int) -> bytes:
        """The configuration with the same journal, but for the deadline."""
        data = orjson.dumps({**self.data, **choice(until)}).decode()
        return encode(mark_of(self.info), self.config, replace(self.journal, data=data) if self.journal else None)

    @property
    def time(self) -> int:
        """The server's clock when it answered."""
        return units.parse_time(self.info["ts"])

    @property
    def ack_wait(self) -> int:
        """How long a worker may take."""
        return int(self.config.get("ack_wait") or DEFAULT_ACK_WAIT)


def deadline(until: int) -> str:
    """Until when a procedure pauses a consumer, about then: it can be told from what a person would ask for."""
    return units.format_time(until - until % _SIGNED + _SIGNATURE)


def choice(until: int) -> dict[str, str]:
    """What a journal has to say before that pause is asked for."""
    return {UNTIL: deadline(until)}


def journal_data(journal: Journal | None) -> Config:
    """What a journal keeps for its own procedure; empty when somebody damaged it."""
    try:
        data = orjson.loads(journal.data) if journal else {}
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def caught_up_in(journal: Journal | None) -> str:
    """The stream whose change a consumer is caught up in; empty for none, and where somebody damaged the journal."""
    try:
        return str(Key.parse(journal_data(journal)[STREAM]).stream_key)
    except (KeyError, TypeError, AttributeError, ValueError):
        return ""


def promised_duplicates(journal: Journal) -> int:
    """What the plan that began this procedure has said; nothing when somebody damaged it."""
    promised = journal_data(journal).get(DUPLICATES)
    return promised if isinstance(promised, int) else 0


def delivered_by(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a configuration delivers, sorted; a consumer without filters delivers everything."""
    return tuple(sorted(flow.filters_of(config) or [EVERYTHING]))


def new_filters(target: ConsumerTarget, seen: ConsumerSeen) -> tuple[str, ...]:
    """Filters the consumer does not deliver yet."""
    return tuple(one for one in target.filters if not covered(one, seen.filters))


def added_filters(target: ConsumerTarget, seen: ConsumerSeen) -> tuple[str, ...]:
    """Filters whose stored messages the consumer may have passed: new ones, and those a half-done procedure had added."""
    journaled = seen.data.get("added")
    candidates = (*(journaled if isinstance(journaled, list) else ()), *new_filters(target, seen))
    return tuple(one for one in target.filters if one in candidates)


def expected_duplicates(info: Config, start: int, retention: str) -> int:
    """How many messages at most are delivered again when a consumer with this INFO is moved back to `start`."""
    if retention == "workqueue":
        return ConsumerSeen(info).in_flight  # what was acknowledged is gone
    delivered = info["delivered"]
    return max(0, min(int(delivered["stream_seq"]) - start + 1, int(delivered["consumer_seq"])))


def encode(mark: str, config: Mapping[str, Any], journal: Journal | None, owner: str = "") -> bytes:
    """A configuration to send, of what marks call so: with this journal, or with none; a pause never travels in an update."""
    marker = read_marker(config.get("metadata"), mark)
    metadata = with_mark(
        config.get("metadata"), replace(marker, owner=marker.owner or (owner if journal else ""), journal=journal), mark
    )
    full = {name: value for name, value in config.items() if name not in ("metadata", "pause_until")}
    return orjson.dumps(full | ({"metadata": metadata} if metadata else {}))


def encode_paused(key: Key, config: Mapping[str, Any], journal: Journal, owner: str, until: int) -> bytes:
    """A consumer to create: journalled, and paused from its first moment."""
    created: Config = orjson.loads(encode(key.mark, config, journal, owner))
    return orjson.dumps(created | {"pause_until": deadline(until)})


@functools.cache
def _immutable() -> tuple[str, ...]:
    return tuple(name for name, column in table(ConsumerSpec).items() if column.wire.mutability is Mutability.IMMUTABLE)


def immutable_differences(live: Mapping[str, Any], target: ConsumerTarget) -> tuple[str, ...]:
    """Fields no update could bring to the target, except those whose difference is recorded as residue."""
    was, shall = normal_consumer(live), normal_consumer(target.wire)
    kept = {(row.field, repr(row.live), repr(row.declared)) for row in read_marker(live.get("metadata"), target.key.mark).residue}
    names = [name for name in (*_immutable(), "durable") if was.get(name) != shall.get(name)]
    if bool(was.get("deliver_subject")) != bool(shall.get("deliver_subject")):
        names.append("deliver_subject")  # a pull consumer never becomes a push consumer
    return tuple(name for name in names if (name, repr(was.get(name)), repr(shall.get(name))) not in kept)


def arrived(target: ConsumerTarget, seen: ConsumerSeen) -> bool:
    """Whether nothing is left to do: the target's filters and marker, and no journal."""
    live, shall = seen.marker, target.marker
    same = (live.owner, live.spec, live.pause_until) == (shall.owner, shall.spec, shall.pause_until)
    return same and live.journal is None and seen.filters == target.filters and not immutable_differences(seen.config, target)
