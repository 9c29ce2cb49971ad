"""The vocabulary of procedures: what they may read, what they may write, and what comes back.

Invariant: every value here is frozen and hashable; the engine turns Reads and Writes into JetStream requests one to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.model.identity import Key


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """INFO of a stream; with `subjects`, counts stored messages per subject under that filter."""

    stream: Key
    subjects: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """INFO of a consumer."""

    consumer: Key


@dataclass(frozen=True, slots=True)
class NextMessage:
    """The first stored message at or after `seq` that matches `subject`."""

    stream: Key
    subject: str
    seq: int


@dataclass(frozen=True, slots=True)
class LastCopied:
    """How far a stream has copied under one identity (see `model.sourcing.identity_of`), judged by what it stores.

    With `below`, of which only a mirror may leave out the identity: nobody looks further than it takes to tell that much.
    """

    stream: Key
    identity: str
    below: int = 0
    """Only copies of messages before that sequence of the origin count; 0: all of them."""
    subject: str = ""
    """Only the newest message that is stored on this subject counts; empty: all of them."""


Read = StreamInfo | ConsumerInfo | NextMessage | LastCopied


@dataclass(frozen=True, slots=True)
class Absent:
    """The server said that it is not there."""


@dataclass(frozen=True, slots=True)
class Message:
    """Answer to NextMessage."""

    seq: int
    time: str
    """RFC 3339."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Answer to LastCopied."""

    seq: int
    """The origin's sequence of the last message stored under that identity; 0 when none is stored."""
    time: str = ""
    """When the stream stored it, RFC 3339."""
    complete: bool = True
    """Nothing was ever removed from the stream, so that 0 means that nothing was copied."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nobody answered, or the answer was refused: nothing may be concluded. Only planning meets it, and who can spare it."""

    reason: str


Fact = dict[str, Any] | Message | Copied | Absent | Unanswered
"""INFO answers are plain JSON objects; Absent is only ever said by the server."""


@dataclass(frozen=True, slots=True)
class CreateStream:
    """STREAM.CREATE; `config` is JSON bytes, marker included."""

    stream: Key
    config: bytes


@dataclass(frozen=True, slots=True)
class UpdateStream:
    """STREAM.UPDATE with a full configuration."""

    stream: Key
    config: bytes


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """STREAM.DELETE."""

    stream: Key


@dataclass(frozen=True, slots=True)
class PurgeStream:
    """STREAM.PURGE of what lies before `before` and matches `subject`."""

    stream: Key
    before: int
    subject: str


@dataclass(frozen=True, slots=True)
class CreateConsumer:
    """CONSUMER.CREATE with action `create`."""

    consumer: Key
    config: bytes


@dataclass(frozen=True, slots=True)
class UpdateConsumer:
    """CONSUMER.CREATE with action `update`, a full configuration."""

    consumer: Key
    config: bytes


@dataclass(frozen=True, slots=True)
class DeleteConsumer:
    """CONSUMER.DELETE."""

    consumer: Key


@dataclass(frozen=True, slots=True)
class PauseConsumer:
    """CONSUMER.PAUSE; an empty `until` resumes."""

    consumer: Key
    until: str


@dataclass(frozen=True, slots=True)
class ResetConsumer:
    """CONSUMER.RESET: the next delivered sequence is at least `seq`."""

    consumer: Key
    seq: int


Write = (
    CreateStream
    | UpdateStream
    | DeleteStream
    | PurgeStream
    | CreateConsumer
    | UpdateConsumer
    | DeleteConsumer
    | PauseConsumer
    | ResetConsumer
)


Put = CreateStream | UpdateStream | CreateConsumer | UpdateConsumer
"""Carries a whole configuration."""

# Tuples: asked for each write, and a union takes three times as long.
_OF_STREAM = (CreateStream, UpdateStream, DeleteStream, PurgeStream)
_CREATES = (CreateStream, CreateConsumer)


def changed_by(write: Write) -> Key:
    """What a write changes."""
    return write.stream if isinstance(write, _OF_STREAM) else write.consumer


def changes_what_exists(write: Write) -> bool:
    """Whether it could take back, late, what somebody else has done since; a pause ends by itself, and a resume does not."""
    creates = isinstance(write, _CREATES)
    return not creates and not (isinstance(write, PauseConsumer) and write.until)
