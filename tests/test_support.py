"""What the other tests stand on holds: versions side by side, restarts, clusters, the overhearing of requests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from nats.errors import FlushTimeoutError

from tests.support.account.wire import Wire, eventually
from tests.support.cluster.servers import Cluster
from tests.support.server.binaries import binary
from tests.support.server.process import Server, ServerFailed

LEVELS = {"2.11.11": 1, "2.12.8": 3, "2.14.6": 4, "2.15.1": 5}


async def test_four_versions_run_side_by_side_and_report_their_level(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(tmp_path / version, version=version)) for version in LEVELS]
        assert {server.version: await _level(server) for server in servers} == LEVELS


async def test_any_server_runs_the_version_it_names(any_server: Server) -> None:
    async with await Wire.connect(any_server.url) as wire:
        assert any_server.version in str(wire.client.connected_server_version)


def test_unpinned_version_is_refused() -> None:
    with pytest.raises(LookupError, match=r"no pinned hashes for nats-server 2\.9\.9"):
        binary("2.9.9")


def test_two_processes_fill_an_empty_cache_at_once(tmp_path: Path) -> None:
    script = "from tests.support.server.binaries import binary; print(binary('2.14.6'))"
    environment = {**os.environ, "RECONCILER_TEST_CACHE": str(tmp_path)}
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", script]
    both = [subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = {process.communicate()[0].strip() for process in both}
    assert printed == {str(tmp_path / "2.14.6" / "nats-server")}
    assert [path.name for path in (tmp_path / "2.14.6").iterdir()] == ["nats-server"]
    version = subprocess.run([printed.pop(), "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == "nats-server: v2.14.6"


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
async def test_restart_keeps_port_and_data(server: Server, wire: Wire, end: Callable[[Server], None]) -> None:
    await wire.expect("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept"]})
    assert await wire.publish("kept", 3) == [1, 2, 3]
    port = server.port
    end(server)
    assert not server.running
    server.start()
    assert server.port == port
    async with await Wire.connect(server.url) as again:
        assert await again.payloads("KEPT") == ["0", "1", "2"]


async def test_a_frozen_server_is_silent_until_thawed(server: Server, wire: Wire) -> None:
    server.freeze()
    answer = asyncio.create_task(wire.call("INFO"))
    done, _ = await asyncio.wait([answer], timeout=0.2)
    assert not done
    server.thaw()
    assert "api" in await answer


def test_a_frozen_server_can_be_stopped(server: Server) -> None:
    server.freeze()
    server.stop()
    assert not server.running


def test_a_broken_configuration_fails_with_the_log_of_the_server(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="nonsense"):
        Server(tmp_path / "broken", config="nonsense: true").start()


def test_a_server_that_never_becomes_ready_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.server.process.START_SECONDS", 1.0)
    alone = 'cluster { name: alone, listen: "127.0.0.1:-1", routes: ["nats://127.0.0.1:1", "nats://127.0.0.1:2"] }'
    server = Server(tmp_path / "alone", config=alone)
    with pytest.raises(ServerFailed):
        server.start()
    assert not server.running


async def test_accounts_and_domain_are_configurable(tmp_path: Path) -> None:
    config = "accounts { A { jetstream: enabled, users: [ { user: a, password: pw } ] } }"
    with Server(tmp_path / "accounts", jetstream="domain: hub", config=config) as server:
        async with await Wire.connect(server.url, domain="hub", user="a", password="pw") as wire:
            assert (await wire.expect("INFO"))["domain"] == "hub"


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from tests.support.server.process import Server\n"
        f"server = Server(pathlib.Path({str(tmp_path / 'orphan')!r})).start()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parent.parent
    parent = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    asyncio.run(eventually(lambda: not _is_running(int(parent.stdout))))


async def test_audit_tells_reads_from_writes_and_clients_apart(server: Server, wire: Wire) -> None:
    async with await Wire.connect(server.url, name="somebody") as somebody, wire.audit() as audit:
        await somebody.call("STREAM.LIST")
        await wire.expect("STREAM.CREATE.S", {"name": "S"})
        await somebody.expect("STREAM.PURGE.S", {})
    assert sorted(audit.subjects("somebody")) == ["$JS.API.STREAM.LIST", "$JS.API.STREAM.PURGE.S"]
    assert audit.writes("somebody") == ["$JS.API.STREAM.PURGE.S"]
    assert sorted(audit.writes()) == ["$JS.API.STREAM.CREATE.S", "$JS.API.STREAM.PURGE.S"]


@pytest.mark.parametrize("written", [False, True])
async def test_a_report_that_never_came_fails_the_audit_only_if_it_may_have_been_of_a_write(wire: Wire, written: bool) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S"})
    forgotten = "nobody knows" if written else ""
    with pytest.raises(AssertionError, match="1 of 3 requests were not reported") if written else nullcontext():
        async with wire.audit() as audit:
            audit.patience = 1.0
            await wire.expect("STREAM.UPDATE.S", {"name": "S", "description": forgotten})
            await eventually(lambda: any("UPDATE" in subject for subject in audit.subjects()))
            audit.records = [record for record in audit.records if "UPDATE" not in record["subject"]]


async def test_a_wire_whose_flush_was_given_up_still_hears(server: Server, wire: Wire) -> None:
    server.freeze()
    with pytest.raises(FlushTimeoutError):
        await wire.client.flush(timeout=0.1)  # type: ignore[arg-type]  # seconds, annotated as int
    server.thaw()
    await wire.expect("INFO")


async def test_cluster_elects_and_survives_the_loss_of_its_leader(cluster: Cluster) -> None:
    async with await Wire.connect(cluster.url) as wire:
        await wire.expect("STREAM.CREATE.R3", {"name": "R3", "subjects": ["r3"], "num_replicas": 3})
        assert await wire.publish("r3") == [1]
    leader = next(server for server in cluster.servers if server.name == cluster.leader)
    leader.kill()
    cluster.wait_ready()
    assert cluster.leader not in ("", leader.name)
    leader.start()
    cluster.wait_ready()
    async with await Wire.connect(cluster.url) as wire:
        assert await wire.payloads("R3") == ["0"]


async def _level(server: Server) -> int:
    async with await Wire.connect(server.url) as wire:
        level: int = (await wire.expect("INFO"))["api"]["level"]
        return level


def _is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
