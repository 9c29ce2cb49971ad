"""Hints against real servers: whose change of what is heard, and which is only the echo of our own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import ApiError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.hearing.hints import AuditMode, Limits
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.plan.permissions import AccountNames, PermissionMode, permissions
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
)
from tests.support.account.ears import Ears, listening
from tests.support.account.flood import flooded
from tests.support.account.wire import HEARD_SECONDS, Wire, eventually
from tests.support.clock.until import SECONDS
from tests.support.server.process import Server

FAR = "2036-01-01T00:00:00Z"


def stream(name: str = "S", **more: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"], **more}


def consumer(action: str = "create", **more: Any) -> dict[str, Any]:
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit", **more}
    return {"stream_name": "S", "action": action, "config": config}


async def own(ears: Ears, *writes: Write) -> None:
    """Writes as the daemon does."""
    writer = JetStreamWriter(DomainApis(ears.connection))
    for write in writes:
        with ears.hints.expecting(write):
            await writer.write(write)


async def until_told_of_marker(ears: Ears, wire: Wire) -> None:
    """What was done before this has been told of, too."""
    await wire.expect("STREAM.CREATE.MARK", stream("MARK"))
    await ears.until_hinted("Stream/MARK", wire.name)
    await eventually(lambda: sum(str(hint.key) == "Stream/MARK" for hint in ears.heard) == 2)
    await asyncio.sleep(0.1)  # for what should not come: where it came later, nothing would fail falsely


@pytest.mark.parametrize("name", ["S", "A&<B", "Ä-ö_1"])
async def test_each_change_of_somebody_else_is_hinted_at_with_its_author(any_server: Server, name: str) -> None:
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    steps: list[tuple[str, dict[str, Any] | None, str]] = [
        (f"STREAM.CREATE.{name}", {"name": name, "subjects": ["s"]}, f"Stream/{name}"),
        (f"STREAM.UPDATE.{name}", {"name": name, "subjects": ["s"], "max_msgs": 5}, f"Stream/{name}"),
        (f"CONSUMER.CREATE.{name}.c.s", {"stream_name": name, "config": config | {"filter_subject": "s"}}, "c"),
        (f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": config | {"description": "changed"}}, "c"),
        (f"CONSUMER.DURABLE.CREATE.{name}.d", {"stream_name": name, "config": {"durable_name": "d"}}, "d"),
        (f"CONSUMER.PAUSE.{name}.c", {"pause_until": FAR}, "c"),
        (f"CONSUMER.PAUSE.{name}.c", {}, "c"),
        (f"CONSUMER.DELETE.{name}.c", None, "c"),
        (f"STREAM.DELETE.{name}", None, f"Stream/{name}"),
    ]
    async with listening(any_server.url) as ears, await Wire.connect(any_server.url, name="somebody") as wire:
        await ears.awake(wire)
        for request, payload, hinted in steps:
            ears.forget()
            await wire.expect(request, payload)
            key = hinted if "/" in hinted else f"Consumer/{name}/{hinted}"
            await ears.until_hinted(key, "somebody")
            assert [str(hint.key) for hint in ears.heard if hint.author] == [key], request


async def test_without_the_audit_everything_but_a_consumers_update_is_still_hinted_at(server: Server, wire: Wire) -> None:
    async with listening(server.url, AuditMode.OFF) as ears:
        await ears.awake(wire)
        for request, payload, key in [
            ("STREAM.CREATE.S", stream(), "Stream/S"),
            ("STREAM.UPDATE.S", stream(max_msgs=5), "Stream/S"),
            ("CONSUMER.CREATE.S.c", consumer(), "Consumer/S/c"),
            ("CONSUMER.PAUSE.S.c", {"pause_until": FAR}, "Consumer/S/c"),
            ("CONSUMER.DELETE.S.c", None, "Consumer/S/c"),
            ("STREAM.DELETE.S", None, "Stream/S"),
        ]:
            ears.forget()
            await wire.expect(request, payload)
            await ears.until_hinted(key)
            assert [hint.author for hint in ears.heard] == [None]


async def test_reads_and_failures_are_no_hints(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", stream())
    async with listening(server.url) as ears:
        await ears.awake(wire)
        await wire.stream_info("S")
        await wire.expect("STREAM.PURGE.S")
        await wire.expect("STREAM.LIST")
        assert "error" in await wire.call("CONSUMER.DELETE.S.nobody")
        assert "error" in await wire.call("STREAM.UPDATE.S", stream(retention="workqueue"))
        await until_told_of_marker(ears, wire)
        assert ears.keys == {"Stream/MARK"}


async def test_our_own_writes_are_no_hints(any_server: Server) -> None:
    s, c = Key("Stream", "S"), Key("Consumer", "c", "S")
    bucket = Key("KeyValue", "settings")
    config = consumer()["config"]
    writes: list[Write] = [
        CreateStream(s, json.dumps(stream()).encode()),
        UpdateStream(s, json.dumps(stream(max_msgs=5)).encode()),
        CreateConsumer(c, json.dumps(config | {"pause_until": FAR}).encode()),
        PauseConsumer(c, ""),
        UpdateConsumer(c, json.dumps(config | {"description": "ours"}).encode()),
        DeleteConsumer(c),
        CreateConsumer(c, json.dumps(config).encode()),
        DeleteStream(s),
        CreateStream(bucket, json.dumps({"name": "KV_settings", "subjects": ["$KV.settings.>"]}).encode()),
        DeleteStream(bucket),
    ]
    async with listening(any_server.url) as ears, await Wire.connect(any_server.url) as wire:
        await ears.awake(wire)
        await own(ears, *writes)
        await until_told_of_marker(ears, wire)
        assert ears.keys == {"Stream/MARK"}
        await own(ears, DeleteStream(Key("Stream", "MARK")))
        ears.forget()
        await wire.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("Stream/S", wire.name)


async def test_our_own_reset_is_no_hint(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", stream())
    await wire.publish("S.x", 3)
    await wire.expect("CONSUMER.CREATE.S.c", consumer())
    async with listening(server.url) as ears:
        await ears.awake(wire)
        await own(ears, ResetConsumer(Key("Consumer", "c", "S"), 2))
        await until_told_of_marker(ears, wire)
        assert ears.keys == {"Stream/MARK"}


async def test_somebody_elses_change_right_beside_our_own_is_not_lost(server: Server, wire: Wire) -> None:
    """Advisories name nobody: one of two is ours, so the other one is not."""
    await wire.expect("STREAM.CREATE.S", stream())
    ours = UpdateStream(Key("Stream", "S"), json.dumps(stream(max_msgs=5)).encode())
    async with listening(server.url, AuditMode.OFF) as ears:
        await ears.awake(wire)
        for number in range(10):
            ears.forget()
            await asyncio.gather(own(ears, ours), wire.expect("STREAM.UPDATE.S", stream(max_msgs=6 + number)))
            await ears.until_hinted("Stream/S")
            await asyncio.sleep(0.02)  # for a second one, which should not come
            assert len(ears.heard) == 1


async def test_a_write_that_failed_takes_nobody_elses_change_away(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", stream())
    refused = UpdateStream(Key("Stream", "S"), json.dumps(stream(retention="workqueue")).encode())
    async with listening(server.url, AuditMode.OFF) as ears:
        await ears.awake(wire)
        with pytest.raises(ApiError):
            await own(ears, refused)
        await wire.expect("STREAM.UPDATE.S", stream(max_msgs=5))
        await ears.until_hinted("Stream/S")


async def test_an_echo_that_never_came_is_not_expected_for_long(server: Server, wire: Wire) -> None:
    """Creating what is there already succeeds, and no advisory says so."""
    await wire.expect("STREAM.CREATE.S", stream())
    async with listening(server.url, AuditMode.OFF) as ears:
        await ears.awake(wire)
        await own(ears, CreateStream(Key("Stream", "S"), json.dumps(stream()).encode()))
        await wire.expect("STREAM.DELETE.S")
        await asyncio.sleep(2.1)
        ears.forget()
        await wire.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("Stream/S")


async def test_what_nobody_wants_is_not_reported(server: Server, wire: Wire) -> None:
    async with listening(server.url, wants=lambda key: key.stream_name in ("S", "MARK", "AWAKE")) as ears:
        await ears.awake(wire)
        await wire.expect("STREAM.CREATE.OTHER", stream("OTHER"))
        await wire.expect("STREAM.CREATE.S", stream())
        await until_told_of_marker(ears, wire)
        assert ears.keys == {"Stream/S", "Stream/MARK"}


async def test_a_restarted_server_is_listened_to_again_and_everything_is_to_be_looked_at(server: Server) -> None:
    async with listening(server.url) as ears:
        server.restart()
        await eventually(lambda: len(ears.lost) == 2 and ears.states == ["on", "off", "on"])
        assert set(ears.lost) == {"the advisories: its connection was away", "the API audit: its connection was away"}
        async with await Wire.connect(server.url, name="somebody") as wire:
            await ears.awake(wire)
            await wire.expect("STREAM.CREATE.S", stream())
            await ears.until_hinted("Stream/S", "somebody")
            await eventually(lambda: any(hint.author is None for hint in ears.heard))


async def test_a_server_that_is_away_at_the_start_is_listened_to_later(server: Server) -> None:
    url = server.url
    server.stop()
    async with listening(url, once_it_listens=server.start) as ears, await Wire.connect(url) as wire:
        assert ears.lost
        await eventually(lambda: ears.states[-1] == "on")  # its connection may come back after the other one
        await ears.awake(wire)
        await wire.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("Stream/S", wire.name)


async def _every_change(wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", stream())
    await wire.expect("STREAM.UPDATE.S", stream(max_msgs=5))
    await wire.expect("CONSUMER.CREATE.S.c", consumer())
    await wire.expect("CONSUMER.CREATE.S.c", consumer("update", description="changed"))
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": FAR})
    await wire.expect("CONSUMER.DELETE.S.c")
    await wire.expect("STREAM.DELETE.S")


async def test_the_permissions_for_a_daemon_are_enough_to_hear_everything_and_none_can_be_left_out(tmp_path: Path) -> None:
    grants = permissions(Desired({}), frozenset({PermissionMode.DAEMON}), AccountNames(lease_bucket="b")).subscribe
    subjects = [grant.subject for grant in grants if "ADVISORY" in grant.subject]
    users = ['{ user: admin, password: "pw" }']
    for number in range(len(subjects) + 1):
        allowed = json.dumps(["_INBOX.>", *subjects[:number], *subjects[number + 1 :]])
        users.append(f'{{ user: without-{number}, password: "pw", permissions: {{ subscribe: {allowed} }} }}')
    with Server(tmp_path / "s", config=f"authorization {{ users: [{', '.join(users)}] }}") as server:
        async with AsyncExitStack() as stack:
            ears = [
                await stack.enter_async_context(listening(server.url, user=f"without-{number}", password="pw"))
                for number in range(len(subjects) + 1)
            ]
            wire = await stack.enter_async_context(await Wire.connect(server.url, user="admin", password="pw"))
            await ears[-1].awake(wire)

            # The advisories number six, the audit's reports seven; who lacks one of these lacks exactly it.
            def complete() -> bool:
                return [sum(hint.key.stream_name == "S" for hint in one.heard) for one in ears] == [12] * 6 + [6, 13]

            async with asyncio.timeout(SECONDS):
                while not complete():
                    for one in ears:
                        one.forget()  # just after a subscription a busy server may leave things out
                    await _every_change(wire)
                    with suppress(TimeoutError):
                        await eventually(complete, HEARD_SECONDS)
            assert [one.states for one in ears] == [["on"]] * 6 + [["denied"], ["on"]]


@pytest.fixture
def domains(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A hub and a leaf, each with JetStream of its own."""
    leafnodes = 'leafnodes { listen: "127.0.0.1:-1" }'
    with Server(tmp_path / "hub", jetstream="domain: hub", config=leafnodes) as hub:
        port = hub.monitor("varz")["leaf"]["port"]
        remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}'
        with Server(tmp_path / "leaf", jetstream="domain: leaf", config=remote) as leaf:
            hub.wait_for(lambda: hub.monitor("leafz").get("leafnodes") == 1)
            yield hub, leaf


