"""Kinds WorkerPool and WorkerAssignment, and the Pool they add up to: one durable pull consumer per worker.

Invariant: a Pool is complete and canonical; each worker's subjects are sorted, without duplicates, however they were declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from reconciler.model.identity import Key, Location
from reconciler.model.kinds.common import DEFAULT_INTENT, Domain, Intent, ResourceSpec
from reconciler.model.kinds.consumer import ConsumerFields, DeadLetter
from reconciler.model.kinds.fields import Duration, Spec, Subject
from reconciler.model.units import SECOND

TEMPLATE_DEFAULTS: Mapping[str, Any] = {
    "ack_policy": "explicit",
    "ack_wait": 30 * SECOND,
    "max_ack_pending": 500,
    "max_waiting": 256,
    "max_deliver": 3,
}
"""What a pool's consumers are made with, unless its `consumer` block says otherwise."""


class PoolConsumer(ConsumerFields):
    """The template of a pool's consumers."""

    dead_letter: DeadLetter | None = None


class PoolLimits(Spec):
    """How much one consumer carries, and how often it may change."""

    max_subjects: Annotated[int, Field(ge=1)] = 500
    min_update_interval: Annotated[Duration, Field(ge=0)] = SECOND
    stabilization: Annotated[Duration, Field(ge=0)] = 5 * SECOND


class Handoff(Spec):
    """How a subject moves from one worker to another."""

    ordered: bool = False
    deadline: Annotated[Duration, Field(gt=0)] = 120 * SECOND
    dead_after: Annotated[Duration, Field(gt=0)] = 60 * SECOND
    when_dead: Literal["report", "rewind"] = "report"


class Rollback(Spec):
    """When a migration goes back one phase by itself."""

    redeliveries: Annotated[float | None, Field(ge=0)] = None
    lag: Annotated[int | None, Field(ge=0)] = None
    windows: Annotated[int | None, Field(ge=1)] = None


class Migration(Spec):
    """The way from one consumer per partition to one per worker, advanced phase by phase."""

    consumers: Annotated[str, Field(min_length=1)]
    """The names of the legacy consumers, with `*`."""
    phase: Literal["shadow", "validate", "dual", "switch", "cleanup"]
    max_shadow: Annotated[Duration | None, Field(gt=0)] = None
    rollback: Rollback | None = None


class PoolWorker(Spec):
    """A worker declared within its pool."""

    id: Annotated[str, Field(min_length=1)]
    filter_subjects: list[Subject]


class WorkerPoolSpec(ResourceSpec):
    """What can be declared of a worker pool."""

    stream: str
    consumer_prefix: str | None = None
    """Absent: the name of the pool."""
    consumer: PoolConsumer = PoolConsumer()
    limits: PoolLimits = PoolLimits()
    handoff: Handoff = Handoff()
    claims: Literal["enabled", "disabled"] = "disabled"
    overlap: Literal["allowed", "refused"] = "refused"
    start_new: Literal["all", "now"] = "all"
    shard_over_cap: bool = False
    migrate_from: Migration | None = None
    workers: list[PoolWorker] = []


class WorkerAssignmentSpec(Spec):
    """One worker of a pool, as a document of its own."""

    pool: Annotated[str, Field(min_length=1)]
    worker: Annotated[str, Field(min_length=1)]
    filter_subjects: list[Subject]
    domain: Domain = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker and its subjects, kept as text because a pool may have millions."""

    id: str
    text: bytes
    """The subjects, sorted, one per line."""
    count: int
    duplicates: int
    """How many subjects were declared more than once."""
    location: Location

    @classmethod
    def of(cls, worker: str, subjects: list[str], location: Location) -> Worker:
        """The canonical form of what a document lists."""
        unique = sorted(set(subjects))
        return cls(worker, "\n".join(unique).encode(), len(unique), len(subjects) - len(unique), location)

    @property
    def subjects(self) -> list[str]:
        """The subjects, sorted; empty for a parked worker."""
        return self.text.decode().split("\n") if self.text else []


@dataclass(frozen=True, slots=True)
class Pool:
    """A worker pool with all its workers, wherever they were declared."""

    key: Key
    spec: WorkerPoolSpec
    """Without the workers."""
    template: bytes
    """The configuration every consumer of the pool starts from: JSON, wire names, no name and no filter."""
    workers: Mapping[str, Worker]
    location: Location
    intent: Intent = DEFAULT_INTENT

    @property
    def stream(self) -> Key:
        """The stream that the pool reads."""
        return Key("Stream", self.spec.stream, "", self.key.domain)

    @property
    def config(self) -> dict[str, Any]:
        """The template, a fresh dict each time."""
        parsed: dict[str, Any] = orjson.loads(self.template)
        return parsed

    @property
    def consumer_prefix(self) -> str:
        """What the names of the pool's consumers begin with, before the dash."""
        return self.spec.consumer_prefix or self.key.name

    @property
    def subjects(self) -> list[str]:
        """The subjects of all workers, each once."""
        return list(dict.fromkeys(subject for worker in self.workers.values() for subject in worker.subjects))

    def consumer_names(self, worker: Worker) -> list[str]:
        """The durable of a worker, or its shards when it is over the cap and the pool allows that."""
        name, cap = f"{self.consumer_prefix}-{worker.id}", self.spec.limits.max_subjects
        if worker.count <= cap or not self.spec.shard_over_cap:
            return [name]
        return [f"{name}-s{shard}" for shard in range(-(-worker.count // cap))]
