"""Everything one planning round looks at, and the questions it could not answer yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reconciler.model.desired import Declared, Desired
from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.marker import Marker
from reconciler.model.normal import Config, consumer_defaults, normal_consumer, normal_source, normal_stream, stream_defaults
from reconciler.model.residue import SOURCES
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.model.sourcing import durable_of, durables_read
from reconciler.plan.change import Remembered, Rules
from reconciler.procedures.consumer import caught_up_in
from reconciler.procedures.requests import Fact, Read, Unanswered

Seen = LiveStream | LiveConsumer


@dataclass(frozen=True)
class Scene:
    """The inputs of a plan, with the look-ups every rule needs."""

    desired: Desired
    live: Live
    rules: Rules
    memory: Remembered
    open: set[Read] = field(default_factory=set)
    """What has to be read before this plan is final."""
    silent: dict[Key, str] = field(default_factory=dict)
    """Keys whose change hangs on a question that nobody answered, with the reason."""
    faults: dict[Key, str] = field(default_factory=dict)
    """Keys about which something went wrong here, with the trace of it."""
    takers: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)
    """Consumers that had to take subjects over before this one gives them up; they have, when it is judged again."""

    def taken_by(self, key: Key) -> tuple[Key, ...]:
        """Who had to take subjects over before this consumer gives them up, in the plan judged again or in an earlier one."""
        digest, takers = self.memory.handed_over.get(key.live_key, ("", ()))
        declared = self.desired.resources.get(key)
        same = digest == (declared.digest if declared else "")
        return self.takers.get(key) or (takers if same else ())

    def ask(self, read: Read, key: Key) -> Fact | None:
        """The answer to a question that the change of `key` hangs on; None while there is none."""
        fact: Fact | None = self.live.facts.get(read)
        if fact is None:
            self.open.add(read)
        if isinstance(fact, Unanswered):
            self.silent[key] = fact.reason
            return None
        return fact

    def seen(self, key: Key) -> Seen | None:
        """What the server shows under this key."""
        return self.live.seen(key)

    def ours(self, key: Key, seen: Seen) -> bool:
        """Marked as ours, or unmarked though it was ours a moment ago in this very process (somebody wiped the marker)."""
        if seen.owner or not self.remembered(key):
            return seen.owner == self.rules.owner
        return self.memory.created.get(key.live_key) in (None, seen.info["created"])

    def remembered(self, key: Key) -> str:
        """The spec digest of the marker that this process last saw there; empty when it saw none."""
        return self.memory.owned.get(key.live_key, "")

    def going(self, key: Key, seen: Seen) -> bool:
        """Whether the manifests want this resource gone."""
        if not self.ours(key, seen):
            return False
        declared = self.desired.resources.get(key)
        if declared is not None:
            return declared.intent.state is State.ABSENT
        return self.rules.policy == "sync" and key not in self.streams and seen.named

    def normal(self, key: Key, config: Mapping[str, Any]) -> Config:
        """The normal form of a configuration, by the defaults that hold where this key lives."""
        if key.kind == "Consumer":
            return normal_consumer(config, self.limits(key))
        return normal_stream(config, key.stream_name, self.live.server.level)

    def defaults(self, key: Key, normal: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the server takes for the fields that this normal form leaves out."""
        if key.kind == "Consumer":
            return consumer_defaults(normal, self.limits(key))
        return stream_defaults(normal, self.live.server.level)

    def limits(self, key: Key) -> Mapping[str, Any]:
        """The consumer limits of a consumer's stream, as they will be once the plan is carried out."""
        declared = self.streams.get(key.stream_key)
        if declared is not None:
            return declared.config.get("consumer_limits") or {} if b"consumer_limits" in declared.wire else {}
        stream = self.live.stream(key)
        return (stream.limits if stream else None) or {}

    def allows(self, what: str, key: Key) -> bool:
        """Whether `what` was allowed for this resource, on the command line or by its annotation."""
        declared = self.desired.resources.get(key)
        return self.rules.allows(what, key) or (declared is not None and what in declared.intent.allow)

    @cached_property
    def streams(self) -> Mapping[Key, Declared]:
        """Declared streams and buckets that are to exist, by the key of their stream."""
        declared = self.desired.streams
        return {key: entry for key, entry in declared.items() if entry.intent.state is State.PRESENT}

    @cached_property
    def read_durables(self) -> Mapping[Key, Key]:
        """Durables that entries of declared streams read through, with the stream that does."""
        return durables_read(self.desired)

    @cached_property
    def kept_durables(self) -> Mapping[Key, tuple[Key, ...]]:
        """Durables that are kept for a stream that copies, or are caught up in a migration of it, by the key of that stream."""
        found: dict[Key, list[Key]] = {}
        for stream, consumers in self.live.consumers.items():
            for name, consumer in consumers.items():
                reader = _reader_of(consumer.marker) if consumer.special else None
                if reader is not None:
                    found.setdefault(reader, []).append(Key("Consumer", name, stream.name, stream.domain))
        return {stream: tuple(sorted(keys)) for stream, keys in found.items()}

    @cached_property
    def stood_for(self) -> frozenset[Key]:
        """Declared durables whose place another one has taken, since their origin was made anew."""
        copying = ((key, seen) for key in self.streams if (seen := self.live.streams.get(key)) and seen.special)
        return frozenset(spoken for key, seen in copying for spoken in _stood_for(key, seen))

    def limited(self, stream: Key) -> bool:
        """Whether consumer limits of this stream change what its consumers' defaults are, live or declared."""
        live, declared = self.live.streams.get(stream), self.streams.get(stream)
        return bool(live and live.limits) or (declared is not None and b"consumer_limits" in declared.wire)

    def at(self, live: Live, takers: Mapping[Key, tuple[Key, ...]]) -> Scene:
        """The same, at another look; what was found out about everything is not found out again."""
        scene = Scene(self.desired, live, self.rules, self.memory, takers=takers)
        scene.__dict__.update(
            {name: known for name, known in self.__dict__.items() if name in ("streams", "kept_durables", "stood_for")}
        )
        return scene


def _stood_for(key: Key, seen: LiveStream) -> Iterator[Key]:
    entries = [normal_source(entry) for entry in copied_entries(seen.config)]
    for row in seen.marker.residue:
        if row.field == SOURCES and row.live in entries:
            reads, spoken = (durable_of(one, key.domain) for one in (row.live, row.declared))
            if reads and spoken and reads != spoken:
                yield spoken


def _reader_of(marker: Marker) -> Key | None:
    """The stream that a marker says a durable is kept for; None for every other consumer, and where somebody damaged it."""
    named = marker.source or caught_up_in(marker.journal)
    try:
        return Key.parse(named).stream_key if named else None
    except ValueError:
        return None
