"""The manifests that come with the product: in place after one apply, untouched by the next, and the same when exported."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.account.wire import Audit, Json, Wire
from tests.support.cluster.audit import cluster_audit
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.server.process import Server

US = "reconciler"
"""The name of our connections."""
MANIFESTS = Path(__file__).parents[2] / "manifests"
LEASE = "KV_reconciler-"
STREAMS = {"APPS", "AUDIT", "BILLING", "DLQ", "PAYMENTS", "PAYMENTS_MIRROR", "PROVISIONING", "STORAGE"}
SOURCED = {"EDGE_ALARMS", "EDGE_USAGE", "FLEET"}
DURABLES = {("EDGE_USAGE", "to_fleet"), ("EDGE_ALARMS", "alarms_to_fleet")}
"""What FLEET reads through; only the second has a manifest."""
RESOURCES_OF_SOURCING = len(SOURCED) + 1
SOURCING_LEVEL = 4
"""Of the API, from which on a stream may be sourced through a durable."""
# As the documentation of the services counts them; the live names begin with the service.
SERVICES = {
    "provisioning_worker": 3,
    "app_runtime_worker": 4,
    "billing_worker": 5,
    "notification_relay": 8,
    "storage_worker": 2,
    "dlq_inspector": 1,
}


async def resources(wire: Wire) -> tuple[dict[str, Json], dict[tuple[str, str], Json]]:
    """The configurations of all streams and consumers but the lease."""
    listed = (await wire.expect("STREAM.LIST"))["streams"]
    streams = {entry["config"]["name"]: entry["config"] for entry in listed if not entry["config"]["name"].startswith(LEASE)}
    consumers = {}
    for name in streams:
        for entry in (await wire.expect(f"CONSUMER.LIST.{name}"))["consumers"] or ():
            consumers[name, entry["name"]] = entry["config"]
    return streams, consumers


async def lease_written(wire: Wire) -> int:
    """How often anything was written to a lease."""
    listed = (await wire.expect("STREAM.LIST"))["streams"]
    return sum(entry["state"]["last_seq"] for entry in listed if entry["config"]["name"].startswith(LEASE))


def files(*, sourcing: bool) -> list[str]:
    """Everything, or what servers without durable sourcing accept as well."""
    if sourcing:
        return ["-f", str(MANIFESTS)]
    others = (path for path in sorted(MANIFESTS.iterdir()) if path.name != "sourcing.yaml")
    return [argument for path in others for argument in ("-f", str(path))]


async def is_in_place_and_stays(cli: Command, wire: Wire, env: str, audit: AbstractAsyncContextManager[Audit]) -> None:
    """One apply; then neither a difference nor a write, not even of the lease."""
    sourcing = (await wire.expect("INFO"))["api"].get("level", 0) >= SOURCING_LEVEL
    declared = [*files(sourcing=sourcing), "--env", env]
    sourced, durables = (SOURCED, DURABLES) if sourcing else (set(), set())
    applied = cli("apply", *declared, "--yes", "--format", "json").json
    assert {change["result"] for change in applied["changes"]} == {"applied"}
    cli("plan", *declared, "--detailed-exitcode")
    leases = await lease_written(wire)
    before = await resources(wire)
    async with audit as heard:
        again = cli("apply", *declared, "--yes", "--format", "json").json
    assert again["summary"]["unchanged"] == len(STREAMS) + sum(SERVICES.values()) + (RESOURCES_OF_SOURCING if sourcing else 0)
    assert again["changes"] == []
    assert heard.subjects(US)
    assert heard.writes(US) == []  # the server itself may still be connecting what copies
    assert await lease_written(wire) == leases
    assert await resources(wire) == before
    streams, consumers = before
    assert set(streams) == STREAMS | sourced
    found = Counter(service for _, name in consumers for service in SERVICES if name.startswith(service))
    assert dict(found) == SERVICES
    assert {(stream, name) for stream, name in consumers if stream in SOURCED} == durables
    assert len(consumers) == sum(SERVICES.values()) + len(durables)


async def test_dev_is_in_place_after_one_apply(any_server: Server, offline: Command) -> None:
    cli = Command(offline.home, any_server.url)
    async with await Wire.connect(any_server.url) as wire:
        await is_in_place_and_stays(cli, wire, "dev", wire.audit())
        streams, _ = await resources(wire)
        assert {config["num_replicas"] for config in streams.values()} == {1}


async def test_prod_is_in_place_after_one_apply(cluster: Cluster, offline: Command) -> None:
    """Its natscli context is not there; the address that is given by hand goes before it."""
    cli = Command(offline.home, cluster.url)
    async with await Wire.connect(cluster.url) as wire:
        await is_in_place_and_stays(cli, wire, "prod", cluster_audit(wire, cluster))
        streams, _ = await resources(wire)
        assert {config["num_replicas"] for config in streams.values()} == {3}


async def test_a_plan_or_a_refused_apply_leaves_nothing_behind(cli: Command, wire: Wire) -> None:
    cli("plan", "-f", MANIFESTS, "--env", "dev")
    await wire.expect("STREAM.CREATE.DLQ", {"name": "DLQ", "subjects": ["dlq.>"]})
    cli("apply", "-f", MANIFESTS, "--env", "dev", "--yes", code=3)
    assert (await wire.expect("STREAM.NAMES"))["streams"] == ["DLQ"]


async def forget_owner(wire: Wire) -> None:
    """Somebody takes our marker, and nothing else, from everything."""
    streams, consumers = await resources(wire)
    for name, config in streams.items():
        await wire.expect(f"STREAM.UPDATE.{name}", _unmarked(config))
    for (stream, name), config in consumers.items():
        update = {"stream_name": stream, "config": _unmarked(config), "action": "update"}
        await wire.expect(f"CONSUMER.CREATE.{stream}.{name}", update)


def _unmarked(config: Json) -> Json:
    kept = {name: value for name, value in config["metadata"].items() if name not in ("reconciler.owner", "reconciler.spec")}
    return {**config, "metadata": kept}


@pytest.mark.parametrize("marked", [True, False], ids=["another owner", "nobody"])
async def test_what_is_exported_differs_in_nothing(cli: Command, wire: Wire, marked: bool) -> None:
    """Where a managed durable delivers depends on its owner, so what nobody owns is tried without."""
    cli("apply", *files(sourcing=marked), "--env", "dev", "--yes")
    if not marked:
        await forget_owner(wire)
    exported = cli("export")
    assert "warning" not in exported.err
    plan = cli("--owner", "other", "plan", "-f", "-", "--adopt", "--format", "json", stdin=exported.out).json
    assert len(plan["changes"]) == len(STREAMS) + sum(SERVICES.values()) + (RESOURCES_OF_SOURCING if marked else 0)
    assert {(change["action"], len(change["fields"])) for change in plan["changes"]} == {("blocked" if marked else "adopt", 0)}
    if marked:
        assert {code for change in plan["changes"] for code in change["reasons"]} == {"other-owner"}
        cli("--owner", "default/dev", "plan", "-f", "-", "--detailed-exitcode", stdin=exported.out)
        return
    async with wire.audit() as audit:
        cli("--owner", "other", "apply", "-f", "-", "--adopt", "--yes", stdin=exported.out)
    assert {subject.split(".")[3] for subject in audit.writes(US)} <= {"UPDATE", "CREATE"}
    cli("--owner", "other", "plan", "-f", "-", "--detailed-exitcode", stdin=exported.out)
    assert cli("export").out == exported.out
