"""Manifests made by the hundred, together with what the server shall hold of them.

Invariant: nothing of `reconciler` is used here, so what is expected does not come from what is tested.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.account.wire import Wire

Json = dict[str, Any]
LEASE_BUCKETS = "KV_reconciler-"

CATALOGUE = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: PAYMENTS}
spec: {subjects: [platform.payments.>], storage: file, maxAge: 30d, maxBytes: 64MB}
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: billing}
spec: {stream: PAYMENTS, filterSubjects: [platform.payments.credited], ackWait: 30s, maxDeliver: 10}
---
apiVersion: reconciler/v1
kind: KeyValue
metadata: {name: settings}
spec: {history: 5}
"""
"""Three valid resources."""


def stream(name: str, *subjects: str, **spec: Any) -> Json:
    """A stream's manifest; `spec` in camelCase."""
    return {"kind": "Stream", "metadata": {"name": name}, "spec": {"subjects": list(subjects), **spec}}


def consumer(of: str, name: str, *filters: str, allow: str = "", **spec: Any) -> Json:
    """A consumer's manifest; `allow` is its annotation."""
    metadata: Json = {"name": name} | ({"annotations": {"reconciler/allow": allow}} if allow else {})
    return {"kind": "Consumer", "metadata": metadata, "spec": {"stream": of, "filterSubjects": list(filters), **spec}}


def write(path: Path, documents: Iterable[Json]) -> Path:
    """One file of many documents (JSON is YAML)."""
    texts = (json.dumps({"apiVersion": "reconciler/v1", **document}) for document in documents)
    path.write_text("\n---\n".join(texts) + "\n", encoding="utf-8")
    return path


@dataclass
class Catalogue:
    """Streams, consumers and buckets; `generation` changes fields of many and swaps some for others."""

    generation: int
    size: int = 500
    documents: list[Json] = field(default_factory=list)
    expected: dict[str, Json] = field(default_factory=dict)
    """By `stream` or `stream/consumer`: fields of the live configuration."""

    def __post_init__(self) -> None:
        number = 0
        while len(self.documents) < self.size:
            self._family(number)
            number += 1

    def _family(self, number: int) -> None:
        """A bucket, a stream, and eight consumers; every fifth family belongs to one generation only."""
        suffix = f"{number}g{self.generation}" if number % 5 == 0 else str(number)
        name, changed = f"S{suffix}", self.generation if number % 2 else 0
        self.documents.append({"kind": "KeyValue", "metadata": {"name": f"b{suffix}"}, "spec": {"history": 3 + changed}})
        self.expected[f"KV_b{suffix}"] = {"max_msgs_per_subject": 3 + changed}
        self.documents.append(stream(name, f"s{suffix}.>", maxMsgs=1000 + changed))
        self.expected[name] = {"subjects": [f"s{suffix}.>"], "max_msgs": 1000 + changed}
        for member in range(8):
            subject = f"s{suffix}.{member}"
            self.documents.append(consumer(name, f"c{member}", subject, maxDeliver=5 + changed * (member % 2)))
            wanted = {"filter_subjects": [subject], "max_deliver": 5 + changed * (member % 2), "ack_policy": "explicit"}
            self.expected[f"{name}/c{member}"] = wanted

    def write(self, directory: Path) -> Path:
        """A file of it."""
        return write(directory / f"catalogue-{self.generation}.yaml", self.documents)


async def everything(wire: Wire) -> dict[str, Json]:
    """The configurations of all streams and consumers on the server but the lease's; what the server adds, removed."""
    found: dict[str, Json] = {}
    for info in await _listed(wire, "STREAM.LIST", "streams"):
        name = info["config"]["name"]
        if name.startswith(LEASE_BUCKETS):
            continue
        found[name] = _bare(info["config"])
        for inner in await _listed(wire, f"CONSUMER.LIST.{name}", "consumers"):
            found[f"{name}/{inner['name']}"] = _bare(inner["config"])
    return found


async def _listed(wire: Wire, request: str, field_name: str) -> list[Json]:
    infos: list[Json] = []
    while True:
        page = await wire.expect(request, {"offset": len(infos)})
        infos += page[field_name] or []
        if len(infos) >= page["total"]:
            return infos


def _bare(config: Json) -> Json:
    metadata = {name: value for name, value in config.get("metadata", {}).items() if not name.startswith("_nats.")}
    return config | {"metadata": metadata}
