"""A line for every change as it ends, and for every step of a procedure."""

from __future__ import annotations

from rich.text import Text

from reconciler.cli.saying.terminal import Terminal
from reconciler.engine.apply.outcome import Outcome, Word
from reconciler.model.identity import Key
from reconciler.render.plan.phrases import SYMBOLS
from reconciler.render.values import printable

_MANY = 10
"""Changes; fewer are counted at a glance."""
_STYLES = {Word.APPLIED: "green", Word.FAILED: "bold red", Word.SKIPPED: "yellow", Word.UNFINISHED: "yellow"}


class ProgressLines:
    """The engine's Observer for people: on stdout, or on stderr where stdout is for JSON."""

    def __init__(self, terminal: Terminal, *, on_stdout: bool) -> None:
        self._terminal = terminal
        self._on_stdout = on_stdout
        self._ended = self._of = 0

    def expects(self, count: int) -> None:
        """So many changes are to come to their end."""
        self._of = count

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self._line(Text.assemble("      ", (f"{printable(str(key))}: {printable(title)}", "dim")))

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end."""
        change = outcome.change
        self._ended += 1
        self._line(
            self._terminal.assembled(
                (f"{self._ended:>{len(str(self._of))}}/{self._of} " if self._of >= _MANY else "", "dim"),
                (f"{SYMBOLS[change.action]:>5} {printable(str(change.key))}  ", ""),
                (outcome.word.value, _STYLES[outcome.word]),
                (f"  {outcome.seconds:.2f}s" if outcome.seconds else "", "dim"),
                (f"  {printable(outcome.why)}" if outcome.why else "", ""),
            )
        )
        for note in outcome.notes:
            self._line(Text(f"      note: {printable(note)}", style="yellow"))

    def _line(self, line: Text | str) -> None:
        if self._on_stdout:
            self._terminal.lines([line])
        else:
            self._terminal.say(line)
