"""The state of every resource: how one is judged, and the document of them all (`render.status.text` is its table).

Invariant: what differs is never `Synced`, and what did not answer is `Unknown`, whatever else is known about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.model import units
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import API_VERSION, Key
from reconciler.model.kinds.common import State
from reconciler.model.normal import Config, digest, normal_consumer, normal_stream
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Plan
from reconciler.procedures.pause import resuming
from reconciler.render.plan.phrases import headline
from reconciler.render.values import printable

Json = dict[str, Any]


class Condition(StrEnum):
    """What a resource is found to be."""

    SYNCED = "Synced"
    OUT_OF_SYNC = "OutOfSync"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"
    ERROR = "Error"
    SUSPENDED = "Suspended"
    UNKNOWN = "Unknown"
    UNMANAGED = "Unmanaged"


SETTLED = frozenset({Condition.SYNCED, Condition.UNMANAGED, Condition.SUSPENDED})
"""Nothing more is going to happen by itself."""


class Judgement(NamedTuple):
    """What one resource is found to be, and what there is to say about it."""

    condition: Condition
    message: str = ""


SYNCED = Judgement(Condition.SYNCED)


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One line of the status."""

    key: Key
    condition: Condition
    message: str = ""
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class StatusView:
    """All that a status is made of."""

    found: tuple[ResourceStatus, ...]
    live: Live
    plan: Plan
    revision: str = ""
    """Of the manifests."""


def statuses(desired: Desired, live: Live, plan: Plan) -> tuple[ResourceStatus, ...]:
    """Every declared resource, and what is ours without being declared."""
    changes = {change.key: change for change in (*plan.left, *plan.changes)}
    keys = {**desired.resources, **desired.held_back, **changes}
    found = ((key, changes.get(key)) for key in keys)
    all_of_them = (ResourceStatus(key, *judged(desired, live, key, change), change) for key, change in found)
    return tuple(sorted(all_of_them, key=lambda status: status.key))


_LEFT = frozenset({"policy", "not-targeted"})
"""Nothing stands in the way of these: they were only not asked for."""


def judged(desired: Desired, live: Live, key: Key, change: Change | None) -> Judgement:
    """What this resource is, by what is live and by what a plan of everything found to be done about it."""
    declared = desired.resources.get(key)
    if key.kind != "WorkerPool" and (unknown := live.why_unknown(key)):
        return Judgement(Condition.UNKNOWN, unknown)
    if change is None:
        alone = _left_alone(desired, declared, key)
        return _held_still(declared, live, key) if alone is SYNCED and key.kind == "Consumer" else alone
    if any(reason.code == "suspended" for reason in change.reasons):
        return Judgement(Condition.SUSPENDED, _message(change))
    if declared is None and any(reason.code == "policy" for reason in change.reasons):
        return Judgement(Condition.UNMANAGED, f"no longer declared; {change.reasons[0].message} ({change.reasons[0].way_out})")
    seen = live.seen(key) if declared is not None and change.action is Action.PROCEDURE else None
    if seen is not None and (journal := seen.marker.journal) is not None:
        return Judgement(Condition.PROGRESSING, f"{journal.name}: {journal.step}")
    blocked = change.action is Action.BLOCKED and not any(reason.code in _LEFT for reason in change.reasons)
    return Judgement(Condition.BLOCKED if blocked else Condition.OUT_OF_SYNC, _message(change))


def _left_alone(desired: Desired, declared: Declared | None, key: Key) -> Judgement:
    """A resource with nothing to be done about it."""
    if key in desired.held_back:
        return Judgement(Condition.UNKNOWN, desired.held_back[key])
    if declared is not None and declared.intent.state is State.UNMANAGED:
        return Judgement(Condition.UNMANAGED)
    if declared is not None and declared.intent.suspend:
        return Judgement(Condition.SUSPENDED)
    return SYNCED


def _held_still(declared: Declared | None, live: Live, key: Key) -> Judgement:
    """A pause that nobody has declared is no difference, and yet the first thing to know of a consumer that delivers nothing."""
    seen = live.consumer(key)
    if seen is None or not is_paused(seen) or seen.marker.journal is not None or (declared and declared.intent.pause_until):
        return SYNCED
    until = seen.config.get("pause_until", "")
    return Judgement(Condition.SYNCED, f"paused until {until} by somebody; {resuming(key)} ends that")


