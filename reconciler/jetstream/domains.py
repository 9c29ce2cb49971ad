"""The JetStream APIs of all domains, over one connection.

Invariant: they share one byte budget, because their replies share one connection.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.jetstream.api import AnswerListener, JetStreamApi, Sender
from reconciler.jetstream.transport.connection import Connection

ApiOf = Callable[[str], JetStreamApi]
"""The API of a domain."""


class DomainApis:
    """`apis("")` is the API the connection's settings name, `apis("leaf")` that of the domain `leaf`.

    With a `sender`, requests go its way and not over the connection.
    """

    def __init__(self, connection: Connection, on_answer: AnswerListener | None = None, *, sender: Sender | None = None) -> None:
        self.connection = connection
        self._on_answer = on_answer
        self._sender = sender
        self._home = JetStreamApi.from_settings(connection, on_answer, sender=sender)
        self._apis = {"": self._home}

    def through(self, sender: Sender) -> DomainApis:
        """The same APIs, asked another way."""
        return DomainApis(self.connection, self._on_answer, sender=sender)

    def __call__(self, domain: str) -> JetStreamApi:
        """The API of a domain; the same object each time."""
        if domain not in self._apis:
            self._apis[domain] = JetStreamApi(
                self.connection, domain=domain, budget=self._home.budget, on_answer=self._on_answer, sender=self._sender
            )
        return self._apis[domain]
