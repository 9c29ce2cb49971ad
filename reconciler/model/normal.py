"""The normal form of a configuration: what it means, with everything left out that the server would fill in anyway.

Invariant: two configurations behave the same on the server exactly if their normal forms are equal, and
`normal(x) == normal(normal(x))`. Both sides of every comparison pass through here, so a default, a rewritten value,
an order that means nothing or the server's own metadata is never a difference.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from reconciler.model import units
from reconciler.model.api import LATEST_LEVEL
from reconciler.model.identity import Key
from reconciler.model.kinds.consumer import INTERNAL_FIELDS, ConsumerSpec
from reconciler.model.kinds.fields import table
from reconciler.model.kinds.stream import StreamSpec
from reconciler.model.marker import DEAD_LETTER, declared_metadata
from reconciler.model.units import SECOND

Config = dict[str, Any]

_STREAM_DEFAULTS = {name: column.wire.default for name, column in table(StreamSpec).items()}
_CONSUMER_DEFAULTS = {name: column.wire.default for name, column in table(ConsumerSpec).items()}
_UNLIMITED = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_consumers")
_NO_LIMITS: Mapping[str, Any] = {}
EVERYTHING = ">"
"""As the only filter of a consumer the same as none (but last_per_subject must have one)."""


def packed(value: object, option: int = 0) -> bytes:
    """JSON that takes no more memory than its length; orjson's own bytes keep the 4 KB or so that it reserved for writing."""
    return memoryview(orjson.dumps(value, option=option)).tobytes()


def canonical(value: object) -> bytes:
    """JSON in which equal values have equal bytes."""
    return packed(value, orjson.OPT_SORT_KEYS)


