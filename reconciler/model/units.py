"""Durations, sizes and points in time: parsed once into exact integers, printed in one canonical form.

Invariant: `parse(print(x)) == x` for every value; nothing here ever touches a float.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

MILLISECOND, SECOND = 10**6, 10**9
"""In nanoseconds, the unit of every duration and moment."""

_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_NS |= {"d": 24 * _NS["h"], "w": 7 * 24 * _NS["h"]}
_DURATION_PART = re.compile(r"(\d+)(?:\.(\d+))?(ns|us|µs|μs|ms|s|m|h|d|w)", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)

_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_BYTES = {"B": 1, **_DECIMAL, **_BINARY, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s?([A-Za-z]+)", re.ASCII)

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

_EPOCH, _ONE_SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)
_AGAIN, _CYCLE = "0400", 146_097 * 86_400
"""The calendar repeats itself after 400 years; Python has no year 0."""
_YEAR_ONE, _LAST = -62_135_596_800, 253_402_300_799
_FIRST = _YEAR_ONE - 366 * 86_400
_FARTHEST = (23 * 60 + 59) * 60
"""Seconds by which a zone can be away from UTC."""

MAX_INT64 = 2**63 - 1


def _scaled(whole: str, fraction: str | None, unit: int) -> int:
    """`whole.fraction` of a unit as an exact integer; a remainder below one ns (or byte) is an error."""
    digits = fraction or ""
    scale = int(10 ** len(digits))
    value, rest = divmod(int(whole + digits) * unit, scale)
    if rest:
        msg = "finer than the smallest unit"
        raise ValueError(msg)
    return value


def _bounded(value: int) -> int:
    if value > MAX_INT64:
        msg = "larger than a signed 64-bit integer"
        raise ValueError(msg)
    return value


def parse_duration(text: str) -> int:
    """Go's duration syntax plus `d` and `w`, in nanoseconds."""
    text = text.strip()
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        msg = f"not a duration: {text[:40]!r} (expected e.g. 30s, 1h30m, 7d)"
        raise ValueError(msg)
    return _bounded(sum(_scaled(w, f, _NS[u]) for w, f, u in _DURATION_PART.findall(text)))


def format_duration(ns: int) -> str:
    """The canonical form: largest units first, days at most, nothing lost."""
    if ns == 0:
        return "0s"
    if ns < 0:
        return str(ns)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, ns = divmod(ns, _NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size(text: str) -> int:
    """`64MB` (decimal), `64MiB` (binary), in bytes."""
    match = _SIZE.fullmatch(text.strip())
    unit = _BYTES.get(match.group(3)) if match else None
    if match is None or unit is None:
        msg = f"not a size: {text[:40]!r} (expected e.g. 64MB, 64MiB, or a number of bytes)"
        raise ValueError(msg)
    return _bounded(_scaled(match.group(1), match.group(2), unit))


def format_size(count: int) -> int | str:
    """The shortest exact form; a plain number where no unit divides it."""
    exact = [(count // unit, name) for name, unit in (*_BINARY.items(), *_DECIMAL.items()) if count > 0 and count % unit == 0]
    if not exact:
        return count
    number, name = min(exact)
    return f"{number}{name}"


def parse_time(text: str) -> int:
    """RFC 3339 with up to nine fractional digits, as nanoseconds since the epoch; servers take year 0 as well."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        msg = f"not a timestamp: {text[:40]!r} (expected RFC 3339, e.g. 2026-01-31T12:00:00Z)"
        raise ValueError(msg)
    day, clock, fraction, zone = match.groups()
    before = day.startswith("0000")
    moment = datetime.fromisoformat(f"{_AGAIN if before else ''}{day[4 * before :]}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    seconds = (moment - _EPOCH) // _ONE_SECOND - before * _CYCLE
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


def format_time(ns: int) -> str:
    """UTC, with as many fractional digits as needed: the form Go's RFC3339Nano prints; at both ends of time another zone."""
    seconds, rest = divmod(ns, SECOND)
    zone, ahead = ("Z", 0) if _FIRST <= seconds <= _LAST else ("-23:59", -_FARTHEST) if seconds > 0 else ("+23:59", _FARTHEST)
    before = seconds + ahead < _YEAR_ONE
    moment = _EPOCH + (seconds + ahead + before * _CYCLE) * _ONE_SECOND
    base = f"{moment.year - 400 * before:04d}-{moment:%m-%dT%H:%M:%S}"
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{base}{fraction}{zone}"
