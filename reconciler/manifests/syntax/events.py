"""The one place that knows which YAML parser is there: libyaml, or PyYAML's own, many times slower.

Invariant: both give the same events, so what is refused does not depend on how PyYAML was built.
"""

from __future__ import annotations

from typing import Protocol, cast

from yaml.composer import Composer
from yaml.nodes import Node
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

try:
    from yaml import cyaml
except ImportError:
    cyaml = None  # type: ignore[assignment]


class Mark(Protocol):
    """A position in a text, counted from 0."""

    line: int
    column: int


class ParserEvent(Protocol):
    """What the events of a parser have in common; only scalars have a value and a style, only nodes an anchor."""

    start_mark: Mark
    anchor: str | None
    tag: str | None
    value: str
    style: str | None


class YamlParser(Protocol):
    """A pull parser over the bytes of a text: take either events or nodes from it."""

    def __init__(self, data: bytes) -> None: ...

    def get_event(self) -> ParserEvent:
        """The next event."""

    def check_node(self) -> bool:
        """Whether another document follows."""

    def get_node(self) -> Node | None:
        """The root node of the next document."""


class _Untyped:
    """Leaves every scalar a string: what it means is decided elsewhere, and positions need no types."""

    def resolve(self, *_: object) -> str:
        return ""

    def descend_resolver(self, *_: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


class PurePythonParser(_Untyped, Reader, Scanner, Parser, Composer):
    """What remains where libyaml is missing."""

    def __init__(self, data: bytes) -> None:
        Reader.__init__(self, data)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)


def _fastest() -> type[YamlParser]:
    if cyaml is None:
        return cast("type[YamlParser]", PurePythonParser)
    return cast("type[YamlParser]", type("LibyamlParser", (_Untyped, cyaml.CParser), {}))  # type: ignore[attr-defined]


open_parser = _fastest()
