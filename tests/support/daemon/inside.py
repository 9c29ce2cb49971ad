"""The command in this process: as from outside, but without the time that a process takes to start.

Invariant: environment, directory, streams and logging are afterwards as they were before.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from reconciler.cli.app import run_here


class _Stream(io.TextIOWrapper):
    """Standard input or output that is nobody's terminal."""

    def __init__(self, text: str = "") -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)

    def said(self) -> str:
        """All that was written to it."""
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]  # it is a BytesIO


def run_inside(arguments: Sequence[str], stdin: str, environ: Mapping[str, str], cwd: Path) -> tuple[int, str, str]:
    """Run the command line: its exit code, what it wrote to stdout, and what to stderr."""
    out, err = _Stream(), _Stream()
    with (
        _logging_as_it_was(),
        _no_loop(),
        _surroundings(["reconciler", *arguments], environ, cwd),
        _streams(_Stream(stdin), out, err),
    ):
        code = _code()
    return code, out.said(), err.said()


def _code() -> int:
    try:
        return run_here()
    except SystemExit as ended:  # what completes a line for the shell ends in its own way
        return int(ended.code or 0)


@contextmanager
def _no_loop() -> Iterator[None]:
    """Where a test's own event loop waits for this to end, the command shall not notice: it runs one of its own."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        if running is not None:
            asyncio.set_event_loop(running)


@contextmanager
def _surroundings(argv: list[str], environ: Mapping[str, str], cwd: Path) -> Iterator[None]:
    before = dict(os.environ), sys.argv, Path.cwd()
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = argv
    os.chdir(cwd)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.argv = before[1]
        os.chdir(before[2])


@contextmanager
def _streams(*streams: _Stream) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)
