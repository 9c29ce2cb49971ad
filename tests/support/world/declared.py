"""Manifests of an origin S and a stream A that copies it, and every change of how A reads S, for the model server.

Invariant: only what a person would declare; nothing here says how it is to be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.model.desired import Declared, Desired
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent
from tests.support.values.build import consumer, stream
from tests.support.world.keeper import manifests

Entry = dict[str, Any]
IDENTITY = [{"src": "s.>", "dest": "s.>"}]
MOVED = [{"src": "s.>", "dest": "moved.a"}]
RETENTIONS = ("limits", "interest", "workqueue")


def origin(retention: str = "limits", name: str = "S", subject: str = "s.>", **spec: Any) -> Declared:
    """A stream to copy from."""
    return stream(name, {"subjects": [subject], "retention": retention, **spec})


def copier(*entries: Entry, intent: Intent = DEFAULT_INTENT, **spec: Any) -> Declared:
    """The stream that copies."""
    return stream("A", {"subjects": ["own.>"], **({"sources": list(entries)} if entries else {}), **spec}, intent)


def plain(**entry: Any) -> Entry:
    """An ephemeral entry."""
    return {"name": "S", **entry}


def managed(durable: str = "c", **entry: Any) -> Entry:
    """An entry whose durable is ours."""
    return {"name": "S", **entry, "consumer": {"name": durable, "serverManaged": True}}


def own(durable: str = "u", deliver: str = "", **entry: Any) -> Entry:
    """An entry whose durable is declared beside it (`user`)."""
    return {"name": "S", **entry, "consumer": {"name": durable, "deliverSubject": deliver or f"dlv.{durable}"}}


def user(durable: str = "u", deliver: str = "", **spec: Any) -> Declared:
    """The durable of such an entry."""
    return consumer("S", durable, {"ackPolicy": "flow_control", "deliverSubject": deliver or f"dlv.{durable}", **spec})


@dataclass(frozen=True)
class Row:
    """One change."""

    before: tuple[Declared, ...]
    after: tuple[Declared, ...]
    kept: str = ""
    """The durable that is there afterwards."""

    def manifests(self, retention: str) -> tuple[Desired, Desired]:
        """Before and after, for an origin of this retention."""
        return manifests(origin(retention), *self.before), manifests(origin(retention), *self.after)


ROWS = {
    "ephemeral to managed": Row((copier(plain()),), (copier(managed()),), "c"),
    "ephemeral to user": Row((copier(plain()),), (copier(own()), user()), "u"),
    "ephemeral to managed, filtered": Row((copier(plain(filterSubject="s.>")),), (copier(managed(filterSubject="s.>")),), "c"),
    "managed renamed": Row((copier(managed()),), (copier(managed("d")),), "d"),
    "user renamed": Row((copier(own()), user()), (copier(own("v")), user("v")), "v"),
    "managed to user of another name": Row((copier(managed()),), (copier(own()), user()), "u"),
    "user to managed of another name": Row((copier(own()), user()), (copier(managed()),), "c"),
    "managed to user of the same name": Row((copier(managed()),), (copier(own("c")), user("c")), "c"),
    "user to managed of the same name": Row((copier(own("c")), user("c")), (copier(managed()),), "c"),
    "managed to ephemeral": Row((copier(managed()),), (copier(plain()),)),
    "user to ephemeral": Row((copier(own()), user()), (copier(plain()),)),
    "managed to ephemeral, filtered": Row((copier(managed(filterSubject="s.a")),), (copier(plain(filterSubject="s.a")),)),
    "managed, transformed": Row((copier(managed()),), (copier(managed(subjectTransforms=IDENTITY)),), "c"),
    "managed, transformed otherwise": Row(
        (copier(managed(subjectTransforms=IDENTITY)),), (copier(managed(subjectTransforms=MOVED)),), "c"
    ),
    "user, transformed": Row((copier(own()), user()), (copier(own(subjectTransforms=IDENTITY)), user()), "u"),
    "managed, wider": Row((copier(managed(filterSubject="s.a")),), (copier(managed(filterSubject="s.>")),), "c"),
    "managed, no filter any more": Row((copier(managed(filterSubject="s.a")),), (copier(managed()),), "c"),
    "user, wider": Row((copier(own()), user(filterSubjects=["s.a"])), (copier(own()), user(filterSubjects=["s.a", "s.b"])), "u"),
    "user, no filter any more": Row((copier(own()), user(filterSubjects=["s.a"])), (copier(own()), user()), "u"),
    "another deliver subject": Row((copier(own()), user()), (copier(own(deliver="x")), user(deliver="x")), "u"),
    "ephemeral to managed, and a plain field": Row((copier(plain()),), (copier(managed(), maxAge="1d"),), "c"),
    "managed to ephemeral, and a plain field": Row((copier(managed()),), (copier(plain(), maxAge="1d"),)),
}
"""Changes after which every message that was published must be in A once, whatever the retention of S."""
