"""The JetStream APIs of all domains, over one connection.

Invariant: they share one byte budget, because their replies share one connection.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.jetstream.api import AnswerListener, JetStreamApi
from reconciler.jetstream.connection import Connection

ApiOf = Callable[[str], JetStreamApi]
"""The API of a domain."""


class DomainApis:
    """`apis("")` is the API the connection's settings name, `apis("leaf")` that of the domain `leaf`."""

    def __init__(self, connection: Connection, on_answer: AnswerListener | None = None) -> None:
        self.connection = connection
        self._on_answer = on_answer
        self._home = JetStreamApi.from_settings(connection, on_answer)
        self._apis = {"": self._home}

    def __call__(self, domain: str) -> JetStreamApi:
        """The API of a domain; the same object each time."""
        if domain not in self._apis:
            self._apis[domain] = JetStreamApi(self.connection, domain=domain, budget=self._home.budget, on_answer=self._on_answer)
        return self._apis[domain]