def is_paused(consumer: LiveConsumer) -> bool:
    """Whether it delivers nothing for now."""
    return bool(consumer.info.get("paused"))


def remembered(live: Live, owner: str) -> tuple[ResourceStatus, ...]:
    """What is ours by its marker, compared with what was last applied: all there is to know without manifests."""
    found = []
    for key, stream in live.streams.items():
        if stream.owner == owner:
            found.append(_remembered(key.resource_key, stream, normal_stream(stream.config, key.name, live.server.level)))
        for name, consumer in live.consumers_of(key).items():
            if consumer.owner == owner and not (consumer.special and consumer.marker.source):  # that one is its stream's
                normal = normal_consumer(consumer.config, stream.limits or {})
                found.append(_remembered(Key("Consumer", name, key.name, key.domain), consumer, normal))
    found = [_unless_unknown(live, status) for status in found]
    shown = {status.key.live_key for status in found}
    silent = ((key.resource_key, reason) for key, reason in live.unknown.items() if key not in shown)
    found += [ResourceStatus(key, Condition.UNKNOWN, reason) for key, reason in silent]
    return tuple(sorted(found, key=lambda status: status.key))


def status_document(view: StatusView, leader: str | None, leader_unknown: str = "") -> Json:
    """The object `status --format json` prints; `leader_unknown`: why nobody can tell who leads."""
    live, plan = view.live, view.plan
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "owner": plan.rules.owner,
        "environment": plan.environment,
        "revision": view.revision,
        "leader": leader,
        "leaderUnknown": leader_unknown,
        "connected": True,
        "server": {"version": live.server.version, "apiLevel": live.server.level, "cluster": live.server.cluster},
        "lastPass": {
            "at": units.format_time(live.observed_at),
            "fingerprint": plan.fingerprint,
            "changes": len(plan.changes),
            "refused": [str(reason) for reason in plan.refused],
        },
        "summary": _summary(view.found),
        "resources": [_resource(status) for status in view.found],
        "sources": [],
        "pools": [],
        "procedures": [_procedure(status) for status in view.found if status.condition is Condition.PROGRESSING],
    }


def _unless_unknown(live: Live, status: ResourceStatus) -> ResourceStatus:
    """The same, or that not all of it was seen."""
    unknown = live.why_unknown(status.key)
    return ResourceStatus(status.key, Condition.UNKNOWN, unknown) if unknown else status


def _remembered(key: Key, seen: LiveStream | LiveConsumer, normal: Config) -> ResourceStatus:
    marker = seen.marker
    if marker.journal is not None:
        return ResourceStatus(key, Condition.PROGRESSING, f"{marker.journal.name}: {marker.journal.step}")
    stood_for = {row.field: row.declared for row in marker.residue}
    declared = {name: value for name, value in (normal | stood_for).items() if value is not None}
    if seen.spec in (seen.digest, digest(declared)):
        return ResourceStatus(key, Condition.SYNCED)
    return ResourceStatus(key, Condition.OUT_OF_SYNC, "differs from what was last applied; `status -f` says in what")


def _message(change: Change) -> str:
    reasons = "; ".join(printable(str(reason)) for reason in change.reasons)
    paths = ", ".join(printable(diff.path) for diff in change.fields)
    return ": ".join(part for part in (headline(change), reasons or paths) if part)


def _summary(found: tuple[ResourceStatus, ...]) -> dict[str, int]:
    counts = Counter(status.condition for status in found)
    return {condition.value: counts[condition] for condition in Condition}


def _resource(status: ResourceStatus) -> Json:
    return {
        "key": str(status.key),
        "state": status.condition.value,
        "message": status.message,
        "since": None,
        "lastDrift": _drift(status.change),
    }


def _drift(change: Change | None) -> Json | None:
    if change is None or change.cause is not Cause.DRIFT:
        return None
    author = {"at": change.by.at, "client": change.by.client, "user": change.by.user} if change.by else {}
    fields = [diff.path for diff in change.fields]
    return {"at": None, "client": None, "user": None, **author, "fields": fields, "changes": values_of(change.fields)}


def values_of(differing: Iterable[FieldDiff]) -> list[Json]:
    """What was declared, and what somebody made of it."""
    return [{"field": diff.path, "declared": diff.declared, "live": diff.live} for diff in differing]


def _procedure(status: ResourceStatus) -> Json:
    return {"key": str(status.key), "message": status.message}
