"""Which differences the server lets an update remove, and which API level a configuration needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.model.identity import Key
from reconciler.model.kinds.fields import Mutability, table
from reconciler.plan.change import Reason
from reconciler.plan.comparing.display import spec_model, yaml_path

SERVER_OF_LEVEL = {1: "2.11", 2: "2.12", 3: "2.12", 4: "2.14", 5: "2.15"}

_LAST_LEVEL_OF_2_12 = 3
"""Up to there a consumer's memStorage could be updated."""
_VALUE_LEVELS = {("priority_policy", "prioritized"): 2, ("ack_policy", "flow_control"): 4}
_DURABLE_ENTRIES = ("sources[].consumer", "mirror.consumer")
_RECREATE = "allow it by name with the annotation `reconciler/allow: recreate` (its position is kept)"
MIRROR_WAY_OUT = "declare a new stream with that mirror, or remove `mirror` to promote this one"
_RECREATE_STREAM = "allow it with the annotation `reconciler/allow: recreate` (and data-loss while it holds messages)"


def _immutable(key: Key, name: str, wanted: Mapping[str, Any], live: Mapping[str, Any], level: int) -> bool:
    if key.kind == "Consumer":
        if name == "deliver_subject":
            return bool(wanted.get(name)) != bool(live.get(name))
        if name == "durable":
            return True
        if name == "mem_storage":
            return level > _LAST_LEVEL_OF_2_12
    if name == "retention":
        return "workqueue" in (wanted.get(name), live.get(name))
    if name == "max_consumers":
        return level <= 1  # mutable from 2.12 on
    column = table(spec_model(key.kind)).get(name)
    return column is not None and column.wire.mutability is Mutability.IMMUTABLE


def immutable_reasons(
    key: Key, names: frozenset[str], wanted: Mapping[str, Any], live: Mapping[str, Any], level: int
) -> tuple[Reason, ...]:
    """One reason per differing field that no update can change."""
    way_out = _RECREATE if key.kind == "Consumer" else _RECREATE_STREAM
    return tuple(
        Reason("immutable", f"{yaml_path(key.kind, name)} cannot be changed on a live {key.kind.lower()}", way_out)
        for name in sorted(names)
        if _immutable(key, name, wanted, live, level)
    )


def one_way_reasons(
    key: Key, names: frozenset[str], wanted: Mapping[str, Any], live: Mapping[str, Any], level: int
) -> tuple[Reason, ...]:
    """One reason per differing field that can be set but never unset (or removed but never added)."""
    model = spec_model(key.kind)
    reasons = []
    for name in sorted(names):
        column = table(model).get(name)
        kind = column.wire.mutability if column else None
        path = yaml_path(key.kind, name)
        if kind is Mutability.ONE_WAY and not wanted.get(name):
            reasons.append(Reason("one-way", f"{path} can be set but never unset", f"declare `{path}: true` again"))
        if kind is Mutability.REMOVABLE and not wanted.get(name) and level <= 1:
            reasons.append(Reason("level", f"{path} can be removed from API level 2 (nats-server 2.12) on", "upgrade the server"))
        if kind is Mutability.REMOVABLE and wanted.get(name):
            verb = "changed" if live.get(name) else "added"
            reasons.append(Reason("immutable", f"{path} cannot be {verb} on a live stream", MIRROR_WAY_OUT))
    return tuple(reasons)


def _levels(key: Key, config: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    model = spec_model(key.kind)
    columns = table(model)
    for name, value in config.items():
        if name in columns:
            level = max(columns[name].wire.level, _VALUE_LEVELS.get((name, value) if isinstance(value, str) else ("", ""), 0))
            yield level, yaml_path(key.kind, name)
    for entry in (*config.get("sources", ()), *([config["mirror"]] if "mirror" in config else ())):
        if "consumer" in entry:
            yield 4, _DURABLE_ENTRIES["sources" not in config]


def required_level(key: Key, normal: Mapping[str, Any]) -> tuple[int, str]:
    """The API level a normal form needs, and the field that needs it."""
    return max(_levels(key, normal), default=(0, ""))


def level_reason(level: int, path: str, have: int) -> Reason:
    """The server is too old for a field."""
    server = SERVER_OF_LEVEL.get(level, "a newer server")
    message = f"{path} needs API level {level} (nats-server {server}); this server has {have}"
    if path in _DURABLE_ENTRIES:
        message += "; without it the stream would copy ephemerally: 2.11 drops the field in silence"
    return Reason("level", message, "upgrade the server")