def digest(normal: Mapping[str, Any]) -> str:
    """A short name of a normal form: equal configurations have equal digests."""
    return hashlib.blake2b(orjson.dumps(normal, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _kept(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Config:
    """The fields that say something: neither empty nor equal to the default."""
    return {name: value for name, value in config.items() if value and value != defaults.get(name)}


def normal_source(source: Mapping[str, Any]) -> Config:
    """The normal form of one source or mirror entry."""
    entry = _kept(source, {})
    if "opt_start_time" in entry:
        entry["opt_start_time"] = units.format_time(units.parse_time(entry["opt_start_time"]))
    if "subject_transforms" in entry:
        entry["subject_transforms"] = [_kept(transform, {}) for transform in entry["subject_transforms"]]
    if "external" in entry:
        entry["external"] = _kept(entry["external"], {})
    return entry


def _stream_parts(config: Config) -> None:
    if "mirror" in config:
        config["mirror"] = normal_source(config["mirror"])
    if "sources" in config:
        config["sources"] = sorted((normal_source(entry) for entry in config["sources"]), key=canonical)
    if "subjects" in config:
        config["subjects"] = sorted(set(config["subjects"]))
    if "placement" in config:
        placement = _kept(config["placement"], {})
        if "tags" in placement:
            placement["tags"] = sorted(placement["tags"])
        config["placement"] = placement
    for name in ("consumer_limits", "subject_transform"):
        if name in config:
            config[name] = _kept(config[name], {})
    if "republish" in config:
        config["republish"] = _kept(config["republish"], {"src": ">"})


def _stream_forced(config: Config) -> None:
    """What the server sets by itself because another field says so."""
    if config.get("subject_delete_marker_ttl"):
        config |= {"allow_msg_ttl": True, "allow_rollup_hdrs": True}
        config.pop("deny_purge", None)
    if config.get("allow_msg_schedules"):
        config["allow_rollup_hdrs"] = True
        config.pop("deny_purge", None)
    if config.get("sealed"):
        config |= {"discard": "new", "deny_delete": True, "deny_purge": True}
        config.pop("max_age", None)


_NO_WINDOW_WITH_SOURCES = 4


def default_duplicate_window(config: Mapping[str, Any], level: int = LATEST_LEVEL) -> int:
    """What the server takes when none is given: two minutes, not above max_age; none when it copies from others."""
    if config.get("mirror") or (config.get("sources") and level >= _NO_WINDOW_WITH_SOURCES):
        return 0
    return min(120 * SECOND, config.get("max_age") or 120 * SECOND)


def complete_stream(config: Config) -> Config:
    """The configuration with what the server would force, as an update must repeat it."""
    full = dict(config)
    _stream_forced(full)
    return full


def stream_defaults(config: Mapping[str, Any], level: int = LATEST_LEVEL) -> Mapping[str, Any]:
    """What a server of this API level takes for the fields that a stream's configuration leaves out."""
    return {**_STREAM_DEFAULTS, "duplicate_window": default_duplicate_window(config, level)}


def normal_stream(config: Mapping[str, Any], name: str, level: int = LATEST_LEVEL) -> Config:
    """The normal form of a stream's configuration, by the defaults of a server of this API level."""
    full = {field: value for field, value in config.items() if field != "name"}
    for field in _UNLIMITED:
        if full.get(field, 0) < 0:
            del full[field]
    _stream_parts(full)
    _stream_forced(full)
    if full.get("mirror") and not full["mirror"].get("external"):
        full.pop("mirror_direct", None)  # the server copies it from the origin, whatever is sent
    kept = _kept(full, stream_defaults(full, level))
    if kept.get("subjects") == [name] and not (kept.get("mirror") or kept.get("sources")):
        del kept["subjects"]
    if "metadata" in kept:
        kept["metadata"] = declared_metadata(kept["metadata"])
        if not kept["metadata"]:
            del kept["metadata"]
    return kept


@functools.cache
def _defaults_of_policy(ack_policy: str) -> Mapping[str, Any]:
    """What the server fills into a durable consumer of a stream without consumer limits."""
    defaults = dict(_CONSUMER_DEFAULTS)
    if ack_policy in ("none", "flow_control"):
        defaults["ack_wait"] = None
    if ack_policy == "none":
        defaults["max_ack_pending"] = None
    return defaults


def consumer_defaults(config: Mapping[str, Any], limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a server takes for the fields that a consumer's configuration (or its normal form) leaves out."""
    policy = config.get("ack_policy") or "none"
    common = _defaults_of_policy(policy)
    durable = config.get("durable_name") or config.get("durable")
    if durable and not limits and "priority_policy" not in config:
        return common  # nearly always
    defaults = dict(common)
    if limits.get("max_ack_pending") and policy != "none":
        defaults["max_ack_pending"] = limits["max_ack_pending"]
    if limits.get("inactive_threshold"):
        defaults["inactive_threshold"] = limits["inactive_threshold"]
    elif not durable:
        defaults["inactive_threshold"] = 5 * SECOND
    if config.get("priority_policy") == "pinned_client":
        defaults["priority_timeout"] = 120 * SECOND
    return defaults


def _consumer_parts(kept: Config) -> None:
    """Brings the fields with more than one way to say the same into one form."""
    kept.pop("pause_until", None)
    single = kept.pop("filter_subject", None)
    filters = kept.pop("filter_subjects", None) or ([single] if single else [])
    if filters and (filters != [EVERYTHING] or kept.get("deliver_policy") == "last_per_subject"):
        kept["filter_subjects"] = sorted(set(filters)) if len(filters) > 1 else filters
    if kept.get("max_deliver", 0) < 0:
        del kept["max_deliver"]
    if kept.get("max_ack_pending", 0) < 0:
        kept["max_ack_pending"] = -1
    if "backoff" in kept:
        kept.pop("ack_wait", None)  # the server takes backoff[0], whatever is sent
    if kept.get("ack_policy") == "flow_control":  # the server sets both, whatever is sent
        kept.pop("flow_control", None)
        kept.pop("idle_heartbeat", None)
    if "sample_freq" in kept:
        kept["sample_freq"] = kept["sample_freq"].rstrip("%")
    if "opt_start_time" in kept:
        kept["opt_start_time"] = units.format_time(units.parse_time(kept["opt_start_time"]))


def normal_consumer(config: Mapping[str, Any], limits: Mapping[str, Any] = _NO_LIMITS) -> Config:
    """The normal form of a consumer's configuration; `limits` are the consumer limits of its stream."""
    kept = _kept(config, consumer_defaults(config, limits))
    metadata = kept.pop("metadata", None)
    for field in INTERNAL_FIELDS:
        kept.pop(field, None)
    _consumer_parts(kept)
    kept["durable"] = bool(config.get("durable_name"))
    if metadata:
        if dead_letter := metadata.get(DEAD_LETTER):
            kept["dead_letter"] = dead_letter
        if own := declared_metadata(metadata):
            kept["metadata"] = own
    return kept


def normal_form(key: Key, config: Mapping[str, Any], limits: Mapping[str, Any] = _NO_LIMITS, level: int = LATEST_LEVEL) -> Config:
    """The normal form of whatever lives under this key."""
    return normal_consumer(config, limits) if key.kind == "Consumer" else normal_stream(config, key.stream_name, level)
