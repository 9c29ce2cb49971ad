"""Environment documents → what the chosen one means for each resource.

Invariant: as soon as one Environment is declared, one must be chosen; a set that means two things is never applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.findings import Finding, Path, from_validation
from reconciler.manifests.merge import Spec
from reconciler.manifests.rules.unit import check_units
from reconciler.manifests.suggest import quoted, suggest
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Expectation
from reconciler.model.identity import Location
from reconciler.model.kinds.buckets import KeyValueSpec, ObjectStoreSpec
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.documents import EnvironmentPatch, EnvironmentSpec
from reconciler.model.kinds.pool import WorkerPoolSpec
from reconciler.model.kinds.stream import StreamSpec

MODELS: Mapping[str, type[BaseModel]] = {
    "Stream": StreamSpec,
    "Consumer": ConsumerSpec,
    "KeyValue": KeyValueSpec,
    "ObjectStore": ObjectStoreSpec,
    "WorkerPool": WorkerPoolSpec,
}


@dataclass(frozen=True, slots=True)
class Environment:
    """The chosen environment, as compiling needs it; the default is none at all."""

    name: str = ""
    context: str = ""
    url: str = ""
    expect: Expectation = field(default_factory=Expectation)
    defaults: Mapping[str, Spec] = field(default_factory=dict)
    """By kind."""
    patches: Mapping[tuple[str, str], tuple[Spec, ...]] = field(default_factory=dict)
    """By kind and name."""
    location: Location | None = None


def check_environment(spec: EnvironmentSpec) -> Iterator[Finding]:
    """What is wrong with defaults and patches, seen by the kinds they are for."""
    for kind, defaults in spec.defaults.model_dump(by_alias=True).items():
        yield from _check_overlay(kind, defaults, ("spec", "defaults", kind))
        for name in ("state", "stream"):
            if name in defaults:
                message = f"{name} is said by each resource itself"
                yield Finding(("spec", "defaults", kind, name), "bad-value", message)
    for number, patch in enumerate(spec.patches):
        yield from _check_overlay(patch.target.kind, patch.spec, ("spec", "patches", number, "spec"))


def _check_overlay(kind: str, overlay: Spec, path: Path) -> Iterator[Finding]:
    """Every field of an overlay must be one of the kind; that others are missing is its nature."""
    model = MODELS[kind]
    yield from check_units(model, overlay, path)
    try:
        model.model_validate({name: value for name, value in overlay.items() if value is not None})
    except ValidationError as error:
        for finding in from_validation(error, model, path):
            if not (finding.code == "missing-field" and len(finding.path) == len(path) + 1):
                yield finding


def choose(documents: Sequence[Document], name: str | None) -> Environment:
    """The environment of that name; documents that are not valid are reported elsewhere and do not count here."""
    declared = {found[0]: found for document in documents if (found := _read(document))}
    if name is None and documents:
        message = f"environments are declared ({', '.join(sorted(declared)) or 'none of them valid'}): choose one with --env"
        raise _refusal(documents[0], "env-required", message)
    if name is None:
        return Environment()
    if name not in declared:
        known = f"declared are: {', '.join(sorted(declared))}" if declared else "no Environment is declared"
        message = f"there is no environment {quoted(name)}; {known}{suggest(name, declared)}"
        raise _refusal(documents[0] if documents else None, "env-unknown", message)
    _, spec, location = declared[name]
    return Environment(
        name=name,
        context=spec.context,
        url=spec.url,
        expect=Expectation(spec.expect.cluster, spec.expect.domain),
        defaults={kind: overlay for kind, overlay in spec.defaults.model_dump(by_alias=True).items() if overlay},
        patches=_by_target(spec.patches),
        location=location,
    )


def _by_target(patches: Sequence[EnvironmentPatch]) -> dict[tuple[str, str], tuple[Spec, ...]]:
    targets: dict[tuple[str, str], tuple[Spec, ...]] = {}
    for patch in patches:
        target = (patch.target.kind, patch.target.name)
        targets[target] = (*targets.get(target, ()), patch.spec)
    return targets


def _read(document: Document) -> tuple[str, EnvironmentSpec, Location] | None:
    metadata: Any = document.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    try:
        return (
            (name, EnvironmentSpec.model_validate(document.value.get("spec") or {}), document.location)
            if isinstance(name, str)
            else None
        )
    except ValidationError:
        return None


def _refusal(document: Document | None, code: str, message: str) -> InvalidInput:
    location = document.location if document else Location("", 0)
    return InvalidInput((Problem(location.file, location.line, 1, code, message),))
