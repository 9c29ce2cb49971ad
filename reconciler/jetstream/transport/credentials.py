"""How this client proves who it is and checks who the server is: logins, keys and TLS, read fresh for every connection.

Invariant: a file that is missing or malformed is reported by name before anything is sent to a server.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import NotRequired, TypedDict
from urllib.parse import unquote, urlsplit

import nkeys  # type: ignore[import-untyped]  # it ships no types
from nats.aio.client import RawCredentials

from reconciler.errors import Unreachable
from reconciler.jetstream.transport.settings import ConnectionSettings

_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.-]+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(r"-+BEGIN USER NKEY SEED-+\s+([A-Z2-7]+)\s+-+END USER NKEY SEED-+")
_TLS_SCHEMES = ("tls", "wss")


class Login(TypedDict):
    """The part of nats-py's connect arguments that says who we are."""

    user: NotRequired[str]
    password: NotRequired[str]
    token: NotRequired[str]
    user_credentials: NotRequired[RawCredentials]
    nkeys_seed_str: NotRequired[str]


def login(settings: ConnectionSettings, url: str) -> Login:
    """The login for this server: `user:password@` or `token@` in its URL, else user, creds, JWT, nkey or token."""
    at = urlsplit(url)
    if at.username is not None:
        if at.password is None:
            return {"token": unquote(at.username)}
        return {"user": unquote(at.username), "password": unquote(at.password)}
    if settings.user:
        return {"user": settings.user, "password": settings.password}
    if settings.creds:
        return {"user_credentials": _credentials_file(settings.creds)}
    if settings.jwt:
        return {"user_credentials": _credentials(settings.jwt, _checked_seed(settings.seed, "--seed"))}
    if settings.nkey:
        return {"nkeys_seed_str": _checked_seed(_read(settings.nkey, "nkey file").strip(), f"nkey file {settings.nkey}")}
    return {"token": settings.token} if settings.token else {}


def wants_tls(settings: ConnectionSettings, url: str) -> bool:
    """Whether a connection without TLS would be against the user's wish."""
    return bool(urlsplit(url).scheme in _TLS_SCHEMES or settings.ca or settings.cert or settings.tls_first)


def tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    """The TLS settings: the given CA (else the system's) and client certificate."""
    try:
        context = ssl.create_default_context(cafile=_existing(settings.ca))
    except ssl.SSLError as error:
        msg = f"the CA file {settings.ca} holds no usable certificate ({error.reason or error})"
        raise Unreachable(msg) from error
    if settings.cert:
        try:
            context.load_cert_chain(_existing(settings.cert) or "", _existing(settings.key))
        except ssl.SSLError as error:
            msg = f"the client certificate {settings.cert} and key {settings.key} do not fit together ({error.reason or error})"
            raise Unreachable(msg) from error
    return context


def _existing(path: str) -> str | None:
    if not path:
        return None
    _read(path, "TLS file")
    return str(_expanded(path))


def _credentials_file(path: str) -> RawCredentials:
    text = _read(path, "credentials file")
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        msg = f"the credentials file {path} does not hold a user JWT and an nkey seed; create it with `nsc generate creds`"
        raise Unreachable(msg)
    return _credentials(jwt[1], _checked_seed(seed[1], f"credentials file {path}"))


def _credentials(jwt: str, seed: str) -> RawCredentials:
    """In memory, and in the one layout that nats-py parses (it loops for ever on a file without the markers)."""
    return RawCredentials(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _checked_seed(seed: str, source: str) -> str:
    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except Exception as error:
        # nkeys lets errors of binascii and PyNaCl through besides its own
        msg = f"the {source} does not hold a valid nkey seed (it starts with SU and is 58 characters long)"
        raise Unreachable(msg) from error
    return seed


def _read(path: str, what: str) -> str:
    try:
        return _expanded(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        msg = f"the {what} {path} cannot be read: {reason}"
        raise Unreachable(msg) from error


def _expanded(path: str) -> Path:
    """`~` as a shell has it; a user without a home has none, and the file is not found."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
