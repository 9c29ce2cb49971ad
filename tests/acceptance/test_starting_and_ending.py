"""`reconciler run` as a person first tries it: the greeting, a port that is taken, a terminal that is closed."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.running.hangup import ends_by_hangup
from tests.support.daemon.command import Command
from tests.support.values.catalogues import consumer, stream, write

SECONDS = 60.0
GREETED = b"Ctrl-C ends it."


@contextmanager
def begun(
    cli: Command, *arguments: str | Path, hangup: Callable[[], None] | None = None, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """`reconciler run`; what is left of it in the end is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "reconciler", "run", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env=cli.environ({"NO_COLOR": "1", "COLUMNS": "120"}),
        cwd=cli.home,
        start_new_session=True,
        preexec_fn=hangup,  # noqa: PLW1509 - no threads here
        **streams,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def at_a_terminal(cli: Command, *arguments: str | Path, ignoring: bool = False) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The same at a terminal of its own; our end of that is closed by whoever closes it first."""
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)

    def own() -> None:
        os.close(os.open(name, os.O_RDWR))  # the first terminal that the leader of a session opens is its own
        if ignoring:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with begun(cli, *arguments, hangup=own, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        yield process, ours


def seen(descriptor: int, last: bytes = GREETED) -> bytes:
    """All that comes, up to this."""
    found, deadline = b"", time.monotonic() + SECONDS
    while last not in found:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 65536) if ready else b""
        assert chunk, found
        found += chunk
    return found


def quiet_place(cli: Command) -> tuple[str | Path, ...]:
    """Twelve resources, a server of our own, and any port."""
    documents = [document for name in "ABCDEF" for document in (stream(name, f"{name}.>"), consumer(name, "c", f"{name}.x"))]
    return "-f", write(cli.home / "all.yaml", documents), "--embedded", "--data", cli.home / "data"


def free(url: str) -> bool:
    """Whether nobody listens there, within a moment."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.02)
    return False


def server_in(text: bytes) -> str:
    """The URL of the server, as the greeting says it."""
    return text.decode().partition("export NATS_URL=")[2].split()[0]


def test_the_greeting_stands_last_and_alone(offline: Command) -> None:
    with at_a_terminal(offline, *quiet_place(offline), "--http", "127.0.0.1:0") as (process, ours):
        text = seen(ours)
        assert b"change.ended" not in text
        assert text.count(b"Synced") == 13
        process.send_signal(signal.SIGINT)
        assert b"process.stopped" in seen(ours, b"process.stopped")  # the log tells again
        assert process.wait(SECONDS) == 0
        os.close(ours)


def test_it_greets_where_its_output_is_piped_and_the_log_stays_a_log(offline: Command) -> None:
    place = (*quiet_place(offline), "--http", "127.0.0.1:0")
    with begun(offline, *place, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"repaired from now on" in seen(process.stdout.fileno())
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert sum(line["event"] == "change.ended" for line in lines) == 12
    with begun(offline, *place, "--log-format", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen(process.stderr.fileno(), b"lease.acquired")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b""


def test_a_closed_terminal_ends_it_and_its_server(offline: Command) -> None:
    with at_a_terminal(offline, *quiet_place(offline), "--http", "127.0.0.1:0") as (process, ours):
        url = server_in(seen(ours))
        os.close(ours)
        assert process.wait(SECONDS) == 0
        assert free(url)


def test_without_a_server_of_its_own_a_hangup_is_a_reload_as_long_as_there_is_a_terminal(cli: Command) -> None:
    manifests = write(cli.home / "all.yaml", [stream("S", "s.>")])
    with at_a_terminal(cli, "-f", manifests, "--http", "127.0.0.1:0") as (process, ours):
        seen(ours)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        os.close(ours)
        assert process.wait(SECONDS) == 0


def test_what_is_to_outlive_its_terminal_does(offline: Command) -> None:
    with at_a_terminal(offline, *quiet_place(offline), "--http", "127.0.0.1:0", ignoring=True) as (process, ours):
        seen(ours)
        os.close(ours)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_without_a_terminal_a_hangup_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.cli.running.hangup._has_terminal", lambda: False)
    assert not ends_by_hangup(embedded=False)()


def test_where_the_usual_port_is_taken_another_one_is_used_and_said(offline: Command) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 8080))
            other.listen()
        except OSError:
            pass  # somebody has it already
        with at_a_terminal(offline, *quiet_place(offline)) as (_, ours):
            text = seen(ours).decode()
            os.close(ours)
        assert "port 8080 is taken by another process" in text
        assert "RECONCILER_DAEMON=http://127.0.0.1:" in text
        assert "RECONCILER_DAEMON=http://127.0.0.1:8080" not in text
        ended = offline("run", *quiet_place(offline), "--http", "127.0.0.1:8080", "--log-format", "text", code=64)
        assert "port 8080 on 127.0.0.1 is taken by another process; choose one with --http" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-f", "wrong.yaml"), 4, 'unknown field "maxAgge"'),
        (("-f", "good.yaml", "--interval", "0s"), 64, "the shortest is 1s"),
        (("-f", "good.yaml", "--http", "nowhere"), 64, "expected HOST:PORT"),
        ((), 64, "which manifests?"),
    ],
)
def test_why_it_did_not_start_is_a_line_of_the_log(offline: Command, arguments: tuple[str, ...], code: int, said: str) -> None:
    write(offline.home / "wrong.yaml", [stream("S", "s.>", maxAgge="1h")])
    write(offline.home / "good.yaml", [stream("S", "s.>")])
    files = tuple(str(offline.home / each) if each.endswith(".yaml") else each for each in arguments)
    ended = offline("run", *files, "--log-format", "json", code=code)
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert lines[-1]["event"] == "process.failed"
    assert any(said in json.dumps(line, ensure_ascii=False).replace('\\"', '"') for line in lines), lines
