"""How each entry of one stream reads now and shall read, paired up, with the durables behind them.

Invariant: nothing is judged here; whatever could not be seen is said to be unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reconciler.model import units
from reconciler.model.desired import Declared
from reconciler.model.flow import copied_entries, listened
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.marker import Marker
from reconciler.model.normal import Config, canonical
from reconciler.model.sourcing import copied_subjects, detached, durable_of, identity_of, is_unused, origin_of
from reconciler.plan.change import Change
from reconciler.plan.comparing.difference import Difference, with_marker
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, delivered_by
from reconciler.procedures.requests import ConsumerInfo, Copied, LastCopied, StreamInfo
from reconciler.sources.migration.pairs import durable_key, place_of, same_entry
from reconciler.sources.migration.step import durable_name


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """One entry: as it is live, and as it shall be."""

    stream: Key
    origin: Key | None
    """None behind an account's import."""
    live: Config | None = None
    wanted: Config | None = None
    said: Config | None = None
    """The entry that `wanted` stands for, where that is another one."""
    target: ConsumerTarget | None = None
    """What it shall read through, as far as that is ours to make."""
    managed: bool = False
    """The target has no manifest of its own."""
    old: Key | None = None
    """What it reads through, or what is left of a half-done procedure."""
    spoken: Key | None = None
    """The durable that is declared for it; `target` stands for it under another name where the origin was made anew."""
    anew: bool = False
    """The origin is another stream than the one it has copied from: where `old` stands says nothing."""

    @property
    def old_name(self) -> str:
        """The durable it reads through; empty for an ephemeral entry."""
        return durable_name(self.live) if self.live else ""

    @property
    def new_name(self) -> str:
        """The durable it shall read through; empty for an ephemeral entry."""
        return durable_name(self.wanted) if self.wanted else ""

    @property
    def stands_in(self) -> bool:
        """Whether its target stands for the declared durable, since the origin was made anew."""
        return self.target is not None and self.spoken is not None and self.target.key != self.spoken

    @property
    def unchanged(self) -> bool:
        """Whether the entry itself stays."""
        return self.live is not None and self.wanted is not None and same_entry(self.live, self.wanted)


def readers(scene: Scene, declared: Declared, difference: Difference | None, changes: Mapping[Key, Change]) -> list[EntryChange]:
    """The entries of a declared stream, live and wanted ones side by side."""
    stream = declared.key.stream_key
    said = copied_entries(declared.config)
    wanted = copied_entries(difference.config) if difference else said
    live = copied_entries(difference.seen.config) if difference else []
    pairs = _pairs(live, list(zip(wanted, said, strict=True)), scene, stream)
    return _with_left_over(scene, declared.key, [_reader(scene, declared, pair, changes) for pair in pairs])


Wanted = tuple[Config, Config]
"""An entry as it shall be on the server, and as it is declared."""


def _pairs(live: list[Config], wanted: list[Wanted], scene: Scene, stream: Key) -> Iterator[tuple[Config | None, Wanted | None]]:
    """Each live entry with the wanted one that takes its place: the likeliest pairs first."""

    def alike(one: Config, other: Config) -> bool:
        return _selected(scene, one, stream) == _selected(scene, other, stream)

    left, due = list(live), list(wanted)
    for way in (same_entry, _same_durable, alike, _anything):
        for pair in list(due):
            twins = [entry for entry in left if place_of(entry) == place_of(pair[0]) and way(entry, pair[0])]
            rivals = sum(place_of(other[0]) == place_of(pair[0]) for other in due)
            if twins and (way is not _anything or len(twins) == rivals == 1):
                left = [entry for entry in left if entry is not twins[0]]
                due.remove(pair)
                yield twins[0], pair
    yield from ((entry, None) for entry in left)
    yield from ((None, pair) for pair in due)


def _same_durable(one: Config, other: Config) -> bool:
    return bool(durable_name(one)) and durable_name(one) == durable_name(other)


def _anything(_one: Config, _other: Config) -> bool:
    return True


def _selected(scene: Scene, entry: Config, stream: Key) -> tuple[str, ...]:
    """What an entry copies: by itself, or by what its durable delivers."""
    own = tuple(sorted(one for one in copied_subjects(entry) if not is_unused(one)))
    key = durable_key(entry, stream)
    if key is None or own:
        return own
    durable, seen = scene.desired.durables.get(key) or scene.desired.resources.get(key), scene.live.consumer(key)
    if durable is not None:
        made = durable if isinstance(durable, Declared) else durable.declared
        return _without_all(delivered_by(made.config))
    return _without_all(delivered_by(seen.config)) if seen else ()


