"""What a person at a terminal is told when `reconciler run` has come up.

Invariant: only text, only once; logs go their own way.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from reconciler.cli.saying.terminal import Terminal
from reconciler.engine.daemon.state import DRY_RUN
from reconciler.jetstream.transport.settings import redact
from reconciler.observe import logs
from reconciler.observe.http.controls import MOST, Controls, StatusQuery
from reconciler.observe.http.renderings import at_once
from reconciler.render.status.text import status_lines
from reconciler.render.values import printable

_LOOK = 0.1
_PATIENCE = 3.0
"""Seconds without a word."""
_TERM = 5.0
"""Seconds within which it is usually known who writes."""


async def welcome(terminal: Terminal, controls: Controls, nats: str, http: str) -> None:
    """Waits until the daemon is ready, then shows the status and where to look; while that takes its time, the log tells."""
    begun = time.monotonic()
    while controls.not_ready():
        if time.monotonic() - begun > _PATIENCE:
            logs.speak()
        await asyncio.sleep(_LOOK)
    document = at_once(controls.telling(StatusQuery(limit=MOST)))
    while _has_nobody(document) and time.monotonic() - begun < _TERM:  # it waits for what the leader before may have on its way
        await asyncio.sleep(_LOOK)
        document = at_once(controls.telling(StatusQuery(limit=MOST)))
    terminal.lines(status_lines(document, time.time_ns()))
    terminal.lines(Text(line) for line in _further(_promise(document), redact(nats), http))
    logs.speak()


def _has_nobody(document: Mapping[str, Any]) -> bool:
    return not (document["leading"] or document["leader"] or document["mode"]["readOnly"] == DRY_RUN)


def _promise(document: Mapping[str, Any]) -> str:
    """What this process does from now on."""
    mode = document["mode"]
    if not document["leading"] and document["leader"]:
        return f"{printable(document['leader'])} writes; this process follows, and takes over when that one is gone"
    if mode["readOnly"]:
        return f"what differs is shown, and nothing is written ({printable(mode['readOnly'])})"
    if mode["drift"] == "report":
        return "what the manifests change is applied, what others change is reported"
    return "what differs is repaired from now on"


def _further(promise: str, nats: str, http: str) -> list[str]:
    here = Path(sys.executable).parent
    path = [] if shutil.which("reconciler") else [f'  export PATH="{here}:$PATH"']
    return [
        "",
        f"Ready: {promise}. In another terminal:",
        "",
        *path,
        f"  export NATS_URL={nats} RECONCILER_DAEMON={http}",
        f"  reconciler status    # or {http}/status",
        "  reconciler graph",
        f"  curl {http}/metrics",
        "",
        "Ctrl-C ends it.",
        "",
    ]
