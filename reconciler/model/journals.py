"""What stands in a journal: the procedures that leave one, their steps, and the parts that each step cannot do without.

A journal is all that is left of a procedure whose process died, and whoever may write the resource may write it. One that goes on
where it makes no sense copies, or delivers, everything again.

Invariant: what a procedure of this version writes has its place in the table; what has none there was written by nobody we know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from reconciler.model import units
from reconciler.model.identity import Key

FILTER_ADD, RECREATE, RESTORE, MIGRATE = "filter-add", "recreate-consumer", "restore-consumer", "migrate-source"
PAUSE, CHECK, MOVE, RESUME, HOLD, DRAIN, ATTACH = "pause", "check", "move", "resume", "hold", "drain", "attach"

UNTIL = "until"
"""The deadline of the pause that the procedure has chosen."""
DUPLICATES = "duplicates"
"""How many messages the procedure is expected to deliver again: afterwards nobody can tell."""
STREAM = "stream"
"""The stream whose change a durable is caught up in."""
COPIED = "copied"
"""In `drain`: the last sequence that was copied, where the durable itself does not show it."""
ENTRY = "entry"
"""The entry that suits the durable as it is; nobody else knows it while a placeholder stands for it."""
LEFT = "left"
"""In `attach`: the entry that is given up; more may have been copied under it than was, when that seemed to rest."""
FROM, LEAST = "from", "least"
"""In `attach`: the ephemeral entry that is left, and up to where at least was copied under it."""
ORIGIN = "origin"
"""In `attach`: when the origin was made whose sequences these are."""
START = "start"
"""Where the consumer has to begin."""


def is_entry(found: object) -> TypeGuard[dict[str, Any]]:
    """Whether this can be an entry of a stream that copies."""
    if not isinstance(found, dict):
        return False
    texts = [found.get("name"), found.get("filter_subject", "")]
    for part, names in (("consumer", ("name", "deliver_subject")), ("external", ("api", "deliver"))):
        inner = found.get(part, {})
        texts += [inner.get(name, "") for name in names] if isinstance(inner, dict) else [None]
    transforms = found.get("subject_transforms", [])
    for one in transforms if isinstance(transforms, list) else [None]:
        texts += [one.get("src", ""), one.get("dest", "")] if isinstance(one, dict) else [None]
    return all(isinstance(text, str) for text in texts)


def _is_sequence(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= units.MAX_INT64


def _is_text(found: object) -> bool:
    return isinstance(found, str)


def _are_texts(found: object) -> bool:
    return isinstance(found, list) and all(map(_is_text, found))


def _is_entry_or_none(found: object) -> bool:
    return found is None or is_entry(found)


def _parses(read: Callable[[str], object]) -> Callable[[object], bool]:
    def check(found: object) -> bool:
        try:
            read(str(found))
        except (ValueError, OverflowError):
            return False
        return isinstance(found, str)

    return check


_PARTS: Mapping[str, Callable[[object], bool]] = {
    UNTIL: _parses(units.parse_time),
    DUPLICATES: _is_sequence,
    STREAM: _parses(Key.parse),
    COPIED: _is_sequence,
    ENTRY: _is_entry_or_none,
    LEFT: is_entry,
    FROM: _is_entry_or_none,
    LEAST: _is_sequence,
    START: _is_sequence,
    ORIGIN: _is_text,
    "made": lambda found: found is True,
    "added": _are_texts,
    "continues": _is_text,
    "consumer": _is_text,
    "created": _is_text,
}
"""What each part looks like, wherever it stands."""
_NEEDED: Mapping[str, Mapping[str, tuple[frozenset[str], ...]]] = {
    FILTER_ADD: {step: (frozenset({"added"}),) for step in (PAUSE, CHECK, RESUME)},
    RECREATE: {
        PAUSE: (frozenset({"added", "continues"}),),
        MOVE: (frozenset({START}),),
        RESUME: (frozenset({START}),),
        HOLD: (frozenset({"consumer"}),),
    },
    RESTORE: {MOVE: (frozenset({START}),), RESUME: (frozenset({START}),)},
    MIGRATE: {
        DRAIN: (frozenset({STREAM, ENTRY}),),
        ATTACH: (frozenset({STREAM, START}), frozenset({STREAM, FROM, LEAST})),
        RESUME: (frozenset({STREAM, ENTRY}),),
    },
}
"""What each step cannot do without; one of several sets, where it may find its way by either."""


def is_known(procedure: str) -> bool:
    """Whether this version leaves journals of this name."""
    return procedure in _NEEDED


def misfit(procedure: str, step: str, data: Mapping[str, Any]) -> str:
    """What in a journal makes no sense; empty where it does, and for a procedure that this version does not know."""
    if procedure not in _NEEDED:
        return ""
    if step not in _NEEDED[procedure]:
        return f"{procedure} has no step {step[:20]!r}"
    wrong = [name for name, looks_right in _PARTS.items() if name in data and not looks_right(data[name])]
    if wrong:
        return f"{wrong[0]!r} cannot be {repr(data[wrong[0]])[:40]}"
    ways = [sorted(needed - data.keys()) for needed in _NEEDED[procedure][step]]
    return f"{procedure} cannot go on from step {step!r} without {ways[0][0]!r}" if all(ways) else ""
