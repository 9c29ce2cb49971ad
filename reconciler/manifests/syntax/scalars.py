"""Plain YAML scalars → values: the YAML 1.2 core schema, restricted to what YAML 1.1 readers understand in the same way.

Invariant: a plain scalar is resolved only when both versions agree on it; otherwise `Ambiguous` says what to write instead.
RFC 3339 timestamps stay strings, as they do in JSON.
"""

from __future__ import annotations

import math
import re

# Any other first character can only begin a string: most scalars of a manifest need a single set lookup.
_STARTS = frozenset("0123456789+-.~=tTfFnNyYoO")
_NUMBER_STARTS = frozenset("0123456789+-.")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("null", "Null", "NULL", "~"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_YAML11_TRUE = frozenset({"y", "yes", "on"})
_YAML11_FALSE = frozenset({"n", "no", "off"})
_LONGEST_WORD = 5
_LONGEST_INTEGER = len("-0x") + 20

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Each takes linear time: no part can take over what the part before it has matched.
_TEXT_TO_OTHERS = "a number to some readers and text to others"
_AMBIGUOUS = (
    (re.compile(r"[-+]?0[0-9][0-9_]*|0o[0-7]+"), "octal to some readers and decimal or text to others"),
    (re.compile(r"[-+]?0b[01_]+|[-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F_]+"), _TEXT_TO_OTHERS),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "a base-60 number to some readers and text to others"),
    (re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"), _TEXT_TO_OTHERS),
)


class Ambiguous(ValueError):
    """The scalar means different things to different YAML readers."""

    code = "ambiguous-scalar"


class OutOfRange(ValueError):
    """The number fits no 64-bit integer or is not finite."""

    code = "number-range"


def resolve(text: str) -> object:
    """The value of an unquoted scalar; raises Ambiguous or OutOfRange with a message that says what to write."""
    if not text:
        return None
    first = text[0]
    if first not in _STARTS:
        return text
    if first in _NUMBER_STARTS:
        return _number(text)
    if len(text) > _LONGEST_WORD:
        return text
    if text in _WORDS:
        return _WORDS[text]
    return _word(text)


def _word(text: str) -> str:
    lower = text.lower()
    if lower in _YAML11_TRUE or lower in _YAML11_FALSE:
        meant = "true" if lower in _YAML11_TRUE else "false"
        msg = f'{text} is a boolean to some YAML readers and text to others: write {meant}, or "{text}" in quotes'
        raise Ambiguous(msg)
    if text == "=":
        msg = 'a lone = has a meaning of its own in YAML 1.1: write "=" in quotes'
        raise Ambiguous(msg)
    return text


def _number(text: str) -> object:
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise OutOfRange(_too_large(text))
    if _NOT_FINITE.fullmatch(text):
        msg = f'{text} is not a finite number; write "{text}" in quotes if text is meant'
        raise OutOfRange(msg)
    for pattern, reading in _AMBIGUOUS:
        if pattern.fullmatch(text):
            msg = f'{_short(text)} is {reading}: write a plain decimal number, or "{_short(text)}" in quotes'
            raise Ambiguous(msg)
    return text


def _integer(text: str) -> int:
    # The length is checked first: converting a megabyte of digits takes quadratic time.
    if len(text) <= _LONGEST_INTEGER:
        value = int(text, 16) if text.startswith("0x") else int(text)
        if -(2**63) <= value < 2**64:
            return value
    raise OutOfRange(_too_large(text))


def _too_large(text: str) -> str:
    return f'{_short(text)} is outside the range of numbers; write "{_short(text)}" in quotes if text is meant'


def _short(text: str) -> str:
    limit = 40
    return text if len(text) <= limit else text[:limit] + "…"