def _without_all(filters: tuple[str, ...]) -> tuple[str, ...]:
    return () if filters == (">",) else filters


def _reader(
    scene: Scene, declared: Declared, pair: tuple[Config | None, Wanted | None], changes: Mapping[Key, Change]
) -> EntryChange:
    live, wanted = pair
    stream = declared.key.stream_key
    afresh = wanted is not None and live is not None and _left_again(live, wanted)
    entry = wanted[0] if wanted else live or {}
    target, managed = _target(scene, declared, wanted, changes) if wanted else (None, False)
    return EntryChange(
        stream=stream,
        live=live,
        wanted=wanted[1 if afresh else 0] if wanted else None,
        said=wanted[0] if wanted and afresh else None,
        origin=origin_of(entry, stream.domain),
        target=target,
        managed=managed,
        old=durable_key(live, stream) if live else None,
        spoken=durable_of(wanted[1], stream.domain) if wanted else None,
    )


def _left_again(live: Config, wanted: Wanted) -> bool:
    """Whether an entry becomes ephemeral that was so before: how it had to be varied then says nothing about now."""
    entry, said = wanted
    return bool(durable_name(live)) and not durable_name(entry) and not same_entry(entry, said)


def _target(
    scene: Scene, declared: Declared, wanted: Wanted, changes: Mapping[Key, Change]
) -> tuple[ConsumerTarget | None, bool]:
    entry, said = wanted
    key, spoken = durable_of(entry, declared.key.domain), durable_of(said, declared.key.domain)
    if key is None or spoken is None:
        return None, False
    durable = scene.desired.durables.get(spoken)
    if durable is not None:
        return _kept_target(scene, key, durable.declared, declared.key), True
    consumer = scene.desired.resources.get(spoken)
    if consumer is None or consumer.intent.state is not State.PRESENT:
        return None, False
    if key != spoken:
        return _kept_target(scene, key, consumer, declared.key), True
    change, seen = changes.get(key), scene.live.consumer(key)
    if change is not None:
        return (_consumer_target(scene, key, change.config), False) if change.config else (None, False)
    return (_consumer_target(scene, key, canonical(seen.config)), False) if seen else (None, False)


def _kept_target(scene: Scene, key: Key, declared: Declared, aggregate: Key) -> ConsumerTarget:
    """A durable under this name that is kept for a stream: nobody declares it under that."""
    config = {**declared.config, "name": key.name, "durable_name": key.name}
    marker = Marker(owner=scene.rules.owner, spec=declared.digest, source=str(aggregate))
    return _consumer_target(scene, key, with_marker(key, config, marker))


def _consumer_target(scene: Scene, key: Key, config: bytes) -> ConsumerTarget:
    origin = scene.live.stream(key)
    retention = str(origin.config.get("retention", "limits")) if origin else "limits"
    return ConsumerTarget(key=key, config=config, level=scene.live.server.level, retention=retention)


def _with_left_over(scene: Scene, aggregate: Key, readers: list[EntryChange]) -> list[EntryChange]:
    """The readers, each with the durable that a crash or a removed entry has left at its origin."""
    known = {key for reader in readers for key in (reader.old, reader.target.key if reader.target else None) if key}
    for key in scene.kept_durables.get(aggregate.stream_key, ()):
        if key in known:
            continue
        origin = key.stream_key
        place = next((number for number, one in enumerate(readers) if one.origin == origin and _has_room(one)), None)
        if place is None:
            readers.append(EntryChange(stream=aggregate.stream_key, origin=origin, old=key))
        else:
            readers[place] = replace(readers[place], old=key)
    return readers


def _has_room(reader: EntryChange) -> bool:
    """Also one that is to come, on a workqueue: there what is left is in its way, and keeps nothing that would go with it."""
    comes = reader.live is None and reader.target is not None and reader.target.retention == "workqueue"
    return reader.wanted is not None and (comes or reader.old == (reader.target.key if reader.target else None))


def origin_info(scene: Scene, reader: EntryChange) -> Config | None:
    """INFO of the stream that is copied; None while it is not known, or when it is not there."""
    if reader.origin is None:
        return None
    seen = scene.live.stream(reader.origin)
    if seen is not None:
        return seen.info
    fact = scene.ask(StreamInfo(reader.origin), reader.stream)
    return fact if isinstance(fact, dict) else None


def origin_subjects(info: Config | None) -> tuple[str, ...]:
    """What the origin stores from publishers, or copies itself."""
    if info is None:
        return ()
    config = info["config"]
    return tuple(listened(config, config["name"]))


