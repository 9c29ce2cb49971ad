"""Every change of how a stream copies another, as data: the manifests before and after.

Invariant: what is here is what a user would write; nothing says how it is to be done.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.support.values.catalogues import Json, stream

RETENTIONS = ("limits", "interest", "workqueue")
HOME = ("",)
"""Where the aggregate is."""


@dataclass(frozen=True)
class Side:
    """An entry, and the consumers declared for it; `$P` stands for what the subjects of the source begin with."""

    entry: str = "{}"
    """JSON."""
    consumers: str = "{}"
    """JSON: names and specs."""

    def documents(self, lane: Lane, **spec: Any) -> list[Json]:
        """The sources and their consumers in each domain, and the aggregate (`spec` is more about it)."""
        more = {"replicas": lane.replicas} if lane.replicas > 1 else {}
        found: list[Json] = []
        entries: list[Json] = []
        for domain in lane.domains:
            where = {"domain": domain} if domain else {}
            found.append(stream(lane.source, f"{lane.prefix(domain)}.>", retention=lane.retention, **where, **more))
            for name, own in self._filled_in(self.consumers, lane, domain).items():
                body = {"stream": lane.source, "ackPolicy": "flow_control", **where, **own}
                found.append({"kind": "Consumer", "metadata": {"name": name}, "spec": body})
            external = {"external": {"domain": domain}} if domain else {}
            entries.append({"name": lane.source, **external, **self._filled_in(self.entry, lane, domain)})
        copies = {"mirror": entries[0]} if lane.row.mirror else {"sources": entries}
        return [*found, {"kind": "Stream", "metadata": {"name": lane.aggregate}, "spec": {**more, **copies, **spec}}]

    @staticmethod
    def _filled_in(text: str, lane: Lane, domain: str) -> Json:
        filled: Json = json.loads(text.replace("$P", lane.prefix(domain)))
        return filled


@dataclass(frozen=True)
class Row:
    """One change."""

    name: str
    before: Side
    after: Side
    retentions: tuple[str, ...] = RETENTIONS
    mirror: bool = False
    """It cannot be done to a mirror, and has to be refused."""


@dataclass(frozen=True)
class Lane:
    """A row with streams of its own, so that many can run side by side."""

    row: Row
    retention: str
    replicas: int = 1
    domains: tuple[str, ...] = HOME
    """In each of them, a source of the same name."""

    @property
    def name(self) -> str:
        """What it is about."""
        cluster = ", R3" if self.replicas > 1 else ""
        return f"{self.row.name}, {self.retention}{cluster}{', '.join(('', *filter(None, self.domains)))}"

    @property
    def slug(self) -> str:
        """The same, within a name."""
        return f"{self.row.name}-{self.retention}".replace(" ", "_").replace(",", "")

    @property
    def source(self) -> str:
        """Its source stream."""
        return f"S-{self.slug}"

    @property
    def aggregate(self) -> str:
        """Its aggregate."""
        return f"A-{self.slug}"

    def prefix(self, domain: str) -> str:
        """What the subjects of the source in that domain begin with: leaf nodes hear each other's."""
        return f"{self.source}.{domain}" if domain else self.source

    def subjects(self, domain: str) -> list[str]:
        """Where the load goes."""
        return [f"{self.prefix(domain)}.load.{last}" for last in "ab"]


def lanes(*rows: Row, replicas: int = 1, retentions: tuple[str, ...] = RETENTIONS, domains: tuple[str, ...] = HOME) -> list[Lane]:
    """Each row under each retention it is about."""
    return [Lane(row, each, replicas, domains) for row in rows for each in row.retentions if each in retentions]


def one_retention_each(dice: random.Random) -> list[Lane]:
    """All rows, each under one retention: what a short run has time for."""
    return [Lane(each, dice.choice(each.retentions)) for each in ROWS]


def managed(name: str = "c", **entry: Any) -> Side:
    """A durable that is kept for it."""
    return Side(json.dumps({**entry, "consumer": {"name": name, "serverManaged": True}}))


def user(name: str = "u", deliver: str = "", filters: tuple[str, ...] = (), **entry: Any) -> Side:
    """A durable that is declared beside it."""
    deliver = deliver or f"deliver.$P.{name}"
    spec = {"deliverSubject": deliver, **({"filterSubjects": filters} if filters else {})}
    return Side(json.dumps({**entry, "consumer": {"name": name, "deliverSubject": deliver}}), json.dumps({name: spec}))


PLAIN = Side()
_LOAD, _REST = "$P.load.>", "$P.rest.>"
_MOVED = {"src": _LOAD, "dest": "moved.>"}
_ELSEWHERE = {"src": _LOAD, "dest": "elsewhere.>"}
_TOO = {"src": _REST, "dest": "rest.>"}

ROWS = (
    Row("ephemeral to managed", PLAIN, managed()),
    Row("ephemeral to user", PLAIN, user()),
    Row("managed to ephemeral", managed(), PLAIN),
    Row("user to ephemeral", user(), PLAIN),
    Row("managed renamed", managed("c"), managed("d")),
    Row("user renamed", user("u"), user("v")),
    Row("managed to user of the same name", managed("c"), user("c")),
    Row("user to managed of the same name", user("c"), managed("c")),
    Row("managed to user of another name", managed("c"), user("u")),
    Row("user to managed of another name", user("u"), managed("c")),
    Row("another deliver subject", user(), user(deliver="elsewhere.$P.u")),
    Row("managed, other transforms", managed(subjectTransforms=[_MOVED]), managed(subjectTransforms=[_ELSEWHERE])),
    Row(
        "user, other transforms",
        user(filters=(_LOAD,), subjectTransforms=[_MOVED]),
        user(filters=(_LOAD,), subjectTransforms=[_ELSEWHERE]),
    ),
    Row("managed, one subject more", managed(subjectTransforms=[_MOVED]), managed(subjectTransforms=[_MOVED, _TOO])),
    Row("managed, one subject less", managed(subjectTransforms=[_MOVED, _TOO]), managed(subjectTransforms=[_MOVED])),
    Row("user, one subject more", user(filters=(_LOAD,)), user(filters=(_LOAD, _REST))),
    Row("user, one subject less", user(filters=(_LOAD, _REST)), user(filters=(_LOAD,))),
)
MIRRORS = (
    Row("mirror ephemeral to managed", PLAIN, managed(), ("limits",), mirror=True),
    Row("mirror managed to ephemeral", managed(), PLAIN, ("limits",), mirror=True),
    Row("mirror managed renamed", managed("c"), managed("d"), ("limits",), mirror=True),
)


def row(name: str) -> Row:
    """The row of that name."""
    return next(each for each in (*ROWS, *MIRRORS) if each.name == name)
