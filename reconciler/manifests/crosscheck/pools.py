"""Checks of worker pools: every subject has one worker, every worker fits its cap, every name is free."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.crosscheck.collisions import collisions
from reconciler.manifests.crosscheck.consumers import FilterCheck
from reconciler.manifests.crosscheck.declarations import Declarations
from reconciler.manifests.findings import Fault, Finding, warning
from reconciler.manifests.suggest import quoted
from reconciler.model.identity import Key, Location, valid_name
from reconciler.model.kinds.pool import Pool

_NEARLY_FULL = 0.9


def check_pools(declarations: Declarations) -> Iterator[Fault]:
    """Every pool, by itself, on its stream, and beside the others."""
    for stream, pools in declarations.pools.items():
        names = {declared.key.name: (str(declared.key), declared.location) for declared in declarations.consumers.get(stream, ())}
        for entry in declarations.entries_from.get(stream, ()):
            if entry.managed:
                names.setdefault(entry.durable, (f"a source of {entry.stream.declared.key}", entry.location))
        for pool in pools:
            yield from _check_stream(declarations, stream, pool)
            yield from _check_cap(pool)
            yield from _check_workers(pool)
            yield from _check_names(pool, names)
        workqueue = stream in declarations.streams and declarations.streams[stream].config.get("retention") == "workqueue"
        if len(pools) > 1 and not workqueue:  # of a work queue all readers were compared already
            yield from _check_between(pools)


def _check_stream(declarations: Declarations, key: Key, pool: Pool) -> Iterator[Fault]:
    path = ("spec", "stream")
    if key in declarations.removed:
        yield Fault(pool.location, Finding(path, "removed-stream", f"{key} is declared absent"))
        return
    stream = declarations.streams.get(key)
    if stream is None:
        yield Fault(pool.location, warning(path, "undeclared-stream", f"{key} is not declared here"))
        return
    check = FilterCheck(key, stream)
    for worker in pool.workers.values():
        outside = next(check.outside(worker.subjects), None)
        if outside:
            yield Fault(worker.location, Finding(("spec",), "filter-outside-stream", f"worker {quoted(worker.id)}: {outside[1]}"))


def _check_cap(pool: Pool) -> Iterator[Fault]:
    cap = pool.spec.limits.max_subjects
    for worker in pool.workers.values():
        if worker.count > cap and not pool.spec.shard_over_cap:
            total = sum(other.count for other in pool.workers.values())
            message = (
                f"worker {quoted(worker.id)} has {worker.count} subjects, more than maxSubjects {cap}; "
                f"all {total} of {pool.key} need {-(-total // cap)} workers (it has {len(pool.workers)}), or shardOverCap: true"
            )
            yield Fault(worker.location, Finding(("spec", "filterSubjects"), "too-many-subjects", message))
        elif cap * _NEARLY_FULL <= worker.count <= cap:
            message = f"worker {quoted(worker.id)} has {worker.count} subjects of at most {cap}"
            yield Fault(worker.location, warning(("spec", "filterSubjects"), "nearly-full", message))
        if worker.duplicates:
            message = f"worker {quoted(worker.id)} lists {worker.duplicates} subjects more than once"
            yield Fault(worker.location, warning(("spec", "filterSubjects"), "duplicate-subjects", message))


def _check_workers(pool: Pool) -> Iterator[Fault]:
    reported: set[str] = set()
    for found in collisions((worker, worker.subjects) for worker in pool.workers.values()):
        if found.owner.id not in reported:
            reported.add(found.owner.id)
            message = (
                f"{quoted(found.subject)} of worker {quoted(found.owner.id)} also belongs to worker {quoted(found.other.id)} "
                f"({quoted(found.other_subject)}, {found.other.location})"
            )
            yield Fault(found.owner.location, Finding(("spec", "filterSubjects"), "subject-in-two-workers", message))


def _check_names(pool: Pool, names: dict[str, tuple[str, Location]]) -> Iterator[Fault]:
    for worker in pool.workers.values():
        for name in pool.consumer_names(worker):
            if not valid_name(name):
                message = f"{quoted(name)} is refused by JetStream as the name of a consumer"
                yield Fault(worker.location, Finding(("spec",), "bad-name", message))
            label = f"worker {quoted(worker.id)} of {pool.key}"
            owner, location = names.setdefault(name, (label, worker.location))
            if owner != label:
                message = f"consumer {quoted(name)} of {label} is also declared by {owner} ({location})"
                yield Fault(worker.location, Finding(("spec",), "duplicate-identity", message))


def _check_between(pools: list[Pool]) -> Iterator[Fault]:
    claims = [pool for pool in pools if pool.spec.overlap == "refused"]
    reported: set[Key] = set()
    for found in collisions((pool, pool.subjects) for pool in (pools if claims else [])):
        tolerated = found.owner.spec.overlap == found.other.spec.overlap == "allowed"
        if not tolerated and found.owner.key not in reported:
            reported.add(found.owner.key)
            message = (
                f"{quoted(found.subject)} is also read by {found.other.key} "
                f"({quoted(found.other_subject)}, {found.other.location}); "
                "say overlap: allowed in both if each message is meant for both"
            )
            yield Fault(found.owner.location, Finding(("spec",), "pool-overlap", message))
