"""Every way in which an update can set, unset, raise or lower a field, with values that hurt if any can.

Invariant: the fields are those of `field_cases`, which are those of the product's tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from reconciler.model.identity import Kind
from tests.support.values.field_cases import ABSENT, CONSUMER_CASES, STREAM_CASES, STREAM_ONE_WAY, Case, named

RETENTIONS = ("limits", "interest", "workqueue")
SHARP: dict[str, tuple[Any, ...]] = {
    "retention": (),
    "max_age": ("300ms",),
    "max_msgs": (3,),
    "max_bytes": (300,),
    "max_msgs_per_subject": (1,),
    "max_msg_size": (1,),
    "max_consumers": (1,),
    "duplicate_window": ("100ms",),
    "first_seq": (100,),
    "consumer_limits": ({"maxAckPending": 1}, {"inactiveThreshold": "300ms"}),
    "subjects": (["{name}.c"],),
    "ack_wait": ("100ms",),
    "max_deliver": (1, 2),
    "backoff": (["100ms"],),
    "filter_subjects": (["{name}.c"],),
    "max_ack_pending": (1,),
    "max_batch": (1,),
    "max_expires": ("1ms",),
    "inactive_threshold": ("300ms",),
}
"""In YAML; beside what the case of the field says."""
_ONE_WAY = {"deny_delete": "denyDelete", "deny_purge": "denyPurge", "sealed": "sealed", "allow_msg_ttl": "allowMsgTtl"}
_ELSEWHERE = frozenset(
    "filter_subject metadata placement sources mirror_direct num_replicas deliver_subject rate_limit_bps deliver_group "
    "priority_groups priority_policy priority_timeout".split()
)
"""What takes a cluster, another stream, or another kind of reader, and has tests of its own where it can lose anything."""


@dataclass(frozen=True)
class Step:
    """One update of one field, in YAML."""

    kind: Kind
    wire: str
    retention: str
    before: Any
    after: Any
    beside: Any
    path: str
    level: int

    def __str__(self) -> str:
        words = ["unset" if value is ABSENT else str(value) for value in (self.before, self.after)]
        return f"{self.kind} {self.wire} {' → '.join(words)} on {self.retention}"

    def spec(self, name: str, *, after: bool) -> dict[str, Any]:
        """What a manifest says of the resource, before or after."""
        value = self.after if after else self.before
        said = {} if value is ABSENT else {self.path: value}
        spec: dict[str, Any] = named({**self.beside, **said}, name)
        return spec


def steps() -> Iterator[Step]:
    """All of them."""
    both: tuple[tuple[Kind, tuple[Case, ...]], ...] = (("Stream", STREAM_CASES), ("Consumer", CONSUMER_CASES))
    for kind, cases in both:
        for case, retention in product(cases, RETENTIONS):
            if case.wire not in _ELSEWHERE and (case.wire in SHARP or retention == _one_for(case.wire)):
                yield from _of(kind, case, retention)
    for wire, path in _ONE_WAY.items():
        retention = _one_for(wire)
        yield Step("Stream", wire, retention, ABSENT, True, {}, path, 1 if wire == "allow_msg_ttl" else 0)
    assert _ONE_WAY.keys() <= STREAM_ONE_WAY


def _one_for(wire: str) -> str:
    """What no value of can hurt by its size is tried on one retention, another one for each field."""
    return RETENTIONS[sum(wire.encode()) % len(RETENTIONS)]


def _of(kind: Kind, case: Case, retention: str) -> Iterator[Step]:
    path = case.said
    values = [ABSENT, case.ours, *SHARP.get(case.wire, ())]
    if case.default is ABSENT:
        values.remove(ABSENT)
    for before, after in product(values, values):
        if before is not after:
            yield Step(kind, case.wire, retention, before, after, case.beside, path, case.level)
