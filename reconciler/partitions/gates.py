"""What is refused although it could be planned, unless it is forced by name.

| gate | is about | forced |
|---|---|---|
| maxMovedFraction | more of the weight moves than this | yes |
| maxWorkersRemovedFraction | more of the workers are gone or draining | yes |
| maxInputShrink | more of the partitions are gone | yes |
| minWorkers | fewer active workers | yes |
| zeroPartitions | no partition at all | yes |
| maxManifestBytes | the subjects of one worker in one request | yes |
| edited | files that somebody has changed since they were written | yes |

What breaks a rule of the plan itself (every partition once, caps, pins, zones, collisions) is no gate and cannot be forced.

Invariant: a gate that is forced is in the report, whether it was needed or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.errors import Refused, UsageError
from reconciler.manifests.suggest import suggest
from reconciler.partitions.spec import Gates

NAMES = (
    "maxMovedFraction",
    "maxWorkersRemovedFraction",
    "maxInputShrink",
    "minWorkers",
    "zeroPartitions",
    "maxManifestBytes",
    "edited",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the gates look at."""

    partitions: int
    partitions_before: int
    weight: int
    moved: int
    forced: int
    active: int
    workers_before: int
    workers_removed: int
    """Of those before: gone, or draining now."""
    largest_manifest: tuple[str, int]
    edited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What one gate says."""

    gate: str
    passed: bool
    forced: bool
    message: str


def known(forced: Collection[str]) -> None:
    """Raises UsageError for a gate that does not exist."""
    for name in forced:
        if name not in NAMES:
            msg = f"--force {name}: there is no such gate{suggest(name, NAMES)}; known: {', '.join(NAMES)}"
            raise UsageError(msg)


def judge(measured: Measured, gates: Gates, forced: Collection[str]) -> tuple[GateVerdict, ...]:
    """Every gate, in the order of the table."""
    messages = _messages(measured, gates)
    return tuple(GateVerdict(name, not messages.get(name), name in forced, messages.get(name, "")) for name in NAMES)


def refuse(verdicts: Collection[GateVerdict]) -> None:
    """Raises Refused when a gate is closed and not forced."""
    closed = [verdict for verdict in verdicts if not verdict.passed and not verdict.forced]
    if closed:
        raise Refused(
            tuple(f"{verdict.gate}: {verdict.message} (--force {verdict.gate} does it all the same)" for verdict in closed)
        )


def _messages(measured: Measured, gates: Gates) -> Mapping[str, str]:
    found: dict[str, str] = {}
    before = measured.partitions_before
    if before and _over(measured.moved, measured.weight, gates.max_moved_fraction):
        moved = (
            f"{_percent(measured.moved, measured.weight)} of the weight would move, at most {gates.max_moved_fraction:.0%} may"
        )
        forced = f"; {_percent(measured.forced, measured.weight)} has to" if measured.forced else ""
        found["maxMovedFraction"] = f"{moved}{forced}; balance.maxMoved does it in several runs"
    if measured.workers_before and _over(measured.workers_removed, measured.workers_before, gates.max_workers_removed_fraction):
        removed = f"{measured.workers_removed} of {measured.workers_before} workers are gone or draining"
        found["maxWorkersRemovedFraction"] = f"{removed}, at most {gates.max_workers_removed_fraction:.0%} may be"
    if before and _over(before - measured.partitions, before, gates.max_input_shrink):
        shrunk = f"{measured.partitions} partitions, {before} before"
        found["maxInputShrink"] = f"{shrunk}: at most {gates.max_input_shrink:.0%} may go at once"
    if measured.active < gates.min_workers:
        found["minWorkers"] = f"{measured.active} active workers, at least {gates.min_workers} are asked for"
    if not measured.partitions:
        found["zeroPartitions"] = "the table of partitions has no rows: every worker would be parked"
    worker, size = measured.largest_manifest
    if size > gates.max_manifest_bytes:
        found["maxManifestBytes"] = (
            f"{worker} has {size} bytes for one consumer, at most {gates.max_manifest_bytes} may be sent at once"
        )
    if measured.edited:
        others = f" and {len(measured.edited) - 5} more" if len(measured.edited) > 5 else ""  # noqa: PLR2004 - five are shown
        named = ", ".join(measured.edited[:5])
        found["edited"] = f"changed since they were written: {named}{others}; undo that, or they are written anew"
    return found


def _over(part: int, whole: int, fraction: float) -> bool:
    return part * 1_000_000 > whole * round(fraction * 1_000_000)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.1f}%"
