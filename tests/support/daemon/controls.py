"""A daemon as HTTP sees it, that does nothing but note what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reconciler.model.identity import Key
from reconciler.observe.http.controls import ConsumerRequest, StatusQuery
from reconciler.observe.http.renderings import Pieces


@dataclass
class Daemon:
    """Controls that note what was asked of them."""

    living: bool = True
    reason: str = ""
    asked: list[tuple[object, ...]] = field(default_factory=list)
    refuse: Exception | None = None

    def alive(self) -> bool:
        """As set."""
        return self.living

    def not_ready(self) -> str:
        """As set."""
        return self.reason

    def telling(self, query: StatusQuery) -> Pieces[dict[str, Any]]:
        """The query itself."""
        self._note("status", query)
        yield
        return {"kind": "Status", "resources": []}

    def reload(self) -> None:
        """Noted."""
        self._note("reload")

    def reconcile(self, key: Key | None) -> None:
        """Noted."""
        self._note("reconcile", key)

    def suspend(self, key: Key) -> None:
        """Noted."""
        self._note("suspend", key)

    def resume(self, key: Key) -> None:
        """Noted."""
        self._note("resume", key)

    def abort_procedure(self, key: Key) -> None:
        """Noted."""
        self._note("abort", key)

    def retry_procedure(self, key: Key) -> None:
        """Noted."""
        self._note("retry", key)

    async def operate(self, request: ConsumerRequest) -> dict[str, Any]:
        """Noted."""
        self._note(request)
        return {"changed": True, "answer": {}}

    async def disown(self, key: Key, holder: str) -> dict[str, Any]:
        """Noted."""
        self._note("disown", key, holder)
        return {"changed": True}

    def _note(self, *what: object) -> None:
        if self.refuse:
            raise self.refuse
        self.asked.append(what)
