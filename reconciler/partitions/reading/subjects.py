r"""Which texts are subjects, and subjects from templates.

The classes of characters are written out: `\s` is something else in Java, in RE2 and in Python.

Invariant: a text is good here exactly when `model.subjects` finds nothing wrong with it, and it has at most 255 characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

LONGEST = 255
SPACES = (
    r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"  # white space
    r"\x{0}-\x{8}\x{e}-\x{1b}\x{7f}"  # control characters
)
GOOD = rf"\A[^.{SPACES}]+(?:\.[^.{SPACES}]+)*\z"
"""In the notation that RE2 and Java share."""
WILD = r"(?:\A|\.)[*>](?:\.|\z)"
BAD_SUBJECT = f"with a subject that is none (empty tokens, white space, more than {LONGEST} characters)"
UNDECLARED = "with a wildcard that is no declared family (families: [dc.{tool}.>] declares one for each tool)"
TORN_FAMILY = "with a family whose partitions have more than one unit"
"""What faults say."""
FIELD = re.compile(r"\{([^{}]*)\}")


def wrong(column: pa.Array) -> pa.Array:
    """True where a text is no subject; nulls stay null."""
    well = pc.match_substring_regex(column, GOOD)
    long = pc.greater(pc.utf8_length(column), LONGEST)
    return pc.or_(pc.invert(well), long)


def wild(column: pa.Array) -> pa.Array:
    """True where a text has a wildcard."""
    return pc.match_substring_regex(column, WILD)


def template_columns(template: str) -> list[str]:
    """The columns that a template names; raises ValueError when it is none."""
    names: list[str] = FIELD.findall(template)
    rest = FIELD.sub("", template)
    if not names or "" in names or "{" in rest or "}" in rest:
        msg = "a template names columns in braces: dc.{tool}.{chamber}.completion"
        raise ValueError(msg)
    return names


def filled(template: str, columns: dict[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """The subjects, and which rows have a value that would not be one token: the subject would be another's."""
    parts: Sequence[str] = FIELD.split(template)
    arrays = [columns[part] if place % 2 else pa.scalar(part) for place, part in enumerate(parts)]
    subjects = pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")
    split = pa.array([False] * len(subjects))
    for name in dict.fromkeys(template_columns(template)):
        dotted = pc.or_(pc.match_substring(columns[name], "."), pc.equal(columns[name], ""))
        split = pc.or_(split, pc.fill_null(dotted, fill_value=False))
    return subjects, split
