"""The mutants as they are kept: one file for each subject, one table for each mistake.

Invariant: a mutant is only ever made where it says it belongs, once, and it changes what the code does.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

KEYS = ("name", "file", "place", "from", "to", "killers")


class BadData(Exception):
    """A mutant that cannot be made, so that nobody may call it killed."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake."""

    subject: str
    name: str
    """What breaks in the domain, as a sentence."""
    file: str
    place: str
    """The function, `Class.method` or name at the top of the file in which `before` stands exactly once."""
    before: str
    after: str
    killers: tuple[str, ...]
    """What pytest is given: files or tests, one of which has to fail."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.name}"

    def made_in(self, source: str) -> str:
        """The source with this mistake in it."""
        start, end = self._lines(source)
        lines = source.splitlines(keepends=True)
        text = "".join(lines[start:end])
        times = text.count(self.before)
        if times != 1:
            self._refuse(f"what it changes stands there {times} times, not once")
        changed = "".join([*lines[:start], text.replace(self.before, self.after), *lines[end:]])
        try:
            same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
        except SyntaxError as error:
            self._refuse(f"what it makes is no Python: {error.msg}")
        if same:
            self._refuse("it changes nothing")
        return changed

    def _lines(self, source: str) -> tuple[int, int]:
        """Where its place begins, and where it has ended, counted from 0."""
        found = [node for name, node in _places(ast.parse(source).body) if name == self.place]
        if len(found) != 1:
            self._refuse("its place is gone" if not found else f"there are {len(found)} places of that name")
        (node,) = found
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        return first - 1, node.end_lineno or node.lineno

    def _refuse(self, why: str) -> NoReturn:
        msg = f"{self} ({self.place} in {self.file}): {why}"
        raise BadData(msg)


def _places(body: Iterable[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Everything that has a name, by that name."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield inside + node.name, node
            case ast.ClassDef():
                yield inside + node.name, node
                yield from _places(node.body, f"{inside}{node.name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield inside + name, node


def load(folder: Path) -> tuple[Mutant, ...]:
    """All that are kept in a folder, subject by subject."""
    mutants = tuple(mutant for path in sorted(folder.glob("*.toml")) for mutant in _of_file(path))
    if not mutants:
        msg = f"there are no mutants in {folder}"
        raise BadData(msg)
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"two mutants have one name: {', '.join(twice)}"
        raise BadData(msg)
    return mutants


def _of_file(path: Path) -> Iterator[Mutant]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        msg = f"{path.name}: {error}"
        raise BadData(msg) from error
    tables = document.pop("mutant", [])
    if document or not isinstance(tables, list):
        msg = f"{path.name}: only [[mutant]] tables belong there"
        raise BadData(msg)
    for number, table in enumerate(tables, 1):
        yield _of_table(path, f"{path.name}, mutant {number}", table)


def _of_table(path: Path, where: str, table: dict[str, Any]) -> Mutant:
    if sorted(table) != sorted(KEYS):
        msg = f"{where}: it has {', '.join(sorted(table))}, and not {', '.join(sorted(KEYS))}"
        raise BadData(msg)
    killers = table["killers"]
    texts = all(isinstance(table[key], str) for key in KEYS if key != "killers")
    if not texts or not isinstance(killers, list) or not killers or not all(isinstance(one, str) for one in killers):
        msg = f"{where}: `killers` is a list of at least one text, and everything else a text"
        raise BadData(msg)
    return Mutant(path.stem, table["name"], table["file"], table["place"], table["from"], table["to"], tuple(killers))
