"""Subjects that pass from one entry of a stream to another one of the same origin: what was two becomes one, or the reverse.

How far an entry has copied is a single number. Where entries are split, joined or dealt anew there is none from which the one
that gets a subject could go on: it begins at the beginning, and until it is there, it may be that nobody wants the subject.

Invariant: what no entry gives up is new, and nothing is said about it; an entry that stays alone is judged in `handing_over`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reconciler.model.flow import filters_of
from reconciler.model.normal import EVERYTHING
from reconciler.model.sourcing import copied_subjects, is_unused
from reconciler.model.subjects import covered, overlap
from reconciler.plan import losses
from reconciler.plan.change import Reason
from reconciler.plan.comparing.display import in_short
from reconciler.plan.scene import Scene
from reconciler.sources.entries import EntryChange, is_placeholder, origin_info, origin_subjects
from reconciler.sources.migration.pairs import durable_key, place_of


def regrouped(scene: Scene, readers: Sequence[EntryChange]) -> Iterator[Reason]:
    """Why subjects may not pass like this; nothing where they do not, or where somebody allowed it."""
    for giver in readers:
        takers = [one for one in readers if one is not giver and _place(one) == _place(giver)]
        if giver.live is None or not takers:
            continue  # nothing is asked of an origin that may be away
        kept = _after(scene, giver)
        given = [one for one in _before(scene, giver) if not covered(one, kept)]
        taken = [one for taker in takers for one in _anew(scene, taker) if not covered(one, kept)]
        passing = [one for one in taken if any(overlap(one, other) for other in given)]
        if passing:
            yield from _reason(scene, giver, sorted(set(passing)))


def _place(reader: EntryChange) -> tuple[str, str]:
    return place_of(reader.wanted or reader.live or {"name": reader.origin})


def _before(scene: Scene, reader: EntryChange) -> list[str]:
    """What an entry copies now."""
    if reader.live is None:
        return []
    key = durable_key(reader.live, reader.stream)  # not `old`, which may be what is left of another one
    seen = scene.live.consumer(key) if key else None
    if seen is not None:
        return _spelled(scene, reader, filters_of(seen.config))
    if reader.old_name and _retention(scene, reader) == "workqueue":
        return _after(scene, reader)  # there a durable goes before the next reader comes: that may be half-done
    return _spelled(scene, reader, () if is_placeholder(reader) else copied_subjects(reader.live))


def _after(scene: Scene, reader: EntryChange) -> list[str]:
    if reader.wanted is None:
        return []
    return _spelled(scene, reader, filters_of(reader.target.wire) if reader.target else copied_subjects(reader.wanted))


def _anew(scene: Scene, reader: EntryChange) -> list[str]:
    """What an entry copies that it did not copy so far."""
    before = _before(scene, reader)
    return [one for one in _after(scene, reader) if not covered(one, before)]


def _spelled(scene: Scene, reader: EntryChange, filters: Iterable[str]) -> list[str]:
    """Filters, with what everything means spelled out."""
    own = [one for one in filters if one != EVERYTHING and not is_unused(one)]
    return own or list(origin_subjects(origin_info(scene, reader))) or [EVERYTHING]


def _retention(scene: Scene, reader: EntryChange) -> str:
    info = origin_info(scene, reader)
    return str(info["config"].get("retention", "limits")) if info else "limits"


def _reason(scene: Scene, giver: EntryChange, passing: list[str]) -> Iterator[Reason]:
    retention = _retention(scene, giver)
    what = f"{in_short(passing)} of {giver.origin or 'an imported stream'} would pass from one entry to another"
    if retention == "workqueue":
        way_out = "do it in two steps: first take the subjects away from the one, then give them to the other"
        yield Reason("swap", f"{what}, and a workqueue has one reader for a subject", way_out)
        return
    way_out = "declare a new stream, or accept it by name with `reconciler/allow: {}`"
    message = f"{what}, which begins at the beginning: what was copied would be copied again"
    yield Reason(losses.POSITION_LOSS, message, way_out.format(losses.POSITION_LOSS))
    if retention == "interest":
        message = f"{what}: what is published before that one is there would be lost"
        yield Reason(losses.DATA_LOSS, message, way_out.format(losses.DATA_LOSS))
