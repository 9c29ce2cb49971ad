"""What HTTP may ask of the running process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.model.identity import Key
from reconciler.observe.http.renderings import Pieces
from reconciler.plan.requests.pause import Command

LIMIT = 500
"""Resources on one page of the status."""
MOST = 10_000
"""The longest page there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusQuery:
    """Which part of the status is wanted."""

    kind: str = ""
    state: str = ""
    limit: int = LIMIT
    cursor: str = ""
    """The `cursor` of the page before; empty for the first page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """What somebody wants done to a consumer."""

    key: Key
    command: Command
    agreed: tuple[str, ...]
    """The codes of what was said would come of it."""
    holder: str
    """Who holds the lease, as the one who asks has read it: another daemon must not do it."""


class Controls(Protocol):
    """The daemon, as HTTP sees it. Whatever cannot be done raises Refused (or UsageError, for a key that means nothing)."""

    def alive(self) -> bool:
        """Whether the event loop still does its work; says nothing about NATS."""
        ...

    def not_ready(self) -> str:
        """Why this process is not ready; empty when it is."""
        ...

    def telling(self, query: StatusQuery) -> Pieces[dict[str, Any]]:
        """The status document, paged; made in pieces."""
        ...

    def reload(self) -> None:
        """Look at the manifests now."""
        ...

    def reconcile(self, key: Key | None) -> None:
        """Look at this resource (None: at everything) now, whatever its backoff."""
        ...

    def suspend(self, key: Key) -> None:
        """Leave this resource alone until it is resumed or the process ends."""
        ...

    def resume(self, key: Key) -> None:
        """Take this resource up again."""
        ...

    def abort_procedure(self, key: Key) -> None:
        """Let the running procedure of this resource take back what it can, and stop."""
        ...

    def retry_procedure(self, key: Key) -> None:
        """Let an aborted or failed procedure of this resource begin again."""
        ...

    async def disown(self, key: Key, holder: str) -> dict[str, Any]:
        """Take our marks off what stays as it is; `holder` as in a `ConsumerRequest`."""
        ...

    async def operate(self, request: ConsumerRequest) -> dict[str, Any]:
        """Pause, resume or move a consumer now; the server's answer."""
        ...
