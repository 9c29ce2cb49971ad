"""Checks of the sourcing topology: origins, cycles, and consumers that do not fit the entries that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

from reconciler.manifests.crosscheck.declarations import Declarations, DeclaredEntry
from reconciler.manifests.findings import Fault, Finding, Step, warning
from reconciler.manifests.rules.stream import stored_subjects
from reconciler.manifests.suggest import quoted
from reconciler.model.desired import Declared
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.model.subjects import covered, overlap


def check_sourcing(declarations: Declarations) -> Iterator[Fault]:
    """Everything about source and mirror entries that one stream alone does not show."""
    domains = {key.domain for key in declarations.streams} | {key.domain for key in declarations.consumers}
    for entry in declarations.entries:
        yield from _check_origin(declarations, entry, domains)
        if entry.deliver_subject:
            yield from _check_own_durable(declarations, entry, domains)
    yield from _check_cycles(declarations)


def _fault(entry: DeclaredEntry, code: str, message: str, *below: Step) -> Fault:
    return Fault(entry.location, Finding((*entry.path, *below), code, message))


def _warning(entry: DeclaredEntry, code: str, message: str, *below: str) -> Fault:
    return Fault(entry.location, warning((*entry.path, *below), code, message))


def _check_origin(declarations: Declarations, entry: DeclaredEntry, domains: set[str]) -> Iterator[Fault]:
    if entry.origin is None:
        return
    if entry.origin in declarations.removed:
        yield _fault(entry, "removed-stream", f"{entry.origin} is declared absent", "name")
    origin = declarations.streams.get(entry.origin)
    if origin is None:
        if entry.origin.domain in domains and entry.origin not in declarations.removed:
            yield _warning(entry, "undeclared-stream", f"{entry.origin} is not declared here", "name")
        return
    retention = origin.config.get("retention", "limits")
    if retention != "limits" and not entry.durable:
        message = f"{entry.origin} has retention {retention}: without a consumer here, servers before 2.14 lose messages"
        yield _warning(entry, "ephemeral-source", message, "name")
    starts = entry.config.get("opt_start_seq") or entry.config.get("opt_start_time")
    if retention == "workqueue" and entry.durable and starts:
        message = f"{entry.origin} is a work queue: its consumers start at the beginning"
        yield _fault(entry, "workqueue-start", message, "optStartSeq" if entry.config.get("opt_start_seq") else "optStartTime")
    stored = stored_subjects(entry.origin.name, origin.config) if origin.known else None
    for subject in entry.filters if stored else ():
        if not any(overlap(subject, other) for other in stored or ()):
            message = f"{entry.origin} holds nothing that matches {quoted(subject)}"
            yield _warning(entry, "filter-outside-stream", message, "filterSubject")


def _check_own_durable(declarations: Declarations, entry: DeclaredEntry, domains: set[str]) -> Iterator[Fault]:
    key = entry.durable_key
    if key is None or entry.unmanaged:
        return
    if key in declarations.removed:
        yield _fault(entry, "removed-consumer", f"{key} is declared absent", "consumer", "name")
        return
    declared = declarations.by_key.get(key)
    if declared is None:
        twins = (declarations.by_key.get(key._replace(domain=domain)) for domain in sorted(domains))
        twin = next(filter(None, twins), None)
        meant = f"; is {twin.key} ({twin.location}) in the wrong domain?" if twin else ""
        message = f"{key} is not declared here{meant or '; declare it, or say unmanaged: true'}"
        yield _warning(entry, "undeclared-consumer", message, "consumer", "name")
        return
    config = declared.config
    if config["ack_policy"] != "flow_control":
        message = f"{key} ({declared.location}) needs ackPolicy: flow_control to be read by a source"
        yield _fault(entry, "source-consumer", message, "consumer", "name")
    if config.get("deliver_subject") != entry.deliver_subject:
        message = (
            f"{key} ({declared.location}) delivers to {quoted(config.get('deliver_subject', ''))}: nothing would arrive here"
        )
        yield _fault(entry, "source-consumer", message, "consumer", "deliverSubject")
    yield from _check_transforms(declarations, entry, declared, config)


def _check_transforms(
    declarations: Declarations, entry: DeclaredEntry, declared: Declared, config: dict[str, Any]
) -> Iterator[Fault]:
    """Transforms do not filter when a consumer is read: what no transform matches is stored as it is."""
    transforms = entry.config.get("subject_transforms")
    if not transforms:
        return
    sources = [transform.get("src", ">") for transform in transforms]
    origin = declarations.streams.get(declared.key.stream_key)
    stored = stored_subjects(declared.key.stream, origin.config) if origin and origin.known else None
    delivered = filters_of(config) or stored or [">"]
    for number, source in enumerate(sources):
        if not any(overlap(source, subject) for subject in delivered):
            message = (
                f"{declared.key} ({declared.location}) delivers nothing that matches {quoted(source)}: add it to its filters"
            )
            yield _fault(entry, "transform-without-filter", message, "subjectTransforms", number, "src")
    loose = next((subject for subject in delivered if not covered(subject, sources)), None)
    if loose is not None:
        message = (
            f"{declared.key} ({declared.location}) also delivers {quoted(loose)}: put what the transforms match into its filters"
        )
        yield _fault(entry, "transform-without-filter", message, "subjectTransforms")


def _check_cycles(declarations: Declarations) -> Iterator[Fault]:
    """A message must not come round: depth-first along the entries, without recursion."""
    below: dict[Key, list[DeclaredEntry]] = {}
    for entry in declarations.entries:
        if entry.origin is not None and entry.origin != entry.stream.declared.key.stream_key:
            below.setdefault(entry.stream.declared.key.stream_key, []).append(entry)
    done: set[Key] = set()
    for start, first in below.items():
        trail: list[DeclaredEntry] = []
        on_trail = {start: 0}
        stack = [iter(first)] if start not in done else []
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                left = trail.pop().origin if trail else start
                if left is not None:
                    on_trail.pop(left, None)
                    done.add(left)
                continue
            origin = step.origin
            if origin in on_trail:
                circle = [*trail[on_trail[origin] :], step]
                if _flows(declarations, circle):
                    names = " ← ".join(str(part.stream.declared.key) for part in circle)
                    yield _fault(step, "sourcing-cycle", f"messages would go round for ever: {names} ← {origin}", "name")
            elif origin is not None and origin not in done and origin in below:
                trail.append(step)
                on_trail[origin] = len(trail)
                stack.append(iter(below[origin]))


def _flows(declarations: Declarations, circle: list[DeclaredEntry]) -> bool:
    """Whether some message passes every filter on the way; transforms may do anything, so they count as passing."""
    if any(entry.config.get("subject_transforms") for entry in circle):
        return True
    selected = [subjects for entry in circle if (subjects := _selected(declarations, entry))]
    around = pairwise([*selected, *selected[:1]])
    return all(any(overlap(one, other) for one, other in product(*pair)) for pair in around)


def _selected(declarations: Declarations, entry: DeclaredEntry) -> Sequence[str]:
    """What an entry copies, by its own filter or by that of its declared consumer; nothing means all."""
    declared = declarations.by_key.get(entry.durable_key) if entry.durable_key else None
    return entry.filters or (filters_of(declared.config) if declared else ())
