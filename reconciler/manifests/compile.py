"""One document → what it declares: merged with the environment, validated, checked, and turned into what would be sent.

Invariant: a pure function of the document and the context, so that it can run in any process and its results be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from reconciler.errors import Problem
from reconciler.manifests import policy as rules_of_policy
from reconciler.manifests.envelope import Envelope, open_envelope
from reconciler.manifests.environment import MODELS, Environment, check_environment
from reconciler.manifests.files.foreign import skipped
from reconciler.manifests.findings import MAX_FINDINGS, Finding, Path, fields_at, from_validation, to_problems
from reconciler.manifests.intent import read_annotations, with_spec
from reconciler.manifests.merge import Spec, legal_defaults, merge_patch
from reconciler.manifests.nack import documents as nack
from reconciler.manifests.pools import Assignment, compile_assignment, compile_pool
from reconciler.manifests.rules.consumer import check_consumer
from reconciler.manifests.rules.stream import check_stream
from reconciler.manifests.rules.unit import check_units
from reconciler.manifests.suggest import quoted, suggest
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared
from reconciler.model.identity import Key, Kind, Location, valid_name
from reconciler.model.kinds.buckets import KeyValueSpec, ObjectStoreSpec, compile_key_value, compile_object_store
from reconciler.model.kinds.common import ResourceSpec, State
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.documents import AssignmentIndexSpec, EnvironmentSpec, PolicySpec
from reconciler.model.kinds.fields import to_wire
from reconciler.model.kinds.pool import Pool, WorkerAssignmentSpec, WorkerPoolSpec
from reconciler.model.kinds.stream import Source, StreamSpec
from reconciler.model.marker import DEAD_LETTER
from reconciler.model.normal import complete_stream, digest, normal_form, packed

M = TypeVar("M", bound=BaseModel)
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Context:
    """What every document is compiled with."""

    environment: Environment = field(default_factory=Environment)
    policy: PolicySpec = field(default_factory=PolicySpec)


class Compiled(NamedTuple):
    """What a document declares, if anything, and everything that is wrong with it."""

    declares: Declared | Pool | Assignment | None
    problems: tuple[Problem, ...] = ()
    unmanaged_consumers: tuple[str, ...] = ()
    """Durables its sources read through that somebody else looks after."""


def faults_of(compiled: Compiled) -> int:
    """How many problems a document has."""
    return len(compiled.problems)


def compile_document(document: Document, context: Context) -> Compiled:
    """What the document declares in this context."""
    findings: list[Finding] = []
    compiled = _compile(document, context, findings)
    if not findings:
        return compiled
    problems = to_problems(document, findings)
    wrong = any(finding.severity == "error" for finding in findings)
    return Compiled(None, problems) if wrong else compiled._replace(problems=problems)


def _compile(document: Document, context: Context, findings: list[Finding]) -> Compiled:
    if found := skipped(document):
        findings.append(found)
        return Compiled(None)
    if not nack.is_nack(document.value):
        return _compile_value(document.value, document.location, context, findings)
    value = nack.translate(document.value, findings)
    if value is None:
        return Compiled(None)
    before = len(findings)
    compiled = _compile_value(value, document.location, context, findings)
    findings[before:] = [found._replace(path=nack.written_path(value["kind"], found.path)) for found in findings[before:]]
    return compiled


def _compile_value(value: Spec, location: Location, context: Context, findings: list[Finding]) -> Compiled:
    envelope = open_envelope(value, findings)
    if envelope is None:
        return Compiled(None)
    if envelope.kind in MODELS:
        return _compile_resource(location, envelope, context, findings)
    read_annotations(envelope.annotations, findings)
    if envelope.kind == "WorkerAssignment":
        spec = _validated(WorkerAssignmentSpec, envelope.spec, findings)
        return Compiled(compile_assignment(spec, location, findings) if spec else None)
    if envelope.kind in _SETTINGS:
        _SETTINGS[envelope.kind](envelope.spec, findings)
    return Compiled(None)


def _compile_resource(location: Location, envelope: Envelope, context: Context, findings: list[Finding]) -> Compiled:
    """A fault in what only the environment says is blamed on the environment."""
    before = len(findings)
    compiled = _resource(location, envelope, context, findings)
    environment = context.environment.name
    if environment and len(findings) > before:
        findings[before:] = [
            found
            if found.code == "missing-field" or _written(found.path, envelope.spec)
            else found._replace(message=f"{found.message} (from Environment {environment})")
            for found in findings[before:]
        ]
    return compiled


def _written(path: Path, spec: Spec) -> bool:
    return path[:1] != ("spec",) or len(path) < 2 or path[1] in spec  # noqa: PLR2004 - a field of the spec has two steps


def _resource(location: Location, envelope: Envelope, context: Context, findings: list[Finding]) -> Compiled:
    kind, name = envelope.kind, envelope.name
    intent = read_annotations(envelope.annotations, findings)
    model = MODELS[kind]
    merged = _merged(envelope, context.environment)
    if model is WorkerPoolSpec and merged.get("state") == "absent":
        merged.setdefault("stream", "")  # a tombstone needs nothing but its name
    spec = _validated(model, merged, findings)
    if spec is None:
        return Compiled(None)
    assert isinstance(spec, ResourceSpec)  # noqa: S101 - every model of MODELS is one
    findings += _common_faults(spec, model)
    intent = with_spec(intent, spec)
    if isinstance(spec, WorkerPoolSpec):
        return Compiled(compile_pool(Key("WorkerPool", name, "", spec.domain), spec, location, intent, findings))
    key = _key(kind, name, spec)
    if intent.state is State.ABSENT:
        return Compiled(Declared(key, b"{}", "", location, intent))
    config = _CONFIGS[kind](name, spec, context, findings)
    declared = Declared(key, packed(config), digest(normal_form(key, config)), location, intent)
    return Compiled(declared, (), _unmanaged_consumers(spec))


def _merged(envelope: Envelope, environment: Environment) -> Spec:
    kind, spec = envelope.kind, envelope.spec
    patches = environment.patches.get((kind, envelope.name), ())
    defaults = environment.defaults.get(kind, {})
    merged = merge_patch(legal_defaults(kind, defaults, _patched(spec, patches)), spec) if defaults else merge_patch({}, spec)
    if None in spec.values():
        # A null of an unknown name is not unset but misspelled: it is left for the model to refuse.
        known = fields_at(MODELS[kind], ())
        merged.update((name, None) for name, value in spec.items() if value is None and name not in known)
    return _patched(merged, patches)


def _patched(spec: Spec, patches: tuple[Spec, ...]) -> Spec:
    for patch in patches:
        spec = merge_patch(spec, patch)
    return spec


def _validated(model: type[M], spec: Spec, findings: list[Finding]) -> M | None:
    findings += check_units(model, spec, ("spec",))
    try:
        return model.model_validate(spec)
    except ValidationError as error:
        findings += from_validation(error, model, ("spec",))
        return None


def _common_faults(spec: ResourceSpec, model: type[BaseModel]) -> list[Finding]:
    found = []
    if spec.domain and not valid_name(spec.domain):
        found.append(Finding(("spec", "domain"), "bad-name", f"{quoted(spec.domain)} is no name of a domain"))
    if spec.ignore:
        known = fields_at(model, ())
        for number, path in enumerate(spec.ignore):
            first = path.split(".", 1)[0]
            if first not in known:
                hint = suggest(first, known) if len(found) < MAX_FINDINGS else ""
                message = f"there is no field {quoted(first)}{hint}"
                found.append(Finding(("spec", "ignore", number), "unknown-field", message))
    return found


def _key(kind: str, name: str, spec: ResourceSpec) -> Key:
    stream = spec.stream if isinstance(spec, ConsumerSpec) else ""
    resource: Kind = kind  # type: ignore[assignment]  # the envelope has checked it
    return Key(resource, name, stream, spec.domain)


def _unmanaged_consumers(spec: ResourceSpec) -> tuple[str, ...]:
    entries = [*(spec.sources or ()), *([spec.mirror] if spec.mirror else ())] if isinstance(spec, StreamSpec) else []
    return tuple(entry.consumer.name for entry in entries if entry.consumer and entry.consumer.unmanaged)


def _stream(name: str, spec: StreamSpec, _context: Context, findings: list[Finding]) -> Config:
    config = _said(to_wire(spec))
    findings += check_stream(name, config)
    findings += _source_modes(spec)
    return {"name": name} | complete_stream(config)


def _source_modes(spec: StreamSpec) -> list[Finding]:
    """The three modes of a source exclude each other."""
    entries: list[tuple[Path, Source]] = [(("spec", "sources", number), entry) for number, entry in enumerate(spec.sources or ())]
    entries += [(("spec", "mirror"), spec.mirror)] if spec.mirror else []
    found = []
    for path, entry in entries:
        consumer = entry.consumer
        if consumer is None:
            continue
        if consumer.server_managed and (consumer.deliver_subject is not None or consumer.unmanaged):
            message = "serverManaged: true means that name is all there is to say: no deliverSubject, no unmanaged"
            found.append(Finding((*path, "consumer", "serverManaged"), "source-mode", message))
        if not consumer.server_managed and consumer.deliver_subject is None:
            message = "give either serverManaged: true, or the deliverSubject of a consumer of your own"
            found.append(Finding((*path, "consumer"), "source-mode", message))
    return found


def _said(config: Config) -> Config:
    """Without empty lists and mappings: for the server they are nothing, yet it was seen to tell them from nothing later."""
    return {name: _said(value) if isinstance(value, dict) else value for name, value in config.items() if value not in ([], {})}


def _key_value(name: str, spec: KeyValueSpec, _context: Context, findings: list[Finding]) -> Config:
    config = compile_key_value(name, spec)
    findings += check_stream(config["name"], config)
    return complete_stream(config)


def _object_store(name: str, spec: ObjectStoreSpec, _context: Context, findings: list[Finding]) -> Config:
    config = compile_object_store(name, spec)
    findings += check_stream(config["name"], config)
    return complete_stream(config)


def _consumer(name: str, spec: ConsumerSpec, context: Context, findings: list[Finding]) -> Config:
    config: Config = _said(to_wire(spec))
    config.setdefault("ack_policy", "explicit")
    if spec.durable:
        config["durable_name"] = name
    config["name"] = name
    if not valid_name(spec.stream):
        findings.append(Finding(("spec", "stream"), "bad-name", f"{quoted(spec.stream)} is no name of a stream"))
    findings += check_consumer(config)
    findings += rules_of_policy.check_consumer(context.policy, name, config)
    if spec.dead_letter is not None:
        config["metadata"] = {**config.get("metadata", {}), DEAD_LETTER: spec.dead_letter.subject}
    return config


def _check_environment(spec: Spec, findings: list[Finding]) -> None:
    valid = _validated(EnvironmentSpec, spec, findings)
    if valid is not None:
        findings += check_environment(valid)


def _check_policy(spec: Spec, findings: list[Finding]) -> None:
    _validated(PolicySpec, spec, findings)


def _check_index(spec: Spec, findings: list[Finding]) -> None:
    _validated(AssignmentIndexSpec, spec, findings)


_CONFIGS: Mapping[str, Callable[..., Config]] = {
    "Stream": _stream,
    "Consumer": _consumer,
    "KeyValue": _key_value,
    "ObjectStore": _object_store,
}
_SETTINGS: Mapping[str, Callable[[Spec, list[Finding]], None]] = {
    "Environment": _check_environment,
    "Policy": _check_policy,
    "AssignmentIndex": _check_index,
}
