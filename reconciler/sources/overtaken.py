"""What a durable that gets more filters has passed: nobody would copy what is stored for them behind its position.

How far it will have come is only known when it rests. So the plan looks at how far it is, and the migration once more, before it
changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.model import subjects
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.model.normal import EVERYTHING, Config
from reconciler.model.sourcing import identity_of
from reconciler.plan.losses import uncovered
from reconciler.procedures.requests import Copied, Fact, LastCopied, Message, NextMessage, Read, StreamInfo

_COUNTABLE = 16
"""More subjects than that are not looked at one by one."""
WAY_OUT = "add an entry with a consumer of its own for them, or accept it with `reconciler/allow: position-loss`"


def spelled(filters: Iterable[str], everything: tuple[str, ...]) -> tuple[str, ...]:
    """Filters with what everything means spelled out."""
    return tuple(one for one in filters if one != EVERYTHING) or everything


def selected(config: Mapping[str, Any], everything: tuple[str, ...]) -> tuple[str, ...]:
    """What a durable delivers of an origin that listens to all of this."""
    return spelled(filters_of(config), everything)


@dataclass(frozen=True, slots=True)
class Widened:
    """An entry whose durable is to deliver more than it does."""

    aggregate: Key
    entry: Config
    origin: Key
    before: tuple[str, ...]
    after: tuple[str, ...]

    def copied(self, subject: str) -> LastCopied | None:
        """What shows that the subject was copied once, in order, up to some message; None where copies have other subjects."""
        if self.entry.get("subject_transforms"):
            return None
        return LastCopied(self.aggregate, identity_of(self.entry), subject=subject)


def overtaken(widened: Widened, position: int, answer: Callable[[Read], Fact | None]) -> Iterator[str]:
    """What is stored up to there under the filters that are added, and was not copied so far, in words."""
    before, after, origin = widened.before, widened.after, widened.origin
    for added in uncovered(list(after), list(before)):
        info = answer(StreamInfo(origin, added))
        stored = info["state"].get("subjects") or {} if isinstance(info, dict) else {}
        anew = [one for one in stored if not subjects.covered(one, before)]
        for one in anew if len(anew) <= _COUNTABLE else [added]:
            read = widened.copied(one) if one in stored else None
            copied = answer(read) if read else None
            found = answer(NextMessage(origin, one, copied.seq + 1 if isinstance(copied, Copied) else 1))
            if isinstance(found, Message) and found.seq <= position:
                behind = f"from sequence {found.seq:,} to {position:,}"
                yield f"messages on {one} {behind} would not be copied: the position has passed them"
