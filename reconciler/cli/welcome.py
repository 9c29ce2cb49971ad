"""What a person at a terminal is told when `reconciler run` has come up.

Invariant: only text, only once; logs go their own way.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

from rich.text import Text

from reconciler.cli.terminal import Terminal
from reconciler.jetstream.settings import redact
from reconciler.observe.controls import MOST, Controls, StatusQuery
from reconciler.observe.renderings import at_once
from reconciler.render.status_text import status_lines

_LOOK = 0.1


async def welcome(terminal: Terminal, controls: Controls, nats: str, http: str) -> None:
    """Waits until the daemon is ready, then shows the status and where to look."""
    while controls.not_ready():  # noqa: ASYNC110 - probes ask the same way
        await asyncio.sleep(_LOOK)
    terminal.lines(status_lines(at_once(controls.telling(StatusQuery(limit=MOST))), time.time_ns()))
    terminal.lines(Text(line) for line in _further(redact(nats), http))


def _further(nats: str, http: str) -> list[str]:
    here = Path(sys.executable).parent
    path = [] if shutil.which("reconciler") else [f'  export PATH="{here}:$PATH"']
    return [
        "",
        "Ready: what differs is repaired from now on. In another terminal:",
        "",
        *path,
        f"  export NATS_URL={nats}",
        f"  reconciler status --daemon {http}    # or {http}/status",
        f"  reconciler graph --daemon {http}",
        f"  curl {http}/metrics",
        "",
        "Ctrl-C ends it.",
        "",
    ]