async def test_changes_in_another_domain_carry_its_name(domains: tuple[Server, Server]) -> None:
    hub, leaf = domains
    async with (
        listening(hub.url) as ears,
        await Wire.connect(hub.url, name="at-hub") as here,
        await Wire.connect(leaf.url, name="at-leaf") as there,
        await Wire.connect(hub.url, name="over", domain="hub") as over,
    ):
        await ears.awake(here)
        await ears.awake(there, "leaf:")
        await here.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("Stream/S", "at-hub")
        await over.expect("STREAM.CREATE.T", stream("T"))
        await ears.until_hinted("Stream/T", "over")
        await there.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("leaf:Stream/S", "at-leaf")
        await eventually(lambda: sum(str(hint.key) == "leaf:Stream/S" for hint in ears.heard) == 2)
        assert ears.keys == {"Stream/S", "Stream/T", "leaf:Stream/S"}


async def test_the_home_domain_by_its_name_is_reported_as_it_was_wanted(domains: tuple[Server, Server]) -> None:
    hub, _ = domains
    async with listening(hub.url, wants=lambda key: key.domain == "hub") as ears, await Wire.connect(hub.url) as wire:
        await ears.awake(wire, "hub:")
        await wire.expect("STREAM.CREATE.S", stream())
        await ears.until_hinted("hub:Stream/S", wire.name)
        assert ears.keys == {"hub:Stream/S"}


