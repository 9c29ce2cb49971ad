"""What a plan is made of: changes, the fields they change, and the reasons why some may not be done.

Invariant: frozen values in a canonical order; the same inputs in any order give an equal Plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.model.identity import Key
from reconciler.model.seen.live import Server
from reconciler.procedures.machine import Description, Procedure
from reconciler.procedures.requests import Read


class Action(StrEnum):
    """What will be done; the decision table is in `plan.decide`."""

    CREATE = "create"
    UPDATE = "update"
    ADOPT = "adopt"
    PROCEDURE = "procedure"
    RECREATE = "recreate"
    DELETE = "delete"
    BLOCKED = "blocked"


class Cause(StrEnum):
    """Why there is a difference."""

    MANIFEST = "manifest"
    DRIFT = "drift"
    MISSING = "missing"
    PRUNE = "prune"
    UNKNOWN = "unknown"
    """It did not answer: not even whether there is a difference can be told."""


class Mass(StrEnum):
    """What too much may be wanted of."""

    REMOVED = "deleted or recreated"
    UPDATED = "updated"


class Wish(NamedTuple):
    """What manifests want of a resource that is ours, be it possible or not."""

    mass: Mass
    cause: Cause


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field that differs, in YAML names and YAML values."""

    path: str
    live: Any
    declared: Any


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change may not (or not simply) be done, and what would make it possible."""

    code: str
    message: str
    way_out: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f"; {self.way_out}" if self.way_out else "")


def not_seen(why: str, key: Key) -> Reason:
    """Something about `key` did not answer."""
    leaf = f"check that its leaf is connected, and that its domain is called {key.domain}"
    way_out = leaf if key.domain else "check that its servers are up, and that this user may read it"
    return Reason("unknown", why, f"{way_out}; then try again (a daemon does by itself)")


def suspended(key: Key) -> Reason:
    """Somebody wants it to be left alone, by its manifest or by a request to the daemon."""
    way_out = f"remove the annotation `reconciler/suspend` from its manifest, or, at a daemon, `reconciler resume {key}`"
    return Reason("suspended", "it differs, and is left alone", way_out)


def update_prevented() -> Reason:
    """Its manifest does not let it be changed."""
    way_out = "take `update` out of the annotation `reconciler/prevent` of its manifest (in NACK's language: `preventUpdate`)"
    return Reason("prevented", "its manifest prevents updates", way_out)


def delete_prevented() -> Reason:
    """Its manifest does not let it be removed."""
    way_out = "take `delete` out of the annotation `reconciler/prevent` of its manifest (in NACK's language: `preventDelete`)"
    return Reason("prevented", "its manifest prevents its removal", way_out)


@dataclass(frozen=True, slots=True)
class Author:
    """Who made the live state differ, as the API audit named it."""

    client: str
    user: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One resource that is not as declared, and what is to be done about it."""

    key: Key
    action: Action
    cause: Cause
    fields: tuple[FieldDiff, ...] = ()
    reasons: tuple[Reason, ...] = ()
    machine: Procedure | None = None
    """The step machine, where one request is not enough."""
    continues: bool = False
    """The machine goes on with what was begun before this plan."""
    touches: tuple[Key, ...] = ()
    gone: tuple[Key, ...] = ()
    """Durables that it reads through and that are not there: they are made again, and of itself nothing is missing for that."""
    needs: tuple[Key, ...] = ()
    """Other changes of this plan that must be in place before this one may begin (see `plan.subjects.handovers`)."""
    config: bytes = b""
    """What will be on the server: wire JSON, marker included. Empty for a delete."""
    live_config: bytes = b""
    """The normal form that was compared with (for the fingerprint)."""
    level: int = 0
    """The API level the change needs."""
    by: Author | None = None
    notes: tuple[str, ...] = ()
    """Worth telling beside it: duplicates, gaps, warnings."""
    wanted: Action | None = None
    """What a blocked change would have been."""

    def blocked(self, *reasons: Reason) -> Change:
        """The same, but it may not be done."""
        return replace(self, action=Action.BLOCKED, reasons=reasons, wanted=self.wanted or self.action, machine=None)

    @property
    def members(self) -> tuple[Key, ...]:
        """All it is about, as live keys: its own, and what it touches beside."""
        own = self.key.live_key
        return (own, *(key.live_key for key in self.touches)) if self.touches else (own,)

    @property
    def suspended(self) -> bool:
        """Left alone because its manifest says so: that is in nobody's way."""
        return self.action is Action.BLOCKED and all(reason.code == "suspended" for reason in self.reasons)

    @property
    def procedure(self) -> Description | None:
        """The procedure as the plan shows it."""
        return self.machine.describe() if self.machine else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the user asked for the plan."""

    owner: str = "default"
    policy: str = "upsert-only"
    """create-only, upsert-only or sync."""
    adopt: bool = False
    allow: frozenset[tuple[str, str]] = frozenset()
    """(what, key) pairs from --allow."""
    max_change_percent: int | None = None
    targets: frozenset[Key] = frozenset()
    take_from: frozenset[str] = frozenset()
    """Owners from whom targets are taken over."""

    def allows(self, what: str, key: Key) -> bool:
        """Whether `--allow what=key` was given."""
        return (what, str(key)) in self.allow


@dataclass(frozen=True, slots=True)
class Remembered:
    """What this process has seen before: it turns a wiped marker into drift, and a missing consumer into a gap."""

    owned: Mapping[Key, str] = field(default_factory=dict)
    """Keys that carried our marker in the last snapshot, with its spec digest."""
    floors: Mapping[Key, int] = field(default_factory=dict)
    """Ack floors (stream sequences) of consumers when last seen."""
    created: Mapping[Key, str] = field(default_factory=dict)
    """When streams, and consumers of ours, were made: another one of that name is neither ours nor has it that floor."""
    handed_over: Mapping[Key, tuple[str, tuple[Key, ...]]] = field(default_factory=dict)
    """Consumers that a plan lets give subjects up once others have taken them over: what was declared (its digest), and who."""
    wanted: Mapping[Mass, Collection[Key]] = field(default_factory=dict)
    """What plans of the last hour wanted, by live key; not what somebody approved."""


NO_MEMORY = Remembered()

SUMMARY = ("create", "update", "adopt", "procedure", "recreate", "delete", "blocked", "unchanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that would be done, in the order in which it would be done."""

    changes: tuple[Change, ...]
    unchanged: int
    """How many resources are as declared; what is unknown is not."""
    unknown: tuple[Key, ...] = ()
    """What nothing is known to differ of, because not all of it was seen."""
    left: tuple[Change, ...] = ()
    """What differs as well, and is left so: the policy does not cover it, or it was not asked for by `--target`."""
    refused: tuple[Reason, ...] = ()
    """Why the plan is refused: one that is applied as it is writes nothing."""
    stopped: Mapping[Mass, Reason] = field(default_factory=dict)
    """Of what too much is wanted, and the reason (one of `refused`): a daemon goes on with all the rest."""
    wanted: Mapping[Key, Wish] = field(default_factory=dict)
    """All that is wanted of what is ours, by live key."""
    approved: bool = False
    """Somebody has approved exactly this."""
    notes: tuple[str, ...] = ()
    """Worth telling, never a reason to stop."""
    fingerprint: str = ""
    server: Server = field(default_factory=Server)
    environment: str = ""
    rules: Rules = field(default_factory=Rules)
    faults: Mapping[Key, str] = field(default_factory=dict)
    """Keys that are blocked because something went wrong while they were planned, with the trace."""
    questions: frozenset[Read] = frozenset()
    """What must be read from the server before this plan is final; plan again with the answers in Live.facts."""

    @property
    def halted(self) -> tuple[Reason, ...]:
        """Why nothing at all may be written."""
        return tuple(reason for reason in self.refused if reason not in self.stopped.values())

    @property
    def summary(self) -> dict[str, int]:
        """How many changes of each action, and how many resources are as declared."""
        counts = dict.fromkeys(SUMMARY, 0)
        for change in self.changes:
            counts[change.action] += 1
        return counts | {"unchanged": self.unchanged}

    @property
    def blocked(self) -> tuple[Change, ...]:
        """The changes that may not be done."""
        return tuple(change for change in self.changes if change.action is Action.BLOCKED)

    @property
    def in_the_way(self) -> tuple[Change, ...]:
        """The blocked changes that a one-shot apply does not begin with; suspended ones are as somebody wants them."""
        return tuple(change for change in self.blocked if not change.suspended)
