"""What a hang-up (SIGHUP) means: read the manifests again, or that whoever started this process has gone.

Invariant: a process that was started to outlive its terminal (`nohup`) does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def ends_by_hangup(*, embedded: bool) -> Callable[[], bool]:
    """To be asked at a hang-up, and made before anybody listens to that: whether it is the end.

    It is when the terminal that this process was started from is gone, and always for one that has a server of its own.
    """
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return lambda: False
    if embedded:
        return lambda: True
    return (lambda: not _has_terminal()) if _has_terminal() else (lambda: False)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
