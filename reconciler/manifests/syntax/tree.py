"""YAML events of one document → its value, as a tree of plain values.

Invariant: no recursion over input, and nothing grows beyond the text by more than the alias budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.manifests.syntax.document import MAX_DEPTH, join_path
from reconciler.manifests.syntax.events import Mark, ParserEvent, YamlParser
from reconciler.manifests.syntax.scalars import Ambiguous, OutOfRange, resolve

Container = dict[str, object] | list[object]
Fault = Callable[[str, str, Mark, str], None]

_CORE = "tag:yaml.org,2002:"
_SCALAR_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}
_STRING_BYTES_PER_VALUE = 64


class _NoKey(str):
    """Stands where a mapping waits for its next key; compared by identity only."""

    __slots__ = ()


_NO_KEY = _NoKey()
_UNFINISHED = object()


class DocumentLost(Exception):
    """The rest of this document cannot be read; the fault was reported. The next document can."""


class AliasBudget:
    """How many values aliases may still add to a text; a long string counts for several."""

    def __init__(self, text_length: int) -> None:
        self.left = 10_000 + text_length // 8

    def spend(self, value: object) -> None:
        """Raises OverflowError once aliases have added too much."""
        self.left -= 1 + (len(value) // _STRING_BYTES_PER_VALUE if type(value) is str else 0)
        if self.left < 0:
            raise OverflowError


def _kind(event: object) -> type[object]:
    return type(event)


class TreeBuilder:
    """Builds one document; reports every fault and goes on where it can, its value then being of no use."""

    def __init__(self, fault: Fault, budget: AliasBudget) -> None:
        self._fault = fault
        self._budget = budget
        self._root: list[object] = []
        self._container: Container = self._root
        self._key: str = _NO_KEY
        self._stack: list[tuple[Container, str, str | None]] = []
        self._anchors: dict[str, object] = {}

    def build(self, parser: YamlParser) -> tuple[object, Mark]:
        """The value of the document that the parser has just started, and where it begins."""
        next_event = parser.get_event
        event = next_event()
        start = event.start_mark
        while (kind := _kind(event)) is not DocumentEndEvent:
            if kind is ScalarEvent:
                value = event.value if event.style and event.tag is None else self._scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value
                self._place(value, event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._open(event, {} if kind is MappingStartEvent else [])
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._close()
            elif kind is AliasEvent:
                self._place(self._expand(event), event)
            event = next_event()
        return self._root[0], start

    def _place(self, value: object, event: ParserEvent) -> None:
        container = self._container
        if isinstance(container, list):
            container.append(value)
        elif self._key is _NO_KEY:
            self._key = self._checked_key(value, event)
        else:
            container[self._key] = value
            self._key = _NO_KEY

    def _checked_key(self, key: object, event: ParserEvent) -> str:
        if type(key) is not str:
            written = f"*{event.anchor}" if _kind(event) is AliasEvent else event.value
            self._report("key-not-string", f'a key is a string: write "{written}" in quotes', event.start_mark)
            return written
        if key == "<<" and _kind(event) is ScalarEvent and not event.style:
            self._report("merge-key", "merge keys (<<) are not part of YAML 1.2: write the fields out", event.start_mark)
        elif key in self._container:
            self._report("duplicate-key", f'"{key}" is already set in this mapping', event.start_mark, key)
        return key

    def _open(self, event: ParserEvent, new: Container) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._lose("too-deep", f"more than {MAX_DEPTH} levels of nesting", event.start_mark)
        if type(self._container) is dict and self._key is _NO_KEY:
            self._report("key-not-string", "a key is a string, not a mapping or a list", event.start_mark)
            self._key = "?"
        own_tag = _CORE + ("map" if type(new) is dict else "seq")
        if event.tag is not None and event.tag not in (own_tag, "!"):
            self._report_tag(event.tag, event.start_mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = _UNFINISHED
        self._stack.append((self._container, self._key, event.anchor))
        self._container = new
        self._key = _NO_KEY

    def _close(self) -> None:
        done = self._container
        self._container, key, anchor = self._stack.pop()
        self._key = _NO_KEY
        if anchor is not None:
            self._anchors[anchor] = done
        if isinstance(self._container, list):
            self._container.append(done)
        else:
            self._container[key] = done

    def _expand(self, event: ParserEvent) -> object:
        name = event.anchor
        if name not in self._anchors:
            self._report("unknown-alias", f"no anchor &{name} before this alias in this document", event.start_mark)
            return None
        value = self._anchors[name]
        if value is _UNFINISHED:
            self._report("recursive-alias", f"*{name} stands inside what it refers to", event.start_mark)
            return None
        try:
            return self._copy(value, len(self._stack))
        except OverflowError:
            self._lose("alias-bomb", "aliases repeat too much: write it out, or split the file", event.start_mark)
        except RecursionError:
            self._lose("too-deep", f"more than {MAX_DEPTH} levels of nesting through *{name}", event.start_mark)

    def _copy(self, value: object, depth: int) -> object:
        self._budget.spend(value)
        if depth > MAX_DEPTH:
            raise RecursionError
        if type(value) is dict:
            return {key: self._copy(part, depth + 1) for key, part in value.items()}
        if type(value) is list:
            return [self._copy(part, depth + 1) for part in value]
        return value

    def _scalar(self, event: ParserEvent) -> object:
        tag = event.tag
        if tag is not None and tag in ("!", _CORE + "str"):
            return event.value
        if tag is not None and tag.removeprefix(_CORE) not in _SCALAR_TYPES:
            self._report_tag(tag, event.start_mark)
            return event.value
        try:
            value = resolve(event.value)
        except (Ambiguous, OutOfRange) as error:
            self._report(error.code, str(error), event.start_mark, event.value if self._key is _NO_KEY else None)
            return event.value
        if tag is not None and type(value) is not _SCALAR_TYPES[tag.removeprefix(_CORE)]:
            name = tag.removeprefix(_CORE)
            self._report("bad-tag", f'"{event.value}" is not a value of type !!{name}', event.start_mark)
        return value

    def _report_tag(self, tag: str, mark: Mark) -> None:
        written = tag.replace(_CORE, "!!")
        self._report("bad-tag", f"tag {written} is not known here: leave it out", mark)

    def _report(self, code: str, message: str, mark: Mark, key: str | None = None) -> None:
        self._fault(code, message, mark, self._path(key))

    def _lose(self, code: str, message: str, mark: Mark) -> NoReturn:
        self._report(code, message, mark)
        raise DocumentLost

    def _path(self, key: str | None) -> str:
        steps: list[str | int] = []
        for container, outer_key, _ in (*self._stack[1:], (self._container, self._key, None)):
            if type(container) is list:
                steps.append(len(container))
            elif outer_key is not _NO_KEY:
                steps.append(outer_key)
        if key is not None and type(self._container) is dict:
            steps.append(key)
        return join_path(steps)
