"""Which servers to try, and who the one behind a connection is.

Invariant: a server that was configured is never forgotten; servers the cluster told us about are tried after them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from reconciler.errors import Unreachable
from reconciler.jetstream.transport.settings import redact


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server says about itself when we connect."""

    version: str = ""
    name: str = ""
    id: str = ""
    """Of this life of the server."""
    cluster: str = ""
    domain: str = ""
    jetstream: bool = False
    api_level: int | None = None
    """JetStream API level; None where the greeting does not carry it (2.11: ask `$JS.API.INFO`)."""
    max_payload: int = 0
    """The largest message that it takes, headers included; 0: it does not say."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """Reads the server's INFO."""
        return cls(
            version=info.get("version", ""),
            name=info.get("server_name", ""),
            id=info.get("server_id", ""),
            cluster=info.get("cluster", ""),
            domain=info.get("domain", ""),
            jetstream=bool(info.get("jetstream")),
            api_level=info.get("api_lvl"),
            max_payload=info.get("max_payload", 0),
        )


class ServerList:
    """The configured servers, and those their cluster has added."""

    def __init__(self, configured: Iterable[str]) -> None:
        self._configured = [_checked(url if "://" in url else f"nats://{url}") for url in configured]
        self._discovered: list[str] = []

    def in_turn(self) -> list[str]:
        """All servers in random order, the configured ones first."""
        first, then = self._configured[:], self._discovered[:]
        random.shuffle(first)
        random.shuffle(then)
        return first + then

    def learn(self, via: str, info: Mapping[str, Any]) -> None:
        """Takes the cluster's members from the INFO of the server at `via`; they share its scheme and login.

        Not over TLS: members announce addresses, which a certificate made for a name would not match.
        """
        at = urlsplit(via)
        if at.scheme != "nats" or info.get("tls_required"):
            return
        login = at.netloc.rpartition("@")
        known = {urlsplit(url).netloc.rpartition("@")[2] for url in self._configured}
        members = [member for member in info.get("connect_urls") or () if member not in known]
        self._discovered = [f"{at.scheme}://{login[0]}{login[1]}{member}" for member in members]


def _why_not(url: str, error: ValueError) -> str:
    """What is wrong with it, without a word of a login."""
    if redact(url) == url:
        return str(error)
    return "in a password, / ? # , @ : and spaces are written %2F %3F %23 %2C %40 %3A %20; or give --user and --password"


def _checked(url: str) -> str:
    try:
        urlsplit(url).port  # noqa: B018 - parsed when read
    except ValueError as error:
        msg = f"not a server URL: {redact(url)} ({_why_not(url, error)}); expected e.g. nats://host:4222"
        raise Unreachable(msg) from None
    return url
