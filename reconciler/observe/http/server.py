"""The process over HTTP: probes, metrics and status for everybody who can connect, orders only for those who may give them.

Invariants: a GET changes nothing and shows no secret; every error is JSON with a status code of its own; a web page that
happens to be open on the same machine can order nothing.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, cast

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from reconciler.errors import Refused, UsageError
from reconciler.model import units
from reconciler.model.identity import KINDS, Key
from reconciler.observe.http.callers import Callers
from reconciler.observe.http.controls import LIMIT, MOST, ConsumerRequest, Controls, StatusQuery
from reconciler.observe.http.door import Door
from reconciler.observe.http.renderings import Pieces, Renderings
from reconciler.observe.metrics import CONTENT_TYPE
from reconciler.plan.requests.pause import Command, Pause, Resume
from reconciler.plan.requests.reset import Reset
from reconciler.render.status.judged import Condition

_ENDPOINTS = (
    ("GET", "/livez", "whether the process does its work"),
    ("GET", "/readyz", "whether it is connected and has looked at everything once; else why not"),
    ("GET", "/metrics", "for Prometheus"),
    ("GET", "/status", "JSON, in pages: ?kind=&state=&limit=&cursor="),
    ("POST", "/-/reload", "look at the manifests now"),
    ("POST", "/-/reconcile", "look at everything (?key=: at this resource) now"),
    ("POST", "/-/suspend", "?key=: leave this resource alone until it is resumed or the process ends"),
    ("POST", "/-/resume", "?key=: take this resource up again"),
    (
        "POST",
        "/-/consumer/pause",
        "?key=&until=&agreed=&holder=: what `reconciler consumer pause` asks for; likewise resume, reset",
    ),
    ("POST", "/-/disown", "?key=&holder=: what `reconciler disown` asks for"),
    ("POST", "/-/procedure/abort", "?key=: let the procedure of this resource take back what it can, and stop"),
    ("POST", "/-/procedure/retry", "?key=: let an aborted or failed procedure begin again"),
)
_ALIASES = {"/healthz": "/livez", "/startupz": "/readyz"}
_CURSOR = 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_SHUTDOWN = 1.0
"""Seconds that requests under way get when the server stops."""
_STATES = {
    name.lower().replace("_", ""): condition.value for condition in Condition for name in (condition.name, condition.value)
}

_ROWS = 500
"""Of a list that are rendered at once."""
_PART = 1 << 16
"""Bytes that are handed to a connection at once."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger(__name__)


