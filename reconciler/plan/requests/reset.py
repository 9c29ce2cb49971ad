"""Moving a consumer by hand: where it would go on, what it would deliver again and what it would skip.

Invariant: a position that the server would take without sense, refuse, or never answer to is refused here, and a number that is
not exact is called a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model import units
from reconciler.model.normal import EVERYTHING
from reconciler.plan.change import Reason
from reconciler.plan.requests.pause import Decision, Note, Operated, foreign, made_by_server, shown, under_procedure, warning
from reconciler.procedures.consumer import RESET_LEVEL, REWINDABLE
from reconciler.procedures.requests import Message, NextMessage, Read, ResetConsumer, StreamInfo

_COUNTABLE_FILTERS = 64
"""More filters than that are not counted one by one."""
_TO_FLOOR = 0
"""What RESET takes for the acknowledgement floor."""


@dataclass(frozen=True, slots=True)
class Span:
    """Stored messages that the consumer's filters match, from one sequence to another."""

    first: int
    last: int
    count: int
    exact: bool

    def __str__(self) -> str:
        about = "" if self.exact else "at most "
        noun = "message" if self.count == 1 else "messages"
        return f"{about}{self.count:,} {noun} (sequences {self.first:,} to {self.last:,})"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where a consumer goes on, and what comes of that."""

    start: int
    again: Span | None
    skipped: Span | None


@dataclass(frozen=True, slots=True)
class Reset:
    """Go on at `seq`; without one, at the first message that is not known to be done with."""

    seq: int | None = None

    def start(self, found: Operated) -> int:
        """The first sequence that may be delivered next."""
        return found.seen.floor + 1 if self.seq is None else self.seq

    def reads(self, found: Operated) -> tuple[Read, ...]:
        """The first message from there on, and how many the filters match."""
        first = (_at(found, self.start(found)),) if self.seq is not None and found.seen.config.get("opt_start_time") else ()
        return (*first, *_counting(found))

    def decide(self, found: Operated) -> Decision:
        """All that speaks against it, and all that comes of it."""
        refusals = [*_too_old(found, self.start(found)), *made_by_server(found, "a reset"), *under_procedure(found)]
        if self.seq is not None:
            refusals += _out_of_range(found, self.seq)
        ahead = self.forecast(found)
        if ahead.start <= _delivered(found) and _unsafe_backwards(found):
            message = "the server deletes from a replicated interest stream what one of its consumers is moved back to"
            refusals.append(Reason("interest-replicated", message, _another(ahead.start)))
        if not refusals and _pointless(found, ahead):
            return Decision(notes=(Note("in-place", f"{found.key} goes on with sequence {ahead.start:,} anyway"),))
        write = ResetConsumer(found.key, _TO_FLOOR if self.seq is None else self.seq)
        return Decision(refusals=tuple(refusals), notes=(*_said(found, ahead), *foreign(found)), write=write)

    def forecast(self, found: Operated) -> Forecast:
        """What comes of it, by what the INFOs say."""
        start, delivered = self.start(found), _delivered(found)
        return Forecast(start, _again(found, start, delivered), _skipped(found, start, delivered))


def _delivered(found: Operated) -> int:
    return int(found.info["delivered"]["stream_seq"])


def _at(found: Operated, start: int) -> NextMessage:
    return NextMessage(found.key.stream_key, EVERYTHING, start)


def _counting(found: Operated) -> tuple[StreamInfo, ...]:
    filters = found.seen.filters
    if EVERYTHING in filters or len(filters) > _COUNTABLE_FILTERS:
        return ()
    return tuple(StreamInfo(found.key.stream_key, subject) for subject in filters)


def _another(start: int) -> str:
    return f"declare another consumer that starts there (`deliverPolicy: by_start_sequence`, `optStartSeq: {start}`)"


def _too_old(found: Operated, start: int) -> list[Reason]:
    server = found.server
    if server.level >= RESET_LEVEL:
        return []
    message = f"a reset needs API level {RESET_LEVEL} (nats-server 2.14); {server.version} has {server.level} and never answers"
    only_one = found.stream["config"].get("retention") == "workqueue"  # a subject has one reader there
    return [Reason("level", message, "upgrade the server" if only_one else f"upgrade the server, or {_another(start)}")]


def _out_of_range(found: Operated, seq: int) -> list[Reason]:
    """What the server refuses (10204), and a position beyond the end, which it takes and then skips what comes."""
    config, last = found.seen.config, found.stream["state"]["last_seq"]
    policy = config.get("deliver_policy", "all")
    refusals = []
    if policy not in REWINDABLE:
        message = f"a consumer with deliverPolicy {policy} cannot be moved to a sequence"
        way_out = f"move it to its acknowledgement floor (`--to-ack-floor`), or {_another(seq)}"
        refusals.append(Reason("policy", message, way_out))
    if seq > last + 1:
        message = f"the stream ends at sequence {last:,}: with {seq:,}, everything published before that would be skipped"
        refusals.append(Reason("beyond-end", message, f"the highest that makes sense is {last + 1}"))
    if seq < (start := config.get("opt_start_seq") or 1):
        message = f"{seq:,} lies before the consumer's own start, optStartSeq {start:,}"
        refusals.append(Reason("before-start", message, _another(seq)))
    first, since = found.facts.get(_at(found, seq)), config.get("opt_start_time")
    if since and isinstance(first, Message) and units.parse_time(first.time) < units.parse_time(since):
        message = f"sequence {first.seq:,} was stored at {first.time}, before the consumer's own start, optStartTime {since}"
        refusals.append(Reason("before-start", message, _another(seq)))
    return refusals


def _unsafe_backwards(found: Operated) -> bool:
    config = found.stream["config"]
    return bool(config.get("retention") == "interest" and config.get("num_replicas", 1) > 1)


def _pointless(found: Operated, ahead: Forecast) -> bool:
    still = not found.seen.in_flight and not found.info.get("num_redelivered")
    return still and ahead.start == _delivered(found) + 1 == found.seen.floor + 1


def _gapless(found: Operated) -> bool:
    """Whether each sequence of the stream is one message that the consumer delivers."""
    state = found.stream["state"]
    return _countable(found) and _matching(found) == state["messages"] and not state.get("num_deleted")


def _again(found: Operated, start: int, delivered: int) -> Span | None:
    """What was delivered and is stored from `start` on; acknowledged or not, it comes again."""
    state = found.stream["state"]
    first = max(start, state["first_seq"])
    length = min(delivered, state["last_seq"]) - first + 1
    passed = _matching(found) - int(found.info.get("num_pending", 0))
    count = max(0, min(length, passed))
    all_that_passed = start <= state["first_seq"] and count == passed and _countable(found)
    return Span(first, min(delivered, state["last_seq"]), count, _gapless(found) or all_that_passed) if count else None


def _countable(found: Operated) -> bool:
    """Whether `num_pending` counts every match, and every match was counted."""
    counted = all(isinstance(found.facts.get(read), dict) for read in _counting(found))
    within = len(found.seen.filters) <= _COUNTABLE_FILTERS
    return counted and within and found.seen.config.get("deliver_policy", "all") in REWINDABLE


def _matching(found: Operated) -> int:
    """How many stored messages the filters match, at most."""
    answers = [found.facts.get(read) for read in _counting(found)]
    if not answers or not _countable(found):
        return int(found.stream["state"]["messages"])
    return sum(sum((fact["state"].get("subjects") or {}).values()) for fact in answers if isinstance(fact, dict))


def _skipped(found: Operated, start: int, delivered: int) -> Span | None:
    """What lies before `start` and was not delivered, or not acknowledged."""
    state = found.stream["state"]
    pending, unacknowledged = int(found.info.get("num_pending", 0)), found.seen.in_flight
    length = start - max(delivered + 1, state["first_seq"])
    undelivered = max(0, min(length, pending))
    exact = start > state["last_seq"] or length <= 0 or _gapless(found)
    in_flight = min(unacknowledged, max(0, start - 1 - found.seen.floor))
    first = max(state["first_seq"], (found.seen.floor if in_flight else delivered) + 1)
    count = undelivered + in_flight
    return Span(first, start - 1, count, exact and (not in_flight or start > delivered)) if count else None


def _said(found: Operated, ahead: Forecast) -> list[Note]:
    seen = found.seen
    where = f"so far delivered up to {_delivered(found):,}, all acknowledged up to {seen.floor:,}"
    notes = [Note("moves", f"{found.key} goes on with sequence {ahead.start:,} ({where})")]
    if ahead.again:
        notes.append(_redelivery(found, ahead.again))
    if ahead.again and seen.config.get("max_deliver", -1) > 0:
        notes.append(Note("counts-anew", f"deliveries are counted anew: up to {seen.config['max_deliver']} more of each"))
    if ahead.skipped:
        notes += _loss(found, ahead.skipped)
    if seen.paused:
        notes.append(Note("stays-paused", f"it stays paused until {shown(seen.pause_until)}, and delivers nothing before"))
    return notes


def _redelivery(found: Operated, again: Span) -> Note:
    if found.sourcing:
        drops = f"{found.reader} drops all that is not beyond the last sequence it copied: nothing is doubled, no gap filled"
        message = f"read again: {again}; {drops} (not even of a stream made anew: that needs another consumer name)"
        return Note("backwards-source", message)
    queue = found.stream["config"].get("retention") == "workqueue"
    return Note("again", f"delivered again, {'as far as not acknowledged' if queue else 'acknowledged or not'}: {again}")


def _loss(found: Operated, skipped: Span) -> list[Note]:
    if found.sourcing:
        message = f"skipped for good: {skipped}; once {found.reader} has copied a later message, no reset brings them back"
        notes = [warning("skips-source", message)]
    else:
        notes = [Note("skips", f"skipped, neither delivered nor awaited any more: {skipped}")]
    retention = found.stream["config"].get("retention", "limits")
    if retention == "interest":
        notes.append(warning("deletes", "the stream deletes of these what no other consumer needs"))
    elif retention == "workqueue":
        notes.append(warning("strands", f"they stay in the work queue until the consumer is moved back to {skipped.first:,}"))
    elif not found.sourcing:
        notes.append(Note("stored-on", f"a reset to {skipped.first:,} brings them back as long as they are stored"))
    return notes
