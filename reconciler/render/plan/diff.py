"""A plan as a unified diff of canonical YAML, one part per resource that differs.

Invariant: the diff shows exactly the fields of the plan, no more and no fewer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from reconciler.model.flow import with_domains
from reconciler.model.identity import Key
from reconciler.model.normal import normal_form
from reconciler.plan.change import Action, Change, Plan
from reconciler.plan.comparing.display import yaml_spec
from reconciler.render.plan.phrases import headline
from reconciler.render.values import printable
from reconciler.render.yaml import dump, resource

Spec = dict[str, Any]
_NOWHERE = "/dev/null"


def plan_diff(plan: Plan) -> Iterator[str]:
    """All lines, without line ends."""
    for change in plan.changes:
        yield from change_diff(change)


def change_diff(change: Change) -> Iterator[str]:
    """The part of one resource: a comment with what would be done and why not, then the differences."""
    yield f"# {printable(str(change.key))}: {headline(change)}"
    for reason in change.reasons:
        yield f"#   {printable(str(reason))}"
    before, after = _live(change), declared_spec(change)
    name = printable(str(change.key))
    lines = difflib.unified_diff(
        _lines(change, before),
        _lines(change, after),
        fromfile=f"live/{name}" if before is not None else _NOWHERE,
        tofile=f"declared/{name}" if after is not None else _NOWHERE,
        lineterm="",
    )
    yield from lines


def _lines(change: Change, spec: Spec | None) -> list[str]:
    return [] if spec is None else dump(resource(change.key, with_domains(spec))).splitlines()


def _live(change: Change) -> Spec | None:
    if not change.live_config:
        return None
    whole = Action.DELETE in (change.action, change.wanted)  # what goes is shown as the server has it
    live = _normal(change.key, change.live_config) if whole else orjson.loads(change.live_config)
    return _with(yaml_spec(change.key.kind, live), {diff.path: diff.live for diff in change.fields})


def declared_spec(change: Change) -> Spec | None:
    """The spec as it would be afterwards, in YAML names; None when nothing would be left."""
    action = change.wanted if change.action is Action.BLOCKED else change.action
    if action is Action.DELETE:
        return None
    live = _live(change)
    if live is not None:
        return _with(live, {diff.path: diff.declared for diff in change.fields})
    return yaml_spec(change.key.kind, _normal(change.key, change.config)) if change.config else None


def _normal(key: Key, config: bytes) -> Spec:
    return normal_form(key, orjson.loads(config))


def _with(spec: Spec, values: Mapping[str, Any]) -> Spec:
    """The spec with these paths (dots for nesting) set, or removed where the value is None."""
    changed = dict(spec)
    for path, value in values.items():
        head, _, rest = path.partition(".")
        nested = _with(changed.get(head) or {}, {rest: value}) if rest else value
        if nested is None or nested == {}:
            changed.pop(head, None)
        else:
            changed[head] = nested
    return changed
