"""What differs between a declaration and the live resource.

Invariant: `fields` of equal meanings is empty; whatever the manifest leaves to others (`spec.ignore`), what a procedure
had to leave different (residue) and fields of a newer server that we cannot declare are carried over, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.model.kinds.consumer import INTERNAL_FIELDS
from reconciler.model.kinds.fields import table
from reconciler.model.normal import EVERYTHING, Config, normal_source
from reconciler.model.residue import SOURCES, Residue
from reconciler.plan.change import FieldDiff
from reconciler.plan.comparing.display import spec_model, yaml_path, yaml_value

_NOT_OURS = INTERNAL_FIELDS | {"metadata", "pause_until"}


def known_fields(key: Key) -> frozenset[str]:
    """Everything a normal form of this kind may contain that a manifest can declare."""
    return frozenset((*table(spec_model(key.kind)), "durable", "dead_letter"))


def _wire_path(kind: str, path: str) -> list[str]:
    """`spec.ignore` paths are written in YAML names; the configuration has wire names."""
    head, *rest = path.removeprefix("spec.").split(".", 1)
    by_yaml = {yaml_path(kind, wire): wire for wire in table(spec_model(kind))}
    return [by_yaml.get(head, head), *rest]


def _leave_to_others(config: Config, live: Mapping[str, Any], kind: str, path: str) -> None:
    head, *rest = _wire_path(kind, path)
    if not rest:
        config.pop(head, None)
        if head in live:
            config[head] = live[head]
        return
    inner, theirs = dict(config.get(head) or {}), (live.get(head) or {})
    inner.pop(rest[0], None)
    if rest[0] in theirs:
        inner[rest[0]] = theirs[rest[0]]
    config[head] = inner


def kept_residue(declared: Mapping[str, Any], live: Mapping[str, Any], residue: tuple[Residue, ...]) -> tuple[Residue, ...]:
    """The residue rows that still stand: manifest and consumer say what they said when the procedure ended."""
    return tuple(row for row in residue if _stands(declared.get(row.field), live.get(row.field), row))


def _stands(declared: object, live: object, row: Residue) -> bool:
    if row.field == SOURCES:  # an entry that somebody has taken away comes back as it was
        return isinstance(declared, list) and row.declared in declared
    return bool(declared == row.declared and live == row.live)


def effective(
    key: Key, declared: Config, live: Mapping[str, Any], ignore: tuple[str, ...], residue: tuple[Residue, ...]
) -> Config:
    """The configuration to have on the server: as declared, with what must be carried over from live."""
    model = spec_model(key.kind)
    config = dict(declared)
    if key.kind == "Consumer":
        _filters_as_live(config, live)
    if "mirror" in live and "mirror" in config and normal_source(live["mirror"]) == normal_source(config["mirror"]):
        config["mirror"] = live["mirror"]  # the server takes the same moment in another time zone for a change
    for path in ignore:
        _leave_to_others(config, live, key.kind, path)
    for row in residue:
        if row.field == SOURCES:
            config[SOURCES] = [row.live if normal_source(entry) == row.declared else entry for entry in config[SOURCES]]
        elif row.live is None:
            config.pop(row.field, None)
        else:
            config[row.field] = row.live
    known = table(model)
    for name, value in live.items():
        if name not in known and name not in _NOT_OURS and name != "name":
            config.setdefault(name, value)
    return config


def _filters_as_live(config: Config, live: Mapping[str, Any]) -> None:
    """Says the filters in the field that is live; and never takes them all away.

    Every server until now (2.11 to 2.15) lets a consumer that loses its filters go deaf to new messages, and on interest drops
    these. With `>` in their place it delivers everything.
    """
    wanted = list(filters_of(config)) or ([EVERYTHING] if filters_of(live) else [])
    if len(wanted) == 1:
        single = bool(live.get("filter_subject")) or ("filter_subject" in config and not live.get("filter_subjects"))
        config.pop("filter_subjects", None)
        config.pop("filter_subject", None)
        config |= {"filter_subject": wanted[0]} if single else {"filter_subjects": wanted}


DefaultsOf = Callable[[Key, Mapping[str, Any]], Mapping[str, Any]]
"""What the server takes for the fields that a normal form leaves out; it may depend on its other fields."""


def fields(key: Key, wanted: Mapping[str, Any], live: Mapping[str, Any], defaults_of: DefaultsOf) -> tuple[FieldDiff, ...]:
    """The differing fields of two normal forms, in YAML terms and a stable order."""
    before, after = ({**defaults_of(key, side), **side} for side in (live, wanted))
    return tuple(
        _shown(key.kind, name, before.get(name), after.get(name))
        for name in sorted({*wanted, *live})
        if before.get(name) != after.get(name)  # one may say what is the other's default
    )


def _shown(kind: str, name: str, live: object, declared: object) -> FieldDiff:
    """The two values so that they can be told apart: a deliver subject of our own making only where nothing else differs."""
    model = spec_model(kind)
    for generated in (False, True):
        one, other = (yaml_value(model, name, value, generated=generated) for value in (live, declared))
        if one != other:
            break
    return FieldDiff(yaml_path(kind, name), one, other)


def changed(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> frozenset[str]:
    """The wire names of the differing fields."""
    return frozenset(name for name in {*wanted, *live} if wanted.get(name) != live.get(name))
