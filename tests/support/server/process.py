"""Runs real `nats-server` processes for tests, one at a time.

Invariant: a server never outlives the process that started it, and `start` returns only when JetStream answers.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.support.server.binaries import NEWEST, binary

START_SECONDS = 20.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.005
PR_SET_PDEATHSIG = 1
_RELOADED = "Reloaded server configuration"
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_running: set[subprocess.Popen[bytes]] = set()


class ServerFailed(Exception):
    """The process ended, or did not become ready in time; carries the log of the server."""


class Server:
    """One `nats-server` with JetStream on loopback; ports are chosen by the OS at the first start and kept from then on."""

    def __init__(self, store: Path, *, version: str = NEWEST, name: str = "", jetstream: str = "", config: str = "") -> None:
        """`jetstream` is text inside the jetstream block (`domain: hub`), `config` is text beside it (accounts, tls, …)."""
        self.store = store
        self.version = version
        self.name = name or store.name
        self.config = store / "nats-server.conf"
        self.port = -1
        self.monitor_port = -1
        self._jetstream = jetstream
        self._extra = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; only of a server that is running."""
        return self._alive().pid

    @property
    def running(self) -> bool:
        """Whether the process is there (frozen counts as there)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the process and wait until JetStream answers."""
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def launch(self) -> None:
        """Start the process and wait until it listens; JetStream may still be recovering or electing.

        Call it in the main thread: on Linux the server dies with the thread that started it.
        """
        if self.running:
            msg = f"{self.name} is already running"
            raise ServerFailed(msg)
        deadline = time.monotonic() + START_SECONDS
        while not self._listen(deadline):
            # A port of ours may for a moment be the local end of somebody's outgoing connection.
            if not self._port_taken() or time.monotonic() > deadline:
                raise ServerFailed(self.logs())

    def wait_ready(self) -> None:
        """Wait until the server calls itself healthy, which needs JetStream and, in a cluster, its leader."""
        self.wait_for(lambda: self.monitor("healthz").get("status") == "ok")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Poll the condition, giving up when the process ends or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if not self.running or time.monotonic() > deadline:
                raise ServerFailed(self.logs())
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End it in an orderly way (SIGTERM), also when it is frozen; nothing happens when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Let it die on the spot (SIGKILL)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the process without closing its connections: for clients the network goes silent."""
        process = self._alive()
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # the signal only asks; its last thread may stop a little later

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self._alive().send_signal(signal.SIGCONT)

    def successor(self, store: Path | None = None, **how: str) -> Server:
        """Another server for the same ports, on the same store unless it gets one of its own; `how` as for any server."""
        new = Server(store or self.store, **how)
        new.port, new.monitor_port = self.port, self.monitor_port
        return new

    def reload(self, config: str) -> None:
        """Another text beside the jetstream block, which the process takes up without an end."""
        text = self.config.read_text(encoding="utf-8")
        self.config.write_text(text.replace(self._extra, config), encoding="utf-8")
        self._extra = config
        before = self.logs().count(_RELOADED)
        self._alive().send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.logs().count(_RELOADED) > before)

    def restart(self) -> None:
        """Stop if need be, then start on the same ports and store."""
        self.stop()
        self.start()

    def logs(self) -> str:
        """Everything the server has logged in this store."""
        path = self._log_path
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def monitor(self, endpoint: str) -> dict[str, Any]:
        """The answer of a monitoring endpoint such as `healthz` or `jsz`; empty when it did not answer 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_port}/{endpoint}", timeout=2) as answer:
                document: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}
        return document

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()  # what is in its store is thrown away: an orderly end would only take longer

    @property
    def _log_path(self) -> Path:
        return self.store / "nats-server.log"

    def _listen(self, deadline: float) -> bool:
        self._write_config()
        with self._log_path.open("ab") as log:
            command = [str(binary(self.version)), "--config", str(self.config)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent)  # noqa: PLW1509 - the child only asks the kernel for a signal
        _running.add(process)
        self._process = process
        ports = self.store / f"{binary(self.version).name}_{process.pid}.ports"
        while not self._read_ports(ports):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _write_config(self) -> None:
        self.store.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            f"server_name: {self.name}\n"
            f'listen: "127.0.0.1:{self.port}"\n'
            f'http: "127.0.0.1:{self.monitor_port}"\n'
            f'ports_file_dir: "{self.store}"\n'
            f'jetstream {{\n  store_dir: "{self.store / "jetstream"}"\n{self._jetstream}\n}}\n'
            f"{self._extra}\n",
            encoding="utf-8",
        )

    def _read_ports(self, path: Path) -> bool:
        try:
            ports: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):  # not there yet, or only half written
            return False
        self.port, self.monitor_port = (int(ports[kind][0].rpartition(":")[2]) for kind in ("nats", "monitoring"))
        return True

    def _port_taken(self) -> bool:
        return "address already in use" in self.logs().rpartition("Starting nats-server")[2]

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            msg = f"{self.name} is not running"
            raise ServerFailed(msg)
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)  # a frozen process would keep SIGTERM pending for ever
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _running.discard(process)


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@atexit.register
def _kill_all() -> None:
    for process in _running:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
