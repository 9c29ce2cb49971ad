"""Asking before something is written.

Invariant: while a person thinks, the connection stays alive and Ctrl-C ends the command at once.
"""

from __future__ import annotations

import asyncio
import sys

from reconciler.cli.session import Session
from reconciler.errors import UsageError


def must_be_able_to_ask(session: Session, *, yes: bool, look: str = "`reconciler plan`") -> None:
    """Raises UsageError where nobody said yes and nobody can be asked; `look` shows beforehand what it is about."""
    if not yes and not session.terminal.interactive:
        msg = f"this writes to JetStream and there is no terminal to ask on: look at {look}, then give --yes"
        raise UsageError(msg)


async def confirm(session: Session, question: str) -> bool:
    """Whether the person at the terminal says yes."""
    must_be_able_to_ask(session, yes=False)
    session.terminal.ask(f"{question} Only 'yes' goes on: ")
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)  # a terminal is readable line by line
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip() == "yes"