async def test_our_own_writes_through_a_leaf_node_are_no_hints_although_they_lose_our_name(
    domains: tuple[Server, Server],
) -> None:
    hub, leaf = domains
    s, c = Key("Stream", "S", "", "leaf"), Key("Consumer", "c", "S", "leaf")
    config = consumer()["config"]
    async with listening(hub.url) as ears, await Wire.connect(leaf.url, name="at-leaf") as wire:
        await ears.awake(wire, "leaf:")
        await own(
            ears,
            CreateStream(s, json.dumps(stream()).encode()),
            CreateConsumer(c, json.dumps(config).encode()),
            UpdateConsumer(c, json.dumps(config | {"description": "ours"}).encode()),
        )
        await wire.expect("STREAM.CREATE.MARK", stream("MARK"))
        await ears.until_hinted("leaf:Stream/MARK", "at-leaf")
        await asyncio.sleep(0.1)  # for what should not come: where it came later, nothing would fail falsely
        assert ears.keys == {"leaf:Stream/MARK"}


async def test_a_flood_of_forged_advisories_is_shed_replaced_by_looks_and_tried_again(any_server: Server) -> None:
    few = Limits(budget=500.0, window=0.3, retry=0.5, trial=0.3)
    async with listening(any_server.url, AuditMode.OFF, advised=few) as ears, await Wire.connect(any_server.url) as wire:
        await ears.awake(wire)
        async with flooded(any_server.url):
            await eventually(lambda: ears.hints.advisories.state == "shed")
            assert ears.hints.advisories.rate > few.budget
            await eventually(lambda: ears.lost.count("the advisories: more than 500 messages a second") >= 2)
            asked = time.monotonic()
            await wire.expect("STREAM.CREATE.S", stream())
            for _ in range(20):
                await ears.connection.flush()
            assert time.monotonic() - asked < SECONDS / 2
        await eventually(lambda: ears.hints.advisories.state == "on")
        assert ears.lost[-1] == "the advisories: not listened to while it was too much"
        await ears.awake(wire)
        await wire.expect("STREAM.UPDATE.S", stream(max_msgs=5))
        await ears.until_hinted("Stream/S")


async def test_what_our_own_writes_make_servers_say_is_never_too_much(server: Server) -> None:
    few = Limits(budget=10.0, window=0.3, retry=0.5, trial=0.3)
    async with listening(server.url, AuditMode.OFF, advised=few) as ears:
        for number in range(100):
            key = Key("Stream", f"S{number}")
            await own(ears, CreateStream(key, json.dumps(stream(f"S{number}")).encode()))
        assert (ears.hints.advisories.state, ears.lost, ears.keys) == ("on", [], set())
