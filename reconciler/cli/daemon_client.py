"""Talks to a running daemon over HTTP.

Invariant: whatever goes wrong there becomes one clear message with its exit code; the token is in no message.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import orjson
import typer

from reconciler.cli.flags.groups import SourceFlags
from reconciler.errors import ReconcilerError, Refused, Unreachable, UsageError
from reconciler.jetstream.transport.settings import redact
from reconciler.model.identity import Key, owner_name
from reconciler.observe.http.controls import MOST

DEFAULT_URL = "http://127.0.0.1:8080"
_SECONDS = 10.0
_AWAY = frozenset({http.client.BAD_GATEWAY, http.client.SERVICE_UNAVAILABLE, http.client.GATEWAY_TIMEOUT})
_LONGEST = 2000
"""Of what a server that is no daemon of ours may have to say."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFlags:
    """Where the daemon is."""

    daemon: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="RECONCILER_DAEMON", show_default=False, help=f"The daemon's URL (e.g. {DEFAULT_URL})"
        ),
    ] = None
    http_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", envvar="RECONCILER_HTTP_TOKEN", show_default=False, show_envvar=True, help="The daemon's HTTP token"
        ),
    ] = None

    def client(self, owner: str | None = None) -> DaemonClient:
        """A client of that daemon, or of the one that would be on this machine; with an owner, of none but that owner's."""
        return DaemonClient(DEFAULT_URL if self.daemon is None else self.daemon, self.http_token or "", owner=owner)


def asks_daemon(ctx: typer.Context, source: SourceFlags, daemon: DaemonFlags) -> bool:
    """Whether a daemon is asked; what is said on the command line counts more than what is set in the environment."""
    if daemon.daemon is None:
        return False
    files, url = (_is_flag(ctx, name) for name in ("files", "daemon"))
    if files and url:
        msg = "a daemon has manifests of its own: give either --daemon or -f"
        raise UsageError(msg)
    return url or not (files and source.files)


def _is_flag(ctx: typer.Context, name: str) -> bool:
    origin = ctx.get_parameter_source(name)
    return origin is not None and origin.name == "COMMANDLINE"


class _Denied(Unreachable):
    """The daemon is there, but does not let us: trying again changes nothing."""

    transient = False


class DaemonClient:
    """Asks one daemon; every call is a request of its own."""

    def __init__(self, url: str, token: str = "", *, owner: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"--daemon {redact(url)}: expected a URL such as {DEFAULT_URL}"
            raise UsageError(msg)
        self.url = redact(url).rstrip("/")
        self._owner = owner
        self._host, self._path, self._secure = parts.hostname, parts.path.rstrip("/"), parts.scheme == "https"
        self._port = _port(parts.netloc, self.url, secure=self._secure)
        self._headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def status(self) -> Json:
        """The status document, all its pages joined."""
        document = self._page("")
        while cursor := document["cursor"]:
            page = self._page(cursor)
            document = {**page, "resources": document["resources"] + page["resources"]}
        return document

    def head(self) -> Json:
        """The status document with one resource at most: what is beside them."""
        return self._document("/status?limit=1")

    def post(self, action: str, key: Key | None = None) -> None:
        """`POST /-/ACTION?key=KEY`; raises Refused when the daemon cannot do it, or is another owner's."""
        if self._owner:
            self.head()
        self._request("POST", f"/-/{action}" + (f"?{urlencode({'key': str(key)})}" if key is not None else ""))

    def operate(self, action: str, asked: Mapping[str, str]) -> Json:
        """`POST /-/ACTION?…`; raises Refused when the daemon cannot or will not do it."""
        answer = orjson.loads(self._request("POST", f"/-/{action}?{urlencode(asked)}"))
        if not isinstance(answer, dict):
            raise self._stranger()
        return answer

    def _page(self, cursor: str) -> Json:
        return self._document("/status?" + urlencode({"limit": MOST, "cursor": cursor} if cursor else {"limit": MOST}))

    def _document(self, path: str) -> Json:
        try:
            document = orjson.loads(self._request("GET", path))
        except orjson.JSONDecodeError as error:
            raise self._stranger() from error
        if not isinstance(document, dict) or document.get("kind") != "Status" or "process" not in document:
            raise self._stranger()
        self._must_be_of_owner(document)
        return document

    def _must_be_of_owner(self, document: Json) -> None:
        """Raises Refused where somebody said whose daemon is meant, and it is another one's."""
        owner = document.get("owner")
        if not self._owner or owner is None:
            return
        environment = document.get("environment") or ""
        if not environment and not document.get("ready"):  # it has not looked yet, and knows its owner alone
            environment = owner.rpartition("/")[2] if "/" in owner else ""
        if owner == owner_name(self._owner, environment):
            return
        way_out = f"say `--owner {quote(owner)}` for this one, or the URL of the other with --daemon"
        raise Refused((f"the daemon at {self.url} works for the owner {owner!r}, not for {self._owner!r}: {way_out}",))

    def _request(self, method: str, path: str) -> bytes:
        connection = self._connection()
        try:
            connection.request(method, self._path + path, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read()
        except (ConnectionRefusedError, TimeoutError) as error:
            msg = f"no daemon at {self.url}: start one with `reconciler run`, or give --daemon URL"
            raise Unreachable(msg) from error
        except (OSError, http.client.HTTPException) as error:
            msg = f"no daemon at {self.url} ({str(error) or type(error).__name__}): check --daemon URL"
            raise Unreachable(msg) from error
        finally:
            connection.close()
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise self._refusal(answer.status, _said(body))
        return body

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=_SECONDS, context=ssl.create_default_context())
        return http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS)

    def _refusal(self, status: int, said: str) -> ReconcilerError:
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            reason = f" ({said})" if said else ""
            hint = "give its token with --http-token or RECONCILER_HTTP_TOKEN, or ask from its own machine"
            return _Denied(f"the daemon at {self.url} does not let us do that{reason}: {hint}")
        if status == http.client.CONFLICT:
            return Refused((said or "the daemon refused",))
        if status == http.client.BAD_REQUEST:
            return UsageError(said or "the daemon did not understand the request")
        if status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            return self._stranger()
        if status in _AWAY:
            return Unreachable(f"the daemon at {self.url} does not serve just now ({status}: {said or 'no reason given'})")
        return ReconcilerError(f"the daemon at {self.url} answered {status}: {said or 'nothing'}")

    def _stranger(self) -> Unreachable:
        return Unreachable(f"what answers at {self.url} is no reconciler daemon (or one of another version): check --daemon URL")


def _port(netloc: str, url: str, *, secure: bool) -> int:
    try:
        port = urlsplit(f"//{netloc}").port
    except ValueError as error:
        msg = f"--daemon {url}: {error}"
        raise UsageError(msg) from error
    return port or (443 if secure else 80)


def _said(body: bytes) -> str:
    """What an error answer says: text, or the `error` of a JSON object."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_LONGEST].decode(errors="replace").strip()
    return str(document.get("error", document)) if isinstance(document, dict) else str(document)
