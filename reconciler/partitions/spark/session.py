"""The Spark session: what it needs, and clear words when that is missing.

A master, packages and confs given from outside (spark-submit, spark-defaults, SPARK_REMOTE) win: nothing is set here that is set
there.

Invariant: pyspark is imported only when its version, and Java where a JVM has to be started, are known to be there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reconciler.errors import ReconcilerError, UsageError
from reconciler.partitions.spark.ending import MEMORY, ending_without_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
CONNECT_PORT = 15002
CONNECT_SECONDS = 10.0
_IN_QUERY = "spark.sql.execution.arrow.localRelationThreshold"
"""Smaller tables of this process are part of the query, and of every task that reads them, again and again; 48 MB, says Spark."""
_JAVA_LINE = "Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_DELTA, _ICEBERG = "4.1.0", "1.11.0"
_FITTING, _SPARK = ("4.0", "4.1"), "4.1.4"
"""The versions of Spark that they are made for, and the one on which they were seen to write and read."""
_PACKAGES = {
    "delta": (
        "io.delta:delta-spark_{spark}_2.13:" + _DELTA,
        (
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ),
    ),
    "iceberg": (
        "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:" + _ICEBERG,
        ("spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",),
    ),
    "avro": ("org.apache.spark:spark-avro_2.13:{full}", ()),
}
_CORES = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")
_PARTS = 8
"""Of a shuffle, for each core."""
_JAVA_OPTIONS, _DEFAULT_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
_NO_CATALOG = re.compile(r"REQUIRES_SINGLE_PART_NAMESPACE.* got `([^`]+)`")
_MISFIT = re.compile(
    r"NoSuchMethodError|IncompatibleClassChangeError|NoClassDefFoundError|AbstractMethodError"
    r"|details = \"'\S+ org\.apache\.spark\."
)
"""Errors of a package that was made for another Spark; the last is what Connect leaves of the first."""
_UNKNOWN = re.compile("DATA_SOURCE_NOT_FOUND|Failed to find data source|ClassNotFoundException|Cannot find catalog plugin class")
_SAYS = re.compile(r'details = "(?P<connect>.+)"|^: (?P<classic>.+)', re.MULTILINE)
"""The line that says something, where the first one does not."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the command line says about the session."""

    master: str | None = None
    remote: str | None = None
    packages: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    shared_filesystem: bool = False


def need_pyspark() -> None:
    """Raises UsageError where pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        msg = "planning with Spark needs pyspark: pip install 'jetstream-reconciler[spark]'"
        raise UsageError(msg)


def need_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raises UsageError where no Java of the right age can be started."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "PATH"
    if java is None or not os.access(java, os.X_OK):
        msg = f"Spark needs Java {JAVA} or newer and there is none (looked at {where}). {_JAVA_LINE}"
        raise UsageError(msg)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - the user's own Java
    found = _VERSION.search(said)
    major = int(found[2] or 0) if found and found[1] == "1" else int(found[1]) if found else 0
    if major < JAVA:
        shown = f"Java {major}" if major else "one that does not say its version"
        msg = f"Spark needs Java {JAVA} or newer; {java} is {shown}. {_JAVA_LINE}"
        raise UsageError(msg)


def open_session(options: SparkOptions) -> tuple[SparkSession, bool]:
    """The session that is there, else a new one; and whether it is ours to stop."""
    need_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only when it is there

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    remote = options.remote or (None if options.master else os.environ.get("SPARK_REMOTE"))
    if remote is None or remote.startswith("local"):
        need_java()
    builder = SparkSession.builder.appName("reconciler partitions plan")
    if remote is not None:
        with ending_without_memory():
            return _connected(builder.remote(remote), remote, options), True
    if options.master or not _given_outside("spark.master"):
        builder = builder.master(options.master or "local[*]")
        if (options.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.ui.enabled", "false") if not _given_outside("spark.ui.enabled") else builder
            for name, value in for_one_machine(options).items():
                builder = builder.config(name, value)
    if not _given_outside("spark.ui.showConsoleProgress"):  # Spark takes us for its shell, and would draw bars into logs
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    if not _given_outside(_IN_QUERY):
        builder = builder.config(_IN_QUERY, "1MB")
    with ending_without_memory():
        return _configured(builder, options).getOrCreate(), True


def for_one_machine(options: SparkOptions) -> dict[str, str]:
    """What a Spark in one process, which plans and ends, does better with, unless somebody has set it.

    A plan is some two hundred pieces of compiled code, and Spark remembers one hundred: it forgets what it needs next. And its
    200 parts of every shuffle are for a cluster.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit: its JVM runs, and what it was told is not known here
        return {}
    cores = _CORES.fullmatch(options.master or "local[*]")
    number = 1 if cores is None else os.cpu_count() or 1 if cores[1] == "*" else int(cores[1])
    ours = {"spark.sql.codegen.cache.maxEntries": "2000", "spark.sql.shuffle.partitions": str(min(200, _PARTS * number))}
    if not _has_collector(options):
        ours[_JAVA_OPTIONS] = "-XX:+UseParallelGC"
    return {name: value for name, value in ours.items() if name not in options.conf and not _given_outside(name)}


