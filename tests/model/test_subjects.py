"""The grammar of subjects, checked against what matching concrete subjects says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.subjects import SubjectIndex, covered, covers, is_literal, overlap, problem_with

TOKENS = ("a", "b")
CONCRETE = [".".join(tokens) for length in (1, 2, 3, 4) for tokens in itertools.product(TOKENS, repeat=length)]


def matches(pattern: str, subject: str) -> bool:
    """The textbook definition."""
    wanted, there = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(there) >= len(wanted) and all(w in ("*", t) for w, t in zip(wanted[:-1], there, strict=False))
    return len(wanted) == len(there) and all(w in ("*", t) for w, t in zip(wanted, there, strict=True))


@st.composite
def patterns(draw: st.DrawFn) -> str:
    tokens = draw(st.lists(st.sampled_from((*TOKENS, "*")), max_size=3))
    end = draw(st.sampled_from((">", "a", "*")))
    return ".".join([*tokens, end])


@given(patterns(), patterns())
def test_overlap_means_some_subject_matches_both(one: str, other: str) -> None:
    assert overlap(one, other) == any(matches(one, subject) and matches(other, subject) for subject in CONCRETE)
    assert overlap(one, other) == overlap(other, one)


@given(patterns(), patterns())
def test_covers_means_every_subject_matches(wide: str, narrow: str) -> None:
    everything = [subject for subject in (*CONCRETE, "c", "a.c", "a.a.c", "a.a.a.c", "a.a.a.a.c") if matches(narrow, subject)]
    if covers(wide, narrow):
        assert all(matches(wide, subject) for subject in everything)
        assert overlap(wide, narrow)
    elif ">" not in narrow and "*" not in narrow:
        assert not matches(wide, narrow)


@given(patterns())
def test_a_subject_covers_itself(pattern: str) -> None:
    assert covers(pattern, pattern)
    assert covered(pattern, ["x", pattern])


@given(st.lists(patterns(), max_size=20), patterns())
def test_the_index_finds_exactly_what_overlaps(known: list[str], wanted: str) -> None:
    index: SubjectIndex[int] = SubjectIndex()
    for number, subject in enumerate(known):
        index.add(subject, number)
    expected = sorted((subject, number) for number, subject in enumerate(known) if overlap(subject, wanted))
    assert sorted(index.overlapping(wanted)) == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"), [("a.>", "a", False), ("a.>", "a.>", True), ("*.>", "a.>", True), ("a.*", "a.>", False)]
)
def test_the_edges_of_covering(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


@pytest.mark.parametrize("subject", ["", "a..b", ".a", "a.", "a b", "a.>.b", "a\tb", "a\x00"])
def test_what_is_no_subject_has_a_reason(subject: str) -> None:
    assert problem_with(subject)


@pytest.mark.parametrize("subject", ["a", "a.*.b", ">", "a.>", "$JS.API", "ünï.x", "a>b", "a*"])
def test_what_is_a_subject_has_none(subject: str) -> None:
    assert problem_with(subject) is None


def test_a_wildcard_is_a_whole_token() -> None:
    assert is_literal("a*.b>")
    assert not is_literal("a.*")
