"""Kind Stream: every stream field of API level 5, with what the server makes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, model_validator

from reconciler.model.api import api_prefix
from reconciler.model.kinds.common import Metadata, ResourceSpec
from reconciler.model.kinds.fields import Duration, LiteralSubject, Mutability, Size, Spec, Subject, Time, Unit, Wire
from reconciler.model.units import SECOND

IMMUTABLE = Mutability.IMMUTABLE
ONE_WAY = Mutability.ONE_WAY


class Transform(Spec):
    """Rewrites the subjects of messages on their way into a stream."""

    src: Annotated[Subject | None, Wire("Subjects to which the transform applies; absent: all.")] = None
    dest: Annotated[str, Wire("The subject they are stored under.")]


class Republish(Spec):
    """Publishes every stored message again under another subject."""

    src: Annotated[Subject | None, Wire("Which stored subjects are republished.", default=">")] = None
    dest: Annotated[str, Wire("Where they are published.")]
    headers_only: Annotated[bool | None, Wire("Leaves the payload out.", default=False)] = None


class Placement(Spec):
    """Where the server puts the replicas."""

    cluster: Annotated[str | None, Wire("The cluster that holds the stream.")] = None
    tags: Annotated[list[str] | None, Wire("Server tags that every replica's server must have.", unordered=True)] = None
    preferred: Annotated[str | None, Wire("The server that should lead.", level=1)] = None


class External(Spec):
    """Another account or JetStream domain; `domain` is sugar for `api: $JS.<domain>.API`."""

    api: Annotated[str | None, Wire("Subject prefix of the other side's JetStream API.")] = None
    deliver: Annotated[str | None, Wire("Subject prefix under which it delivers.", default="")] = None
    domain: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _spell_out_domain(cls, value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get("domain"), str):
            if "api" in value:
                msg = "give either domain or api, not both"
                raise ValueError(msg)
            return value | {"api": api_prefix(value["domain"])}
        return value

    @model_validator(mode="after")
    def _needs_api(self) -> External:
        if not self.api:
            msg = "needs domain or api"
            raise ValueError(msg)
        return self


class SourceConsumer(Spec):
    """The durable consumer a source reads through: ours (`serverManaged`), yours, or somebody's (`unmanaged`)."""

    name: Annotated[str, Wire("The durable's name on the source stream.")]
    deliver_subject: Annotated[LiteralSubject | None, Wire("The subject it delivers to.")] = None
    server_managed: bool = False
    unmanaged: bool = False


class Source(Spec):
    """One stream that is copied from."""

    name: Annotated[str, Wire("The stream that is copied.")]
    opt_start_seq: Annotated[int | None, Field(ge=0), Wire("First sequence to copy.", default=0)] = None
    opt_start_time: Annotated[Time | None, Wire("First moment to copy.", unit=Unit.TIME)] = None
    filter_subject: Annotated[Subject | None, Wire("Copies only these subjects.", default="")] = None
    subject_transforms: Annotated[list[Transform] | None, Wire("Filters and rewrites subjects.")] = None
    external: Annotated[External | None, Wire("The other account or domain it lives in.")] = None
    consumer: Annotated[SourceConsumer | None, Wire("Reads through a durable consumer.", level=4)] = None


class ConsumerLimits(Spec):
    """Limits, and at the same time defaults, for the stream's consumers."""

    inactive_threshold: Annotated[Duration | None, Field(ge=0), Wire("Longest inactivity.", default=0, unit=Unit.DURATION)] = None
    max_ack_pending: Annotated[int | None, Wire("Most unacknowledged messages.", default=0)] = None