def _is_news(record: logging.LogRecord) -> bool:
    """Whoever knocks here and speaks no HTTP is answered, and is no error of ours."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_news)


class HttpServer:
    """Serves `controls` on one port. With a token, orders need it; without one they must come from this machine."""

    def __init__(self, controls: Controls, render_metrics: Callable[[], bytes], *, token: str = "") -> None:
        self._controls = controls
        self._render_metrics = render_metrics
        self._token = token
        self._callers = Callers(token)
        self._renderings = Renderings()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._door: Door | None = None

    @property
    def url(self) -> str:
        """Where to reach it from this machine; empty while it is not started."""
        sockets = self._server.sockets if self._server else ()
        if not sockets:
            return ""
        host, port = sockets[0].getsockname()[:2]
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 - IPv4
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self, host: str, port: int, *, elsewhere: bool = False) -> None:
        """Listens, or raises UsageError. Port 0 is any free one, as is (`elsewhere`) a taken one; no host is every interface."""
        self._callers = Callers(self._token, host)
        app = web.Application(middlewares=[self._answer], client_max_size=_CURSOR)
        app.on_response_prepare.append(_without_server)
        app.add_routes(self._routes())
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_SHUTDOWN, handler_cancellation=True)
        await runner.setup()
        speaker = cast("Callable[[], asyncio.Protocol]", runner.server)
        door = self._door = Door(speaker)
        where = "127.0.0.1" if host == "localhost" else host or None
        try:
            self._server = await _listening(door, where, port, elsewhere=elsewhere)
        except (OSError, OverflowError, UnicodeError) as error:
            await runner.cleanup()
            raise UsageError(_why_not(error, host, port)) from error
        self._runner = runner

    async def stop(self) -> None:
        """Ends every connection and gives the port back."""
        runner, self._runner = self._runner, None
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if runner is not None:
            await runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        controls = self._controls
        gets = {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._metrics, "/status": self._status}
        gets |= {alias: gets[path] for alias, path in _ALIASES.items()} | {"/": self._index}

        def reload(request: web.Request) -> None:
            _query(request)
            controls.reload()

        orders: dict[str, Callable[[web.Request], None]] = {
            "/-/reload": reload,
            "/-/reconcile": lambda request: controls.reconcile(_key(request) if request.query else None),
            "/-/suspend": lambda request: controls.suspend(_key(request)),
            "/-/resume": lambda request: controls.resume(_key(request)),
            "/-/procedure/abort": lambda request: controls.abort_procedure(_key(request)),
            "/-/procedure/retry": lambda request: controls.retry_procedure(_key(request)),
        }
        return (
            [web.get(path, handler) for path, handler in gets.items()]
            + [web.post(path, self._order(order)) for path, order in orders.items()]
            + [web.post(f"/-/consumer/{name}", self._operate(command)) for name, command in _COMMANDS.items()]
            + [web.post("/-/disown", self._disown)]
        )

    async def _index(self, _: web.Request) -> web.Response:
        width = max(len(path) for _, path, _ in _ENDPOINTS)
        return _text("reconciler\n\n" + "\n".join(f"{verb:<4} {path:<{width}}  {what}" for verb, path, what in _ENDPOINTS))

    async def _livez(self, _: web.Request) -> web.Response:
        return _text("alive") if self._controls.alive() else _text("the event loop stands still", 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._controls.not_ready()
        return _text(reason, 503) if reason else _text("ready")

    async def _metrics(self, _: web.Request) -> web.Response:
        def metrics() -> Pieces[bytes]:
            yield
            return self._render_metrics()

        body = await self._renderings.of(None, metrics)
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": CONTENT_TYPE})

    async def _status(self, request: web.Request) -> web.StreamResponse:
        self._callers.check_reader(request)
        query = _status_query(request)
        body = await self._renderings.of(query, lambda: _rendered(self._controls.telling(query)))
        if len(body) <= _PART or request.method == "HEAD":
            return web.Response(body=body, content_type="application/json", headers=_HEADERS)
        response = web.StreamResponse(headers=_HEADERS)
        response.content_type = "application/json"
        response.content_length = len(body)
        with suppress(ConnectionResetError):  # whoever asked has gone
            await response.prepare(request)
            for start in range(0, len(body), _PART):
                await response.write(body[start : start + _PART])  # which waits for a slow reader
            await response.write_eof()
        return response

    def _order(self, order: Callable[[web.Request], None]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            self._callers.check(request)
            order(request)
            log.info("http.ordered", path=request.path, resource=request.query.get("key", ""), peer=request.remote)
            return _json({"accepted": request.path, "key": request.query.get("key")})

        return handle

    def _operate(self, command: Callable[[Mapping[str, str]], Command]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            self._callers.check(request)
            given = _query(request, "key", "until", "seq", "agreed", "holder")
            key = _key_in(given)
            if key.kind != "Consumer":
                msg = f"key: {key} is no consumer"
                raise UsageError(msg)
            agreed = tuple(filter(None, given.get("agreed", "").split(",")))
            wanted = ConsumerRequest(key=key, command=command(given), agreed=agreed, holder=given.get("holder", ""))
            done = await asyncio.shield(self._controls.operate(wanted))  # goes on when the one who asked has gone
            log.info("http.ordered", path=request.path, resource=given["key"], peer=request.remote)
            return _json(done)

        return handle

    async def _disown(self, request: web.Request) -> web.Response:
        self._callers.check(request)
        given = _query(request, "key", "holder")
        done = await asyncio.shield(self._controls.disown(_key_in(given), given.get("holder", "")))
        log.info("http.ordered", path=request.path, resource=given["key"], peer=request.remote)
        return _json(done)

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whatever goes wrong becomes JSON."""
        try:
            with self._door.answering(request.transport) if self._door else nullcontext():
                return await handler(request)
        except web.HTTPNotFound:
            listed = [f"{verb} {path}" for verb, path, _ in _ENDPOINTS]
            return _json({"error": f"there is nothing at {request.path[:_CURSOR]}", "endpoints": listed}, 404)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return _error(f"{request.method} does nothing here; allowed: {allowed}", 405, {"Allow": allowed})
        except web.HTTPException as error:
            headers = {name: value for name, value in error.headers.items() if name == "WWW-Authenticate"}
            return _error(error.text or error.reason, error.status, headers)
        except Refused as error:
            return _error(str(error), 409)
        except UsageError as error:
            return _error(str(error), 400)
        except Exception:
            log.exception("http.failed", path=request.path)
            return _error("internal error; the log says more", 500)


