"""Where and how to connect: natscli's flags, environment and contexts, resolved once.

Invariant: every value has exactly one origin (flag > environment > context > default), and no secret leaves this module
through `Resolved.view`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.errors import UsageError
from reconciler.jetstream.transport import context as contexts
from reconciler.model import units

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_TIMEOUT = 5.0
REDACTED = "***"

_AFTER_SCHEME = re.compile(r"(?<=://)")
_BARE = re.compile(r"""(^|[\s,"'])[^/\s,"']+@""")
_NO_PORT = re.compile(r"^([^:/?#,\s\[]*):(?!\d{1,5}(?!\d))\S*")
_SEED = re.compile(r"\bS[UAONCX][A-Z2-7]{56}\b")
"""A private key as NATS writes it."""
_BARE_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Everything needed to open a connection. Empty means not set."""

    servers: tuple[str, ...] = (DEFAULT_URL,)
    user: str = ""
    password: str = ""
    token: str = ""
    creds: str = ""
    nkey: str = ""
    jwt: str = ""
    seed: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    tls_first: bool = False
    timeout: float = DEFAULT_TIMEOUT
    js_domain: str = ""
    js_api_prefix: str = ""
    js_event_prefix: str = ""
    inbox_prefix: str = "_INBOX"

    def __repr__(self) -> str:
        shown = ", ".join(redact(server) for server in self.servers)
        return f"ConnectionSettings({shown})"


class _Option(NamedTuple):
    """One setting under its four names."""

    field: str
    environ: str = ""
    context: str = ""
    default: str = ""
    secret: bool = False


_OPTIONS = (
    _Option("server", "NATS_URL", "url", DEFAULT_URL),
    _Option("user", "NATS_USER", "user"),
    _Option("password", "NATS_PASSWORD", "password", secret=True),
    _Option("token", "NATS_TOKEN", "token", secret=True),
    _Option("creds", "NATS_CREDS", "creds"),
    _Option("nkey", "NATS_NKEY", "nkey"),
    _Option("jwt", "NATS_JWT", "user_jwt", secret=True),
    _Option("seed", "NATS_SEED", "user_seed", secret=True),
    _Option("tlscert", "NATS_CERT", "cert"),
    _Option("tlskey", "NATS_KEY", "key"),
    _Option("tlsca", "NATS_CA", "ca"),
    _Option("tlsfirst", "", "tls_first"),
    _Option("timeout", "NATS_TIMEOUT", "", "5s"),
    _Option("js-domain", "", "jetstream_domain"),
    _Option("js-api-prefix", "", "jetstream_api_prefix"),
    _Option("js-event-prefix", "", "jetstream_event_prefix"),
    _Option("inbox-prefix", "", "inbox_prefix", "_INBOX"),
)
_LOGINS = (("user", "password"), ("token",), ("creds",), ("nkey",), ("jwt", "seed"))
FLAGS = tuple(option.field for option in _OPTIONS)
"""The flags without their dashes, as `resolve` takes them; `context` is an argument of its own."""


@dataclass(frozen=True, slots=True)
class Value:
    """One resolved setting, safe to print."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, and for `--print-config` each value with its origin, secrets redacted."""

    settings: ConnectionSettings
    view: tuple[Value, ...]
    context: str | None


def resolve(flags: Mapping[str, str | bool | None], environ: Mapping[str, str], context: str | None) -> Resolved:
    """Settles every value: flag, else environment, else context, else default.

    `flags` has the keys in `FLAGS`; missing or None means not given. `context` is `--context`; without it `NATS_CONTEXT`
    and then the context selected in natscli apply.
    """
    name = context or environ.get("NATS_CONTEXT") or contexts.selected(environ)
    stored = contexts.load(name, environ) if name else {}
    if stored.get("socks_proxy"):
        msg = f'NATS context "{name}" asks for a SOCKS proxy, which is not supported; use a context without socks_proxy'
        raise UsageError(msg)
    picked = {option.field: _pick(option, flags, environ, stored) for option in _OPTIONS}
    overridden = _overridden_logins(picked)
    values: dict[str, str] = {}
    view = []
    for option in _OPTIONS:
        value, origin = ("", "default") if option.field in overridden else picked[option.field]
        if origin == "context":
            origin = f"context {name}"
        values[option.field] = value
        view.append(Value(option.field, _shown(option, value), origin))
    return Resolved(_settings(values), tuple(view), name)


def redact(text: str) -> str:
    """The text without the logins of its URLs and without private keys.

    A password may hold anything, also what ends it for whoever reads URLs as their standard says: what stands between `://` and
    the last `@` that can belong to it is a login, and so is what should be a port and is not.
    """
    first, *others = _AFTER_SCHEME.split(without_keys(text))
    if not others:
        return _without_login(first)
    first = _BARE.sub(rf"\1{REDACTED}@", first)
    return first + "".join(_NO_PORT.sub(rf"\1:{REDACTED}", _without_login(other)) for other in others)


def without_keys(text: str) -> str:
    """The text without private keys."""
    return _SEED.sub(REDACTED, text) if "S" in text else text


def _without_login(text: str) -> str:
    login, at, rest = text.rpartition("@")
    return f"{REDACTED}@{rest}" if at and login else text


def seconds(text: str) -> float:
    """A duration as natscli takes it: `5s`, `500ms`, `1m`, or plain seconds."""
    text = text.strip()
    try:
        duration = units.parse_duration(f"{text}s" if _BARE_NUMBER.fullmatch(text) else text)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not duration:
        msg = f"not a duration: {text!r} (it must be longer than nothing)"
        raise UsageError(msg)
    return duration / units.SECOND


def _pick(
    option: _Option, flags: Mapping[str, str | bool | None], environ: Mapping[str, str], stored: Mapping[str, str]
) -> tuple[str, str]:
    given = flags.get(option.field)
    if given is not None and given is not False:
        return ("true" if given is True else given), "flag"
    if environ.get(option.environ):
        return environ[option.environ], f"env {option.environ}"
    if stored.get(option.context):
        return stored[option.context], "context"
    return option.default, "default"


def _overridden_logins(picked: Mapping[str, tuple[str, str]]) -> set[str]:
    """Fields of the context's way to log in when a flag or the environment names another way."""
    chosen = {login for login in _LOGINS for field in login if picked[field][0] and picked[field][1] != "context"}
    if not chosen:
        return set()
    return {field for login in _LOGINS if login not in chosen for field in login}


def _shown(option: _Option, value: str) -> str:
    if option.secret:
        return REDACTED if value else ""
    return ",".join(map(redact, value.split(",")))


def _settings(values: Mapping[str, str]) -> ConnectionSettings:
    servers = tuple(server.strip() for server in values["server"].split(",") if server.strip())
    if not servers:
        msg = "no server to connect to: --server is empty"
        raise UsageError(msg)
    if _SEED.search(values["nkey"]):
        msg = "--nkey is the name of a file with the seed, and what was given is a seed itself: write it into a file of your own"
        raise UsageError(msg)
    if bool(values["tlscert"]) != bool(values["tlskey"]):
        msg = "a client certificate needs both --tlscert and --tlskey"
        raise UsageError(msg)
    if bool(values["jwt"]) != bool(values["seed"]):
        msg = "a user JWT needs both --jwt and --seed"
        raise UsageError(msg)
    return ConnectionSettings(
        servers=servers,
        user=values["user"],
        password=values["password"],
        token=values["token"],
        creds=values["creds"],
        nkey=values["nkey"],
        jwt=values["jwt"],
        seed=values["seed"],
        cert=values["tlscert"],
        key=values["tlskey"],
        ca=values["tlsca"],
        tls_first=values["tlsfirst"] == "true",
        timeout=seconds(values["timeout"]),
        js_domain=values["js-domain"],
        js_api_prefix=values["js-api-prefix"],
        js_event_prefix=values["js-event-prefix"],
        inbox_prefix=values["inbox-prefix"],
    )
