"""Who may give orders over HTTP.

Invariant: without a token nobody but a program on this machine may, and a browser only for a page of our own; the name
under which we were called is checked, also of who only reads, so that a page cannot rebind its own name to our address.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from aiohttp import web

_OWN_SITE = frozenset({"same-origin", "none"})
_FOREIGN_HOST = "the Host header names neither this machine nor the address this process listens on"
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP")


class Callers:
    """Judges requests. `host` is where we were told to listen: a name of ours."""

    def __init__(self, token: str, host: str = "") -> None:
        self._token = token.encode()
        self._host = host.lower()
        self._machine = socket.gethostname().lower()

    def check(self, request: web.Request) -> None:
        """Raises HTTPUnauthorized or HTTPForbidden when this request may change nothing."""
        self._of_no_other_site(request)
        if self._token:
            self._with_token(request)
        else:
            self._from_here(request)

    def check_reader(self, request: web.Request) -> None:
        """Raises HTTPForbidden when a page of another site that is open on this machine could be what reads."""
        self._of_no_other_site(request)
        hosts = request.headers.getall("Host", [])
        if _loopback(request.remote or "") and not any(self._own(host, request) for host in hosts) and not self._told(request):
            raise web.HTTPForbidden(text=_FOREIGN_HOST)

    def _of_no_other_site(self, request: web.Request) -> None:
        """Browsers say which page a request comes from; programs do not."""
        host = request.headers.get("Host", "")
        foreign = [site for site in request.headers.getall("Sec-Fetch-Site", []) if site.lower() not in _OWN_SITE]
        foreign += [origin for origin in request.headers.getall("Origin", []) if not _same(origin, host)]
        if foreign:
            raise web.HTTPForbidden(text="a page of another site may not do this")

    def _with_token(self, request: web.Request) -> None:
        if not self._told(request):
            message = "this needs the header `Authorization: Bearer TOKEN` with the token this process was given"
            raise web.HTTPUnauthorized(text=message, headers={"WWW-Authenticate": "Bearer"})

    def _told(self, request: web.Request) -> bool:
        """Whether the request has the token, where there is one."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), self._token)
        return bool(self._token) and scheme.lower() == "bearer" and right

    def _from_here(self, request: web.Request) -> None:
        if not _loopback(request.remote or "") or any(name in request.headers for name in _FORWARDED):
            raise web.HTTPForbidden(text="without a configured token this is possible from the same machine only")
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not self._own(hosts[0], request):
            raise web.HTTPForbidden(text=_FOREIGN_HOST)

    def _own(self, host: str, request: web.Request) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        listening = request.transport.get_extra_info("sockname")[0] if request.transport else ""
        return bool(name) and (name in ("localhost", self._host, self._machine, listening) or _loopback(name))


def _same(origin: str, host: str) -> bool:
    scheme, _, name = origin.partition("://")
    return scheme in ("http", "https") and bool(name) and name.lower() == host.lower()


def _loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
