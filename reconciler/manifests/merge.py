"""Environment defaults < document < patches, merged as RFC 7396: null unsets, lists replace, mappings merge.

Invariant: neither side is changed, and no default contradicts what a resource says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Spec = dict[str, Any]

PULL_ONLY = ("maxWaiting", "maxBatch", "maxExpires", "maxBytes", "priorityGroups", "priorityPolicy", "priorityTimeout")
PUSH_ONLY = ("deliverSubject", "deliverGroup", "flowControl", "idleHeartbeat", "rateLimitBps")
_NOT_ON_FLOW_CONTROL = (
    "ackWait",
    "backoff",
    "maxDeliver",
    "deliverGroup",
    "durable",
    "flowControl",
    "headersOnly",
    "idleHeartbeat",
    "inactiveThreshold",
    "memStorage",
)
_NOT_ON_MIRROR = (
    "allowAtomic",
    "allowBatched",
    "allowMsgCounter",
    "allowMsgSchedules",
    "firstSeq",
    "sources",
    "subjectDeleteMarkerTtl",
    "subjects",
)
_CONTRADICTED_ON_STREAM: Mapping[str, tuple[str, ...]] = {
    "allowAtomic": ("persistMode",),
    "allowMsgCounter": ("allowMsgSchedules", "allowMsgTtl", "discard", "subjectDeleteMarkerTtl"),
    "allowMsgSchedules": ("allowMsgCounter", "allowRollupHdrs", "denyPurge", "mirror", "sources"),
    "allowRollupHdrs": ("denyPurge",),
    "denyPurge": ("allowMsgSchedules", "allowRollupHdrs", "subjectDeleteMarkerTtl"),
    "maxAge": ("duplicateWindow",),
    "mirror": _NOT_ON_MIRROR,
    "sources": ("allowMsgSchedules", "mirror"),
    "subjectDeleteMarkerTtl": ("allowMsgCounter", "allowMsgTtl", "allowRollupHdrs", "denyPurge", "mirror"),
    "subjects": ("mirror",),
}
"""Fields that the server will not have beside a field that is said."""


def merge_patch(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Spec:
    """RFC 7396 on two mappings; neither is changed."""
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = merge_patch(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def legal_defaults(kind: str, defaults: Spec, spec: Spec) -> Spec:
    """The defaults that make sense for a resource that says `spec` of itself."""
    if spec.get("state") == "absent":
        return {}
    if kind == "Consumer":
        unfit = _unfit_for_consumer(defaults, spec)
    elif kind == "Stream":
        unfit = _unfit_for_stream(defaults, spec)
    else:
        return defaults
    return {name: value for name, value in defaults.items() if name not in unfit or name in spec}


def _unfit_for_consumer(defaults: Spec, spec: Spec) -> set[str]:
    policy = spec.get("ackPolicy") or defaults.get("ackPolicy")
    unfit = set(PULL_ONLY) if spec.get("deliverSubject") else set(PUSH_ONLY)
    if policy == "flow_control":
        unfit.update(_NOT_ON_FLOW_CONTROL)
        most = defaults.get("maxAckPending")
        if isinstance(most, int) and most < 0:
            unfit.add("maxAckPending")
    elif policy == "none":
        unfit.update(("ackWait", "backoff", "maxAckPending"))
    backoff, often = spec.get("backoff"), defaults.get("maxDeliver")
    if backoff:
        unfit.add("ackWait")
    if isinstance(backoff, list) and isinstance(often, int) and 0 < often < len(backoff):
        unfit.add("maxDeliver")
    if spec.get("ackWait"):
        unfit.add("backoff")
    if spec.get("filterSubject") or spec.get("filterSubjects"):
        unfit.update(("filterSubject", "filterSubjects"))
    if spec.get("priorityPolicy") == "none":
        unfit.update(("priorityGroups", "priorityTimeout"))
    return unfit


def _unfit_for_stream(defaults: Spec, spec: Spec) -> set[str]:
    unfit = {default for field, contradicted in _CONTRADICTED_ON_STREAM.items() if spec.get(field) for default in contradicted}
    if (spec.get("discard") or defaults.get("discard")) != "new":
        unfit.add("discardNewPerSubject")
    if spec.get("storage") == "memory":
        unfit.add("persistMode")
    return unfit
