"""From `-f PATH… --env E` to Desired, with the warnings on stderr."""

from __future__ import annotations

import sys

from reconciler.cli.flags.groups import SourceFlags
from reconciler.cli.session import Session
from reconciler.errors import UsageError
from reconciler.manifests.files.loader import Loaded, Loader
from reconciler.manifests.files.source import STDIN

NOTHING_DECLARED = "nothing is declared there (files that end in .yaml, .yml or .json are read)"
_UP_TO_THE_SERVER = frozenset({"ephemeral-source"})
"""Warned of where no server is known (`validate`); a plan knows the server, and refuses what is dangerous there."""


def load(session: Session, source: SourceFlags) -> Loaded:
    """Everything that is declared, its warnings told; raises InvalidInput with all problems."""
    loaded = read(session, source)
    for warning in loaded.warnings:
        if warning.code not in _UP_TO_THE_SERVER:
            session.terminal.warn(str(warning))
    return loaded


def read(session: Session, source: SourceFlags) -> Loaded:
    """The same, with the warnings left to the caller."""
    if not source.files:
        msg = "which manifests? Give a file or directory with -f PATH (or RECONCILER_FILE), - for stdin"
        raise UsageError(msg)
    if "" in source.files:
        msg = "-f got an empty path (a variable that is not set?); for this directory write -f ."
        raise UsageError(msg)
    stdin = sys.stdin.buffer.read() if STDIN in source.files else b""
    with session.terminal.working("reading manifests"):
        loaded = Loader(session.owner).load(source.files, source.env, stdin)
    if not loaded.desired.resources:
        session.terminal.warn(f"{', '.join(source.files)}: {NOTHING_DECLARED}")
    return loaded
