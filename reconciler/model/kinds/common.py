"""What every declared resource shares: its envelope, intent and the fields that are ours alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from reconciler.model.identity import valid_name
from reconciler.model.kinds.fields import Spec

RESERVED_METADATA = ("_nats.", "reconciler.")
"""Key prefixes of the server's and of our own marker: never declared, never a difference."""


class State(StrEnum):
    """What a document wants of the resource it names."""

    PRESENT = "present"
    ABSENT = "absent"
    """A tombstone: remove it on purpose."""
    UNMANAGED = "unmanaged"
    """Only check that it exists and obeys the rules."""


def _unreserved(value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if key.startswith(RESERVED_METADATA):
            msg = (
                f"metadata key {key!r} is reserved ({' and '.join(RESERVED_METADATA)} belong to the server and to the reconciler)"
            )
            raise ValueError(msg)
    return value


Metadata = Annotated[dict[str, str], AfterValidator(_unreserved)]


def _domain(value: str) -> str:
    if value and not valid_name(value):
        msg = f"not a JetStream domain: {value[:60]!r} (no white space, dots, wildcards or control characters)"
        raise ValueError(msg)
    return value


Domain = Annotated[str, AfterValidator(_domain)]
"""The JetStream domain a resource lives in; empty: the one that is connected to."""


class ResourceSpec(Spec):
    """Fields of our own that every resource kind takes."""

    state: Literal["present", "absent", "unmanaged"] = "present"
    domain: Domain = ""
    ignore: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Field paths (YAML names) left to others."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a document says about its resource beyond the configuration; shared by the many that say nothing."""

    state: State = State.PRESENT
    adopt: bool = False
    suspend: bool = False
    allow: frozenset[str] = frozenset()
    """Named permissions: recreate, data-loss, position-loss, replicas."""
    ignore: tuple[str, ...] = ()
    """Field paths (YAML names) left to others."""
    prevent_update: bool = False
    prevent_delete: bool = False
    pause_until: str = ""
    on_missing: Literal["resume", "policy", "block"] = "resume"


DEFAULT_INTENT = Intent()
