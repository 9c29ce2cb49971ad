"""Kind Consumer: every consumer field of API level 5, with what the server makes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from reconciler.model.kinds.common import Metadata, ResourceSpec
from reconciler.model.kinds.fields import Duration, LiteralSubject, Mutability, Size, Spec, Subject, Time, Unit, Wire
from reconciler.model.units import SECOND

IMMUTABLE = Mutability.IMMUTABLE

INTERNAL_FIELDS = frozenset({"name", "durable_name", "direct", "sourcing"})
"""On the wire but never declared: the identity, and what only the server's own consumers carry."""


class DeadLetter(Spec):
    """Where messages go that were delivered too often."""

    subject: LiteralSubject


class ConsumerFields(Spec):
    """The JetStream configuration of a consumer (also the template of a worker pool)."""

    description: Annotated[str | None, Field(max_length=4096), Wire("What the consumer is for.", default="")] = None
    ack_policy: Annotated[
        Literal["none", "all", "explicit", "flow_control"] | None,
        Wire("Which messages must be acknowledged; manifests default to explicit.", default="none", mutability=IMMUTABLE),
    ] = None
    deliver_policy: Annotated[
        Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"] | None,
        Wire("Where a new consumer starts.", default="all", mutability=IMMUTABLE),
    ] = None
    opt_start_seq: Annotated[
        int | None, Field(ge=0), Wire("First sequence, with by_start_sequence.", default=0, mutability=IMMUTABLE)
    ] = None
    opt_start_time: Annotated[Time | None, Wire("First moment, with by_start_time.", unit=Unit.TIME, mutability=IMMUTABLE)] = None
    ack_wait: Annotated[
        Duration | None,
        Field(ge=0),
        Wire("How long an acknowledgement may take.", default=30 * SECOND, unit=Unit.DURATION),
    ] = None
    max_deliver: Annotated[int | None, Wire("How often a message is delivered at most; -1: no limit.", default=-1)] = None
    backoff: Annotated[
        list[Duration] | None, Wire("Waits before redeliveries; the first one is the ack wait.", unit=Unit.DURATION)
    ] = None
    filter_subject: Annotated[Subject | None, Wire("Delivers only this subject.", default="")] = None
    filter_subjects: Annotated[list[Subject] | None, Wire("Delivers only these subjects.", unordered=True)] = None
    replay_policy: Annotated[
        Literal["instant", "original"] | None, Wire("How fast it delivers.", default="instant", mutability=IMMUTABLE)
    ] = None
    rate_limit_bps: Annotated[int | None, Field(ge=0), Wire("Bits per second a push delivers.", default=0)] = None
    sample_freq: Annotated[str | None, Wire("Share of acknowledgements that is sampled.", default="")] = None
    max_waiting: Annotated[int | None, Field(ge=0), Wire("Most waiting pulls.", default=512, mutability=IMMUTABLE)] = None
    max_ack_pending: Annotated[int | None, Wire("Most unacknowledged messages; -1: no limit.", default=1000)] = None
    headers_only: Annotated[bool | None, Wire("Delivers headers without payload.", default=False)] = None
    max_batch: Annotated[int | None, Field(ge=0), Wire("Largest batch a pull may ask for.", default=0)] = None
    max_expires: Annotated[Duration | None, Field(ge=0), Wire("Longest a pull may wait.", default=0, unit=Unit.DURATION)] = None
    max_bytes: Annotated[Size | None, Field(ge=0), Wire("Most bytes a pull may ask for.", default=0, unit=Unit.SIZE)] = None
    inactive_threshold: Annotated[
        Duration | None, Field(ge=0), Wire("Deleted after this much inactivity; 0: never.", default=0, unit=Unit.DURATION)
    ] = None
    num_replicas: Annotated[
        int | None,
        Field(ge=0, le=5, alias="replicas", validation_alias=AliasChoices("replicas", "numReplicas")),
        Wire("Replicas of its state; 0: as the stream.", default=0),
    ] = None
    mem_storage: Annotated[bool | None, Wire("Keeps its state in memory.", default=False, mutability=IMMUTABLE)] = None
    deliver_subject: Annotated[LiteralSubject | None, Wire("Pushes to this subject.", default="")] = None
    deliver_group: Annotated[str | None, Wire("Queue group of the subscribers.", default="")] = None
    flow_control: Annotated[bool | None, Wire("Push with flow control.", default=False, mutability=IMMUTABLE)] = None
    idle_heartbeat: Annotated[
        Duration | None,
        Field(ge=0),
        Wire("Push: heartbeat when idle.", default=0, unit=Unit.DURATION, mutability=IMMUTABLE),
    ] = None
    priority_groups: Annotated[list[str] | None, Wire("Groups of pullers with priorities.", level=1)] = None
    priority_policy: Annotated[
        Literal["none", "overflow", "pinned_client", "prioritized"] | None,
        Wire("How groups share.", default="none", level=1),
    ] = None
    priority_timeout: Annotated[
        Duration | None,
        Field(ge=0),
        Wire("How long a pinned client may be silent.", default=0, unit=Unit.DURATION, level=1),
    ] = None
    metadata: Annotated[Metadata | None, Wire("Your own labels.")] = None


class ConsumerSpec(ConsumerFields, ResourceSpec):
    """What can be declared of a consumer."""

    stream: str
    durable: bool = True
    """False: a named consumer the server may forget after `inactiveThreshold`."""
    pause_until: Time | None = None
    dead_letter: DeadLetter | None = None
    on_missing: Literal["resume", "policy", "block"] = "resume"
