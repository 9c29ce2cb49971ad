"""`--print-config`: every setting with its value and origin."""

from __future__ import annotations

from reconciler.cli.session import Session
from reconciler.jetstream.transport.settings import redact, resolve
from reconciler.model.identity import DEFAULT_OWNER

_OURS = "RECONCILER_"


def print_settings(session: Session) -> None:
    """Each as `name = value  (origin)`, secrets redacted."""
    resolved = resolve(session.connection.settings(), session.environ, session.connection.context)
    rows = [(value.name, value.value, value.origin) for value in resolved.view]
    rows.append(("context", resolved.context or "", _context_origin(session, resolved.context)))
    rows.append(("owner", session.owner_flag or DEFAULT_OWNER, _owner_origin(session)))
    ours = sorted(name for name in session.environ if name.startswith(_OURS) and name != f"{_OURS}OWNER")
    rows += [(name.removeprefix(_OURS).lower().replace("_", "-"), redact(session.environ[name]), f"env {name}") for name in ours]
    width = max(len(name) for name, _, _ in rows)
    session.terminal.lines(f"{name:<{width}} = {value or '-'}  ({origin})" for name, value, origin in rows)


def _context_origin(session: Session, name: str | None) -> str:
    if session.connection.context:
        return "flag"
    if session.environ.get("NATS_CONTEXT"):
        return "env NATS_CONTEXT"
    return "selected in natscli" if name else "default"


def _owner_origin(session: Session) -> str:
    if session.owner_flag is None:
        return "default; a Policy may name another"
    return "env RECONCILER_OWNER" if session.environ.get("RECONCILER_OWNER") == session.owner_flag else "flag"
