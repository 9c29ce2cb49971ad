"""The command, in a process that ends while a thread of Arrow reads from something of Python's.

python -m tests.support.partitions.reading partitions plan …
"""

from __future__ import annotations

import io
import threading
import time

import pyarrow as pa
import pyarrow.csv as pa_csv

from reconciler.cli.app import main

_entered = threading.Event()


class _Slow(io.RawIOBase):
    """A file that is read from when Python begins to end, and is not done before it has."""

    def readable(self) -> bool:
        return True

    def read(self, _size: int = -1) -> bytes:
        _entered.set()
        time.sleep(2)
        return b""


class _Lingering:
    """What takes its time to go when Python takes itself apart."""

    def __del__(self, rest: object = time.sleep) -> None:
        rest(4)  # type: ignore[operator]  # the module is gone by then, and with it what it knew


if __name__ == "__main__":
    lingering = _Lingering()
    threading.Thread(target=lambda: pa_csv.open_csv(pa.PythonFile(_Slow(), "r")), daemon=True).start()
    _entered.wait()
    main()
