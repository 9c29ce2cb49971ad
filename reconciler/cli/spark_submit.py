"""What spark-submit starts: `spark-submit [--master … --packages … --conf …] spark_submit.py -c plan.yaml [--commit …]`.

Whatever spark-submit was given wins; the arguments after the file are those of `reconciler partitions plan`.
`python -m reconciler.cli.spark_submit` prints where the file is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def _main() -> None:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        sys.stdout.write(f"{Path(__file__).resolve()}\n")
        return
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [path for path in sys.path if path != here]  # spark-submit puts it first, and our modules have common names
    sys.argv[1:] = ["partitions", "plan", "--engine", "spark", *sys.argv[1:]]
    from reconciler.cli.app import main  # noqa: PLC0415 - found only now

    main()


if __name__ == "__main__":
    _main()
