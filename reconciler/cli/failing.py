"""What a command that failed says, on stderr.

Invariant: one clear message; a traceback only with --debug.
"""

from __future__ import annotations

import traceback
from typing import Any

import typer

from reconciler.cli.github import in_github
from reconciler.cli.problems import problem_lines, total
from reconciler.cli.terminal import Terminal
from reconciler.errors import InvalidInput, ReconcilerError


def explain_usage(error: typer.TyperException, terminal: Terminal) -> None:
    """A command line that makes no sense."""
    context = getattr(error, "ctx", None)
    terminal.fail(_elsewhere(error, context) or error.format_message())
    if context is not None:
        terminal.say(f"Try `{context.command_path} --help`.")


def _elsewhere(error: typer.TyperException, context: Any) -> str:  # noqa: ANN401 - of the parser that typer brings along
    """Where an option goes that is none of the command's, but stands before it."""
    option = getattr(error, "option_name", "")
    if not option or context is None or context.parent is None:
        return ""
    root = context.find_root()
    before = {name for parameter in root.command.params for name in parameter.opts}
    if option not in before:
        return ""
    rest = context.command_path.removeprefix(root.command_path).strip()
    return f"{option} stands before the command: {root.command_path} {option} … {rest} …"


def explain(error: ReconcilerError, terminal: Terminal) -> None:
    """Something that can go wrong and did."""
    if terminal.is_log:
        _log(error)
        return
    if terminal.debug:
        terminal.say("".join(traceback.format_exception(error)))
    if isinstance(error, InvalidInput):
        for line in problem_lines(error.problems, github=in_github(terminal.environ)):
            terminal.say(line)
        terminal.fail(total(error.problems))
    else:
        terminal.fail(str(error))


def own_up(error: Exception, terminal: Terminal) -> None:
    """Something that should not have happened."""
    if terminal.is_log:
        _log(error)
        return
    terminal.fail(f"this is a bug in reconciler, please report it: {type(error).__name__}: {error}")
    if terminal.debug:
        terminal.say("".join(traceback.format_exception(error)))
    else:
        terminal.say("Run it again with --debug for the traceback.")


def _log(error: Exception) -> None:
    """The same as the last lines of a log."""
    import structlog  # noqa: PLC0415 - no other command has one

    from reconciler.observe.wording import problem_fields  # noqa: PLC0415

    log = structlog.get_logger(__name__)
    if isinstance(error, InvalidInput):
        for problem in error.problems:
            log.error("manifests.problem", **problem_fields(problem))
        log.error("process.failed", error=total(error.problems))
    elif isinstance(error, ReconcilerError):
        log.error("process.failed", error=str(error))
    else:
        log.error("process.failed", error="this is a bug in reconciler, please report it", exc_info=error)
