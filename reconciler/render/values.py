"""Single values on one line, as they would be written in a manifest.

Invariant: what comes from a server can neither break the line nor reach the terminal as a control sequence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reconciler.model import units

_PLAIN = re.compile(r"[A-Za-z_$/][\w$*>./@+=~%µ: -]*|(?!0[xob])(?:\d+[A-Za-zµ]+)+")
"""Words, subjects and quantities such as 1h30m; whatever else begins with a digit or a sign could be read as something else."""
_NOT_TEXT = re.compile(r"(?i:true|false|null|yes|no|on|off|y|n)")
ABSENT = "(none)"
ANOTHER = "another client"
"""Who did something that was not us, where nobody knows more."""
_BYTE, _BMP = 0xFF, 0xFFFF


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ago(moment: str, now: int) -> str:
    """`12 s ago`, `3 h ago`; another clock may be a little ahead of ours."""
    seconds = max(0, now - units.parse_time(moment)) // units.SECOND
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def printable(text: str) -> str:
    """The text itself, or quoted with escapes when it holds something that does not print."""
    return text if text.isprintable() else _quoted(text)


def named(client: str, user: str) -> str:
    """`nats CLI (user app)`; empty where nobody knows."""
    by = f" (user {printable(user)})" if user else ""
    return f"{printable(client) or 'an unnamed client'}{by}" if client or by else ""


def show(value: Any) -> str:  # noqa: ANN401 - plain YAML values
    """A value in YAML's flow style; None is said in words."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_string(str(name))}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)


def _string(text: str) -> str:
    plain = text.isprintable() and _PLAIN.fullmatch(text) and not _NOT_TEXT.fullmatch(text)
    if plain and not text.endswith((" ", ":")) and ": " not in text:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    """As YAML writes it in double quotes."""
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    if character == "\n":
        return "\\n"
    number = ord(character)
    return f"\\x{number:02x}" if number <= _BYTE else f"\\u{number:04x}" if number <= _BMP else f"\\U{number:08x}"
