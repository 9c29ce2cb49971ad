"""How far Spark is with what it is doing, for somebody who looks at a terminal.

Invariant: nobody who does not look costs anything, and what is told changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

Tell = Callable[[int, int], None]
"""Told the tasks that are done, and all, of the stages that are being computed."""
_EVERY = 0.2


@contextmanager
def watched(spark: SparkSession, tell: Tell | None) -> Iterator[None]:
    """Tells how far it is, as long as the block lasts."""
    if tell is None:
        yield
    elif type(spark).__module__.startswith("pyspark.sql.connect"):
        with _by_the_server(spark, tell):
            yield
    else:
        with _by_the_driver(spark, tell):
            yield


@contextmanager
def _by_the_server(spark: Any, tell: Tell) -> Iterator[None]:  # noqa: ANN401 - a session of Connect
    """A server says so by itself."""

    def told(stages: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - of pyspark
        running = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or () if not stage.done]
        if running:
            tell(sum(done for done, _ in running), sum(tasks for _, tasks in running))

    spark.registerProgressHandler(told)
    try:
        yield
    finally:
        spark.removeProgressHandler(told)


@contextmanager
def _by_the_driver(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """A driver is asked, five times a second."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a client of Connect may lack it

    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()

    def ask() -> None:
        with suppress(Py4JError, OSError):  # the driver is gone, which whoever waits for a result hears as well
            while not ended.wait(_EVERY):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    tell(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))

    asking = threading.Thread(target=ask, name="progress of Spark", daemon=True)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()
