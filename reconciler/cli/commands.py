"""Which commands there are, and where their code is.

Invariant: a command's module is loaded only when that command is called, so that `version` does not pay for `apply`.
"""

from __future__ import annotations

import importlib
from collections import UserDict
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = (
    "validate",
    "plan",
    "diff",
    "apply",
    "run",
    "export",
    "status",
    "graph",
    "reconcile",
    "suspend",
    "resume",
    "procedure",
    "consumer",
    "partitions",
    "schema",
    "explain",
    "permissions",
    "lease",
    "version",
    "completion",
)
"""In the order in which help lists them; each is a module beside this one, with its typer `app` in it."""


class _Commands(UserDict[str, Any]):
    """Every command by name; a value is None until its module has been loaded."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer's commands have a private type
        if name in self.data and self.data[name] is None:
            module = importlib.import_module(f"reconciler.cli.{name}")
            self.data[name] = typer.main.get_command(module.app)
            self.data[name].name = name
        return self.data[name]

    def keys(self) -> Any:  # noqa: ANN401 - a KeysView that loads nothing
        return self.data.keys()


class LazyGroup(TyperGroup):
    """The root command's group."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - whatever typer gives a group
        super().__init__(**attributes)
        self.commands = _Commands()

    def list_commands(self, ctx: object) -> list[str]:
        """All names, loading nothing."""
        del ctx
        return list(COMMANDS)
