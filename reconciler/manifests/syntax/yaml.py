"""Strict YAML → documents, built straight from the parser's events; positions of fields only on demand.

Stock loaders keep the last of two equal keys, read `no` as False and follow aliases without end; here each is a problem.

Invariant: any bytes end in documents and problems, never in an exception, in time and memory linear in their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import yaml
from yaml.events import StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from reconciler.errors import Problem
from reconciler.manifests.syntax.document import MAX_PROBLEMS, Document, Parsed, Text, not_a_mapping
from reconciler.manifests.syntax.encoding import BOM, check_directives, check_encoding, check_size, document_marks
from reconciler.manifests.syntax.events import Mark, YamlParser, open_parser
from reconciler.manifests.syntax.tree import AliasBudget, DocumentLost, TreeBuilder
from reconciler.model.identity import Location

# A message quotes the input, and a key may be a megabyte long.
_LONGEST_MESSAGE = 300


class _TooManyProblems(Exception):
    """Reading on would only repeat itself."""


def parse_yaml(text: Text) -> Parsed:
    """Every document of a text that has no problem, and every problem of the others."""
    text = replace(text, data=text.data.removeprefix(BOM))
    problem = check_encoding(text) or check_size(text) or check_directives(text)
    if problem:
        return Parsed((), (problem,))
    return _Reader(text).read()


class _Reader:
    """Reads one text, starting anew behind each document that is lost to a syntax error."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._documents: list[Document] = []
        self._problems: list[Problem] = []
        self._budget = AliasBudget(len(text.data))
        self._line = text.line
        self._index = text.index

    def read(self) -> Parsed:
        offset: int | None = 0
        try:
            while offset is not None:
                begin = offset
                offset = self._read_from(begin)
        except _TooManyProblems:
            last = self._problems[-1]
            message = f"more than {MAX_PROBLEMS} problems; the rest of the file was not checked"
            self._problems.append(Problem(last.file, last.line, last.column, "too-many-problems", message))
        return Parsed(tuple(self._documents), tuple(self._problems))

    def _read_from(self, offset: int) -> int | None:
        """Reads documents from a byte offset on; where to go on behind a document that is lost, or None at the end."""
        data = self._text.data[offset:] if offset else self._text.data
        first_line = self._line
        start_line = 0
        try:
            parser = open_parser(data)
            parser.get_event()
            while True:
                event = parser.get_event()
                if isinstance(event, StreamEndEvent):
                    return None
                start_line = event.start_mark.line
                self._document(parser)
        except yaml.YAMLError as error:
            self._syntax_error(error, data)
        except DocumentLost:
            pass
        self._index += 1
        return self._next_document(data, start_line, offset, first_line)

    def _next_document(self, data: bytes, start_line: int, offset: int, first_line: int) -> int | None:
        position = 0
        for _ in range(start_line + 1):
            position = data.find(b"\n", position) + 1
            if position == 0:
                return None
        mark = next(document_marks(data, position), None)
        if mark is None:
            return None
        self._line = first_line + data.count(b"\n", 0, mark)
        return offset + mark

    def _document(self, parser: YamlParser) -> None:
        before = len(self._problems)
        value, mark = TreeBuilder(self._fault, self._budget).build(parser)
        location = Location(self._text.file, self._line + mark.line, self._index)
        self._index += 1
        if value is None or len(self._problems) > before:
            return
        if type(value) is not dict:
            self._fault("not-a-mapping", not_a_mapping(value), mark)
            return
        self._documents.append(Document(value, location, self._text))

    def _syntax_error(self, error: yaml.YAMLError, data: bytes) -> None:
        line, column, message = self._line, 1, str(error)
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            if mark:
                line, column = self._line + mark.line, mark.column + 1
            message = ", ".join(part for part in (error.context, error.problem) if part)
            if mark and _is_tab(data, mark):
                message = "a tab cannot indent YAML, use spaces"
        elif isinstance(error, ReaderError):
            message = error.reason
        self._append(Problem(self._text.file, line, column, "yaml-syntax", message))

    def _fault(self, code: str, message: str, mark: Mark, path: str = "") -> None:
        line, column = self._line + mark.line, mark.column + 1
        self._append(Problem(self._text.file, line, column, code, message[:_LONGEST_MESSAGE], path[:_LONGEST_MESSAGE]))

    def _append(self, problem: Problem) -> None:
        self._problems.append(problem)
        if len(self._problems) >= MAX_PROBLEMS:
            raise _TooManyProblems


def _is_tab(data: bytes, mark: Mark) -> bool:
    lines = data.split(b"\n", mark.line + 1)
    return mark.line < len(lines) and lines[mark.line].decode(errors="replace")[mark.column : mark.column + 1] == "\t"


def locate(document: Document, path: Sequence[str | int]) -> tuple[int, int]:
    """Line and column of a field, or of the nearest thing around it that is written down; parses that one document again."""
    line = document.location.line
    if document.text is None:
        return line, 1
    lines = document.text.data.split(b"\n", line - document.text.line)
    try:
        parser = open_parser(lines[-1])
        mark = _mark_of(parser.get_node(), path) if parser.check_node() else None
    except yaml.YAMLError:  # JSON with an escape that YAML does not know
        mark = None
    return (line + mark.line, mark.column + 1) if mark else (line, 1)


def _mark_of(node: Node | None, path: Sequence[str | int]) -> Mark | None:
    mark = node.start_mark if node else None
    for step in path:
        child = _child(node, step)
        if child is None:
            break
        mark, node = child
    return mark


def _child(node: Node | None, step: str | int) -> tuple[Mark, Node] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == step:
                return key.start_mark, value
    elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark, node.value[step]
    return None
