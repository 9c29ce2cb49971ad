"""Columns of texts: which kinds of values are one text wherever they are read.

Invariant: a column that is taken here is the same texts in Spark; 1.0 and 1E0, or two ways to write a time, are refused in both.
"""

from __future__ import annotations

import pyarrow as pa

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.suggest import quoted


def text_of(column: pa.Array, name: str, table: str) -> pa.Array:
    """The values as texts; raises InvalidInput where they could be written in several ways."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not _one_way(kind):
        raise InvalidInput((no_texts(name, table),))
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def no_texts(name: str, table: str) -> Problem:
    """What to say of a column that cannot be read as texts."""
    message = f"the values of {quoted(name)} can be written in several ways: make texts or whole numbers of them"
    return Problem(table, 1, 1, "no-texts", message)


def _one_way(kind: pa.DataType) -> bool:
    plain = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_binary,
        pa.types.is_null,
    )
    return any(is_one(kind) for is_one in plain) or (pa.types.is_decimal(kind) and kind.scale == 0)
