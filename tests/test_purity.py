"""The pure rooms stay pure, and files and functions stay small.

Invariant: each rule is proven on the syntax tree of the code, and shown to catch a snippet that breaks it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "reconciler"
PURE_ROOMS = ("model", "plan", "procedures", "sources")
SOURCES = sorted(PACKAGE.rglob("*.py"))
PURE_SOURCES = [path for room in PURE_ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]

IMPURE_MODULES = frozenset(
    "asyncio concurrent ctypes fcntl glob http io logging multiprocessing os pathlib platform random secrets select shutil "
    "signal socket ssl subprocess sys tempfile threading time urllib uuid warnings "
    "aiohttp nats prometheus_client rich structlog typer yaml".split()
)
IMPURE_BUILTINS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
CLOCK_READS = frozenset({"now", "utcnow", "today"})

LINES_PER_FILE, LINES_PER_FILE_CAP = 300, 400
LINES_PER_FUNCTION, LINES_PER_FUNCTION_CAP = 40, 60
MODULES_PER_FOLDER = 16


@pytest.mark.parametrize("path", PURE_SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_rooms_have_no_io_no_clock_no_logging(path: Path) -> None:
    assert list(impurities(path.read_text(encoding="utf-8"))) == []


def test_every_pure_room_is_looked_at() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in PURE_SOURCES} == set(PURE_ROOMS)


@pytest.mark.parametrize(
    ("snippet", "found"),
    [
        ("import asyncio", "imports asyncio"),
        ("import os.path as p", "imports os.path"),
        ("from time import monotonic", "imports time"),
        ("import datetime as d\nd.datetime.now()", "reads the clock: now"),
        ("from datetime import date\ndate.today()", "reads the clock: today"),
        ("def f(clock=datetime.utcnow): ...", "reads the clock: utcnow"),
        ("def f():\n    import nats.aio.client", "imports nats.aio.client"),
        ("with open('x') as f: ...", "calls open"),
        ("print('x')", "calls print"),
        ("async def f(): ...", "is asynchronous: f"),
    ],
)
def test_an_impure_snippet_is_found(snippet: str, found: str) -> None:
    assert [text.partition(": ")[2] for text in impurities(snippet)] == [found]


@pytest.mark.parametrize(
    "snippet",
    ["from datetime import datetime, UTC\nat = datetime.fromtimestamp(0, UTC)", "now = 5", "from reconciler.model import units"],
)
def test_a_pure_snippet_is_left_alone(snippet: str) -> None:
    assert list(impurities(snippet)) == []


def test_files_and_functions_stay_small() -> None:
    found = [size for path in SOURCES for size in sizes(str(path.relative_to(PACKAGE.parent)), path.read_text(encoding="utf-8"))]
    for what, lines, guide, _ in found:
        if lines > guide:
            print(f"{what}: {lines} lines, the guide is {guide}")  # noqa: T201 - pytest shows it with -rP, or on failure
    assert [f"{what}: {lines} lines" for what, lines, _, cap in found if lines > cap] == []


def test_a_large_function_and_a_large_file_are_measured() -> None:
    source = "def f():\n" + "    pass\n" * 70
    assert list(sizes("x.py", source)) == [("x.py", 71, 300, 400), ("x.py:1 f", 71, 40, 60)]


def impurities(source: str) -> Iterator[str]:
    """Everything in the source that a pure room must not do, as `line: what`."""
    for node in ast.walk(ast.parse(source)):
        for what in _impurity(node):
            yield f"{getattr(node, 'lineno', 0)}: {what}"


def _impurity(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"imports {alias.name}" for alias in names if _impure(alias.name))
        case ast.ImportFrom(module="sys", names=[ast.alias(name="intern")]):
            return  # a text for a text that is equal
        case ast.ImportFrom(module=str(module), level=0) if _impure(module):
            yield f"imports {module}"
        case ast.Attribute(value=ast.Name() | ast.Attribute(), attr=name) if name in CLOCK_READS and _is_clock(node.value):
            yield f"reads the clock: {name}"
        case ast.Name(id=name, ctx=ast.Load()) if name in IMPURE_BUILTINS:
            yield f"calls {name}"
        case ast.AsyncFunctionDef(name=name):
            yield f"is asynchronous: {name}"


def _impure(module: str) -> bool:
    return module.partition(".")[0] in IMPURE_MODULES


def _is_clock(owner: ast.expr) -> bool:
    """`datetime`, `datetime.datetime`, `date`: not `observation.now`, which is data."""
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return name in {"datetime", "date"}


def sizes(name: str, source: str) -> Iterator[tuple[str, int, int, int]]:
    """Of the file and each function in it: where, lines, guide, hard cap."""
    yield name, len(source.splitlines()), LINES_PER_FILE, LINES_PER_FILE_CAP
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{name}:{node.lineno} {node.name}", lines, LINES_PER_FUNCTION, LINES_PER_FUNCTION_CAP


def test_one_name_is_one_thing() -> None:
    """No two public classes share a name: whoever looks for one finds it."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_folder_is_too_full_to_be_looked_through() -> None:
    """Commands are one file each; everything else has at most so many neighbours."""
    folders = {path.parent for path in SOURCES} - {PACKAGE / "cli" / "commands"}
    full = {str(one.relative_to(PACKAGE)): len(list(one.glob("*.py"))) - 1 for one in folders}
    assert {name: count for name, count in full.items() if count > MODULES_PER_FOLDER} == {}
