"""Every way out that a plan can print, as the code writes it.

A way out is promised where a `Reason` is made. `promised` tells which of them a printed one is: whoever was shown it, did what it
says and got what was wanted may say so (`promises.tried`).
Invariant: what cannot be read off the code fails, so that no way out is left out because of how it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "reconciler"
_ANY = "{}"
"""What is only known when it is printed."""


@cache
def ways_out() -> frozenset[str]:
    """Templates, with `{}` for what is filled in."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return frozenset(
        way for tree in trees for scope, node in _scoped(tree) for way in _Reader(trees, tree, scope).of(node) if way
    )


def promised(text: str) -> set[str]:
    """The most exact of the templates that this could have been made from."""
    fitting = {template for template in ways_out() if _pattern(template).fullmatch(text)}
    most = max((len(template) for template in fitting), default=0)
    return {template for template in fitting if len(template) == most}


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(".+?".join(re.escape(part) for part in template.split(_ANY)), re.DOTALL)


def _scoped(node: ast.AST, scope: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Where a way out is given to a reason, and the function around it."""
    if isinstance(node, ast.Call) and (way := _given(node)) is not None:
        yield scope or node, way
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
        scope = node
    for child in ast.iter_child_nodes(node):
        yield from _scoped(child, scope)


def _given(call: ast.Call) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == "way_out":
            return keyword.value
    is_reason = ast.unparse(call.func).rpartition(".")[2] == "Reason"
    return call.args[2] if is_reason and len(call.args) > 2 else None


class _Reader:
    """The texts that an expression can stand for, in one function of one module."""

    def __init__(self, trees: list[ast.Module], tree: ast.Module, scope: ast.AST) -> None:
        self._trees, self._tree, self._scope = trees, tree, scope

    def of(self, node: ast.expr) -> list[str]:
        """Each of them."""
        match node:
            case ast.Constant(value=str(text)):
                found = [text]
            case ast.JoinedStr(values=parts):
                found = ["".join(each) for each in product(*(self._part(part) for part in parts))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                found = [one + other for one in self.of(left) for other in self.of(right)]
            case ast.IfExp(body=one, orelse=other):
                found = [*self.of(one), *self.of(other)]
            case ast.BoolOp(values=values) | ast.Dict(values=values):
                found = [text for value in values for text in self.of(value)]
            case ast.Name(id=name):
                found = self._named(name)
            case ast.Subscript(value=value):
                found = self.of(value)
            case ast.Call():
                found = self._called(node)
            case _:
                found = []
        assert found, f"nobody can read off the code what {ast.unparse(node)!r} says"
        return found

    def _called(self, node: ast.Call) -> list[str]:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                return [re.sub(r"\{\w*\}", _ANY, text) for text in self.of(value)]
            case ast.Call(func=ast.Name(id=name)):
                return self._returned(name)
        return []

    def _part(self, part: ast.expr) -> list[str]:
        if not isinstance(part, ast.FormattedValue):
            return self.of(part)
        try:
            return self.of(part.value)
        except AssertionError:
            return [_ANY]

    def _named(self, name: str) -> list[str]:
        found = [text for value in self._assigned(self._scope, name) for text in self.of(value)]
        found = found or [text for value in self._passed(name) for text in value]
        for tree in () if found else (self._tree, *self._trees):
            for node in tree.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        return _Reader(self._trees, tree, tree).of(value)
        return found

    @staticmethod
    def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
        for node in () if isinstance(scope, ast.Module) else ast.walk(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    yield value
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    yield from (value for target, value in zip(targets, values, strict=True) if ast.unparse(target) == name)

    def _passed(self, name: str) -> Iterator[list[str]]:
        """What callers in the same module give for a parameter."""
        if not isinstance(self._scope, ast.FunctionDef):
            return
        names = [each.arg for each in self._scope.args.args]
        if name not in names:
            return
        place = names.index(name)
        for scope in (node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(scope):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == self._scope.name and len(node.args) > place:
                    yield _Reader(self._trees, self._tree, scope).of(node.args[place])

    def _returned(self, name: str) -> list[str]:
        for tree in (self._tree, *self._trees):
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    reader = _Reader(self._trees, tree, node)
                    values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
                    return [text for value in values for text in reader.of(value)]
        return []
