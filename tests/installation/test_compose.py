"""The Compose file: what the schema of Compose says of it, and what it starts."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler import __version__
from tests.support.account.wire import Wire
from tests.support.daemon.process import Daemon, settled
from tests.support.installing import ROOT
from tests.support.server.binaries import NEWEST, binary
from tests.support.server.process import Server

FOLDER = ROOT / "deploy" / "compose"
FILE = FOLDER / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    """What the schema of the Compose specification says."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_is_what_compose_accepts(tmp_path: Path) -> None:
    said = checked(FILE)
    assert said.returncode == 0, said.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace("read_only:", "readonly:"), encoding="utf-8")
    assert "'readonly' was unexpected" in checked(wrong).stdout, "it would have said so"


def test_the_daemon_gets_no_right_it_does_not_need() -> None:
    daemon = SERVICES["reconciler"]
    assert (daemon["user"], daemon["read_only"], daemon["cap_drop"]) == ("65532:65532", True, ["ALL"])
    assert all(volume.endswith(":ro") for volume in daemon["volumes"])
    published = [port for service in SERVICES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_versions_are_those_that_are_tested() -> None:
    assert SERVICES["reconciler"]["image"].endswith(f":{__version__}")
    assert SERVICES["nats"]["image"] == f"nats:{NEWEST}-alpine"
    build = SERVICES["reconciler"]["build"]
    assert (FOLDER / build["context"] / "Dockerfile").is_file()
    assert f"AS {build['target']}\n" in (FOLDER / build["context"] / "Dockerfile").read_text(encoding="utf-8")


def test_the_server_takes_its_arguments(tmp_path: Path) -> None:
    arguments = ["-1" if each == "8222" else each.replace("/data", str(tmp_path)) for each in SERVICES["nats"]["command"]]
    command = [str(binary()), *arguments, "--addr", "127.0.0.1", "--port", "-1"]
    said: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():  # they end with the server
            said.append(line)
            if "Server is ready" in line:
                break
        process.kill()
    assert "Server is ready" in said[-1], said
    assert any("Starting JetStream" in line for line in said)


async def test_what_compose_starts_is_ready(server: Server, wire: Wire, tmp_path: Path) -> None:
    """Its command, with its variables alone; the manifests beside the file are in force, and its health check agrees."""
    daemon = SERVICES["reconciler"]
    (source, target, _) = daemon["volumes"][0].split(":")
    environ = daemon["environment"] | {"NATS_URL": server.url, "RECONCILER_FILE": str(FOLDER / source)}
    assert daemon["environment"]["RECONCILER_FILE"] == target
    assert daemon["environment"]["NATS_URL"] == "nats://nats:4222"
    assert "nats" in SERVICES
    command = [str(Path(sys.executable).with_name("reconciler")), *daemon["command"]]
    command[command.index(":8080")] = "127.0.0.1:0"
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, env=environ, cwd="/", stdout=log, stderr=log)
    running = Daemon(process, tmp_path / "log")
    try:
        await running.ready()
        await running.until(settled)
        assert (await wire.expect("STREAM.NAMES"))["streams"] == ["KV_reconciler-shop", "ORDERS"]
        assert await healthy(daemon, running.url) == 0
        server.stop()
        await running.until(lambda document: not document["connected"])
        assert await healthy(daemon, running.url) != 0
        assert await running.stop(float(daemon["stop_grace_period"].removesuffix("s"))) == 0
    finally:
        await running.kill()


async def healthy(daemon: dict[str, Any], url: str) -> int:
    """How the health check ends; 0 is healthy."""
    kind, program, *rest = daemon["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    command = [sys.executable, *(word.replace("http://127.0.0.1:8080", url) for word in rest)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


@pytest.mark.parametrize("name", ["nats", "reconciler"])
def test_what_a_health_check_asks_is_served(name: str) -> None:
    words = shlex.join(SERVICES[name]["healthcheck"]["test"])
    assert {"nats": "http://127.0.0.1:8222/healthz", "reconciler": "http://127.0.0.1:8080/readyz"}[name] in words
