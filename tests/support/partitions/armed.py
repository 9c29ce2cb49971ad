"""A process that dies at the n-th moment of its writing, and its group with it, as when a machine goes down.

A moment is just before a call that changes something on the disk, and just after the one that exchanges the trees.

As a program: each line of stdin, `at argument…`, is a run of `reconciler` in a process of its own, which is made in no time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from reconciler.partitions.output import tree

_CHANGES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "os.chmod", "os.utime"}


def armed(at: int) -> Callable[[], int]:
    """Kills at the moment of this number; returns what says how many there were."""
    moments = 0

    def moment() -> None:
        nonlocal moments
        moments += 1
        if moments == at:
            os.killpg(0, signal.SIGKILL)

    def heard(event: str, given: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(given[0], str) and given[0] != os.devnull
        git = event == "subprocess.Popen" and bool({"add", "commit"} & {*given[1]})
        if git or event in _CHANGES or (opened and given[2] & (os.O_WRONLY | os.O_RDWR)):
            moment()

    def synced(fd: Any) -> None:
        moment()
        fsync(fd)

    class Exchanging:
        def renameat2(self, *given: object) -> int:
            moment()
            done: int = libc.renameat2(*given)
            moment()
            return done

    fsync, os.fsync = os.fsync, synced
    libc, tree._LIBC = tree._LIBC, Exchanging()  # type: ignore[assignment]  # one function of it is all that is called
    sys.addaudithook(heard)
    return lambda: moments


def _serve() -> None:
    from reconciler.cli.app import run  # noqa: PLC0415 - only as a program: a process that is armed imports it itself
    from reconciler.cli.saying.terminal import Terminal  # noqa: PLC0415 - the same
    from reconciler.partitions.run import make  # noqa: F401, PLC0415 - loaded once, for all runs

    for line in sys.stdin:
        at, *arguments = line.split()
        child = os.fork()
        if child == 0:
            os.setsid()
            moments = armed(int(at))
            code = int(run(arguments, Terminal({})))
            _say(f"moments {moments()}")
            os._exit(code)
        _, status = os.waitpid(child, 0)
        _say(f"ended {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    _serve()
