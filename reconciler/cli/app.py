"""The `reconciler` command: what is given before a command, and how every command ends.

Invariant: whatever happens becomes one clear message on stderr and an exit code of the table; a traceback needs --debug.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass
from typing import Annotated, NoReturn

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # imported there, not listed

from reconciler import __version__
from reconciler.cli.commands import LazyGroup
from reconciler.cli.flags.groups import ConnectionFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.saying.exitcodes import ExitCode, exit_code
from reconciler.cli.saying.failing import explain, explain_usage, own_up
from reconciler.cli.saying.terminal import Terminal
from reconciler.cli.session import Session
from reconciler.errors import ReconcilerError

app = typer.Typer(
    name="reconciler", cls=LazyGroup, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)

_COMPLETE = "_RECONCILER_COMPLETE"
"""Set by the shell when it wants to know how a line could go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Show:
    """What is shown instead of running a command."""

    version: Annotated[bool, typer.Option("--version", help="Show the version")] = False
    print_config: Annotated[bool, typer.Option("--print-config", help="Show every setting with its origin")] = False


@app.callback(invoke_without_command=True)
@flattened
def root(
    ctx: typer.Context,
    connection: ConnectionFlags,
    show: _Show,
    *,
    owner: Annotated[str | None, typer.Option(envvar="RECONCILER_OWNER", help="Whose resources these are")] = None,
    debug: Annotated[bool, typer.Option("--debug", envvar="RECONCILER_DEBUG", help="Tracebacks and more logs")] = False,
) -> None:
    """A GitOps reconciler for NATS JetStream that never loses a message while it changes things."""
    terminal = ctx.ensure_object(Terminal)
    terminal.debug = debug
    session = Session(terminal=terminal, environ=os.environ, owner_flag=owner, connection=connection)
    ctx.obj = session
    if show.version:
        terminal.text(f"reconciler {__version__}")
        raise typer.Exit
    if show.print_config:
        from reconciler.cli.flags.print_config import print_settings  # noqa: PLC0415 - no other call pays for it

        print_settings(session)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        terminal.text(ctx.get_help())
        raise typer.Exit(ExitCode.USAGE)


def main() -> None:
    """Run the command line and end the process."""
    code = run_here()
    if "pyarrow" in sys.modules:
        _leave(code)
    sys.exit(code)


def run_here() -> int:
    """Run the command line of this process; the exit code."""
    if _COMPLETE in os.environ:
        completion_init()
    terminal = Terminal(os.environ)
    code = run(sys.argv[1:], terminal)
    terminal.close()
    return code


def _leave(code: int) -> NoReturn:
    """Ends the process as Python does, but does not take itself apart.

    Arrow has threads that nobody can wait for. One that lets go of something of Python's when there is no Python any more ends
    the process with a crash, whatever it had to say.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way to do what is to be done at the end
    Terminal(os.environ).close()
    os._exit(code)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Run one command; the exit code."""
    try:
        command = typer.main.get_command(app)
        return int(command.main(arguments, prog_name="reconciler", standalone_mode=False, obj=terminal) or ExitCode.OK)
    except typer.TyperException as error:
        explain_usage(error, terminal)
        return ExitCode.USAGE
    except ReconcilerError as error:
        explain(error, terminal)
        return exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: whatever is left is our mistake
        own_up(error, terminal)
        return ExitCode.FAILED
