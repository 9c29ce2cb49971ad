"""What a command that failed says, on stderr.

Invariant: one clear message; a traceback only with --debug.
"""

from __future__ import annotations

import traceback
from typing import Any

import typer

from reconciler.cli.saying.github import in_github
from reconciler.cli.saying.problems import problem_lines, total
from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import InvalidInput, ReconcilerError


def explain_usage(error: typer.TyperException, terminal: Terminal) -> None:
    """A command line that makes no sense."""
    context = getattr(error, "ctx", None)
    terminal.fail(_elsewhere(error, context) or error.format_message())
    if context is not None:
        terminal.say(f"Try `{context.command_path} --help`.")


def _elsewhere(error: typer.TyperException, context: Any) -> str:  # noqa: ANN401 - of the parser that typer brings along
    """Where an option goes that stands on the wrong side of the command."""
    option = getattr(error, "option_name", "")
    if not option or context is None:
        return ""
    root = context.find_root()
    if context.parent is None:
        found = sorted(name for name in root.command.list_commands(root) if option in _options(root.command, root, name))
        return f"{option} stands behind the command, as in: {root.command_path} {found[0]} {option} …" if found else ""
    if option not in _names(root.command.params):
        return ""
    rest = context.command_path.removeprefix(root.command_path).strip()
    return f"{option} stands before the command: {root.command_path} {option} … {rest} …"


def _options(group: Any, context: Any, name: str) -> set[str]:  # noqa: ANN401 - of the parser that typer brings along
    return _names(group.get_command(context, name).params)


def _names(parameters: Any) -> set[str]:  # noqa: ANN401 - of the parser that typer brings along
    return {name for parameter in parameters for name in parameter.opts}


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
