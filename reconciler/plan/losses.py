"""Which changes would lose stored messages or a reader's position, judged from what the snapshot shows.

Invariant: when it cannot be known that nothing is lost, it counts as a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.model import subjects, units
from reconciler.model.flow import copied_entries, copies, origins
from reconciler.model.identity import Key
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveConsumer, LiveStream
from reconciler.model.sourcing import detached, origin_of
from reconciler.plan.change import Reason
from reconciler.plan.comparing.display import in_short, yaml_path
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import ConsumerSeen, delivered_by
from reconciler.procedures.requests import Message, NextMessage

DATA_LOSS = "data-loss"
POSITION_LOSS = "position-loss"
_BY_NAME = (DATA_LOSS, POSITION_LOSS, "replicas")
"""What somebody may allow for a resource."""
_DURABLE_LEVEL = 4
"""From it on the server itself keeps a durable for an entry that copies from a work queue or an interest stream."""
_NOTHING: Mapping[str, Any] = {}
_FIRST = "remove `mirror` first, in a step of its own, then"
_LAST = "one above the last sequence that was mirrored"
_SOURCE_AFTER_MIRROR = {
    "limits": f"{_FIRST} add the source, with an `optStartSeq` {_LAST}",
    "workqueue": f"{_FIRST} purge what was mirrored (`nats stream purge {{}}` with `--seq` {_LAST}), then add the source",
    "interest": "declare a new stream with that source: between two steps an interest stream would drop what is published",
}
"""A mirror has the sequences of its origin; a work queue takes no start, and keeps for a while what was mirrored."""


def _loss(key: Key, message: str) -> Reason:
    way_out = f"allow it by name: `--allow data-loss={key}` or the annotation `reconciler/allow: data-loss`"
    return Reason(DATA_LOSS, message, way_out)


def permitted(scene: Scene, key: Key, found: Iterable[Reason]) -> tuple[tuple[Reason, ...], tuple[str, ...]]:
    """What speaks against a change; and what would, were it not allowed by name, in words for who looks at the plan."""
    reasons, allowed = list[Reason](), list[str]()
    for reason in found:
        if reason.code in _BY_NAME and scene.allows(reason.code, key):
            allowed.append(f"allowed ({reason.code}): {reason.message}")
        else:
            reasons.append(reason)
    return tuple(reasons), tuple(allowed)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _dependants(scene: Scene, stream: Key) -> Iterator[str]:
    """Consumers and sources of others that hang on a stream."""
    for name, consumer in scene.live.consumers_of(stream).items():
        if not consumer.server_made and not scene.ours(Key("Consumer", name, stream.stream_name, stream.domain), consumer):
            yield f"consumer {name}"
    for key, live in scene.live.streams.items():
        if (
            key not in scene.streams
            and not scene.going(key, live)
            and copies(live.raw)
            and stream in origins(live.config, key.domain)
        ):
            yield f"stream {key.name}, which copies from it"


def deleting_stream(scene: Scene, key: Key, stream: LiveStream) -> Iterator[Reason]:
    """What is lost when a stream goes."""
    messages = stream.info["state"]["messages"]
    if messages:
        yield _loss(key, f"the stream holds {_count(messages, 'message')}")
    if silence := scene.live.why_unknown(key):
        yield _loss(key, f"whose consumers hang on it could not be read: {silence}")
    yield from cut_off(scene, key, stream, {})
    for durable in scene.kept_durables.get(key.stream_key, ()):
        yield from not_copied(scene, key, durable)
    hanging = sorted(_dependants(scene, key.stream_key))
    if hanging:
        shown = in_short(hanging)
        yield _loss(key, f"others hang on it: {shown}")


def cut_off(scene: Scene, key: Key, stream: LiveStream, wanted: Mapping[str, Any]) -> Iterator[Reason]:
    """What an origin on interest has not handed over yet: it goes with the consumer that the server keeps for the copy."""
    if not copies(stream.raw):
        return
    left = set(origins(stream.config, key.domain)) - set(origins(wanted, key.domain))
    for consumer in sorted(server_made_for(scene, key, stream)):
        seen = scene.live.consumer(consumer) if consumer.stream_key in left else None
        info = seen.info if seen else {}
        waiting = info.get("num_pending", 0) + info.get("num_ack_pending", 0)
        if waiting:
            origin = consumer.stream_key
            yield _loss(key, f"not copied yet: {_count(waiting, 'message')} of {origin}, which nobody else keeps")


def server_made_for(scene: Scene, key: Key, stream: LiveStream) -> frozenset[Key]:
    """The consumers that the server keeps on origins on interest, for a stream that copies from them."""
    found = []
    for origin in set(origins(stream.config, key.domain)):
        live = scene.live.streams.get(origin)
        if live is None or live.config.get("retention") != "interest":
            continue
        for name, consumer in scene.live.consumers_of(origin).items():
            metadata = (consumer.config.get("metadata") or {}) if consumer.server_made else {}
            if key.stream_name in (metadata.get("_nats.src.stream"), metadata.get("_nats.mirror.stream")):
                found.append(Key("Consumer", name, origin.name, origin.domain))
    return frozenset(found)


def not_copied(scene: Scene, key: Key, durable: Key) -> Iterator[Reason]:
    """What an origin on interest drops with a durable that is kept for this stream; elsewhere it stays."""
    origin, seen = scene.live.stream(durable), scene.live.consumer(durable)
    waiting = seen.info.get("num_pending", 0) if seen else 0
    if waiting and origin is not None and origin.config.get("retention") == "interest":
        yield _loss(key, f"not copied yet: {_count(waiting, 'message')} of {durable.stream_key}, which nobody else keeps")


def unkept_sources(scene: Scene, key: Key, wanted: Mapping[str, Any], live: Mapping[str, Any] = _NOTHING) -> Iterator[Reason]:
    """New ephemeral entries whose origin drops what nobody acknowledges: below 2.14 the server keeps no durable for them."""
    if scene.live.server.level >= _DURABLE_LEVEL:
        return
    known = {canonical(entry) for entry in copied_entries(live)}
    for entry in copied_entries(wanted):
        origin = origin_of(entry, key.domain)
        if origin is None or "consumer" in entry or canonical(entry) in known:
            continue
        retention = _retention(scene, origin)
        if retention != "limits":
            message = (
                f"{origin} has retention {retention}, and this server (below nats-server 2.14) copies from it without a durable"
            )
            yield _loss(key, f"{message}: what it has not stored yet is gone when it stops")


def _retention(scene: Scene, stream: Key) -> str:
    """As it is declared, else as it is live."""
    declared, live = scene.streams.get(stream), scene.live.streams.get(stream)
    config = declared.config if declared else live.config if live else {}
    return str(config.get("retention") or "limits")


def deleting_consumer(scene: Scene, key: Key, consumer: LiveConsumer) -> Iterator[Reason]:
    """What is lost when a consumer goes."""
    info = consumer.info
    pending, unacked = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    if pending or unacked:
        yield _loss(key, f"it has {_count(pending, 'message')} undelivered and {unacked:,} unacknowledged")
    elif _keeps_given_up(scene, key, consumer):
        yield from _stored(scene, key, key, delivered_by(consumer.config), 1)


def _keeps_given_up(scene: Scene, key: Key, consumer: LiveConsumer) -> bool:
    """Whether it may be what keeps messages on an interest stream that it has delivered too often, which no count shows."""
    return _on_interest(scene, key) and consumer.config.get("max_deliver", -1) > 0


def _on_interest(scene: Scene, key: Key) -> bool:
    stream = scene.live.stream(key)
    return stream is not None and stream.config.get("retention") == "interest"


def _stored(scene: Scene, key: Key, consumer: Key, filters: Iterable[str], start: int) -> Iterator[Reason]:
    for subject in filters:
        found = scene.ask(NextMessage(consumer.stream_key, subject, start), key)
        if isinstance(found, Message) and not _taken_over(scene, key, subject, found.seq):
            yield _loss(key, f"messages on {subject} were not delivered or not acknowledged yet")


def _taken_over(scene: Scene, key: Key, subject: str, first: int) -> bool:
    """Whether somebody to whom this consumer hands its subjects over will deliver what is stored, from `first` on."""
    found = [scene.live.consumer(taker) for taker in scene.taken_by(key)]
    return any(
        subjects.covered(subject, delivered_by(taker.config)) and ConsumerSeen(taker.info).floor < first
        for taker in found
        if taker
    )


_COUNTED = {"max_msgs": ("messages", "message"), "max_bytes": ("bytes", "byte")}


def shrinking_stream(scene: Scene, key: Key, stream: LiveStream, wanted: Mapping[str, Any]) -> Iterator[Reason]:
    """What an update of a stream would remove: limits below what is stored, and retention that drops."""
    live, state = scene.normal(key, stream.config), stream.info["state"]
    messages = state["messages"]
    if not messages:
        return
    for field, (measure, noun) in _COUNTED.items():
        limit = wanted.get(field)
        if limit is not None and limit < live.get(field, limit + 1) and limit < state[measure]:
            yield _loss(key, f"{yaml_path(key.kind, field)} {limit:,} is below the {_count(state[measure], noun)} stored")
    per_subject = wanted.get("max_msgs_per_subject")
    if per_subject is not None and per_subject < live.get("max_msgs_per_subject", per_subject + 1):
        path = yaml_path(key.kind, "max_msgs_per_subject")
        yield _loss(key, f"{path} {per_subject:,} may drop some of the {_count(messages, 'message')} stored")
    # By the server's clock, which its limits go by: ours may be behind.
    age, oldest = wanted.get("max_age"), units.parse_time(stream.info["ts"]) - units.parse_time(state["first_ts"])
    if age is not None and age < live.get("max_age", age + 1) and age < oldest:
        shown = units.format_duration(oldest // 10**9 * 10**9)
        path = yaml_path(key.kind, "max_age")
        yield _loss(key, f"{path} {units.format_duration(age)} is below the age of the oldest message ({shown})")
    if wanted.get("retention") == "interest" and "retention" not in live:
        yield _loss(key, f"interest retention drops those of {_count(messages, 'message')} that no consumer needs")


def repeating_sources(scene: Scene, key: Key, stream: LiveStream, wanted: Mapping[str, Any]) -> Iterator[Reason]:
    """Ephemeral entries with another filter or other transforms: the server takes such a one for new, and copies all again."""
    if not stream.info["state"]["last_seq"]:
        return
    before, after = _entries(scene.normal(key, stream.config)), _entries(wanted)
    for name in sorted(before.keys() & after.keys()):
        if before[name] - after[name] and after[name] - before[name]:
            message = f"another filter or transform starts at the beginning: what was copied from {name[0]} would be copied again"
            way_out = "declare a new stream, or accept the duplicates by name with `reconciler/allow: position-loss`"
            yield Reason(POSITION_LOSS, message, way_out)


def mirror_as_source(scene: Scene, key: Key, stream: LiveStream, wanted: Mapping[str, Any]) -> Iterator[Reason]:
    """A mirror that becomes a source of the same stream, which takes no notice of what was mirrored before it."""
    if "mirror" not in stream.config or "mirror" in wanted:
        return
    mirrored = origins({"mirror": stream.config["mirror"]}, key.domain)
    for origin in sorted(set(mirrored) & set(origins(wanted, key.domain))):
        message = f"a source of {origin} does not know how far its mirror has come, and would not go on from there"
        yield Reason("depends-on", message, _SOURCE_AFTER_MIRROR[_retention(scene, origin)].format(origin.name))


def _entries(normal: Mapping[str, Any]) -> dict[tuple[str, str], set[bytes]]:
    """What the server knows ephemeral source entries by, for each stream that is copied from."""
    found: dict[tuple[str, str], set[bytes]] = {}
    for entry in normal.get("sources") or ():
        if "consumer" in entry or detached(entry):
            continue  # these are handed over, see `sources.change`
        origin = (entry["name"], (entry.get("external") or {}).get("api", ""))
        parts = [entry.get(part) for part in ("filter_subject", "subject_transforms")]
        found.setdefault(origin, set()).add(canonical(parts))
    return found


def fewer_replicas(wanted: Mapping[str, Any], live: Mapping[str, Any], key: Key) -> Iterator[Reason]:
    """Fewer copies of the data: allowed only by name."""
    before, after = live.get("num_replicas", 1), wanted.get("num_replicas", 1)
    if after < before:
        way_out = f"allow it: `--allow replicas={key}` or the annotation `reconciler/allow: replicas`"
        yield Reason("replicas", f"replicas would fall from {before} to {after}", way_out)


def removed_filters(scene: Scene, key: Key, consumer: LiveConsumer, removed: tuple[str, ...]) -> Iterator[Reason]:
    """Filters that go while messages they match were not delivered or not acknowledged."""
    info = consumer.info
    if _keeps_given_up(scene, key, consumer):
        yield from _stored(scene, key, key, removed, 1)
    elif info.get("num_pending", 0) or info.get("num_ack_pending", 0):
        yield from _stored(scene, key, key, removed, info["ack_floor"]["stream_seq"] + 1)


def giving_up(scene: Scene, key: Key, consumer: LiveConsumer, wanted: Mapping[str, Any]) -> Iterator[Reason]:
    """What nobody would be given any more: delivered as often as is allowed now, or gone with a consumer that nobody reads."""
    live, info = scene.normal(key, consumer.config), consumer.info
    pending, unacked = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    most = wanted.get("max_deliver")
    falls = most is not None and most < live.get("max_deliver", most + 1)
    if falls and unacked and (most == 1 or info.get("num_redelivered", 0)):
        had = _count(unacked, "unacknowledged message")
        yield _loss(key, f"maxDeliver {most} may be what {had} have had: nobody is given them again then")
    idle = wanted.get("inactive_threshold")
    if idle is None or idle >= live.get("inactive_threshold", idle + 1):
        return
    if (pending or unacked) and _on_interest(scene, key):
        shown = units.format_duration(idle)
        message = f"once nobody reads it for {shown} it goes, and with it {_count(pending + unacked, 'message')} that wait for it"
        yield _loss(key, message)


def removed_subjects(scene: Scene, key: Key, durable: Key, removed: tuple[str, ...], floor: int) -> Iterator[Reason]:
    """The same for a stream that copies through a durable."""
    yield from _stored(scene, key, durable, removed, floor + 1)


def uncovered(filters: list[str], by: list[str]) -> tuple[str, ...]:
    """The filters that reach subjects which the others do not; no filter means every subject."""
    wide = by or [">"]
    return tuple(subject for subject in (filters or [">"]) if not subjects.covered(subject, wide))
