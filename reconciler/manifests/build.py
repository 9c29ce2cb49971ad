"""The compiled documents of a set → one Desired, checked across documents.

Invariant: what is built depends on the documents alone, never on the order of files or on what was loaded before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests import policy
from reconciler.manifests.compile import Compiled, Context
from reconciler.manifests.crosscheck import Declarations, crosscheck
from reconciler.manifests.files.generated import HeldBack, Whole
from reconciler.manifests.findings import Fault, Finding, warning
from reconciler.manifests.pools import Assignment, assemble
from reconciler.manifests.suggest import quoted
from reconciler.manifests.syntax.positions import Positions
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.pool import Pool


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a set of manifests declares, and what is odd about it without being wrong."""

    desired: Desired
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a Desired is made of, and nothing else: equal inputs give an equal Desired."""

    results: tuple[Compiled, ...]
    problems: tuple[Problem, ...]
    context: Context
    held_back: tuple[HeldBack, ...]
    whole: tuple[Whole, ...] = ()


def build(inputs: Inputs, positions: Positions) -> Loaded:
    """One Desired out of all documents, or InvalidInput with everything that is wrong."""
    problems = [*inputs.problems, *(problem for result in inputs.results for problem in result.problems)]
    unique, faults = _unique(inputs.results)
    resources = {key: entry for key, entry in unique.items() if isinstance(entry, Declared)}
    declared_pools = {key: entry for key, entry in unique.items() if isinstance(entry, Pool)}
    held_back = _held_back(inputs.held_back, declared_pools)
    assignments = [result.declares for result in inputs.results if isinstance(result.declares, Assignment)]
    pools, pool_faults = assemble(declared_pools.values(), assignments, frozenset(key.name for key in held_back))
    faults += pool_faults
    faults += _worker_names(inputs.context, pools.values())
    faults += crosscheck(Declarations.of(resources.values(), pools.values(), _unmanaged(inputs.results)))
    faults += _unmatched_patches(inputs.context, unique)
    if any(problem.severity == "error" for problem in problems):
        # What is not valid is missing here; that others refer to it in vain says nothing.
        faults = [fault for fault in faults if fault.finding.severity == "error"]
    problems += positions.resolve(faults)
    if any(problem.severity == "error" for problem in problems):
        raise InvalidInput(tuple(sorted(problems)))
    return Loaded(
        replace(
            _desired(inputs.context, resources, pools, held_back),
            generations=MappingProxyType(_generations(inputs.whole, declared_pools)),
        ),
        tuple(sorted(problems)),
    )


def _desired(
    context: Context, resources: Mapping[Key, Declared], pools: Mapping[Key, Pool], held_back: Mapping[Key, str]
) -> Desired:
    chosen = context.environment
    return Desired(
        resources=MappingProxyType(resources),
        environment=chosen.name,
        context=chosen.context,
        url=chosen.url,
        expect=chosen.expect,
        governance=policy.governance(context.policy),
        held_back=MappingProxyType(held_back),
        pools=MappingProxyType({_pool_name(key): pools[key] for key in sorted(pools)}),
    )


def _pool_name(key: Key) -> str:
    return f"{key.domain}:{key.name}" if key.domain else key.name


def _held_back(held_back: Iterable[HeldBack], declared: Iterable[Key]) -> dict[Key, str]:
    """By the key of the pool; an index knows only its name."""
    keys = {key.name: key for key in declared}
    return {keys.get(held.pool, Key("WorkerPool", held.pool)): held.reason for held in held_back}


def _generations(whole: Iterable[Whole], declared: Iterable[Key]) -> dict[Key, int]:
    """By the key of the pool; of several indexes of one pool the highest."""
    keys = {key.name: key for key in declared}
    found = sorted(((keys.get(one.pool), one.generation) for one in whole if one.pool in keys), key=lambda one: one[1])
    return {key: generation for key, generation in found if key is not None}


def _unmanaged(results: Iterable[Compiled]) -> dict[Key, tuple[str, ...]]:
    found = ((result.declares, result.unmanaged_consumers) for result in results if result.unmanaged_consumers)
    return {declared.key: names for declared, names in found if isinstance(declared, Declared)}


def _unique(results: Iterable[Compiled]) -> tuple[dict[Key, Declared | Pool], list[Fault]]:
    """Each identity once: the stream behind a bucket is a stream, too."""
    unique: dict[Key, Declared | Pool] = {}
    on_server: dict[Key, Declared | Pool] = {}
    faults: list[Fault] = []
    for result in results:
        entry = result.declares
        if entry is None or isinstance(entry, Assignment):
            continue
        other = on_server.setdefault(entry.key.live_key, entry)
        if other is entry:
            unique[entry.key] = entry
        else:
            same = "" if other.key == entry.key else f" as {other.key}"
            message = f"{entry.key} is already declared at {other.location}{same}"
            faults.append(Fault(entry.location, Finding(("metadata", "name"), "duplicate-identity", message)))
    return unique, faults


def _worker_names(context: Context, pools: Iterable[Pool]) -> Iterator[Fault]:
    """The policy's rule for names; only here it is known which pool a worker belongs to."""
    for pool in pools:
        for worker in pool.workers.values():
            for name in pool.consumer_names(worker):
                for finding in policy.check_name(context.policy, name):
                    yield Fault(worker.location, finding)


def _unmatched_patches(context: Context, unique: Iterable[Key]) -> Iterator[Fault]:
    """A patch that changes nothing is most likely a misspelled name."""
    location = context.environment.location
    declared = {(key.kind, key.name) for key in unique} if context.environment.patches else set()
    for target in context.environment.patches:
        if location is not None and target not in declared:
            message = f"there is no {target[0]} named {quoted(target[1])} to patch"
            yield Fault(location, warning(("spec", "patches"), "unmatched-patch", message))
