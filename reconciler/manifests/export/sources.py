"""The entries of a live stream as they were declared: what a migration left is undone, and our durables are part of them.

Invariant: a subject, a filter or a durable of our own making never comes out as if somebody had declared it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.normal import Config, canonical, normal_consumer, normal_source
from reconciler.model.residue import SOURCES, Residue
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.model.sourcing import DELIVERED, detached, durable_config, durable_of

_SELECTED = ("filter_subject", "opt_start_seq", "opt_start_time")


class ExportedSources:
    """The entries of one stream; `notes` is what they do not say."""

    def __init__(self, live: Live, key: Key, residue: tuple[Residue, ...]) -> None:
        self.notes: list[str] = []
        self._live = live
        self._key = key
        self._residue = {canonical(row.live): row.declared for row in residue if row.field == SOURCES}

    def declared(self, normal: Config) -> Config:
        """A normal form with its entries as they were declared."""
        view = dict(normal)
        if SOURCES in view:
            entries = [one for entry in view.pop(SOURCES) if (one := self._entry(entry))]
            view |= {SOURCES: sorted(entries, key=canonical)} if entries else {}
        if "mirror" in view and (mirror := self._entry(view.pop("mirror"))):
            view["mirror"] = mirror
        return view

    def _entry(self, live: Config) -> Config | None:
        entry: Config = self._residue.get(canonical(live), live)
        if name := detached(entry):
            self.notes.append(f"{entry['name']} is detached while {name} is migrated: left out, so export again afterwards")
            return None
        durable = durable_of(live, self._key.domain)  # its name is another one since its origin was made anew
        seen = self._live.consumer(durable) if durable else None
        if durable is None or not (entry["consumer"]["deliver_subject"].startswith(DELIVERED) or kept_for(seen) == self._key):
            return entry
        if seen is None:
            self.notes.append(f"{durable}, which is kept for it, was not seen: its filter and its start are left out")
        return self._managed(entry, durable, seen)

    def _managed(self, entry: Config, durable: Key, seen: LiveConsumer | None) -> Config:
        """The entry with what its durable says in its place."""
        found = {**entry, "consumer": {"name": entry["consumer"]["name"]}}
        if seen is None:
            return found
        stream = self._live.stream(durable)
        limits = (stream.limits if stream else None) or {}
        config = normal_consumer(seen.config, limits)
        filters = config.get("filter_subjects", [])
        said = {name: config[name] for name in _SELECTED if name in config}
        if len(filters) == 1 and "subject_transforms" not in entry:
            said["filter_subject"] = filters[0]
        found = normal_source({**found, **said})
        made = normal_consumer(durable_config(found, config.get("deliver_subject", "")), limits)
        differing = sorted(name for name in {*made, *config} - {"metadata"} if made.get(name) != config.get(name))
        if differing:
            self.notes.append(f"{durable}, which is kept for it, is not as it would be made: {', '.join(differing)}")
        return found


def kept_for(seen: LiveConsumer | None) -> Key | None:
    """The stream that a durable is kept for; None where it is not one of ours."""
    if seen is None or not seen.special:
        return None
    try:
        return Key.parse(seen.marker.source).stream_key
    except ValueError:
        return None


def reads(live: Live, stream: Key, durable: Key) -> bool:
    """Whether an entry of a live stream reads through a durable, or will again once it is attached."""
    seen = live.streams.get(stream)
    return any(_names(entry, stream.domain, durable) for entry in copied_entries(seen.config)) if seen else False


def _names(entry: Mapping[str, Any], domain: str, durable: Key) -> bool:
    return durable_of(entry, domain) == durable or detached(entry) == durable.name


def read_through(live: Live, name: str) -> Iterator[Key]:
    """The streams of the home domain whose durables streams of this name read through."""
    for key, seen in live.streams.items():
        if key.name == name:
            durables = (durable_of(entry, key.domain) for entry in copied_entries(seen.config))
            yield from (durable.stream_key for durable in durables if durable and durable.domain == key.domain)
