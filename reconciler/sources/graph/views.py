"""The topology as it is declared, and as a daemon tells it; `sources.graph.live` reads it off a server.

Invariant: of what is only declared, nothing is said of how it fares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reconciler.model.desired import Declared, Desired
from reconciler.model.flow import copied_entries, filters_of
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.sourcing import Entry, copied_subjects, durable_of, is_managed, is_unused, origin_of
from reconciler.sources.graph.topology import IMPORTED, Edge, Mode, Node, Reader, Topology, arranged

Config = Mapping[str, Any]


def declared_topology(desired: Desired) -> Topology:
    """What is declared; nothing is known of how it fares."""
    there = {key: one for key, one in desired.streams.items() if one.intent.state is not State.ABSENT}
    nodes, edges, durables = [], [], set()
    for key, declared in there.items():
        config = declared.config
        nodes.append(Node(key, config.get("retention") or "limits"))
        for entry in copied_entries(config):
            durable = durable_of(entry, key.domain)
            durables.add(durable)
            edge = edge_of(key, config, entry, _declared_config(desired, durable))
            edges.append(replace(edge, mode=declared_mode(desired, entry, durable)))
    readers = [
        reader_of(key, declared.config)
        for key, declared in desired.resources.items()
        if key.kind == "Consumer" and declared.intent.state is not State.ABSENT and key not in durables
    ]

    def absence(key: Key) -> str:
        return "" if key.domain.startswith(IMPORTED) else "declared absent" if key in desired.streams else "not declared"

    return arranged(nodes, edges, readers, desired.expect.domain or "", absence)


def told_topology(sources: Iterable[Mapping[str, Any]]) -> Topology:
    """What the rows of a status document tell."""
    edges = [
        Edge(
            origin=_stream(row["origin"]),
            aggregate=_stream(row["key"]),
            mode=Mode(row["mode"]),
            mirror=row["kind"] == "mirror",
            durable=row["consumer"] or "",
            state=row["state"],
            cause=row["cause"] or "",
            message=row["message"],
        )
        for row in sources
    ]
    return arranged((), edges, (), "", lambda _: "")


def _stream(text: str) -> Key:
    """The stream behind a key as it is printed; before the name, which has no slash, an import may have some."""
    before, _, name = text.rpartition("/")
    domain, _, kind = before.rpartition(":")
    return Key.parse(f"{kind}/{name}")._replace(domain=domain).stream_key


def edge_of(aggregate: Key, config: Config, entry: Entry, durable: Config) -> Edge:
    """What an entry itself says, and what its durable (of this configuration) selects for it."""
    transforms = entry.get("subject_transforms") or ()
    changed = ((one.get("src") or ">", one.get("dest") or ">") for one in transforms)
    return Edge(
        origin=_origin(entry, aggregate.domain),
        aggregate=aggregate,
        mode=Mode.EPHEMERAL,
        mirror=entry == config.get("mirror"),
        durable=(entry.get("consumer") or {}).get("name", ""),
        filters=() if transforms else copied_subjects(entry) or tuple(filters_of(durable)),
        transforms=tuple(one for one in changed if not is_unused(one[0])),
    )


def _origin(entry: Entry, domain: str) -> Key:
    """The stream that is copied, behind an import as well."""
    behind = (entry.get("external") or {}).get("api", "")
    return origin_of(entry, domain) or Key("Stream", entry["name"], "", f"{IMPORTED}{behind}")


def declared_mode(desired: Desired, entry: Entry, durable: Key | None) -> Mode:
    """Who looks after what an entry reads through, by what is declared."""
    if not entry.get("consumer"):
        return Mode.EPHEMERAL
    if is_managed(entry) or durable in desired.durables:
        return Mode.MANAGED
    declared = desired.resources.get(durable) if durable else None
    return Mode.USER_MANAGED if declared is not None and declared.intent.state is State.PRESENT else Mode.UNMANAGED


def _declared_config(desired: Desired, durable: Key | None) -> Config:
    """The configuration of an entry's durable, as far as it is declared."""
    declared: Declared | None = None
    if durable is not None:
        declared = desired.durables[durable].declared if durable in desired.durables else desired.resources.get(durable)
    return declared.config if declared is not None else {}


def reader_of(key: Key, config: Config, *, paused: bool = False) -> Reader:
    """A consumer of this configuration."""
    return Reader(key, tuple(filters_of(config)), push=bool(config.get("deliver_subject")), paused=paused)
