"""What is declared in a soak: families of a few resources each, of which each kind bears another sort of meddling.

| family | is | bears |
|---|---|---|
| kept | a stream that keeps everything, ten consumers, one of them read | what loses nothing; anything on its consumers |
| rough | the same, with few messages | also what removes messages: limits, purges, a stream that is deleted and made anew |
| full | a stream that is always full | a limit that is lifted, so that more is stored than declared |
| worked | a work queue or an interest stream, read by a worker | edits; on a work queue its consumer is deleted as well |
| copied | an origin, and a stream that copies it in one of three ways | that of which docs/sourcing.md says what it costs |
| bucket | a key-value bucket | edits |

Invariant: nothing of `reconciler` is used here, so what is expected does not come from what is tested.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.values.catalogues import Json, consumer, stream

OWNER = "soak"
READ = "c0"
"""The consumer of a family that is read."""
FULL = 100
"""Messages that a full stream keeps."""
FORMS = ("ephemeral", "managed", "user")
RETENTIONS = ("limits", "limits", "workqueue", "interest")
_SHARES = {"kept": 0.54, "rough": 0.24, "full": 0.01, "worked": 0.04, "copied": 0.14, "bucket": 0.03}
_SIZES = {"kept": 11, "rough": 9, "full": 2, "worked": 2, "copied": 2, "bucket": 1}
_NAMES = {"bucket": "KV_bucket", "copied": "ORIGIN"}
_EDITED = 20
"""Resources that another edition of the manifests declares otherwise."""
_MIGRATED = 7
"""Every seventh of the first that copy does it in another way then: one on each retention."""


@dataclass(eq=False)
class Family:
    """A few resources that belong together."""

    kind: str
    number: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever publishes to it, and by whoever does something to it whose cost is to be known exactly."""

    @property
    def stream(self) -> str:
        """The stream that is published to; of a bucket, its stream."""
        return f"{_NAMES.get(self.kind, self.kind.upper())}-{self.number}"

    @property
    def copy(self) -> str:
        """The stream that copies."""
        return f"COPY-{self.number}"

    @property
    def retention(self) -> str:
        """Of the stream."""
        if self.kind == "copied":
            return RETENTIONS[self.number // len(FORMS) % len(RETENTIONS)]
        return ("workqueue", "interest")[self.number % 2] if self.kind == "worked" else "limits"

    @property
    def read(self) -> bool:
        """Whether somebody reads its first consumer."""
        return self.kind in {"kept", "rough", "worked"}

    @property
    def subjects(self) -> tuple[str, ...]:
        """What is published to; the read consumer wants all of them but the last."""
        if self.kind == "bucket":
            return ()
        letters = "ab" if self.kind == "worked" else "abc"
        return tuple(f"{self.kind}.{self.number}.{letter}" for letter in letters)

    @property
    def wanted(self) -> tuple[str, ...]:
        """What the consumer that is read delivers."""
        return self.subjects if self.kind == "worked" else self.subjects[:-1]

    @property
    def members(self) -> tuple[str, ...]:
        """The declared consumers, but for a durable that is read through."""
        return tuple(f"c{number}" for number in range(_SIZES[self.kind] - 1)) if self.read else ("c1",) * (self.kind == "full")

    def form(self, edition: int) -> str:
        """How it copies."""
        moved = bool(edition) and self.number % _MIGRATED == 0 and self.number < _MIGRATED * len(RETENTIONS)
        return FORMS[(self.number + moved) % len(FORMS)]

    def durable(self, edition: int) -> str:
        """The durable that the copy reads through, by its declared name; empty where the server keeps one of its own."""
        return {"ephemeral": "", "managed": "kept", "user": "own"}[self.form(edition)]

    def documents(self, edition: int) -> Iterator[Json]:
        """Its manifests."""
        if self.kind == "bucket":
            yield {"kind": "KeyValue", "metadata": {"name": f"bucket-{self.number}"}, "spec": {"history": 5}}
        elif self.kind == "copied":
            yield from self._copied(edition)
        else:
            yield self._stream(edition)
            yield from self._consumers(edition)

    def keys(self, edition: int) -> list[str]:
        """The keys of all that it declares."""
        return [_key(document) for document in self.documents(edition)]

    def _stream(self, edition: int) -> Json:
        spec: Json = {"maxMsgs": FULL if self.kind == "full" else 5_000_000}
        if self.kind == "worked":
            spec |= {"retention": self.retention}
        if self._edited(edition):
            spec |= {"description": "in the other edition"}
        return stream(self.stream, f"{self.kind}.{self.number}.>", **spec)

    def _consumers(self, edition: int) -> Iterator[Json]:
        for number, name in enumerate(self.members):
            filters = self.wanted if name == READ else (self.subjects[number % len(self.subjects)],)
            spec: dict[str, Any] = {"ackWait": "20s", "maxAckPending": 2000, "maxDeliver": -1}
            if self._edited(edition) and name == "c1":
                filters = (*filters, f"{self.kind}.{self.number}.other")
            if self._edited(edition) and name != READ:
                spec |= {"maxDeliver": 7}
            yield consumer(self.stream, name, *filters, **spec)

    def _copied(self, edition: int) -> Iterator[Json]:
        yield stream(self.stream, f"copied.{self.number}.>", retention=self.retention)
        form, name = self.form(edition), self.durable(edition)
        deliver = f"deliver.copied.{self.number}"
        entries: dict[str, Json] = {
            "ephemeral": {},
            "managed": {"consumer": {"name": name, "serverManaged": True}},
            "user": {"consumer": {"name": name, "deliverSubject": deliver}},
        }
        yield {"kind": "Stream", "metadata": {"name": self.copy}, "spec": {"sources": [{"name": self.stream, **entries[form]}]}}
        if form == "user":
            spec = {"stream": self.stream, "ackPolicy": "flow_control", "deliverSubject": deliver}
            yield {"kind": "Consumer", "metadata": {"name": name}, "spec": spec}

    def _edited(self, edition: int) -> bool:
        return bool(edition) and self.kind == "kept" and self.number < max(1, _EDITED // _SIZES["kept"])


def _key(document: Json) -> str:
    kind, name = document["kind"], document["metadata"]["name"]
    return f"Consumer/{document['spec']['stream']}/{name}" if kind == "Consumer" else f"{kind}/{name}"


@dataclass(frozen=True)
class Families:
    """All families, and the directory of their manifests."""

    every: tuple[Family, ...]
    directory: Path

    @classmethod
    def of(cls, resources: int, directory: Path) -> Families:
        """So many resources, about."""
        directory.mkdir(parents=True)
        numbers = {kind: max(2, round(resources * share / _SIZES[kind])) for kind, share in _SHARES.items()}
        return cls(tuple(Family(kind, number) for kind, count in numbers.items() for number in range(count)), directory)

    def some(self, *kinds: str) -> list[Family]:
        """The families of these kinds."""
        return [family for family in self.every if family.kind in kinds]

    def write(self, edition: int) -> int:
        """The manifests, one file for each family; how many resources they declare."""
        count = 0
        for family in self.every:
            documents = [{"apiVersion": "reconciler/v1", **one} for one in family.documents(edition)]
            count += len(documents)
            text = "\n---\n".join(map(json.dumps, documents)) + "\n"
            path = self.directory / f"{family.stream.lower()}.yaml"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                fresh = path.with_suffix(".new")
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(path)
        return count
