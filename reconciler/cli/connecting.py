"""One connection for the time of a command.

Invariant: SIGTERM ends a command like Ctrl-C does, so that a lease is always given back.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from reconciler.cli.session import Session
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings, redact, resolve
from reconciler.model.desired import Desired

T = TypeVar("T")


def run(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's asynchronous part to its end; raises KeyboardInterrupt when it was interrupted."""
    level = logging.DEBUG if session.terminal.debug else logging.ERROR
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    logging.basicConfig(stream=sys.stderr, level=level)
    return asyncio.run(_terminable(work))


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Runs what obeys signals by itself, and has its own log."""
    return asyncio.run(work)


async def _terminable(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


def settings_of(session: Session, desired: Desired | None = None) -> ConnectionSettings:
    """Flags, environment and contexts; the manifests' Environment has a say only where none of them names a server."""
    flags, context = session.connection.settings(), session.connection.context
    named = flags["server"] or context or session.environ.get("NATS_URL") or session.environ.get("NATS_CONTEXT")
    if desired is not None and not named:
        flags["server"] = desired.url or None
        context = desired.context or None
    return resolve(flags, session.environ, context).settings


def _counts_more(session: Session, desired: Desired) -> str:
    """Which variable of the shell is followed and not the manifests' Environment, in words; empty for none."""
    own = desired.url or desired.context
    if not own or session.connection.settings()["server"] or session.connection.context:
        return ""
    name = next((name for name in ("NATS_URL", "NATS_CONTEXT") if session.environ.get(name) not in (None, "", own)), "")
    said = f"the server {redact(own)}" if desired.url else f"the context {own}"
    return f"environment {desired.environment} names {said}, but {name} is set, which counts more" if name else ""


def own_name() -> str:
    """By which servers, and the API audit, tell a daemon from others like it."""
    return f"reconciler-{secrets.token_hex(4)}"


@asynccontextmanager
async def connected(session: Session, desired: Desired | None = None) -> AsyncIterator[DomainApis]:
    """The JetStream APIs over a connection of this command's own."""
    settings = settings_of(session, desired)
    if desired is not None and (over := _counts_more(session, desired)):
        session.terminal.warn(f"{over}: connecting to {','.join(map(redact, settings.servers))}")
    with session.terminal.working(f"connecting to {','.join(map(redact, settings.servers))}"):
        connection = await Connection.open(settings)
    async with connection:
        yield DomainApis(connection)
