"""Every command and every flag that the product prints, anywhere, is one that it takes.

They are read off the code: what stands in backticks in a text, or behind `reconciler` at all, and every flag. Docstrings are left
out, but for those of commands, which are their help. That they help is what `tests/acceptance/ways_out` is about.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer

from reconciler.cli.app import app
from reconciler.cli.commands import COMMANDS

PACKAGE = Path(__file__).parents[1] / "reconciler"
PLAUSIBLE = {
    "command_path": ("reconciler status",),
    "domain": ("", " --domain leaf"),
    "key": ("Consumer/S/c",),
    "name": ("c",),
    "named": ("Stream/S",),
    "needed": ("Stream/S",),
    "owner": ("them", "them and us"),
    "reader": ("Stream/ALL",),
    "stream_name": ("S",),
    "url": ("http://127.0.0.1:8080",),
    "wanted": ("Consumer/S/c", "Stream/S"),
    "what": ("data-loss",),
}
"""By the last name of what is filled in."""
_FILLED = re.compile(r"\{([^{}]*)\}")
_SNIPPET = re.compile(r"`([^`]+)`")
_SHELL = re.compile(r"[<>|#)].*")
_OPEN = re.compile(rf"\breconciler ((?:--owner \S+ )?(?:{'|'.join(COMMANDS)})\b[^`\n;#]*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def texts(tree: ast.AST) -> Iterator[str]:
    """What somebody may be shown, with the source of what is filled in between braces."""
    silent = {id(part) for node in ast.walk(tree) for part in _silent(node)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=parts):
                yield "".join(_text(part) for part in parts)
            case ast.Constant(value=str(text)) if id(node) not in silent:
                yield text


def _silent(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, and parts of a text that is seen as a whole."""
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not _is_command(node):
        yield from (each.value for each in node.body if isinstance(each, ast.Expr))


def _is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(".command(" in ast.unparse(each) for each in node.decorator_list)


def _text(part: ast.expr) -> str:
    match part:
        case ast.FormattedValue(value=value):
            return "{" + re.sub(r"[{}`]", "", ast.unparse(value)) + "}"
        case ast.Constant(value=text):
            return str(text)
    raise AssertionError(ast.dump(part))


@cache
def printed() -> frozenset[str]:
    """All texts of the product of more than one word: a flag alone is an argument of something."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return frozenset(text for tree in trees for text in texts(tree) if " " in text.strip())


def snippets(text: str) -> Iterator[str]:
    """What somebody may copy."""
    for found in _SNIPPET.findall(text):
        first, _, rest = found.partition(" ")
        if first in ("reconciler", "{context.command_path}") and rest:
            yield found
        elif first in COMMANDS and rest:
            yield f"reconciler {found}"
        elif first.startswith("--"):
            yield found
        elif "(reconciler " in found:
            yield found.partition("(")[2]
    for found in _OPEN.findall(_SNIPPET.sub("", text)):
        yield f"reconciler {found}"


def filled(snippet: str) -> Iterator[list[str]]:
    """Its arguments, with plausible values for what is only known when it is printed."""
    sources = _FILLED.findall(snippet)
    values = []
    for source in sources:
        last = re.findall(r"\w+", source)[-1]
        assert last in PLAUSIBLE, f"what may {source!r} be in {snippet!r}?"
        quoted = "quote(" in source
        values.append([shlex.quote(value) if quoted else value for value in PLAUSIBLE[last]])
    for chosen in product(*values):
        parts = iter(chosen)
        yield shlex.split(_SHELL.sub("", _FILLED.sub(lambda _, parts=parts: next(parts), snippet)))  # type: ignore[misc]


@cache
def root() -> Any:
    """The command line."""
    return typer.main.get_command(app)


@cache
def leaves() -> tuple[Any, ...]:
    """Everything that can be called, and the root."""
    return tuple(_below(root()))


def _below(command: Any) -> Iterator[Any]:
    yield command
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from _below(command.get_command(context, name))


def options(command: Any) -> set[str]:
    """All spellings."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def complete(arguments: list[str]) -> list[str]:
    """With a value for an option at the end that is named without one."""
    valued = {
        name
        for command in leaves()
        for parameter in command.params
        if not getattr(parameter, "is_flag", False) and parameter.param_type_name == "option"
        for name in parameter.opts
    }
    return [*arguments, "1h"] if arguments[-1] in valued else arguments


def takes(arguments: list[str]) -> None:
    """Raises the parser's own error; the name of a command alone only has to be one."""
    command, context, rest = root(), None, arguments
    while True:
        if context is not None and not rest:
            return
        context = command.make_context(command.name, list(rest), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])  # as `invoke` does


def takes_flags(flags: list[str]) -> bool:
    """Whether one of the commands takes all of them together."""
    named = {flag.partition("=")[0] for flag in flags if flag.startswith("--")}
    for command in leaves():
        if named <= options(command):
            command.make_parser(command.context_class(command)).parse_args(list(flags))
            return True
    return False


COPIED = sorted({snippet for text in printed() for snippet in snippets(text)})


@pytest.mark.parametrize("snippet", COPIED)
def test_every_printed_command_is_taken(snippet: str) -> None:
    for arguments in map(complete, filled(snippet)):
        if arguments[0] != "reconciler":
            assert takes_flags(arguments), arguments
        else:
            with suppress(typer.Exit):  # as `--help` ends
                takes(arguments[1:])


def test_every_printed_flag_is_one() -> None:
    known = {name for command in leaves() for name in options(command)} | {"--help"}
    assert {flag for text in printed() for flag in _FLAG.findall(text)} - known == set()
