"""Opens one connection to one server, and says in one sentence why that did not work.

Invariant: it ends within its timeout, and its errors hold no secret and always a way out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from socket import gaierror
from urllib.parse import urlsplit

import nats.errors

from reconciler.errors import Unreachable
from reconciler.jetstream.transport.credentials import login, tls_context, wants_tls
from reconciler.jetstream.transport.settings import ConnectionSettings, redact
from reconciler.jetstream.transport.wire import WireClient, with_websockets

PING_INTERVAL = 5
"""Seconds; a server that leaves two pings unanswered is given up."""
_WEBSOCKETS = ("ws", "wss")
_UNBOUNDED_BUFFER = 1 << 30
_NAME_MISMATCH = frozenset({62, 64})  # host name, IP address
_CERTIFICATE_EXPIRED = 10

ErrorHandler = Callable[[Exception], Awaitable[None]]


class LoginRefused(Unreachable):
    """A server is there, and does not know who we say we are: waiting will not help."""


async def dial(
    settings: ConnectionSettings, url: str, name: str, *, on_error: ErrorHandler, on_lost: Callable[[], None]
) -> WireClient:
    """Connects to `url` or raises Unreachable."""
    opening, cancelled = True, _cancellations()

    async def report(error: Exception) -> None:
        if opening:  # nats-py would try the same server again and again; leaving its loop takes an exception
            raise error
        await on_error(error)

    if urlsplit(url).scheme in _WEBSOCKETS:
        with_websockets()
    secure = wants_tls(settings, url)
    client = WireClient(wants_tls=secure, on_lost=on_lost)
    # Made for nothing it would cost more than all the rest; nats-py makes the same one when the server insists on TLS.
    tls = tls_context(settings) if secure else None
    who = login(settings, url)
    try:
        async with asyncio.timeout(settings.timeout):
            await client.connect(
                servers=[_without_login(url)],
                name=name,
                error_cb=report,
                allow_reconnect=False,
                connect_timeout=settings.timeout,  # type: ignore[arg-type]  # used as seconds, annotated as int
                ping_interval=PING_INTERVAL,
                tls=tls,
                tls_handshake_first=settings.tls_first,
                inbox_prefix=settings.inbox_prefix,
                pending_size=_UNBOUNDED_BUFFER,
                **who,
            )
    except Exception as error:  # besides nats-py's and the system's own also aiohttp's and idna's
        await client.discard()
        if _cancellations() > cancelled:  # in the tick in which the connect failed: what nats-py waits with loses it
            raise asyncio.CancelledError from error
        # A server that wants a certificate refuses by breaking the connection, with TLS 1.3 even later.
        if client.info.get("tls_verify") and not settings.cert:
            msg = f"{redact(url)} accepts only clients with a certificate: give one with --tlscert and --tlskey"
            raise Unreachable(msg) from error
        refused = isinstance(error, nats.errors.Error) and _is_refusal(str(error))
        raise (LoginRefused if refused else Unreachable)(explain(error, url, settings)) from error
    except BaseException:
        await client.discard()
        raise
    opening = False
    return client


def _cancellations() -> int:
    """How often somebody has asked for the end of what runs now."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def explain(error: Exception, url: str, settings: ConnectionSettings) -> str:
    """One sentence for the user: what happened at which server, and what to do."""
    at = redact(url)
    if isinstance(error, ssl.SSLError):
        return _explain_tls(error, at)
    if isinstance(error, nats.errors.SecureConnWantedError):
        return f"{at} does not offer TLS, but TLS was asked for: use a nats:// URL and no TLS files, or enable TLS on the server"
    if isinstance(error, TimeoutError):
        return f"no answer from {at} within {settings.timeout:g}s: check the address, or raise --timeout"
    if isinstance(error, gaierror):
        return f"the host name in {at} cannot be resolved ({error.strerror}): check --server or the context"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return f"no NATS server is listening at {at}: start it, or name another one with --server or --context"
    if isinstance(error, OSError):
        return f"the connection to {at} broke while it was opened ({error.strerror or error}): check the address and TLS settings"
    return _explain_answer(str(error).removeprefix("nats: ").strip("'\" "), at)


def _explain_tls(error: ssl.SSLError, at: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return f"the certificate of {at} is for another name ({error.verify_message.rstrip('.')}): use that one in the URL"
        if error.verify_code == _CERTIFICATE_EXPIRED:
            return f"the certificate of {at} has expired: renew it on the server"
        return f"the certificate of {at} is not signed by a known CA ({error.verify_message}): give its CA with --tlsca"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "certificate" in reason:
        return f"{at} did not accept our client certificate ({reason}): give one with --tlscert and --tlskey"
    return f"the TLS handshake with {at} failed ({reason}): check that it is a TLS port, and --tlsfirst"


def _explain_answer(text: str, at: str) -> str:
    lowered = text.lower()
    if _is_refusal(text):
        return f"{at} refused the login ({text}): check --user/--password, --token, --creds, --nkey or the context"
    if "secure connection" in lowered or "tls" in lowered:
        return f"{at} requires TLS ({text}): use a tls:// URL, --tlsca, or --tlscert and --tlskey"
    if "empty response" in lowered:
        return f"{at} closed the connection without a greeting: it may want TLS first (--tlsfirst), or it is no NATS server"
    return f"{at} refused the connection: {text or 'it closed without a reason'}"


def _is_refusal(text: str) -> bool:
    lowered = text.lower()
    return "authorization violation" in lowered or "authentication" in lowered or "nonce" in lowered


def _without_login(url: str) -> str:
    """The URL for nats-py, which would not decode `%40` in a password; the login travels separately."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
