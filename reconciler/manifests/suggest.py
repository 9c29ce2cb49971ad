"""Finds what a misspelled word was most likely meant to be.

Invariant: a word of any length is answered in bounded time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

_LONGEST = 80
_FEW = 4


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` when one of the known words is close, else nothing."""
    return _suggested(word, tuple(known)) if word and len(word) <= _LONGEST else ""


def suggest_field(name: str, known: Iterable[str]) -> str:
    """The same for a field, or all there are, when they are few."""
    fields = tuple(known)
    few = f"; there is {', '.join(fields)}" if 0 < len(fields) <= _FEW else ""
    return suggest(name, fields) or few


@lru_cache(maxsize=256)  # the same mistake tends to be made in many documents
def _suggested(word: str, known: tuple[str, ...]) -> str:
    plain = {_plain(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.7)
    return f"; did you mean {plain[close[0]]}?" if close else ""


def _plain(word: str) -> str:
    """Without what people vary: `max_msgs_per_subject` and `MaxMsgsPerSubject` are the same word."""
    return word.replace("_", "").replace("-", "").lower()


def quoted(value: object) -> str:
    """A value as it can stand in a message: short, on one line, printable."""
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    short = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return "".join(char if char.isprintable() else "?" for char in short)
