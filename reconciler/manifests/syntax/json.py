"""Strict JSON → one document, by orjson.

Invariant: a text that this module accepts means the same as YAML; equal keys, which orjson drops in silence, are found.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import orjson

from reconciler.errors import Problem
from reconciler.manifests.syntax.document import MAX_DEPTH, MAX_DOCUMENT, Document, Parsed, Text, not_a_mapping
from reconciler.manifests.syntax.encoding import BOM, check_encoding
from reconciler.manifests.syntax.yaml import parse_yaml
from reconciler.model.identity import Location

# Every key of a text matches, and what an escaped quote in a string makes match only costs the slow check.
_KEY = re.compile(rb'"[ \t\r\n]*:')
_INTEGERS_END = 2.0**63


def looks_like_json(data: bytes) -> bool:
    """Whether it is worth handing these bytes to a JSON parser first."""
    return data.removeprefix(BOM).lstrip()[:1] in (b"{", b"[")


def parse_json(text: Text) -> Parsed:
    """The document of a JSON text, or what is wrong with it."""
    data = text.data.removeprefix(BOM)
    if len(data) > MAX_DOCUMENT:
        message = f"a document of {len(data)} bytes; the limit is {MAX_DOCUMENT}"
        return Parsed((), (Problem(text.file, text.line, 1, "document-too-long", message),))
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        syntax = Problem(text.file, text.line + error.lineno - 1, error.colno, "json-syntax", error.msg)
        return Parsed((), (check_encoding(text) or syntax,))
    start = Location(text.file, text.line + data.count(b"\n", 0, len(data) - len(data.lstrip())), text.index)
    text = replace(text, data=data)
    problem = _problem_in(value, text, start)
    return Parsed((), (problem,)) if problem else Parsed((Document(value, start, text),), ())


def _problem_in(value: object, text: Text, start: Location) -> Problem | None:
    def problem(code: str, message: str) -> Problem:
        return Problem(start.file, start.line, 1, code, message)

    if type(value) is not dict:
        return problem("not-a-mapping", not_a_mapping(value))
    keys = 0
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for container in level:
            if type(container) is dict:
                keys += len(container)
                below += container.values()
            elif type(container) is list:
                below += container
            elif type(container) is float and abs(container) >= _INTEGERS_END:
                return problem("number-range", f"{container} is outside the range of numbers")
        level = below
        if not level:
            break
    else:
        return problem("too-deep", f"more than {MAX_DEPTH} levels of nesting")
    return _duplicate_key(text, start) if keys != len(_KEY.findall(text.data)) else None


def _duplicate_key(text: Text, start: Location) -> Problem | None:
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                twice.append(key)
            seen.add(key)

    # Numbers stay strings: Python refuses to convert a very long one.
    json.loads(text.data, object_pairs_hook=note, parse_int=str, parse_float=str)
    if not twice:
        return None
    # JSON is YAML, and that parser knows positions.
    for problem in parse_yaml(text).problems:
        if problem.code == "duplicate-key":
            return problem
    return Problem(start.file, start.line, 1, "duplicate-key", f'"{twice[0]}" is already set in this mapping')
