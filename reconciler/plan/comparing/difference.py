"""A declaration beside its live resource, compared field by field."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.model.desired import Declared
from reconciler.model.flow import listened
from reconciler.model.identity import Key
from reconciler.model.marker import Marker, with_mark
from reconciler.model.normal import Config, canonical
from reconciler.model.residue import SOURCES, Residue
from reconciler.model.sourcing import copied_subjects, is_unused, origin_of
from reconciler.model.subjects import covered
from reconciler.plan.comparing import diff
from reconciler.plan.scene import Scene, Seen


@dataclass(frozen=True, slots=True)
class Difference:
    """A declaration beside its live resource, both as wire configuration and in normal form."""

    declared: Declared
    seen: Seen
    config: Config
    """What should be on the server, without a marker."""
    wanted: Config
    live: Config
    marker: Marker

    @property
    def names(self) -> frozenset[str]:
        """The wire names of the fields that differ."""
        return diff.changed(self.wanted, self.live)

    def marked(self, owner: str) -> bytes:
        """The configuration to send, marker included."""
        marker = replace(
            self.marker, owner=owner, spec=self.declared.digest, journal=None, pause_until=self.declared.intent.pause_until
        )
        return with_marker(self.declared.key, self.config, marker)


def within_limits(scene: Scene, key: Key, config: Config) -> Config:
    """A consumer's configuration with what its stream's limits make of its default.

    Said aloud, since the server fills it in only once the limits are there, and refuses limits below what a consumer has.
    """
    most = scene.limits(key).get("max_ack_pending") if key.kind == "Consumer" else None
    return {"max_ack_pending": most, **config} if most and config.get("ack_policy", "none") != "none" else config


def with_marker(key: Key, config: Config, marker: Marker) -> bytes:
    """A wire configuration with the marker in its metadata, as canonical JSON."""
    return canonical({**config, "metadata": with_mark(config.get("metadata"), marker, key.mark)})


def compare(scene: Scene, declared: Declared, seen: Seen, *, anew: bool = False) -> Difference:
    """The difference, with what must be carried over from live already in place; `anew`: but for what procedures left."""
    key, live_config, marker = declared.key, seen.config, replace(seen.marker, residue=(), before=()) if anew else seen.marker
    config = declared.config
    before = scene.normal(key, live_config) if marker.residue else {}
    residue = diff.kept_residue(scene.normal(key, config), before, marker.residue) if marker.residue else ()
    residue = tuple(row for row in residue if not _leaves_out(scene, key, row))
    config = within_limits(scene, key, diff.effective(key, config, live_config, declared.intent.ignore, residue))
    wanted, live = scene.normal(key, config), scene.normal(key, live_config)
    for name in [name for name in live if name not in wanted and _unknown(key, name)]:
        del live[name]
    return Difference(declared, seen, config, wanted, live, replace(marker, residue=residue))


def _leaves_out(scene: Scene, key: Key, row: Residue) -> bool:
    """Whether an entry that stands for one without filters leaves out what its origin stores by now, or always did."""
    if row.field != SOURCES or copied_subjects(row.declared) or "consumer" in row.declared:
        return False
    own = tuple(one for one in copied_subjects(row.live) if not is_unused(one))
    origin = origin_of(row.live, key.domain)
    seen = scene.live.streams.get(origin) if origin and own else None
    return seen is not None and any(not covered(one, own) for one in listened(seen.config, seen.name))


def _unknown(key: Key, name: str) -> bool:
    """A field of a newer server that no manifest can declare: carried over, never a difference."""
    return name not in diff.known_fields(key)
