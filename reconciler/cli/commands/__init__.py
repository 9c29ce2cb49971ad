"""Which commands there are, and where their code is.

Invariant: a command's module is loaded only when that command is called, so that neither `version` nor `--help` pays for `apply`.
"""

from __future__ import annotations

import importlib
from collections import UserDict
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "validate": "Check manifests without a server; every problem as file:line:column: code: message.",
    "plan": "Show what apply would do, changing nothing.",
    "diff": "Show the plan as a unified diff of canonical YAML; exit with 1 when there are differences.",
    "apply": "Make JetStream as declared, or exactly as a saved plan says.",
    "run": "Keep JetStream as declared: repair what others change, follow the manifests, serve status and metrics.",
    "export": "Print what is live as manifests: the same text for the same state.",
    "status": "Show the state of every resource, read from NATS or from a running daemon.",
    "graph": "Draw which streams are filled from which: as declared with -f, as a daemon tells it, else as NATS shows it.",
    "unused": "List durable consumers that nobody has used for long, whoever owns them.",
    "reconcile": "Let a running daemon look at everything, or at one resource, now; waiting for a retry ends with it.",
    "suspend": "Let a running daemon leave a resource alone until it is resumed; a restart of the daemon forgets it.",
    "resume": "Let a running daemon take up a resource again that `reconciler suspend` made it leave alone.",
    "procedure": "Show, stop or repeat the procedures of a running daemon.",
    "consumer": "Pause, resume or move any one consumer by hand, whoever owns it.",
    "partitions": "Plan which worker gets which partition, from tables to worker manifests.",
    "schema": "Print the JSON Schema (draft-07) of a kind, for editors.",
    "explain": "Explain a field: what it means, its default, whether it can change, and since which server.",
    "permissions": "Show the NATS permissions these manifests need, no more and no fewer.",
    "lease": "Show or end the write lease.",
    "disown": "Take our marks off live resources and leave them as they are: from then on they are nobody's.",
    "version": "Show the version of reconciler and of what it stands on.",
    "completion": "Print the completion script of a shell, e.g. for `source <(reconciler completion bash)`.",
}
"""In the order in which help lists them, with what each says of itself; each is a module here, with its `app`."""


class _Commands(UserDict[str, Any]):
    """Every command by name; a value is None until its module has been loaded."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer's commands have a private type
        if name in self.data and self.data[name] is None:
            module = importlib.import_module(f"reconciler.cli.commands.{name}")
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
        self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - types of typer's own
        """The command; for a list of them all something that says what it is for."""
        if self._listing and cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - types of typer's own
        """Lists the commands without loading them."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def list_commands(self, ctx: object) -> list[str]:
        """All names, loading nothing."""
        del ctx
        return list(COMMANDS)
