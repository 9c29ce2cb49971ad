"""What every command starts with: the terminal, the environment, and the flags given before the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import typer

from reconciler.cli.flags.groups import ConnectionFlags
from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import UsageError
from reconciler.model.identity import DEFAULT_OWNER, owner_name

_LONGEST_OWNER = 100
"""Its lease is a bucket of that name, escaped, and the name of a bucket has an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One call of the command line."""

    terminal: Terminal
    environ: Mapping[str, str]
    owner_flag: str | None
    connection: ConnectionFlags

    def owner(self, declared: str = "", environment: str = "") -> str:
        """Flag or RECONCILER_OWNER, else what the Policy declares, else `default`; environments never share an owner."""
        name = self.owner_flag or declared or DEFAULT_OWNER
        if not name.isprintable() or len(name) > _LONGEST_OWNER:
            msg = f"the owner must be printable text of at most {_LONGEST_OWNER} characters: {name[:_LONGEST_OWNER]!r}"
            raise UsageError(msg)
        return owner_name(name, environment)


def session_of(ctx: typer.Context) -> Session:
    """The session the root command has put there."""
    session = ctx.find_object(Session)
    if session is None:
        msg = "a command was called without the root command"
        raise RuntimeError(msg)
    return session
