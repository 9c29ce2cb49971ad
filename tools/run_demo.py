"""`make run`: a throw-away NATS with the example manifests applied, kept running for looking around.

Invariant: the server it started is gone when it ends; its data stays for the next run.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".reconciler-data"
BIN = Path(sys.executable).parent
USUAL_PORT = 4222
START_SECONDS = 30.0

FURTHER = """
NATS with JetStream runs at {url}. In another terminal:

  export NATS_URL={url}
  .venv/bin/reconciler status -f manifests --env dev
  .venv/bin/reconciler plan -f manifests --env dev    # edit a manifest first, then see what would change

Data is kept in {data}/ (make clean removes it). Ctrl-C stops the server.
"""


def main() -> int:
    """Start, apply, show, wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _nats_server() as (url, server):
            declared = ("-f", "manifests", "--env", "dev")
            status = _reconciler(url, "apply", *declared, "--yes") or _reconciler(url, "status", *declared)
            if status != 0:
                return status
            print(FURTHER.format(url=url, data=DATA.name), flush=True)
            return server.wait()
    except KeyboardInterrupt:
        return 0


@contextmanager
def _nats_server() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    _claim_data()
    port, monitor = _free_port(USUAL_PORT), _free_port()
    command = [str(BIN / "nats-server"), "--jetstream", "--store_dir", str(DATA), "--addr", "127.0.0.1"]
    command += ["--port", str(port), "--http_port", str(monitor), "--log", str(DATA / "nats-server.log")]
    server = subprocess.Popen(command)
    try:
        _wait_healthy(server, monitor)
        yield f"nats://127.0.0.1:{port}", server
    finally:
        server.terminate()
        server.wait()


def _claim_data() -> None:
    """Two servers on one store would destroy it; the claim ends with this process."""
    DATA.mkdir(exist_ok=True)
    try:
        fcntl.flock(os.open(DATA, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{DATA.name}/ is in use by another `make run`")


def _free_port(wanted: int = 0) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does, after a recent stop
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return _free_port()
        return int(probe.getsockname()[1])


def _wait_healthy(server: subprocess.Popen[bytes], monitor: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _healthy(monitor):
        if server.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"nats-server did not start; see {DATA.name}/nats-server.log")
        time.sleep(0.05)


def _healthy(monitor: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/healthz", timeout=2) as answer:
            return bool(json.load(answer).get("status") == "ok")
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def _reconciler(url: str, *arguments: str) -> int:
    print(f"$ reconciler {' '.join(arguments)}", flush=True)
    environment = {**os.environ, "NATS_URL": url}
    return subprocess.run([str(BIN / "reconciler"), *arguments], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
