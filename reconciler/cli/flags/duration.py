"""Durations in flags, with the manifests' own syntax."""

from __future__ import annotations

from reconciler.errors import UsageError
from reconciler.model import units


def seconds(flag: str, text: str) -> float:
    """`5m` → 300.0; raises UsageError."""
    try:
        return units.parse_duration(text) / units.SECOND
    except ValueError as error:
        msg = f"{flag}: {error}"
        raise UsageError(msg) from error