def _rendered(telling: Pieces[dict[str, Any]]) -> Pieces[bytes]:
    """A document as JSON, its long lists in pieces."""
    document = yield from telling
    for name, rows in document.items():
        if not isinstance(rows, list) or len(rows) <= _ROWS:
            continue
        pieces = []
        for start in range(0, len(rows), _ROWS):
            pieces.append(orjson.dumps(rows[start : start + _ROWS])[1:-1])
            yield
        document[name] = orjson.Fragment(b"[" + b",".join(pieces) + b"]")
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def _status_query(request: web.Request) -> StatusQuery:
    given = _query(request, "kind", "state", "limit", "cursor")
    kind, state, limit, cursor = (given.get(name, "") for name in ("kind", "state", "limit", "cursor"))
    if kind and kind not in KINDS:
        msg = f"kind: {kind[:60]!r} is not one of {', '.join(KINDS)}"
        raise UsageError(msg)
    if state and state.lower().replace("_", "") not in _STATES:
        msg = f"state: {state[:60]!r} is not one of {', '.join(Condition)}"
        raise UsageError(msg)
    if limit and not (limit.isascii() and limit.isdecimal() and len(limit) <= len(str(MOST)) and 1 <= int(limit) <= MOST):
        msg = f"limit: {limit[:60]!r} is not a number from 1 to {MOST}"
        raise UsageError(msg)
    if len(cursor) > _CURSOR or not cursor.isprintable():
        msg = "cursor: not one that a page before this one ended with"
        raise UsageError(msg)
    state = _STATES[state.lower().replace("_", "")] if state else ""
    return StatusQuery(kind=kind, state=state, limit=int(limit) if limit else LIMIT, cursor=cursor)


def _pause(given: Mapping[str, str]) -> Command:
    try:
        return Pause(until=units.parse_time(given.get("until", "")))
    except ValueError as error:
        msg = f"until: {error}"
        raise UsageError(msg) from error


def _reset(given: Mapping[str, str]) -> Command:
    seq = given.get("seq", "")
    if seq and not (seq.isascii() and seq.isdecimal() and 1 <= int(seq) <= units.MAX_INT64):
        msg = f"seq: {seq[:60]!r} is not a sequence"
        raise UsageError(msg)
    return Reset(int(seq) if seq else None)


_COMMANDS: dict[str, Callable[[Mapping[str, str]], Command]] = {"pause": _pause, "resume": lambda _: Resume(), "reset": _reset}


def _key(request: web.Request) -> Key:
    return _key_in(_query(request, "key"))


def _key_in(given: Mapping[str, str]) -> Key:
    text = given.get("key", "")
    try:
        return Key.parse(text)
    except ValueError as error:
        msg = f"key: {error}"
        raise UsageError(msg) from error


def _query(request: web.Request, *names: str) -> dict[str, str]:
    """The parameters, each known and given once."""
    query = request.query
    for name in query:
        if name not in names:
            known = f"known: {', '.join(names)}" if names else "there are none here"
            msg = f"unknown parameter {name[:60]!r} ({known})"
            raise UsageError(msg)
        if len(query.getall(name)) > 1:
            msg = f"{name} is given more than once"
            raise UsageError(msg)
    return dict(query)


async def _listening(door: Door, host: str | None, port: int, *, elsewhere: bool) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(door, host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not elsewhere:
            raise
        log.warning("http.elsewhere", reason=f"port {port} is taken by another process: any free one will do")
        return await loop.create_server(door, host, 0)


def _why_not(error: Exception, host: str, port: int) -> str:
    where = host or "every interface"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {where} is taken by another process; choose one with --http HOST:PORT"
    why = str((error.strerror if isinstance(error, OSError) else None) or error).rstrip(".")
    return f"cannot listen on port {port} of {where}: {why}; choose another with --http HOST:PORT"


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=f"{text}\n", status=status, headers=_HEADERS)


def _json(document: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/json", headers={**_HEADERS, **(headers or {})})


def _error(message: str, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return _json({"error": message}, status, headers)


async def _without_server(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Server", None)
