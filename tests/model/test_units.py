"""Durations, sizes and times: exact both ways, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.units import (
    MAX_INT64,
    format_duration,
    format_size,
    format_time,
    parse_duration,
    parse_size,
    parse_time,
)

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("7d", 7 * 86400 * SECOND),
        ("2w", 14 * 86400 * SECOND),
        ("100ms", 10**8),
        ("1us", 1000),
        ("1µs", 1000),
        ("1ns", 1),
        (" 5m ", 300 * SECOND),
    ],
)
def test_durations_are_go_syntax_with_days_and_weeks(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "1y", "1h 5m", "0.1ns", "1.5.5s", "300000d", "٣s"])
def test_what_is_no_exact_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.integers(0, MAX_INT64))
def test_a_printed_duration_reads_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64MB", 64_000_000), ("64MiB", 64 * 2**20), ("1.5KiB", 1536), ("0B", 0), ("2 GiB", 2**31), ("1Ki", 1024)],
)
def test_sizes_are_decimal_or_binary(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "64", "64mb", "MB", "-1KB", "0.5B", "9999999PiB", "1 M B"])
def test_what_is_no_exact_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@given(st.integers(-1, MAX_INT64))
def test_a_printed_size_reads_back(count: int) -> None:
    printed = format_size(count)
    assert (parse_size(printed) if isinstance(printed, str) else printed) == count


def test_a_size_is_printed_in_its_shortest_exact_form() -> None:
    assert format_size(64_000_000) == "64MB"
    assert format_size(2**30) == "1GiB"
    assert format_size(1001) == 1001


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2024-01-01T02:00:00.12+02:00", "2024-01-01T00:00:00.12Z"),
        ("2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01t00:00:00z", "2024-01-01T00:00:00Z"),
        ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59.123456789Z"),
    ],
)
def test_times_are_instants(text: str, printed: str) -> None:
    assert format_time(parse_time(text)) == printed


@pytest.mark.parametrize(
    "text", ["", "2024-01-01", "2024-13-01T00:00:00Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00.1234567890Z"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@given(st.integers(0, 4102444800 * SECOND))
def test_a_printed_time_reads_back(ns: int) -> None:
    assert parse_time(format_time(ns)) == ns


@pytest.mark.parametrize("text", ["0000-02-29T12:00:00Z", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999999-23:59"])
def test_moments_at_both_ends_of_time_are_read_and_written(text: str) -> None:
    """Servers take them; Python has no year 0."""
    moment = parse_time(text)
    assert parse_time(format_time(moment)) == moment
    assert (moment < 0) == text.startswith("0000")
