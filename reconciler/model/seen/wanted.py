"""Wanted: how much of the live state a pass has to look at."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.identity import Key


@dataclass(frozen=True, slots=True)
class Wanted:
    """Streams are always listed all; consumers only of streams that matter."""

    domains: frozenset[str] = frozenset({""})
    streams: frozenset[Key] = frozenset()
    """Streams (kind Stream) whose consumers matter."""
    owner: str = ""
    """Streams that carry this owner's marker matter as well."""
    everything: bool = False
    """The consumers of all streams matter."""


EVERYTHING = Wanted(everything=True)