def _has_collector(options: SparkOptions) -> bool:
    """Whether Java may have been told how to collect garbage: it does not start when it is told twice."""
    names = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
    said = [*(os.environ.get(name, "") for name in names), options.conf.get(_DEFAULT_OPTIONS, "")]
    return any("GC" in words for words in said) or _given_outside(_DEFAULT_OPTIONS)


def _connected(builder: SparkSession.Builder, remote: str, options: SparkOptions) -> SparkSession:
    """A session on a Connect server; what it does not take is an error, while the client of Connect would be silent."""
    ours = remote.startswith("local")
    if options.packages and not ours:
        msg = f"packages are loaded by the Connect server when it starts: give --packages {','.join(options.packages)} to it"
        raise UsageError(msg)
    if not ours:
        _need_answer(remote)
    session = _configured(builder, options).getOrCreate()
    for name, value in () if ours else options.conf.items():
        if session.conf.get(name, None) != value:
            session.stop()
            msg = f"--conf {name}={value}: a Connect server takes this only when it starts: give it to the server"
            raise UsageError(msg)
    return session


def _need_answer(remote: str) -> None:
    """Raises where nobody listens: the client of Connect would try for ten minutes without a word."""
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return
    try:
        address = urlsplit(remote)
        where = (address.hostname or "", address.port or CONNECT_PORT)
    except ValueError:
        where = ("", 0)
    if not where[0] or address.scheme != "sc":
        msg = f"--remote {remote}: sc://host:{CONNECT_PORT} is expected"
        raise UsageError(msg)
    try:
        socket.create_connection(where, CONNECT_SECONDS).close()
    except OSError as error:
        msg = f"no Connect server answers at {where[0]}:{where[1]}: {error.strerror or error}"
        raise ReconcilerError(msg) from error


def _configured(builder: SparkSession.Builder, options: SparkOptions) -> SparkSession.Builder:
    if options.packages:
        builder = builder.config("spark.jars.packages", ",".join(options.packages))
    for name, value in options.conf.items():
        builder = builder.config(name, value)
    return builder


def _given_outside(name: str) -> bool:
    """Whether spark-submit or spark-defaults.conf has set this."""
    if name in os.environ.get("PYSPARK_SUBMIT_ARGS", "") or (name == "spark.master" and "MASTER" in os.environ):
        return True
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, which always has a master
        return name == "spark.master"
    directory = os.environ.get("SPARK_CONF_DIR") or (f"{os.environ['SPARK_HOME']}/conf" if "SPARK_HOME" in os.environ else None)
    defaults = Path(directory, "spark-defaults.conf") if directory else None
    if defaults is None or not defaults.is_file():
        return False
    return any(line.split(maxsplit=1)[:1] == [name] for line in defaults.read_text(encoding="utf-8").splitlines())


def is_local(spark: SparkSession) -> bool:
    """Whether executors read the very files that this process reads."""
    return not is_connect(spark) and str(spark.conf.get("spark.master", "")).startswith("local")


