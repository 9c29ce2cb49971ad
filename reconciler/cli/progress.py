"""A line for every change as it ends, and for every step of a procedure."""

from __future__ import annotations

from rich.text import Text

from reconciler.cli.terminal import Terminal
from reconciler.engine import Outcome, Result
from reconciler.model.identity import Key
from reconciler.render.phrases import SYMBOLS
from reconciler.render.values import printable

_STYLES = {Result.APPLIED: "green", Result.FAILED: "bold red", Result.SKIPPED: "yellow", Result.UNFINISHED: "yellow"}


class Progress:
    """The engine's Observer for people: on stdout, or on stderr where stdout is for JSON."""

    def __init__(self, terminal: Terminal, *, on_stdout: bool) -> None:
        self._terminal = terminal
        self._on_stdout = on_stdout

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self._line(Text.assemble("      ", (f"{printable(str(key))}: {printable(title)}", "dim")))

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end."""
        change = outcome.change
        line = Text.assemble(
            f"{SYMBOLS[change.action]:>5} {printable(str(change.key))}  ",
            (outcome.result.value, _STYLES[outcome.result]),
            (f"  {outcome.seconds:.2f}s" if outcome.seconds else "", "dim"),
        )
        if outcome.error:
            line.append(f"  {printable(outcome.error)}")
        self._line(line)
        for note in outcome.end.notes:
            self._line(Text(f"      note: {printable(note)}", style="yellow"))

    def _line(self, line: Text) -> None:
        if self._on_stdout:
            self._terminal.lines([line])
        else:
            self._terminal.say(line)
