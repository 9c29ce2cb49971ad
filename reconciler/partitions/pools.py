"""What the manifests say about the pool, its stream and its neighbours, and what a plan has to agree with.

Invariant: a subject that another pool of the stream has is never planned: both would handle its messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import InvalidInput, Problem, Refused
from reconciler.manifests.files.loader import Loader
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.identity import Key
from reconciler.model.subjects import SubjectIndex, is_literal, overlap
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.reading.subjects import wild

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class OtherPools:
    """What the manifests say: the subjects of the other pools of the stream, and whose they are."""

    subjects: tuple[tuple[str, str], ...] = ()
    shard: int | None = None
    """The most subjects of one consumer, where the pool gives several to a worker that has more (`shardOverCap`)."""

    def refuse_collisions(self, filters: pa.Array) -> None:
        """Raises Refused when a filter of the plan meets one of theirs."""
        literal = [name for name, _ in self.subjects if is_literal(name)]
        found = set(filters.filter(pc.is_in(filters, value_set=pa.array(literal, pa.string()))).to_pylist())
        for wide in {name for name, _ in self.subjects} - set(literal):
            found |= {name for name in filters.filter(_may_meet(filters, wide)).to_pylist() if overlap(wide, name)}
        families = pc.unique(filters.filter(wild(filters))).to_pylist()
        if families:
            theirs = SubjectIndex[str]()
            for name, pool in self.subjects:
                theirs.add(name, pool)
            found |= {mine for mine in families if next(theirs.overlapping(mine), None) is not None}
        if found:
            shown = sorted(found)[:_SHOWN]
            whose = sorted({pool for name, pool in self.subjects if any(overlap(name, mine) for mine in shown)})
            named = ", ".join(shown) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
            raise Refused((f"collision: {named} also belong to {', '.join(whose)} of the same stream",))


def _may_meet(subject: pa.Array, wide: str) -> pa.Array:
    """Those that begin as the pattern does, up to its first wildcard."""
    tokens = wide.split(".")
    first = next(place for place, token in enumerate(tokens) if token in ("*", ">"))
    return pc.starts_with(subject, "".join(f"{token}." for token in tokens[:first]))


def look_around(plan: PlanFile) -> OtherPools:
    """Loads the manifests that the plan names; raises InvalidInput where plan and manifests disagree."""
    spec = plan.spec
    if not spec.manifests:
        return OtherPools()
    loaded = Loader().load([str(plan.directory / path) for path in spec.manifests], spec.environment or None)
    pools = loaded.desired.pools
    own = next((pool for pool in pools.values() if pool.key == Key("WorkerPool", spec.pool, "", spec.domain)), None)
    if own is None:
        hint = suggest(spec.pool, [pool.key.name for pool in pools.values()])
        message = f"the manifests declare no WorkerPool {quoted(spec.pool)}{hint}"
        raise InvalidInput((plan.problem("undeclared-pool", message, "spec", "pool"),))
    problems: list[Problem] = []
    if own.spec.stream != spec.stream:
        message = f"the pool reads {quoted(own.spec.stream)} ({own.location})"
        problems.append(plan.problem("another-stream", message, "spec", "stream"))
    if spec.max_subjects > own.spec.limits.max_subjects and not own.spec.shard_over_cap:
        message = (
            f"the pool allows {own.spec.limits.max_subjects} ({own.location}, limits.maxSubjects); "
            "with shardOverCap: true there, a worker that has more gets several consumers"
        )
        problems.append(plan.problem("over-the-cap", message, "spec", "maxSubjects"))
    if problems:
        raise InvalidInput(tuple(problems))
    others = [
        pool
        for pool in pools.values()
        if pool.key != own.key and pool.stream == own.stream and "allowed" not in (pool.spec.overlap, own.spec.overlap)
    ]
    subjects = tuple((subject, str(pool.key)) for pool in others for subject in pool.subjects)
    return OtherPools(subjects, own.spec.limits.max_subjects if own.spec.shard_over_cap else None)
