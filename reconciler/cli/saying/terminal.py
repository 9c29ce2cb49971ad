"""Where output goes: data to stdout, everything else to stderr, colour only where someone looks.

Invariants: a reader that goes away (`| head`) never changes what a command does or how it ends; output just stops. No name,
message or answer from elsewhere reaches a terminal as a control sequence, whoever prints it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from typing import IO, Any

import orjson
from rich.console import Console
from rich.text import Text

Tell = Callable[[int, int], None]
_BAR = 30
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What moves the cursor, colours, rings, or turns the direction of what follows."""
_HARMLESS = "\N{REPLACEMENT CHARACTER}"


class _QuietConsole(Console):
    """A console that outlives its reader."""

    def on_broken_pipe(self) -> None:
        _discard(self.file)


class Terminal:
    """stdout and stderr of one command."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.debug = False
        self.is_log = False
        """stderr is a log in JSON: whatever ends this process is a line of it."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # an ASCII terminal gets "\u2192", not a crash
        self._out = _console(sys.stdout, environ)
        self._err = _console(sys.stderr, environ)

    @property
    def interactive(self) -> bool:
        """Whether there is somebody to ask."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def assembled(self, *parts: tuple[str, str]) -> Text | str:
        """Text in styles; where nobody sees them a plain one, of which thousands cost nothing."""
        return "".join(text for text, _ in parts) if self._out.color_system is None else Text.assemble(*parts)

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Data for people, on stdout; each line as long as it is."""
        if self._out.color_system is None:  # rich takes ten times as long to print the same
            self._plain(sys.stdout, "".join(f"{inert(line)}\n" for line in lines))
            return
        for line in lines:
            self._out.print(inert(line), soft_wrap=True, markup=False, highlight=False)

    def text(self, text: str) -> None:
        """Data, on stdout: as it is where a program reads it, and harmless where a terminal does."""
        text = _CONTROL.sub(_HARMLESS, text) if sys.stdout.isatty() else text
        self._plain(sys.stdout, text if text.endswith("\n") else f"{text}\n")

    @staticmethod
    def _plain(stream: IO[str], text: str) -> None:
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            _discard(stream)

    def json(self, document: Any) -> None:  # noqa: ANN401 - anything JSON can say
        """One JSON document on stdout."""
        self.text(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())

    def say(self, message: Text | str) -> None:
        """Anything that is not data, on stderr."""
        self._err.print(inert(message), soft_wrap=True, markup=False, highlight=False)

    def ask(self, question: str) -> None:
        """A question on stderr; the answer comes on the same line."""
        self._err.print(inert(question), soft_wrap=True, markup=False, highlight=False, end="")

    def warn(self, message: str) -> None:
        """A warning, on stderr."""
        self._err.print(Text.assemble(("warning: ", "bold yellow"), inert(message)), soft_wrap=True)

    def fail(self, message: str) -> None:
        """Why the command ends, on stderr."""
        self._err.print(Text.assemble(("error: ", "bold red"), inert(message)), soft_wrap=True)

    @contextmanager
    def working(self, what: str) -> Iterator[Tell | None]:
        """A spinner as long as the block lasts, where somebody looks; what it yields is told how much is done, of how much."""
        if not self._err.is_terminal or self._err.is_dumb_terminal:
            yield None
            return
        with self._err.status(f"{what}…") as status:
            yield lambda done, of: status.update(f"{what}… {_bar(done, of)}")

    def close(self) -> None:
        """Flush both streams while a pipe, or a terminal, that is closed can still be met quietly."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise
                _discard(stream)


def inert(line: Text | str) -> Text | str:
    """The same, with nothing in it that a terminal would obey."""
    if isinstance(line, str):
        return _CONTROL.sub(_HARMLESS, line)
    if _CONTROL.search(line.plain):
        line = line.copy()
        line.plain = _CONTROL.sub(_HARMLESS, line.plain)
    return line


def _console(stream: IO[str], environ: Mapping[str, str]) -> Console:
    colour = wants_colour(environ, terminal=stream.isatty())
    return _QuietConsole(
        file=stream,
        color_system="standard" if colour else None,
        force_terminal=None if colour else stream.isatty(),
        emoji=False,  # line 100 of a file is `:100:`, which is an emoji to rich
    )


def _bar(done: int, of: int) -> str:
    """How far something is."""
    full = _BAR * done // of if of else 0
    return f"{'━' * full}{'─' * (_BAR - full)} {done} of {of}"


def wants_colour(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """NO_COLOR beats FORCE_COLOR beats what the stream is."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal and environ.get("TERM") != "dumb"


def _discard(stream: IO[str]) -> None:
    """Nobody reads this stream any more: what is still written to it goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