def is_placeholder(reader: EntryChange) -> bool:
    """Whether the live entry only keeps the place of another one."""
    return reader.live is not None and bool(detached(reader.live))


def is_kept_on(scene: Scene, reader: EntryChange, key: Key) -> bool:
    """Whether a managed durable is declared still; another stream gets a name once this one reads through another durable."""
    durable = scene.desired.durables.get(key)
    if durable is None or _stood_for(reader, key):
        return False
    freed = reader.wanted is not None and key in scene.kept_durables.get(reader.stream, ())
    return durable.aggregate.stream_key == reader.stream or not freed


def _stood_for(reader: EntryChange, key: Key) -> bool:
    """Whether the entry reads through another durable in the place of this one, whose origin was made anew."""
    return reader.spoken == key and reader.target is not None and reader.target.key != key


def is_mirrored(scene: Scene, reader: EntryChange) -> bool:
    """Whether the entry is a mirror: a server never changes one in place."""
    seen = scene.live.streams.get(reader.stream)
    return seen is not None and reader.live is not None and "mirror" in seen.config


def recreated(scene: Scene, reader: EntryChange) -> EntryChange:
    """With another durable where the origin was made anew since it was copied from.

    A server takes no notice of that and skips everything up to the old position, unless the entry gets an identity that it does
    not know. From 2.15 on it does take notice, but not when it was started since it has copied last.
    """
    target = reader.target
    renamed = reader.old_name and reader.new_name and reader.old_name != reader.new_name
    read = reader.old if renamed else target.key if target else None
    if target is None or read is None or reader.live is None or not (reader.unchanged or renamed):
        return reader
    if is_mirrored(scene, reader) or scene.live.why_unknown(read):
        return reader
    seen = scene.live.consumer(read)  # if there is one, somebody has made it, for it went with its stream
    if seen and not ((renamed or reader.managed) and _may_be_anew(scene, reader.stream, read)):
        return reader
    # Asked anew: what was seen of the origin may be from before the last messages.
    copied = scene.ask(LastCopied(reader.stream, identity_of(reader.live)), reader.stream)
    info = scene.ask(StreamInfo(target.key.stream_key), reader.stream)
    if not isinstance(copied, Copied) or not copied.seq or not isinstance(info, dict):
        return reader
    younger = units.parse_time(info["created"]) > units.parse_time(copied.time)
    if seen is None:
        another = younger or copied.seq > info["state"]["last_seq"]
    else:  # servers' clocks differ: a durable that has delivered as much may well have delivered what was copied
        now = scene.ask(ConsumerInfo(read), reader.stream)
        another = younger and isinstance(now, dict) and copied.seq > ConsumerSeen(now).delivered
    name = name_anew(reader.spoken.name if reader.spoken else target.key.name, target.key.name, info["created"])
    if not another or target.key.name == name:
        return reader
    if renamed:
        return replace(reader, old=read if seen else None, anew=True)
    key = target.key._replace(name=name)
    marker = replace(target.marker, source=str(reader.stream.resource_key))
    wire = with_marker(key, {**target.wire, "name": name, "durable_name": name}, marker)
    wanted = {**(reader.wanted or {}), "consumer": {**reader.live["consumer"], "name": name}}
    reader = replace(reader, target=replace(target, key=key, config=wire), wanted=wanted, said=reader.wanted, managed=True)
    return replace(reader, old=read if seen else None, anew=seen is not None)


def name_anew(declared: str, now: str, created: str) -> str:
    """What a durable is called whose origin was made then: as declared, with one suffix; as now if it was made for that origin.

    It never has a name again that it had before, for what was copied under that would be skipped: an origin that is restored
    from a backup was made when it was made at first. So a second suffix takes the place of the first, and has its digest in it.
    """
    made = _digest(created)
    before = now.removeprefix(declared) if now.startswith(declared) else ""
    if before.rpartition("-")[2].startswith(made):
        return now
    return f"{declared}-{made}{_digest(now) if before else ''}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _may_be_anew(scene: Scene, aggregate: Key, durable: Key) -> bool:
    """Whether it is worth to ask: most origins are older than what copies them."""
    seen, origin, stream = scene.live.consumer(durable), scene.live.stream(durable), scene.live.streams.get(aggregate)
    if seen is None or origin is None or stream is None or not scene.ours(durable, seen):
        return False
    consumer = ConsumerSeen(seen.info)
    idle = consumer.journal is None and not consumer.left_paused
    return idle and units.parse_time(origin.info["created"]) > units.parse_time(stream.info["created"])