class StreamSpec(ResourceSpec):
    """What can be declared of a stream."""

    description: Annotated[str | None, Field(max_length=4096), Wire("What the stream is for.", default="")] = None
    subjects: Annotated[
        list[Subject] | None, Wire("What it listens to; absent without sources: its own name.", unordered=True)
    ] = None
    retention: Annotated[
        Literal["limits", "interest", "workqueue"] | None,
        Wire(
            "How long messages stay: until a limit, while a consumer needs them, or until acknowledged.",
            default="limits",
            mutability=Mutability.PARTLY,
        ),
    ] = None
    storage: Annotated[
        Literal["file", "memory"] | None, Wire("Where messages are kept.", default="file", mutability=IMMUTABLE)
    ] = None
    num_replicas: Annotated[
        int | None,
        Field(ge=0, le=5, alias="replicas", validation_alias=AliasChoices("replicas", "numReplicas")),
        Wire("How many servers keep each message.", default=1),
    ] = None
    max_age: Annotated[Duration | None, Field(ge=0), Wire("Oldest message kept; 0: no limit.", default=0, unit=Unit.DURATION)] = (
        None
    )
    max_msgs: Annotated[int | None, Wire("Most messages kept; -1: no limit.", default=-1)] = None
    max_bytes: Annotated[Size | None, Wire("Most bytes kept; -1: no limit.", default=-1, unit=Unit.SIZE)] = None
    max_msgs_per_subject: Annotated[int | None, Wire("Most messages kept per subject; -1: no limit.", default=-1)] = None
    max_msg_size: Annotated[
        Size | None, Field(le=2**31 - 1), Wire("Largest message accepted; -1: no limit.", default=-1, unit=Unit.SIZE)
    ] = None
    max_consumers: Annotated[
        int | None, Wire("Most consumers; -1: no limit (2.15 stops at 1000 unless declared).", default=-1)
    ] = None
    discard: Annotated[
        Literal["old", "new"] | None, Wire("What gives way at a limit: old messages or new ones.", default="old")
    ] = None
    discard_new_per_subject: Annotated[
        bool | None, Wire("With `discard: new`, applies maxMsgsPerSubject the same way.", default=False)
    ] = None
    duplicate_window: Annotated[
        Duration | None, Field(ge=0), Wire("How long message ids are remembered.", default=120 * SECOND, unit=Unit.DURATION)
    ] = None
    no_ack: Annotated[bool | None, Wire("Publishers get no acknowledgement.", default=False)] = None
    compression: Annotated[Literal["none", "s2"] | None, Wire("How files are compressed.", default="none")] = None
    first_seq: Annotated[int | None, Field(ge=0), Wire("The sequence of the first message.", default=0)] = None
    placement: Annotated[Placement | None, Wire("Where replicas go.")] = None
    mirror: Annotated[
        Source | None, Wire("Copies one stream exactly; removing it promotes.", mutability=Mutability.REMOVABLE)
    ] = None
    sources: Annotated[list[Source] | None, Wire("Streams copied into this one.", unordered=True)] = None
    subject_transform: Annotated[Transform | None, Wire("Rewrites the subjects of stored messages.")] = None
    republish: Annotated[Republish | None, Wire("Publishes stored messages again.")] = None
    consumer_limits: Annotated[ConsumerLimits | None, Wire("Limits and defaults for consumers.")] = None
    allow_direct: Annotated[bool | None, Wire("Any replica may answer single-message reads.", default=False)] = None
    mirror_direct: Annotated[bool | None, Wire("A mirror answers those reads, too.", default=False)] = None
    allow_rollup_hdrs: Annotated[bool | None, Wire("A message may replace all before it.", default=False)] = None
    deny_delete: Annotated[bool | None, Wire("No message may be deleted.", default=False, mutability=ONE_WAY)] = None
    deny_purge: Annotated[bool | None, Wire("The stream may not be purged.", default=False, mutability=ONE_WAY)] = None
    sealed: Annotated[bool | None, Wire("Nothing may change any more; not at creation.", default=False, mutability=ONE_WAY)] = (
        None
    )
    allow_msg_ttl: Annotated[
        bool | None, Wire("Messages may carry their own TTL.", default=False, mutability=ONE_WAY, level=1)
    ] = None
    subject_delete_marker_ttl: Annotated[
        Duration | None,
        Field(ge=0),
        Wire("Leaves markers where limits removed a subject, for this long.", default=0, unit=Unit.DURATION, level=1),
    ] = None
    allow_msg_counter: Annotated[bool | None, Wire("The stream is a counter.", default=False, mutability=IMMUTABLE, level=2)] = (
        None
    )
    allow_atomic: Annotated[bool | None, Wire("Accepts atomic batches.", default=False, level=2)] = None
    allow_msg_schedules: Annotated[
        bool | None, Wire("Messages may be scheduled.", default=False, mutability=ONE_WAY, level=2)
    ] = None
    persist_mode: Annotated[
        Literal["default", "async"] | None,
        Wire("When writes reach the disk.", default="default", mutability=IMMUTABLE, level=2),
    ] = None
    allow_batched: Annotated[bool | None, Wire("Accepts fast batches.", default=False, level=4)] = None
    metadata: Annotated[Metadata | None, Wire("Your own labels.")] = None
