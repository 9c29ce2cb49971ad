"""The keys of what is placed, and the one order among them: by hash, then by bytes.

The hash is XXH64 with seed 42 over UTF-8, as a signed 64-bit number: `xxhash64(key)` of Spark.

Invariant: an order made here is total; it never depends on where a row stood in its table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

Ints = npt.NDArray[np.int64]
_SEED = 42
_STRATA_BITS = 6
"""64 strata: `pmod(xxhash64(key), 64)`, the last six bits."""


def xxhash64(key: str) -> int:
    """The hash of one key."""
    value = xxh64_intdigest(key.encode(), _SEED)
    return value - (1 << 64) if value >> 63 else value


class Keys:
    """Strings, hashed on demand."""

    def __init__(self, values: pa.Array | pa.ChunkedArray | Sequence[str]) -> None:
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        self._values: pa.Array = values if isinstance(values, pa.Array) else pa.array(values, pa.string())

    def __len__(self) -> int:
        return len(self._values)

    @property
    def column(self) -> pa.Array:
        """As a column."""
        return self._values

    def take(self, rows: Ints) -> Keys:
        """Some of them."""
        return Keys(self._values.take(pa.array(rows)))

    def texts(self, rows: Ints) -> list[bytes]:
        """The keys of some rows, in UTF-8."""
        some = self._values.take(pa.array(rows))
        found: list[bytes] = some.cast(pa.binary()).to_pylist()
        return found

    def hashes(self, rows: Ints) -> Ints:
        """Their signed hashes."""
        unsigned = [xxh64_intdigest(text, _SEED) for text in self.texts(rows)]
        return np.array(unsigned, dtype=np.uint64).view(np.int64)

    def ordered(self, rows: Ints, *by: Ints, strata: bool = False) -> Ints:
        """The rows by these columns (the first decides), then by hash, then by key; `strata` puts the last six bits first."""
        if len(rows) < 2:  # noqa: PLR2004 - nothing to order
            return rows
        tie = _unsigned(self.hashes(rows))
        if strata:
            low = tie & np.uint64((1 << _STRATA_BITS) - 1)
            tie = (low << np.uint64(64 - _STRATA_BITS)) | (tie >> np.uint64(_STRATA_BITS))
        order = np.lexsort((tie, *reversed(by)))
        same = np.ones(len(rows) - 1, dtype=np.bool_)
        for column in (tie, *by):
            sorted_column = column[order]
            same &= sorted_column[1:] == sorted_column[:-1]
        if same.any():
            order = self._by_bytes(rows, order, same)
        ordered: Ints = rows[order]
        return ordered

    def _by_bytes(self, rows: Ints, order: Ints, same: npt.NDArray[np.bool_]) -> Ints:
        """Two keys of one hash: rare, but not impossible."""
        order = order.copy()
        begin = 0
        for place in range(1, len(order) + 1):
            if place == len(order) or not same[place - 1]:
                if place - begin > 1:
                    run = order[begin:place]
                    texts = self.texts(rows[run])
                    order[begin:place] = run[sorted(range(len(run)), key=texts.__getitem__)]
                begin = place
        return order


def _unsigned(signed: Ints) -> npt.NDArray[np.uint64]:
    """Unsigned numbers in the order of the signed ones."""
    return signed.view(np.uint64) ^ np.uint64(1 << 63)
