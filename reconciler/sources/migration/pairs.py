"""One entry of a stream that copies, as it shall be, beside what the server shows of it and of its durables.

Invariant: which live entry a slot is about follows from the live configuration alone, whatever was begun before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from reconciler.model import units
from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.marker import CopiedBefore, read_marker, with_mark
from reconciler.model.normal import Config, normal_source
from reconciler.model.residue import RENAMED, SOURCES, Residue
from reconciler.model.sourcing import copied_subjects, detached, durable_of, is_unused
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget
from reconciler.procedures.requests import Absent, ConsumerInfo, Fact, Read, StreamInfo

ACTIVE = 2 * 10**9
"""A source that heard from its origin within this time is alive: there are heartbeats every second."""
STEADY = 1500 * 10**6
"""A leader that was elected within this time may not have attached everything yet, and attach it anew."""
FIRST = 300 * 10**6
"""A durable has its first leader within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One entry, from how it was when the plan was made to how it shall be."""

    origin: Key
    before: bytes = b""
    """The live entry (JSON); empty: there was none."""
    after: bytes = b""
    """The entry to have; empty: none."""
    said: bytes = b""
    """What the stream's configuration says in its place, where `after` stands for another entry."""
    durable: ConsumerTarget | None = None
    """What `after` reads through; None for an ephemeral entry, and for a durable that somebody else keeps."""
    old: Key | None = None
    """The durable that `before` reads through, or that is left over from a half-done procedure."""
    drop_old: bool = False
    """It is ours to delete, once nobody reads through it."""
    retention: str = "limits"
    """Of the origin."""
    subjects: tuple[str, ...] = ()
    """What the origin listens to."""
    skips: bool = False
    """Somebody allowed that what is stored behind the position, for filters that are added, is not copied."""
    made: str = ""
    """When the origin was made: one that is made anew has other messages under the same sequences."""

    @property
    def wanted(self) -> Config:
        """The entry to have, a fresh dict each time; empty for none."""
        return _entry(self.after)

    @property
    def was(self) -> Config:
        """The entry that was there, a fresh dict each time; empty for none."""
        return _entry(self.before)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The consumers it is about."""
        new = self.durable.key if self.durable else None
        return tuple(dict.fromkeys(key for key in (self.old, new) if key))

    @property
    def spoken(self) -> Config:
        """What the stream's configuration says in its place."""
        return _entry(self.said or self.after)

    def selected(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """What an entry of this origin copies, however a procedure had to vary it."""
        return tuple(sorted(one for one in copied_subjects(entry) if not is_unused(one)) or sorted(self.subjects))


EntryEdit = tuple[Slot, Config, CopiedBefore | None]
"""An entry to be put in a slot's place, and how the stream copied before, where that has to be noted."""


def _entry(wire: bytes) -> Config:
    entry: Config = orjson.loads(wire) if wire else {}
    return entry


@dataclass(frozen=True, slots=True)
class View:
    """What was read of one stream that copies, and of the durables of its slots."""

    stream: Key
    facts: Mapping[Read, Fact]
    now: int
    owner: str = ""
    """Whose the stream is, or is about to be."""

    @property
    def info(self) -> Config | None:
        """INFO of the stream; None when it is not there."""
        fact = self.facts.get(StreamInfo(self.stream))
        return fact if isinstance(fact, dict) else None

    @property
    def config(self) -> Config:
        """Its configuration; empty when it is not there."""
        return self.info["config"] if self.info else {}

    def consumer(self, key: Key | None) -> ConsumerSeen | None:
        """A durable, or None when it is not there."""
        fact = self.facts.get(ConsumerInfo(key)) if key else None
        return ConsumerSeen(fact) if isinstance(fact, dict) else None

    def entry(self, slot: Slot) -> Config | None:
        """The live entry that the slot is about."""
        twins = [entry for entry in copied_entries(self.config) if place_of(entry) == place_of(slot.wanted or slot.was)]
        names = [key.name for key in reversed(slot.keys)]
        for name in names:
            for entry in twins:
                if reads_through(entry, name) or detached(entry) == name:
                    return entry
        was = next((entry for entry in twins if same_entry(entry, slot.was)), None)
        described = [slot.selected(entry) for entry in (slot.wanted, slot.was) if entry]
        return was or next((entry for entry in twins if "consumer" not in entry and slot.selected(entry) in described), None)

    def before(self, durable: str) -> CopiedBefore | None:
        """How the stream copied before it read through a durable, as far as its own mark says."""
        known = read_marker(self.config.get("metadata"), self.stream.mark).before
        return next((one for one in known if one.durable == durable), None)

    def with_entries(self, edits: Iterable[EntryEdit]) -> bytes:
        """The live configuration with these entries in the places of their slots.

        One that had to be varied is noted in the same request: whoever goes on must not take it for another one's work. And so
        is how it copied before, which nothing else shows any more once its durable is gone.
        """
        config = dict(self.config)
        entries = list(config.get("sources") or ())
        for slot, entry, before in edits:
            live = self.entry(slot)
            entries = [*(one for one in entries if one is not live), entry]
            if live and not detached(entry):
                config["metadata"] = _without_variation(self.stream, config.get("metadata"), live, entry)
            if stands_for(entry, slot.spoken):
                config["metadata"] = with_variations(self.stream, config.get("metadata"), [(slot.spoken, entry)], self.owner)
            if before:
                config["metadata"] = _with_before(self.stream, config.get("metadata"), before, entries)
        return orjson.dumps({**config, "sources": entries})

    def leaders(self, slot: Slot) -> tuple[str, ...]:
        """Who leads the stream and the durables of a slot, and since when; empty where nobody is elected.

        The first leader of a durable has nobody to catch up with, and nothing to attach anew.
        """
        info = self.info or {}
        if not (info.get("cluster") or {}).get("replicas"):
            return ()
        durables = [seen.info for key in slot.keys if (seen := self.consumer(key))]
        return tuple(f"{_led(one)}" for one in (info, *durables) if not _led_at_once(one))

    def led_for(self, slot: Slot) -> int | None:
        """How long the last of them has led, by its own clock; None where servers do not say (before 2.12)."""
        durables = [seen.info for key in slot.keys if (seen := self.consumer(key))]
        ages = [_led_for(one) for one in (self.info or {}, *durables) if not _led_at_once(one)]
        known = [age for age in ages if age is not None]
        return min(known) if known and len(known) == len(ages) else None

    def flows(self, entry: Config) -> bool:
        """Whether every source like this entry has heard from its origin lately, but for those that cannot.

        INFO does not tell which is which; one whose durable is gone gets another one when its own turn comes.
        """
        shown = [one for one in _source_infos(self.info or {}) if place_of(one) == place_of(entry)]
        alive = [one for one in shown if 0 <= one.get("active", -1) <= ACTIVE]
        twins = (one for one in copied_entries(self.config) if place_of(one) == place_of(entry))
        return bool(alive) and len(alive) >= len(shown) - sum(map(self._cut_off, twins))

    def _cut_off(self, entry: Config) -> bool:
        """Whether an entry reads through a durable that is known to be gone."""
        key = durable_of(entry, self.stream.domain)
        return key is not None and isinstance(self.facts.get(ConsumerInfo(key)), Absent)


def _led(info: Config) -> Config:
    cluster: Config = info.get("cluster") or {}
    return {name: cluster.get(name) for name in ("leader", "leader_since")}


def _led_for(info: Config) -> int | None:
    since = _led(info)["leader_since"]
    return units.parse_time(info["ts"]) - units.parse_time(since) if since else None


def _led_at_once(info: Config) -> bool:
    """Whether it is a durable whose leader is the first that it has."""
    since = _led(info)["leader_since"]
    return "delivered" in info and bool(since) and units.parse_time(since) - units.parse_time(info["created"]) < FIRST


def led_lately(info: Config) -> bool:
    """Whether a stream got its leader so lately that it may not have attached everything yet."""
    age = _led_for(info)
    return age is not None and bool((info.get("cluster") or {}).get("replicas")) and age < STEADY


def _source_infos(info: Mapping[str, Any]) -> Iterator[Config]:
    yield from info.get("sources") or ()
    if info.get("mirror"):
        yield info["mirror"]


def place_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Where an entry copies from: entries of the same place are told apart by how they read."""
    return entry.get("name", ""), (entry.get("external") or {}).get("api", "")


def reads_through(entry: Mapping[str, Any], name: str) -> bool:
    """Whether an entry reads through the durable of this name."""
    return bool((entry.get("consumer") or {}).get("name") == name)


def same_entry(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two entries mean the same to the server."""
    return normal_source(one or {}) == normal_source(other or {})


def stands_for(entry: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Whether an entry is as it is said to be, but for what a procedure had to vary."""
    live, declared = normal_source(entry), normal_source(said)
    meant = (declared, _as_declared(declared))
    return bool(said) and live != declared and any(Residue(SOURCES, live, one).in_shape for one in meant)


def _as_declared(said: Config) -> Config:
    """Under the name that its durable had before it got a suffix: the next suffix takes the place of that one."""
    name = (said.get("consumer") or {}).get("name", "")
    return {**said, "consumer": {**said["consumer"], "name": RENAMED.sub("", name)}} if name else said


def _with_before(
    stream: Key, metadata: Mapping[str, str] | None, before: CopiedBefore, entries: Iterable[Config]
) -> dict[str, str]:
    """A stream's metadata with how it copied before; what is noted of durables that it no longer reads through is left out."""
    marker = read_marker(metadata, stream.mark)
    read = {(entry.get("consumer") or {}).get("name", "") or detached(entry) for entry in entries}
    kept = tuple(one for one in marker.before if one.durable in read and one.durable != before.durable)
    return with_mark(metadata, replace(marker, before=(*kept, before)), stream.mark)


def _without_variation(stream: Key, metadata: Mapping[str, str] | None, live: Config, entry: Config) -> dict[str, str]:
    """A stream's metadata without the note of an entry that another one takes the place of.

    Its identity knows how far was copied under it, and never what was copied since: whatever is declared again begins anew.
    """
    marker = read_marker(metadata, stream.mark)
    gone = normal_source(live)
    rows = tuple(row for row in marker.residue if row.field != SOURCES or row.live != gone or row.live == normal_source(entry))
    return dict(metadata or {}) if rows == marker.residue else with_mark(metadata, replace(marker, residue=rows), stream.mark)


def with_variations(
    stream: Key, metadata: Mapping[str, str] | None, pairs: Iterable[tuple[Config, Config]], owner: str = ""
) -> dict[str, str]:
    """A stream's metadata with a note of the entries that are not as they are said to be, but had to be varied."""
    marker = read_marker(metadata, stream.mark)
    rows = list(marker.residue)
    for said, live in pairs:
        known = next((row for row in rows if row.field == SOURCES and row.live == normal_source(said)), None)
        declared = known.declared if known else normal_source(said)
        rows = [row for row in rows if row.field != SOURCES or row.declared != declared]
        if normal_source(live) != declared:
            rows.append(Residue(SOURCES, normal_source(live), declared))
    return with_mark(metadata, replace(marker, owner=marker.owner or owner, residue=tuple(rows)), stream.mark)


def durable_key(entry: Mapping[str, Any], stream: Key) -> Key | None:
    """The durable that an entry of this stream reads through, or that its placeholder stands for."""
    name = detached(entry)
    return durable_of({**entry, "consumer": {"name": name}} if name else entry, stream.domain)
