"""Single values on one line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.render.values import show

PLAIN = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "(none)"),
        ("30s", "30s"),
        (-1, "-1"),
        (True, "true"),
        ("true", '"true"'),
        (["a.>", "b.*"], "[a.>, b.*]"),
        ("", '""'),
    ],
)
def test_values_look_as_in_a_manifest(value: object, shown: str) -> None:
    assert show(value) == shown


@given(PLAIN)
def test_what_is_shown_is_one_line_and_means_the_value(value: object) -> None:
    shown = show(value)
    assert shown.isprintable()
    assert yaml.safe_load(f"[{shown}]") == [value]
