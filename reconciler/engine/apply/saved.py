"""plan.json: a plan that can be applied later, exactly as it was reviewed, or not at all.

Invariant: `load_saved(save(planned, …))` gives what the plan was made from, so that planning again yields the same fingerprint
exactly as long as nothing has moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import orjson

from reconciler.engine.planning import Planned, make_plan
from reconciler.engine.ports import LiveReader
from reconciler.errors import InvalidInput, Problem, Refused, UsageError
from reconciler.model.desired import Declared, Desired, Expectation, Governance
from reconciler.model.flow import with_domains
from reconciler.model.identity import API_VERSION, Key, Location
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent, State
from reconciler.plan.change import Rules
from reconciler.plan.comparing.display import in_short
from reconciler.render.values import show

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What a plan file holds."""

    desired: Desired
    rules: Rules
    fingerprint: str
    shown: Mapping[str, tuple[str, Json]]
    """What was to be done, by key, and how each field was that it would have changed."""


def save(planned: Planned, document: Mapping[str, Any]) -> bytes:
    """The plan file: the printed plan with everything needed to make it again."""
    desired = planned.desired
    if desired.pools:
        msg = "a plan with worker pools cannot be saved; apply the manifests themselves"
        raise UsageError(msg)
    parts = {"apiVersion": API_VERSION, "kind": "Plan", "fingerprint": planned.plan.fingerprint}
    inputs = {"rules": _rules_out(planned.rules), "desired": _desired_out(desired)}
    whole = {**document, **parts, "inputs": inputs, "inputsDigest": _digest(inputs)}
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def load_saved(data: bytes, file: str) -> SavedPlan:
    """The inverse; raises InvalidInput."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        message = f"not a plan file, or only a part of one: {error.msg}"
        raise InvalidInput((Problem(file, error.lineno, error.colno, "plan-file", message),)) from error
    inputs = _checked_inputs(document, file)
    try:
        shown = {
            change["key"]: (change["action"], {field["path"]: field["from"] for field in change.get("fields") or ()})
            for change in document["changes"]
        }
        return SavedPlan(_desired_in(inputs["desired"]), _rules_in(inputs["rules"]), document["fingerprint"], shown)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(file, f"another version of reconciler has written this plan ({error!r})") from error


def _checked_inputs(document: Any, file: str) -> Json:  # noqa: ANN401 - whatever JSON can say
    """What the plan was made from, exactly as it was written."""
    if not isinstance(document, dict) or document.get("kind") != "Plan":
        raise _invalid(file, "not a plan file")
    if document.get("apiVersion") != API_VERSION:
        raise _invalid(file, f"a plan file of another version; this one reads {API_VERSION}")
    inputs = document.get("inputs")
    if not isinstance(inputs, dict):
        raise _invalid(file, "a plan that was printed, which cannot be applied")
    if document.get("inputsDigest") != _digest(inputs):
        raise _invalid(file, "changed since it was written, so it is not what was reviewed")
    return inputs


def _digest(inputs: Json) -> str:
    """The same for what is written and for what is read back."""
    plain = orjson.loads(orjson.dumps(inputs))
    return f"sha256:{hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()}"


async def replan(saved: SavedPlan, reader: LiveReader) -> Planned:
    """The plan made again from what is live now; raises Refused when it is not the one that was reviewed."""
    planned = await make_plan(saved.desired, saved.rules, reader)
    if planned.plan.fingerprint != saved.fingerprint:
        moved = in_short([*_moved(saved, planned)] or ["how something is live"])
        raise Refused((f"stale: since the plan was reviewed ({saved.fingerprint}), this has changed: {moved}; plan again",))
    return planned


def _moved(saved: SavedPlan, planned: Planned) -> Iterator[str]:
    """What would be done instead."""
    now = {
        str(change.key): (change.action.value, {field.path: with_domains(field.live) for field in change.fields})
        for change in planned.plan.changes
    }
    nothing: tuple[str, Json] = ("nothing to do", {})
    for key in sorted(saved.shown.keys() | now.keys()):
        (before, was), (after, live) = saved.shown.get(key, nothing), now.get(key, nothing)
        moved = [path for path in was | live if was.get(path) != live.get(path)]
        if before != after:
            yield f"{key} ({before}, now {after})"
        elif moved:
            yield f"{key} ({in_short([f'{path} {show(was.get(path))} → {show(live.get(path))}' for path in moved])})"


def _invalid(file: str, message: str) -> InvalidInput:
    return InvalidInput((Problem(file, 1, 1, "plan-file", f"{message}: write a new one with `plan --out`"),))


def _rules_out(rules: Rules) -> Json:
    return asdict(rules) | {
        "allow": sorted([what, key] for what, key in rules.allow),
        "targets": sorted(str(key) for key in rules.targets),
        "take_from": sorted(rules.take_from),
    }


def _rules_in(saved: Json) -> Rules:
    allow = frozenset((what, key) for what, key in saved["allow"])
    sets = {"allow": allow, "targets": frozenset(map(Key.parse, saved["targets"]))}
    return Rules(**{**saved, **sets, "take_from": frozenset(saved.get("take_from", ()))})


def _desired_out(desired: Desired) -> Json:
    return {
        "resources": [_declared_out(declared) for declared in desired.resources.values()],
        "environment": desired.environment,
        "context": desired.context,
        "url": desired.url,
        "revision": desired.revision,
        "expect": asdict(desired.expect),
        "governance": asdict(desired.governance),
        "held_back": {str(key): reason for key, reason in desired.held_back.items()},
    }


def _desired_in(saved: Json) -> Desired:
    resources = [_declared_in(row) for row in saved["resources"]]
    parts: Json = {
        "resources": {declared.key: declared for declared in resources},
        "expect": Expectation(**saved["expect"]),
        "governance": Governance(**saved["governance"]),
        "held_back": {Key.parse(key): reason for key, reason in saved["held_back"].items()},
    }
    return Desired(**{**saved, **parts})


def _declared_out(declared: Declared) -> Json:
    row: Json = {"key": str(declared.key), "config": orjson.Fragment(declared.wire), "digest": declared.digest}
    row["at"] = list(astuple(declared.location))
    if declared.intent != DEFAULT_INTENT:
        row["intent"] = asdict(declared.intent) | {"allow": sorted(declared.intent.allow)}
    return row


def _declared_in(row: Json) -> Declared:
    intent = row.get("intent")
    return Declared(
        key=Key.parse(row["key"]),
        wire=orjson.dumps(row["config"]),
        digest=row["digest"],
        location=Location(*row["at"]),
        intent=_intent_in(intent) if intent else DEFAULT_INTENT,
    )


def _intent_in(saved: Json) -> Intent:
    parts = {"state": State(saved["state"]), "allow": frozenset(saved["allow"]), "ignore": tuple(saved["ignore"])}
    return Intent(**{**saved, **parts})
