"""Columns of numbers → whole millionths, the one way weights and capacities are counted.

Text is read as a decimal and rounded half-even; a floating-point number is multiplied by a million and rounded half-even, as
`rint(x * 1000000)` does everywhere.

Invariant: the same value gives the same number here and in Spark; what cannot be counted exactly comes out as null.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.partitions.spec import MILLION

MOST = 1 << 62
"""Of one value, and of all weights together: so every sum fits into 64 bits."""
NUMBER = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\z"
"""What a number looks like in a text, in the notation of Java."""
_PLAIN = r"\A[+-]?[0-9]{1,12}(\.[0-9]{0,18})?\z"
_ODD = re.compile(NUMBER.replace(r"\z", r"\Z"))
_DIGITS = 18
"""After the point; what follows them is rounded half-up first, which is how Spark reads a text."""
_DECIMAL = pa.decimal128(38, 18)


def micro(column: pa.Array) -> pa.Array:
    """int64 millionths; null where there is no number, or none that fits."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_text(column)
    if pa.types.is_floating(kind):
        return _of_floats(column)
    if pa.types.is_integer(kind):
        return _of_integers(column)
    if pa.types.is_decimal(kind):
        return _of_text(column.cast(pa.string()))
    return pa.nulls(len(column), pa.int64())


def _of_text(column: pa.Array) -> pa.Array:
    text = pc.utf8_trim(column, " \t")
    plain = pc.match_substring_regex(text, _PLAIN)
    numbers = pc.if_else(plain, text, None).cast(_DECIMAL)
    whole = pc.round(numbers, 6, "half_to_even").cast(pa.decimal128(19, 6))
    found = pc.multiply(whole, pa.scalar(MILLION, pa.decimal128(7, 0))).cast(pa.int64())
    odd = pc.and_not(pc.fill_null(pc.is_valid(text), fill_value=False), pc.fill_null(plain, fill_value=False))
    if not pc.any(odd).as_py():
        return found
    values = found.to_pylist()
    for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist():
        values[row] = _of_one(text[row].as_py())
    return pa.array(values, pa.int64())


def _of_one(text: str) -> int | None:
    """A number with an exponent, and whatever else is written oddly."""
    if _ODD.match(text) is None:
        return None
    number = Decimal(text)
    if number and number.adjusted() > _DIGITS:
        return None
    with localcontext(prec=4 * _DIGITS):
        known = Decimal(number or 0).quantize(Decimal(1).scaleb(-_DIGITS), ROUND_HALF_UP)
        return int((known * MILLION).quantize(Decimal(1), ROUND_HALF_EVEN)) if abs(known) <= MOST // MILLION else None


def _of_floats(column: pa.Array) -> pa.Array:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(values * float(MILLION))
    good = np.abs(scaled) < float(MOST)  # false for NaN as well
    return pa.array(np.where(good, scaled, 0).astype(np.int64), mask=~good)


def _of_integers(column: pa.Array) -> pa.Array:
    values = column.cast(pa.int64(), safe=False)
    fits = pc.and_(pc.less_equal(values, MOST // MILLION), pc.greater_equal(values, -(MOST // MILLION)))
    return pc.multiply(pc.if_else(fits, values, None), pa.scalar(MILLION, pa.int64()))
