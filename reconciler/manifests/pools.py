"""Worker pools: their template, and the workers that are declared inline, one by one, or in a generated directory.

Invariant: a worker belongs to exactly one pool and is declared exactly once; nothing else about it depends on file order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import orjson

from reconciler.manifests.findings import Fault, Finding, Path, warning
from reconciler.manifests.rules.consumer import check_consumer, covered_pairs
from reconciler.manifests.suggest import quoted
from reconciler.model.identity import Key, Location, valid_name
from reconciler.model.kinds.common import Intent, State
from reconciler.model.kinds.fields import to_wire
from reconciler.model.kinds.pool import TEMPLATE_DEFAULTS, Pool, Worker, WorkerAssignmentSpec, WorkerPoolSpec
from reconciler.model.marker import DEAD_LETTER

_OWN_FIELDS = {
    "filter_subject": "filterSubject",
    "filter_subjects": "filterSubjects",
    "deliver_policy": "deliverPolicy",
    "opt_start_seq": "optStartSeq",
    "opt_start_time": "optStartTime",
    "deliver_subject": "deliverSubject",
    "deliver_group": "deliverGroup",
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker declared apart from its pool."""

    pool: Key
    worker: Worker


def compile_pool(key: Key, spec: WorkerPoolSpec, location: Location, intent: Intent, findings: list[Finding]) -> Pool:
    """The pool with its inline workers."""
    workers: dict[str, Worker] = {}
    for number, entry in enumerate(spec.workers):
        path = ("spec", "workers", number)
        if entry.id in workers:
            findings.append(Finding((*path, "id"), "duplicate-worker", f"worker {quoted(entry.id)} is declared twice"))
        workers[entry.id] = Worker.of(entry.id, entry.filter_subjects, location)
        findings += _check_worker(entry.id, entry.filter_subjects, path, "id")
    template = dict(TEMPLATE_DEFAULTS) | to_wire(spec.consumer)
    if spec.consumer.backoff and spec.consumer.ack_wait is None:
        template["ack_wait"] = spec.consumer.backoff[0]
    if intent.state is not State.ABSENT:
        findings += _check_pool(key, spec, template)
    if spec.consumer.dead_letter is not None:
        template["metadata"] = {**template.get("metadata", {}), DEAD_LETTER: spec.consumer.dead_letter.subject}
    bare = spec.model_copy(update={"workers": []})
    return Pool(key, bare, orjson.dumps(template), workers, location, intent)


def compile_assignment(spec: WorkerAssignmentSpec, location: Location, findings: list[Finding]) -> Assignment:
    """One worker."""
    findings += _check_worker(spec.worker, spec.filter_subjects, ("spec",), "worker")
    worker = Worker.of(spec.worker, spec.filter_subjects, location)
    return Assignment(Key("WorkerPool", spec.pool, "", spec.domain), worker)


def _check_worker(worker: str, subjects: list[str], path: Path, field: str) -> Iterator[Finding]:
    if not valid_name(worker):
        yield Finding((*path, field), "bad-name", f"{quoted(worker)} is refused by JetStream as part of a consumer's name")
    unique = list(dict.fromkeys(subjects))
    for place, other in covered_pairs(unique):
        message = f"{quoted(unique[place])} overlaps {quoted(other)} of the same worker"
        yield Finding((*path, "filterSubjects", subjects.index(unique[place])), "filter-overlap", message)


def _check_pool(key: Key, spec: WorkerPoolSpec, template: dict[str, object]) -> Iterator[Finding]:
    at: Path = ("spec", "consumer")
    if not valid_name(spec.stream):
        yield Finding(("spec", "stream"), "bad-name", f"{quoted(spec.stream)} is no name of a stream")
    if not valid_name(spec.consumer_prefix or key.name):
        yield Finding(
            ("spec", "consumerPrefix"), "bad-name", f"{quoted(spec.consumer_prefix)} cannot begin the name of a consumer"
        )
    for field, yaml in _OWN_FIELDS.items():
        if template.get(field):
            yield Finding((*at, yaml), "pool-field", f"{yaml} is for the pool to decide")
    if template["ack_policy"] != "explicit":
        yield Finding((*at, "ackPolicy"), "pool-field", "workers acknowledge explicitly")
    yield from check_consumer(template, at)
    if spec.consumer.inactive_threshold:
        message = "a consumer that deletes itself loses its position, and on an interest stream its backlog"
        yield warning((*at, "inactiveThreshold"), "self-deleting-worker", message)


def assemble(
    pools: Iterable[Pool], assignments: Iterable[Assignment], held_back: frozenset[str]
) -> tuple[dict[Key, Pool], list[Fault]]:
    """Each pool with all its workers; assignments to pools that are held back are left out with them."""
    found: list[Fault] = []
    declared = {pool.key: dict(pool.workers) for pool in pools}
    for pool_key, worker in ((entry.pool, entry.worker) for entry in assignments):
        workers = declared.get(pool_key)
        if workers is None:
            if pool_key.name not in held_back:
                message = f"there is no {pool_key} for this worker; it does not count"
                found.append(Fault(worker.location, warning(("spec", "pool"), "undeclared-pool", message)))
        elif worker.id in workers:
            message = f"worker {quoted(worker.id)} of {pool_key} is also declared at {workers[worker.id].location}"
            found.append(Fault(worker.location, Finding(("spec", "worker"), "duplicate-worker", message)))
        else:
            workers[worker.id] = worker
    complete = {
        pool.key: replace(pool, workers={name: declared[pool.key][name] for name in sorted(declared[pool.key])}) for pool in pools
    }
    return complete, found
