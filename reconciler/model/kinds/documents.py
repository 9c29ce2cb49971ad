"""The kinds that declare no resource: they say where, by which rules, and from which files the others count.

Invariant: nothing here is ever sent to a server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from reconciler.model.identity import Kind
from reconciler.model.kinds.fields import Duration, Spec, Subject
from reconciler.model.patterns import check_pattern

Overlay = dict[str, Any]
"""Part of a resource's spec, in YAML names; checked against that kind's model where it is read."""


class Expect(Spec):
    """What the server must say of itself before anything is written there."""

    cluster: str | None = None
    domain: str | None = None


class Defaults(Spec):
    """What resources of a kind take that do not say it themselves, where it is legal for them."""

    stream: Annotated[Overlay, Field(alias="Stream")] = {}
    consumer: Annotated[Overlay, Field(alias="Consumer")] = {}
    worker_pool: Annotated[Overlay, Field(alias="WorkerPool")] = {}
    key_value: Annotated[Overlay, Field(alias="KeyValue")] = {}
    object_store: Annotated[Overlay, Field(alias="ObjectStore")] = {}


class Target(Spec):
    """The resource that a patch changes."""

    kind: Kind
    name: Annotated[str, Field(min_length=1)]


class EnvironmentPatch(Spec):
    """What is different about one resource in this environment."""

    target: Target
    spec: Overlay


class EnvironmentSpec(Spec):
    """Where the manifests go, and what is different there."""

    context: str = ""
    url: str = ""
    expect: Expect = Expect()
    defaults: Defaults = Defaults()
    patches: list[EnvironmentPatch] = []


class ConsumerPolicy(Spec):
    """Rules for consumers."""

    name_pattern: Annotated[str, AfterValidator(check_pattern)] | None = None
    require_pull: bool = False
    require_explicit_ack: bool = False
    require_durable: bool = False
    protect_names: bool = False
    unused_after: Annotated[Duration, Field(gt=0)] | None = None


class SubjectPolicy(Spec):
    """Rules for subjects; advisory."""

    forbid_direct_publish: list[Subject] = []


class PolicySpec(Spec):
    """The rules of an organisation, checked before anything is planned."""

    consumers: ConsumerPolicy = ConsumerPolicy()
    subjects: SubjectPolicy = SubjectPolicy()
    owner: str = ""
    approve: str = ""


class IndexedFile(Spec):
    """A file of a generated directory."""

    path: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AssignmentIndexSpec(Spec):
    """What counts in a generated directory."""

    pool: Annotated[str, Field(min_length=1)]
    generation: Annotated[int, Field(ge=0)]
    files: list[IndexedFile]


SETTINGS: tuple[Literal["Environment", "Policy", "AssignmentIndex"], ...] = ("Environment", "Policy", "AssignmentIndex")
"""The kinds that must be known before the others can be compiled."""
