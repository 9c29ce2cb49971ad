"""The shapes that programs outside rely on, as JSON Schemas written from the contract, not from the code."""

from __future__ import annotations

from typing import Any

import jsonschema

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ACTIONS = ["create", "update", "adopt", "procedure", "recreate", "delete", "blocked"]
STATES = ["Synced", "OutOfSync", "Progressing", "Blocked", "Error", "Suspended", "Unknown", "Unmanaged"]
KEY: Schema = {"type": "string", "pattern": r"^([^:/]+:)?((Stream|KeyValue|ObjectStore|WorkerPool)/[^/]+|Consumer/[^/]+/[^/]+)$"}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    """All of `required`; keys may be added, so others are permitted."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_CODE = {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"}
_REASON = _object({"code": _CODE, "message": TEXT, "wayOut": TEXT})
_PROCEDURE = _object({"name": TEXT, "steps": _list(TEXT), "pointOfNoReturn": TEXT, "expectedDuplicates": COUNT})
_CHANGE = _object(
    {
        "key": KEY,
        "action": {"enum": ACTIONS},
        "cause": {"enum": ["manifest", "drift", "missing", "prune"]},
        "procedure": _or_null(_PROCEDURE),
        "touches": _list(KEY),
        "fields": _list(_object({"path": TEXT, "from": {}, "to": {}})),
        "reasons": _list(_CODE),
        "explanations": _list(_REASON),
        "by": _or_null(_object({"client": TEXT, "user": TEXT, "at": TEXT})),
    }
)
_APPLIED = {
    **_CHANGE,
    "required": [*_CHANGE["required"], "result", "error"],
    "properties": {
        **_CHANGE["properties"],
        "result": {"enum": ["applied", "failed", "skipped", "unfinished"]},
        "error": _or_null(TEXT),
    },
}


def _plan(change: Schema) -> Schema:
    return _object(
        {
            "apiVersion": {"const": "reconciler/v1"},
            "kind": {"const": "Plan"},
            "fingerprint": {"type": "string", "pattern": "^sha256:[0-9a-f]+$"},
            "server": _object({"version": TEXT, "apiLevel": COUNT}),
            "summary": _object(dict.fromkeys([*ACTIONS, "unchanged"], COUNT)),
            "refused": _list(_CODE),
            "refusals": _list(_REASON),
            "changes": _list(change),
        },
        {"unknown": _list(KEY)},
    )


PLAN = _plan(_CHANGE)
APPLIED = _plan(_APPLIED)
_POOL = _object(
    {
        "pool": TEXT,
        "key": KEY,
        "generation": _or_null(COUNT),
        "loadedAt": _or_null(TEXT),
        **dict.fromkeys(["workers", "subjects", "moved", "new", "retired"], COUNT),
        "before": _or_null(COUNT),
        "heldBack": _or_null(TEXT),
    }
)
STATUS = _object(
    {
        "apiVersion": {"const": "reconciler/v1"},
        "kind": {"const": "Status"},
        "revision": TEXT,
        "leader": {},
        "connected": {"type": "boolean"},
        "server": {"type": "object"},
        "lastPass": {"type": "object"},
        "summary": {"type": "object", "propertyNames": {"enum": STATES}, "additionalProperties": COUNT},
        "resources": _list(
            _object(
                {"key": KEY, "state": {"enum": STATES}, "message": TEXT, "since": {}, "lastDrift": _or_null({"type": "object"})}
            )
        ),
        "sources": {"type": "array"},
        "pools": _list(_POOL),
        "procedures": {"type": "array"},
    }
)


def conforms(document: Any, schema: Schema) -> None:
    """Fails when the document has another shape."""
    jsonschema.validate(document, schema)
