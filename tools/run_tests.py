"""Runs the tests so that nothing of them is left, however they end.

    python -m tools.run_tests                          what is run before every merge (`make test`)
    python -m tools.run_tests --all                    everything (`make test-all`)
    python -m tools.run_tests plan engine/test_due.py  rooms, or paths below tests/
    python -m tools.run_tests plan -- -k filters -x    what stands behind `--` goes to pytest

Invariant: when this returns, after the last test or after Ctrl-C, SIGTERM or a hang-up, every process that descends from it has
ended, and the one folder that holds all their files is gone. When it is killed, the kernel ends the test processes, and the next
run removes the folder.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PREFIX = "reconciler-tests-"
MEMORY = Path("/dev/shm")  # noqa: S108 - servers sync to disk after every write; in memory that costs nothing
ROOM_BYTES = 2 * 2**30
SIDE_BY_SIDE = 6
"""Most tests wait for a server most of the time: it takes so many to keep two processors busy."""
PURE = ("model", "plan", "procedures", "render")
"""Rooms whose tests never wait."""
PATIENCE = 30.0
"""How long pytest may take to end in an orderly way once it is interrupted."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def main() -> int:
    """Run what was asked for; the exit code is that of pytest, but 1 when passing tests left processes running."""
    own, more = _split(sys.argv[1:])
    asked = _arguments(own)
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent becomes a child of ours, which can be ended
    for number in _SIGNALS:
        signal.signal(number, _interrupted)  # in the background an interrupt comes in ignored, and tests would inherit that
    left: list[str] = []
    try:
        with _folder() as folder:
            try:
                code = _pytest([*_command(asked), *more], folder)
            finally:
                for number in _SIGNALS:
                    signal.signal(number, signal.SIG_IGN)  # the end is near, and must not be cut short
                left = _end_all()
    except KeyboardInterrupt as interrupt:
        return 128 + int(interrupt.args[0])
    if left and code == 0:
        print("still running when the tests were over: " + "; ".join(left), file=sys.stderr)
        return 1
    return code


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _arguments(own: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.run_tests", description="Runs the tests and leaves nothing behind.")
    parser.add_argument("--all", action="store_true", help="everything: the long tests too, and each on every default version")
    parser.add_argument("--side-by-side", type=int, default=0, metavar="N", help=f"tests at once (default {SIDE_BY_SIDE})")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="rooms such as plan, or paths; none: all tests")
    return parser.parse_args(own)


def _command(asked: argparse.Namespace) -> list[str]:
    paths = [_path(room) for room in asked.rooms]
    pure = bool(paths) and all(path.split("/")[1:2] in ([room] for room in PURE) for path in paths)
    at_once = asked.side_by_side or ((os.cpu_count() or 1) if pure else SIDE_BY_SIDE)
    command = [sys.executable, "-m", "pytest", "-n", str(at_once), "--dist", "loadgroup"]
    return command + ["--all"] * asked.all + paths


def _path(room: str) -> str:
    """Relative to the root, whether it was given from there, from below tests/ or as the name of a room; node ids, too."""
    file, colons, node = room.partition("::")
    for path in (TESTS / file, ROOT / file):
        if path.exists() and path.resolve().is_relative_to(TESTS):
            return f"{path.resolve().relative_to(ROOT)}{colons}{node}"
    rooms = ", ".join(sorted(path.name for path in TESTS.iterdir() if any(path.glob("test_*.py"))))
    sys.exit(f"there are no tests in {room!r}; a room ({rooms}) or a path below tests/ is needed")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for all files of this run; those of runs that were killed are removed on the way."""
    base = _base()
    one_at_a_time = _used(base)  # else a run that begins right now could take this one's folder for an old one
    for old in base.glob(f"{PREFIX}{os.getuid()}-*"):
        _remove_unless_used(old)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getuid()}-", dir=base))
    folder.chmod(0o755)  # some tests look at it as another user
    held = _used(folder)
    os.close(one_at_a_time)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, onerror=_told)
        os.close(held)


def _used(folder: Path) -> int:
    """Marks a folder as in use, as long as the descriptor is open."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove_unless_used(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its run is over: nobody holds it
            shutil.rmtree(folder, onerror=_told)
        finally:
            os.close(descriptor)


def _told(_: object, path: str, error: object) -> None:
    print(f"could not be removed: {path}: {error}", file=sys.stderr)


def _base() -> Path:
    """In memory, where there is room."""
    usual = Path(tempfile.gettempdir())
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return usual
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM_BYTES else usual


def _pytest(command: list[str], folder: Path) -> int:
    """Run it to its end, in a session of its own: what a terminal sends reaches it through us, once."""
    environ = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True, preexec_fn=_die_with_parent)  # noqa: PLW1509 - the child only asks the kernel for a signal
    try:
        return _ended(process)
    except KeyboardInterrupt:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the end is near, and must not be cut short
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        raise


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; meanwhile whoever has lost its parent is reaped, so that those who wait for it see that it is gone."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def _interrupted(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_all() -> list[str]:
    """End every process that descends from this one, by its own pid; what each of them was."""
    found: dict[int, str] = {}
    while children := _children():
        for pid in children:
            found.setdefault(pid, _called(pid))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        time.sleep(0.01)  # their children become ours
    return [called for called in found.values() if called]


def _children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in listed.read_text(encoding="ascii").split()] if listed.exists() else []


def _called(pid: int) -> str:
    """Its command line; empty for one that has ended and only waits to be reaped."""
    with suppress(OSError):
        name, _, state = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition("(")[2].rpartition(") ")
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return "" if state.startswith("Z") else line or name
    return ""


if __name__ == "__main__":
    sys.exit(main())
