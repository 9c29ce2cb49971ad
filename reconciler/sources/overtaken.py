"""What a durable that gets more filters has passed: nobody would copy what is stored for them behind its position.

How far it will have come is only known when it rests. So the plan looks at how far it is, and the migration once more, before it
changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reconciler.model import subjects
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.model.normal import EVERYTHING
from reconciler.plan.losses import uncovered
from reconciler.procedures.requests import Fact, Message, NextMessage, Read, StreamInfo

_COUNTABLE = 16
"""More subjects than that are not looked at one by one."""
WAY_OUT = "add an entry with a consumer of its own for them, or accept it with `reconciler/allow: position-loss`"


def spelled(filters: Iterable[str], everything: tuple[str, ...]) -> tuple[str, ...]:
    """Filters with what everything means spelled out."""
    return tuple(one for one in filters if one != EVERYTHING) or everything


def selected(config: Mapping[str, Any], everything: tuple[str, ...]) -> tuple[str, ...]:
    """What a durable delivers of an origin that listens to all of this."""
    return spelled(filters_of(config), everything)


def overtaken(
    origin: Key, before: tuple[str, ...], after: tuple[str, ...], position: int, answer: Callable[[Read], Fact | None]
) -> Iterator[str]:
    """What is stored up to there under the filters that are added, and was not copied so far, in words."""
    for added in uncovered(list(after), list(before)):
        info = answer(StreamInfo(origin, added))
        stored = info["state"].get("subjects") or {} if isinstance(info, dict) else {}
        anew = [one for one in stored if not subjects.covered(one, before)]
        for one in anew if len(anew) <= _COUNTABLE else [added]:
            found = answer(NextMessage(origin, one, 1))
            if isinstance(found, Message) and found.seq <= position:
                behind = f"from sequence {found.seq:,} to {position:,}"
                yield f"messages on {one} {behind} would not be copied: the position has passed them"
