"""Parses and compiles texts, in this process or in several.

Invariant: outcomes come in the order of the texts, and where the work is done makes no difference to them.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import Generic, NamedTuple, TypeVar

from reconciler.errors import Problem, ReconcilerError
from reconciler.manifests.syntax.document import ENOUGH_PROBLEMS, Document, Text
from reconciler.manifests.syntax.texts import parse_text

C = TypeVar("C")
R = TypeVar("R")

_MAX_WORKERS = 4
_BATCH_BYTES = 256 * 1024
_BATCH_TEXTS = 500
_BATCHES_PER_WORKER = 3
"""Waiting for each worker: enough to keep it busy, few enough that the texts of a large tree are not all in memory."""


class TextOutcome(NamedTuple, Generic[R]):
    """What became of a text: one result for each document that could be read, and the problems of the others."""

    results: tuple[R, ...]
    problems: tuple[Problem, ...]


class Compiler(NamedTuple, Generic[C, R]):
    """How documents are compiled, and how many problems a result stands for."""

    compile: Callable[[Document, C], R]
    faults_of: Callable[[R], int]
    context: C

    def faults(self, outcome: TextOutcome[R]) -> int:
        """How much is wrong with a text."""
        return len(outcome.problems) + sum(map(self.faults_of, outcome.results))


def compile_here(compiler: Compiler[C, R], texts: Iterable[Text]) -> Iterator[TextOutcome[R]]:
    """Parses each text and compiles its documents, up to the one at which there are enough problems."""
    for text in texts:
        documents, problems = parse_text(text)
        yield TextOutcome(tuple(_compiled(compiler, documents)), problems)


def _compiled(compiler: Compiler[C, R], documents: Iterable[Document]) -> Iterator[R]:
    faults = 0
    for document in documents:
        result = compiler.compile(document, compiler.context)
        yield result
        faults += compiler.faults_of(result)
        if faults >= ENOUGH_PROBLEMS:
            return


def compile_in_processes(compiler: Compiler[C, R], texts: Iterable[Text]) -> Iterator[TextOutcome[R]]:
    """The same, spread over the cores. The compiler and the results are pickled; threads here are not disturbed."""
    workers = min(_MAX_WORKERS, _cores())
    job = partial(_compile_batch, compiler)
    try:
        yield from _spread(job, texts, workers)
    except BrokenProcessPool as error:
        msg = "a process that parses manifests was killed, probably for want of memory; nothing was loaded"
        raise ReconcilerError(msg) from error


def _compile_batch(compiler: Compiler[C, R], texts: Sequence[Text]) -> list[TextOutcome[R]]:
    return list(compile_here(compiler, texts))


def _spread(
    job: Callable[[Sequence[Text]], list[TextOutcome[R]]], texts: Iterable[Text], workers: int
) -> Iterator[TextOutcome[R]]:
    waiting: deque[Future[list[TextOutcome[R]]]] = deque()
    # Never fork: the daemon has threads, whose locks a forked child would keep locked for ever.
    # A worker lives for one load and makes next to no cycles: there is nothing for the collector to find.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=gc.disable) as pool:
        for batch in _batches(texts):
            waiting.append(pool.submit(job, batch))
            if len(waiting) >= workers * _BATCHES_PER_WORKER:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batches(texts: Iterable[Text]) -> Iterator[Sequence[Text]]:
    batch: list[Text] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text.data)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_TEXTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
