"""How a long run ends early: in order, whatever it was started by, so that no server of its own is left."""

from __future__ import annotations

import signal


def in_order() -> None:
    """SIGTERM ends it as Ctrl-C does, and Ctrl-C does also in the background, where a shell has it ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
