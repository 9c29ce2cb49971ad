"""Refuses bytes that no parser should see: not UTF-8, control characters, endless lines and documents.

Invariant: every check is one linear pass of C code, so that 64 MiB of garbage is refused in well under a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.errors import Problem
from reconciler.manifests.syntax.document import MAX_DOCUMENT, Text

MAX_LINE = 1024 * 1024
_AFTER_MARK = (b"", b" ", b"\t", b"\r", b"\n")
BOM = b"\xef\xbb\xbf"
_CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r")) + b"\x7f"
_CONTROL_PATTERN = re.compile(b"[" + re.escape(_CONTROL) + b"]")
# Each %TAG makes libyaml search all others, for a feature that no manifest needs.
_UNKNOWN_DIRECTIVE = re.compile(rb"^%(?!YAML[ \t])", re.MULTILINE)
# YAML 1.1 takes U+0085, U+2028 and U+2029 for line breaks, YAML 1.2 and JSON do not.
_ODD_CHARACTER = re.compile("[\x80-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def document_marks(data: bytes, start: int = 0) -> Iterator[int]:
    """Offsets, from the start of a line on, of the lines `---`: by the grammar of YAML each starts a document wherever it is."""
    position = start
    while position >= 0:
        if data.startswith(b"---", position) and data[position + 3 : position + 4] in _AFTER_MARK:
            yield position
        newline = data.find(b"\n---", position)
        position = newline + 1 if newline >= 0 else -1


def check_encoding(text: Text) -> Problem | None:
    """The first character that cannot stand in a manifest, as a problem with its line and column."""
    data = text.data
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        hint = "; it looks like UTF-16, save it as UTF-8" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        return _at(text, error.start, "not-utf8", f"byte 0x{data[error.start]:02x} is not UTF-8{hint}")
    if len(data.translate(None, _CONTROL)) != len(data):
        found = _CONTROL_PATTERN.search(data)
        if found:
            message = f"control character 0x{found[0][0]:02x}; write it as an escape in double quotes"
            return _at(text, found.start(), "control-character", message)
    odd = None if decoded.isascii() else _ODD_CHARACTER.search(decoded)
    if odd:
        message = f"character U+{ord(odd[0]):04X}; write it as an escape in double quotes"
        return _at(text, len(decoded[: odd.start()].encode()), "control-character", message)
    return None


def check_size(text: Text) -> Problem | None:
    """The first line or document that is too long to be YAML written on purpose."""
    data = text.data
    if len(data) <= MAX_LINE:
        return None
    long_line = _first_longer(data, b"\n", MAX_LINE)
    if long_line is not None:
        return _at(text, long_line, "line-too-long", f"a line of more than {MAX_LINE} bytes")
    long_document = _first_longer(data, b"\n---", MAX_DOCUMENT)
    if long_document is not None:
        return _at(text, long_document, "document-too-long", f"a document of more than {MAX_DOCUMENT} bytes")
    return None


def check_directives(text: Text) -> Problem | None:
    """The first line that is a directive other than %YAML."""
    data = text.data
    found = _UNKNOWN_DIRECTIVE.search(data) if data.startswith(b"%") or b"\n%" in data else None
    if found is None:
        return None
    return _at(text, found.start(), "yaml-syntax", "a line cannot start with %, unless it is the %YAML directive")


def _first_longer(data: bytes, separator: bytes, limit: int) -> int | None:
    """Where the first part of more than `limit` bytes begins, in a few steps however many parts there are."""
    start = 0
    while len(data) - start > limit:
        end = data.rfind(separator, start, start + limit + len(separator))
        if end < 0:
            return start
        start = end + len(separator)
    return None


def _at(text: Text, offset: int, code: str, message: str) -> Problem:
    before = text.data[:offset]
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    return Problem(text.file, text.line + before.count(b"\n"), column, code, message)