def is_connect(spark: SparkSession | None) -> bool:
    """Whether this process has no more of Spark than a connection to a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def packages_line(format_: str, spark_version: str) -> str | None:
    """What makes a table format known to this Spark; None where nobody here knows what would."""
    if format_ not in _PACKAGES:
        return None
    package, confs = _PACKAGES[format_]
    short = ".".join(spark_version.split(".")[:2])
    if "{spark}" in package and short not in _FITTING:
        return None
    return " ".join([f"--packages {package.format(spark=short, full=spark_version)}", *(f"--conf {conf}" for conf in confs)])


def explained(error: Exception, format_: str, session: SparkSession | None = None) -> UsageError | None:
    """An error of the JVM about a table format, in words that lead on; None when it is about something else."""
    text = str(error)
    spark = _version(session)
    to = "start the Connect server with" if is_connect(session) else "add"
    tried = packages_line(format_, _SPARK)
    elsewhere = f"Spark {_SPARK} (pip install 'pyspark[connect]=={_SPARK}', also on the cluster) with {tried}"
    if _MISFIT.search(text):
        fits = elsewhere if tried else "the versions that its documentation names"
        return UsageError(
            f"{format_}: its package ({_loaded(format_, text, session)}) does not fit Spark {spark}; what fits: {fits}"
        )
    line, catalog = packages_line(format_, spark), _NO_CATALOG.search(text)
    if catalog is None and not _UNKNOWN.search(text):
        return None
    if line is None and tried is not None:
        return UsageError(f"{format_}: no package of it is known for Spark {spark}; what fits: {elsewhere}")
    if catalog is not None:
        name = f"spark.sql.catalog.{catalog[1]}"
        way = f"--conf {name}=org.apache.iceberg.spark.SparkCatalog" if format_ == "iceberg" else f"--conf {name}=CLASS"
        where = f"and where it is ({name}.type, .uri, .warehouse: see its documentation)"
        return UsageError(f"this Spark ({spark}) has no catalog {catalog[1]}: {to} {line or 'its --packages'} {way}, {where}")
    added = line or "its package: --packages GROUP:ARTIFACT:VERSION"
    return UsageError(f"this Spark ({spark}) does not know the format {format_}: {to} {added}")


def not_started(error: Exception, options: SparkOptions) -> str:
    """What to say where there is no session."""
    said = f"Spark did not start: {first_line(error)}"
    if "INVALID_DRIVER_MEMORY" in said:
        return f"{said} --conf {MEMORY}=1g gives it more"
    if not options.packages or "JAVA_GATEWAY_EXITED" not in said:
        return said
    return (
        f"{said} Its own words are above. --packages come from Maven Central: DEFAULT_ARTIFACT_REPOSITORY=https://… "
        "names a mirror, --conf spark.jars=A.jar,B.jar takes files instead"
    )


def failed(error: Exception, options: SparkOptions) -> str:
    """What to say where nothing is known about an error but what Spark says."""
    said = f"Spark failed: {first_line(error)}"
    promised = options.shared_filesystem and "FILE_NOT_EXIST" in said
    return f"{said} --shared-filesystem says that every executor sees it" if promised else said


def first_line(error: Exception) -> str:
    """What Spark says, without what it did."""
    says = _SAYS.search(str(error))
    return says["connect"] or says["classic"] if says else next(iter(str(error).strip().splitlines()), type(error).__name__)


def _version(session: SparkSession | None) -> str:
    """Of the Spark that plans: with Connect, of the server."""
    if session is not None:
        return str(session.version)
    import pyspark  # noqa: PLC0415 - only when it is there

    return str(pyspark.__version__)


def _loaded(format_: str, text: str, session: SparkSession | None) -> str:
    """The package that was asked for, as far as it is known."""
    asked = session.conf.get("spark.jars.packages", "") if session is not None else ""
    named = [package for package in str(asked or "").split(",") if format_ in package]
    return named[0] if named else next(iter(re.findall(r"(?:delta|iceberg)[\w.-]*\.jar", text)), "its version is unknown")
