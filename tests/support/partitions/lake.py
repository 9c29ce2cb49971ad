"""Tables of a data lake, written by Spark with the real packages: Delta by path, Iceberg in a catalog called `lake`.

    python -m tests.support.partitions.lake WAREHOUSE partitions.csv workers.csv previous.csv

Every table is there as `WAREHOUSE/delta/NAME` and as `lake.nats.NAME`; numbers are numbers, unlike in CSV.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from reconciler.partitions.spark.session import packages_line
from tests.support.partitions.standalone import LITTLE

_EXTENSIONS = "spark.sql.extensions"


def catalog(warehouse: Path) -> dict[str, str]:
    """Where the Iceberg tables are."""
    name = "spark.sql.catalog.lake"
    return {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop", f"{name}.warehouse": f"file://{warehouse}"}


def advised(format_: str) -> list[str]:
    """The arguments that the product advises for a format."""
    line = packages_line(format_, version("pyspark"))
    assert line is not None
    return line.split()


def both() -> tuple[list[str], dict[str, str]]:
    """Packages and settings for one session with Delta and Iceberg."""
    packages: list[str] = []
    settings: dict[str, str] = {}
    for format_ in ("delta", "iceberg"):
        words = advised(format_)
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--packages":
                packages.append(value)
                continue
            name, _, text = value.partition("=")
            settings[name] = f"{settings[name]},{text}" if name in settings and name == _EXTENSIONS else text
    return packages, settings


def undelivered(said: str) -> str | None:
    """Why there are no such tables here, where Spark could not get the packages; None where that is not what it said."""
    if not re.search("unresolved dependency|download failed", said, re.IGNORECASE):
        return None
    return "Delta and Iceberg come from Maven Central, which did not answer; name a mirror in DEFAULT_ARTIFACT_REPOSITORY"


def write(warehouse: Path, tables: Mapping[str, Path]) -> None:
    """Writes them all, in a process of its own."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only where it is installed

    packages, settings = both()
    settings |= LITTLE | catalog(warehouse) | {"spark.jars.packages": ",".join(packages)}
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name, path in tables.items():
        table = spark.read.csv(f"file://{path}", header=True, inferSchema=True).repartition(2)
        table.write.format("delta").save(f"file://{warehouse}/delta/{name}")
        table.writeTo(f"lake.nats.{name}").create()
    spark.stop()


if __name__ == "__main__":
    write(Path(sys.argv[1]), {Path(path).stem: Path(path) for path in sys.argv[2:]})
