"""A Spark that ends by itself, and one that ought to.

A JVM that lacks memory loses whichever thread asked for it: without its scheduler it answers, and does nothing for ever. One that
is started here ends instead, and its client, which knows only that nobody answers, is told why.

Invariant: no option of Java that is given elsewhere is lost, and what is given there wins.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "spark.driver.memory"
_OPTIONS = "SPARK_SUBMIT_OPTS"
_ENDING = "-XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr"
_OUT_OF_MEMORY = 3
"""How Java ends then."""
_SECONDS = 5.0
"""From a connection that breaks to the end of the process that had it."""


@contextmanager
def ending_without_memory() -> Iterator[None]:
    """A JVM that is started meanwhile ends when it is out of memory."""
    given = os.environ.get(_OPTIONS)
    os.environ[_OPTIONS] = _ENDING if given is None else f"{_ENDING} {given}"
    try:
        yield
    finally:
        if given is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = given


@contextmanager
def alive(conf: Mapping[str, str]) -> Iterator[None]:
    """Says that the JVM has ended, and why, where it has."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        code = _ended(0 if isinstance(error, answers()) else _SECONDS)
        if code is None:
            raise
        raise ReconcilerError(_without_memory(conf) if code == _OUT_OF_MEMORY else _by_itself(code)) from error


def stop(spark: SparkSession) -> None:
    """Ends a session, unless its JVM has ended."""
    if _ended() is None:
        spark.stop()


def answers() -> tuple[type[Exception], ...]:
    """What is raised for what a Spark that is there has said."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only where it is there

    with suppress(ImportError):  # a client of Connect may lack it
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - the same

        return PySparkException, Py4JJavaError
    return (PySparkException,)


def _ended(seconds: float = 0) -> int | None:
    """How the JVM that was started here has ended; None where it has not, or was started elsewhere."""
    with suppress(ImportError, subprocess.TimeoutExpired):  # a client of Connect may lack it, and starts none
        from pyspark import SparkContext  # noqa: PLC0415 - only where it is there

        process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - nothing else knows
        return None if process is None else process.wait(seconds)
    return None


def _without_memory(conf: Mapping[str, str]) -> str:
    has = conf.get(MEMORY, "1g, unless spark-defaults.conf says otherwise")
    return f"Spark has used up its memory ({MEMORY}: {has}) and has ended: give it more (--conf {MEMORY}=SIZE)"


def _by_itself(code: int) -> str:
    how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    return f"Spark has ended by itself ({how}); what it said is above"
