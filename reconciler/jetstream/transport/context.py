"""natscli contexts: named connection settings kept under `~/.config/nats`.

Invariant: a context that was asked for is used or refused with a reason; it never silently falls back to the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

import orjson

from reconciler.errors import UsageError

_LOGIN = ("user", "password", "token", "creds", "nkey", "user_jwt", "user_seed")
_TLS = ("cert", "key", "ca", "tls_first")
_JETSTREAM = ("jetstream_domain", "jetstream_api_prefix", "jetstream_event_prefix")
KEYS = ("url", *_LOGIN, *_TLS, *_JETSTREAM, "inbox_prefix", "socks_proxy")
"""The keys of a context file that bear on a connection; others (`description`, `color_scheme`, …) are natscli's own."""


def directory(environ: Mapping[str, str]) -> Path:
    """Where natscli keeps its files for this user."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home(environ) / ".config") / "nats"


def known(environ: Mapping[str, str]) -> list[str]:
    """The names of all contexts of this user, sorted."""
    return sorted(path.stem for path in (directory(environ) / "context").glob("*.json"))


def selected(environ: Mapping[str, str]) -> str | None:
    """The context chosen with `nats context select`, if any."""
    try:
        name = (directory(environ) / "context.txt").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the selected NATS context cannot be read: {error}"
        raise UsageError(msg) from error
    return name or None


def load(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a context by natscli's key names; values that are not set are left out."""
    path = _path(name, environ)
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        names = ", ".join(known(environ)) or "none"
        msg = f'unknown NATS context "{name}" (no {path}); known contexts: {names}'
        raise UsageError(msg) from error
    except OSError as error:
        msg = f'NATS context "{name}" cannot be read: {error}'
        raise UsageError(msg) from error
    except orjson.JSONDecodeError as error:
        msg = f'NATS context "{name}" is not valid JSON: {path}:{error.lineno}:{error.colno}: {error.msg}'
        raise UsageError(msg) from error
    if not isinstance(document, dict):
        msg = f'NATS context "{name}" is not a JSON object: {path}'
        raise UsageError(msg)
    values = {key: _text(document[key]) for key in KEYS if document.get(key)}
    if "creds" in values:
        values["creds"] = Template(values["creds"]).safe_substitute(environ)
    return values


def _home(environ: Mapping[str, str]) -> Path:
    """As a shell has it; a user without a name, as in a container, lives at the root."""
    try:
        return Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:
        return Path("/")


def _path(name: str, environ: Mapping[str, str]) -> Path:
    if not name or ".." in name or "/" in name or "\\" in name:
        msg = f"not a NATS context name: {name!r} (a name holds no '..' and no path separator)"
        raise UsageError(msg)
    return directory(environ) / "context" / f"{name}.json"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else ""
    return str(value)
