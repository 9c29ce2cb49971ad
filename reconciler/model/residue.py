"""What a procedure had to leave different for good, and which of such differences there can be.

| of | field | what is live | stands for |
|---|---|---|---|
| consumer | `deliver_policy`, `opt_start_seq`, `opt_start_time` | a start by sequence | another start |
| stream | `sources`, one entry each | the same, but for its start, a subject nobody uses, or a longer durable name | an entry |

Invariant: whoever writes a mark hides no difference with it that an update could repair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.model.units import MAX_INT64

SOURCES = "sources"
"""Residue of this field is about one entry each."""
UNUSED = "_reconciler.from."
"""Begins the subject of a transform that only serves to tell one ephemeral entry from another."""
BY_SEQUENCE = "by_start_sequence"
_STARTS = (None, "all", "last", "new", BY_SEQUENCE, "by_start_time", "last_per_subject")
RENAMED = re.compile(r"(?:-(?:[0-9a-f]{8}){1,2})+$")
"""What ends the name of a durable whose origin was made anew."""
_VARIED = frozenset({"filter_subject", "subject_transforms", "opt_start_seq", "opt_start_time", "consumer"})


@dataclass(frozen=True, slots=True)
class Residue:
    """A difference that a procedure had to leave for good: `live` stands for `declared` until the manifest changes."""

    field: str
    live: Any
    declared: Any

    @property
    def in_shape(self) -> bool:
        """Whether a procedure could have left it."""
        match self.field:
            case "deliver_policy":
                return self.live == BY_SEQUENCE and self.declared in _STARTS
            case "opt_start_seq":
                return _is_sequence(self.live) and (self.declared is None or _is_sequence(self.declared))
            case "opt_start_time":
                return self.live is None and isinstance(self.declared, str)
            case "sources":
                return isinstance(self.live, dict) and isinstance(self.declared, dict) and _varied(self.live, self.declared)
        return False


def _is_sequence(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_INT64


def _varied(live: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether one entry copies what the other one does."""
    plain = all(live.get(name) == declared.get(name) for name in {*live, *declared} - _VARIED)
    start = live.get("opt_start_seq")
    starts = "opt_start_time" not in live or live["opt_start_time"] == declared.get("opt_start_time")
    return plain and starts and (start is None or _is_sequence(start)) and _same_durable(live, declared) and _same(live, declared)


def _same_durable(live: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    one, other = live.get("consumer"), declared.get("consumer")
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is None and other is None
    name, said = one.get("name"), other.get("name")
    if not isinstance(name, str) or not isinstance(said, str) or {**one, "name": said} != other:
        return False
    return name == said or bool(name.startswith(said) and RENAMED.fullmatch(name.removeprefix(said)))


def _same(live: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether they select the same, but for what nobody uses; an entry without filters may have had them spelled out."""
    if live.get("filter_subject") == declared.get("filter_subject") and "subject_transforms" not in live:
        return "subject_transforms" not in declared
    transforms = live.get("subject_transforms")
    if "filter_subject" in live or not isinstance(transforms, list) or not all(isinstance(one, dict) for one in transforms):
        return False
    own = [one for one in transforms if not str(one.get("src", "")).startswith(UNUSED)]
    if said := declared.get("subject_transforms"):
        return bool(own == said)
    spelled = all(one.keys() == {"src", "dest"} and one["src"] == one["dest"] for one in own)
    return spelled and ("filter_subject" not in declared or [one["src"] for one in own] == [declared["filter_subject"]])
