"""The state of every resource, as a document and as a table.

Invariant: what differs is never `Synced`, and what did not answer is `Unknown`, whatever else is known about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.text import Text

from reconciler.model import units
from reconciler.model.common import State
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import API_VERSION, Key
from reconciler.model.live import Live, LiveConsumer, LiveStream
from reconciler.model.normal import Config, digest, normal_consumer, normal_stream
from reconciler.plan.change import Action, Cause, Change, Plan
from reconciler.render.phrases import headline
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


_STYLES = {
    Condition.SYNCED: "green",
    Condition.OUT_OF_SYNC: "yellow",
    Condition.PROGRESSING: "magenta",
    Condition.BLOCKED: "bold red",
    Condition.ERROR: "bold red",
    Condition.SUSPENDED: "cyan",
    Condition.UNKNOWN: "yellow",
    Condition.UNMANAGED: "dim",
}
SETTLED = frozenset({Condition.SYNCED, Condition.UNMANAGED, Condition.SUSPENDED})
"""Nothing more is going to happen by itself."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One line of the status."""

    key: Key
    condition: Condition
    message: str = ""
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that a status is made of."""

    found: tuple[ResourceStatus, ...]
    live: Live
    plan: Plan
    revision: str = ""
    """Of the manifests."""


def statuses(desired: Desired, live: Live, plan: Plan) -> tuple[ResourceStatus, ...]:
    """Every declared resource, and what is ours without being declared."""
    changes = {change.key: change for change in plan.changes}
    found = [_declared(declared, live, changes.pop(declared.key, None)) for declared in desired.resources.values()]
    found += [ResourceStatus(key, _condition(change), _message(change), change) for key, change in changes.items()]
    return tuple(sorted(found, key=lambda status: status.key))


def remembered(live: Live, owner: str) -> tuple[ResourceStatus, ...]:
    """What is ours by its marker, compared with what was last applied: all there is to know without manifests."""
    found = []
    for key, stream in live.streams.items():
        if stream.owner == owner:
            found.append(_remembered(key.resource_key, stream, normal_stream(stream.config, key.name, live.server.level)))
        for name, consumer in live.consumers_of(key).items():
            if consumer.owner == owner:
                normal = normal_consumer(consumer.config, stream.limits or {})
                found.append(_remembered(Key("Consumer", name, key.name, key.domain), consumer, normal))
    found += [ResourceStatus(key, Condition.UNKNOWN, reason) for key, reason in live.unknown.items()]
    return tuple(sorted(found, key=lambda status: status.key))


def status_document(view: View, leader: str | None) -> Json:
    """The object `status --format json` prints."""
    live, plan = view.live, view.plan
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "owner": plan.rules.owner,
        "environment": plan.environment,
        "revision": view.revision,
        "leader": leader,
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


def status_lines(found: tuple[ResourceStatus, ...]) -> Iterator[Text]:
    """A table, worst news marked, and the sum in the last line."""
    width = max((len(printable(str(status.key))) for status in found), default=0)
    for status in found:
        line = Text.assemble(
            (f"{status.condition.value:<11}", _STYLES[status.condition]), f"  {printable(str(status.key)):<{width}}"
        )
        if status.message:
            line.append(f"  {status.message}", style="dim")
        line.rstrip()
        yield line
    yield Text()
    yield Text(
        "Status: " + (", ".join(f"{count} {name}" for name, count in _summary(found).items() if count) or "nothing declared")
    )


def _remembered(key: Key, seen: LiveStream | LiveConsumer, normal: Config) -> ResourceStatus:
    marker = seen.marker
    if marker.journal is not None:
        return ResourceStatus(key, Condition.PROGRESSING, f"{marker.journal.name}: {marker.journal.step}")
    stood_for = {row.field: row.declared for row in marker.residue}
    declared = {name: value for name, value in (normal | stood_for).items() if value is not None}
    if seen.spec in (seen.digest, digest(declared)):
        return ResourceStatus(key, Condition.SYNCED)
    return ResourceStatus(key, Condition.OUT_OF_SYNC, "differs from what was last applied; `status -f` says in what")


def _declared(declared: Declared, live: Live, change: Change | None) -> ResourceStatus:
    key = declared.key
    unknown = live.why_unknown(key)
    if unknown:
        return ResourceStatus(key, Condition.UNKNOWN, unknown, change)
    if change is None and declared.intent.state is State.UNMANAGED:
        return ResourceStatus(key, Condition.UNMANAGED)
    if declared.intent.suspend and (change is None or any(reason.code == "suspended" for reason in change.reasons)):
        return ResourceStatus(key, Condition.SUSPENDED, _message(change) if change else "", change)
    if change is None:
        return ResourceStatus(key, Condition.SYNCED)
    seen = live.seen(key)
    if seen is not None and seen.marker.journal is not None and change.action is Action.PROCEDURE:
        return ResourceStatus(key, Condition.PROGRESSING, f"{seen.marker.journal.name}: {seen.marker.journal.step}", change)
    return ResourceStatus(key, _condition(change), _message(change), change)


def _condition(change: Change) -> Condition:
    return Condition.BLOCKED if change.action is Action.BLOCKED else Condition.OUT_OF_SYNC


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
    return {"at": None, "client": None, "user": None, **author, "fields": [diff.path for diff in change.fields]}


def _procedure(status: ResourceStatus) -> Json:
    return {"key": str(status.key), "message": status.message}
