"""Sources as manifests declare them, on real servers: the durables we keep are taken and echoed as they are, and deliver."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.normal import digest, normal_consumer, normal_stream
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.server.process import Server
from tests.support.values.manifests import load

pytestmark = [pytest.mark.since("2.14"), pytest.mark.differs]

MODES = {
    "everything": ("limits", "{name: S, consumer: {name: c, serverManaged: true}}", ["0", "1", "2", "3"]),
    "a filter": ("interest", "{name: S, filterSubject: s.b, consumer: {name: c, serverManaged: true}}", ["2", "3"]),
    "a start": ("limits", "{name: S, optStartSeq: 2, consumer: {name: c, serverManaged: true}}", ["1", "2", "3"]),
    "a moment": (
        "limits",
        "{name: S, optStartTime: '2020-01-01T02:00:00.120+02:00', consumer: {name: c, serverManaged: true}}",
        ["0", "1", "2", "3"],
    ),
    "transforms": (
        "workqueue",
        "{name: S, subjectTransforms: [{src: s.a, dest: t.a}, {src: s.c, dest: t.c}], consumer: {name: c, serverManaged: true}}",
        ["0", "1"],
    ),
}


def declared(directory: Path, retention: str, entry: str, kind: str) -> Desired:
    part = f"sources: [{entry}]" if kind == "sources" else f"mirror: {entry}"
    return load(
        directory,
        f"kind: Stream\nmetadata: {{name: S}}\nspec: {{subjects: [s.*], retention: {retention}}}",
        f"kind: Stream\nmetadata: {{name: A}}\nspec: {{{part}}}",
    ).desired


@pytest.mark.parametrize("kind", ["sources", "mirror"])
@pytest.mark.parametrize(("retention", "entry", "expected"), MODES.values(), ids=MODES)
async def test_a_managed_durable_is_echoed_without_difference_and_delivers(  # noqa: PLR0913, PLR0917 - fixtures and cases
    any_server: Server, tmp_path: Path, kind: str, retention: str, entry: str, expected: list[str]
) -> None:
    desired = declared(tmp_path / "manifests", retention, entry, kind)
    ((key, durable),) = desired.durables.items()
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", desired.resources[Key("Stream", "S")].config)
        sent = durable.declared.config
        request = {"stream_name": "S", "config": sent, "action": "create", "pedantic": True}
        echoed = (await wire.expect(f"CONSUMER.CREATE.S.{key.name}", request))["config"]
        assert normal_consumer(echoed) == normal_consumer(sent)
        assert digest(normal_consumer(echoed)) == durable.declared.digest
        aggregate = desired.resources[Key("Stream", "A")]
        echoed = (await wire.expect("STREAM.CREATE.A", aggregate.config))["config"]
        assert digest(normal_stream(echoed, "A")) == aggregate.digest
        await wire.publish("s.a", 2)
        await wire.publish("s.b", 2, first=2)

        async def arrived() -> bool:
            return await wire.payloads("A") == expected

        await until(arrived)


OWN = """\
kind: Consumer
metadata: {name: latest}
spec:
  stream: S
  ackPolicy: flow_control
  deliverSubject: to.a
  deliverPolicy: last_per_subject
  filterSubjects: [s.a, s.b]
  replayPolicy: original
"""


async def test_an_own_consumer_with_the_last_of_each_subject_is_echoed_and_delivers(any_server: Server, tmp_path: Path) -> None:
    desired = load(
        tmp_path / "manifests",
        "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.*]}",
        OWN,
        "kind: Stream\nmetadata: {name: A}\nspec: {sources: [{name: S, consumer: {name: latest, deliverSubject: to.a}}]}",
    ).desired
    consumer, aggregate = desired.resources[Key("Consumer", "latest", "S")], desired.resources[Key("Stream", "A")]
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", desired.resources[Key("Stream", "S")].config)
        await wire.publish("s.a", 3)
        await wire.publish("s.b", 3, first=3)
        request = {"stream_name": "S", "config": consumer.config, "action": "create"}
        echoed = (await wire.expect("CONSUMER.CREATE.S.latest", request))["config"]
        assert digest(normal_consumer(echoed)) == consumer.digest
        echoed = (await wire.expect("STREAM.CREATE.A", aggregate.config))["config"]
        assert digest(normal_stream(echoed, "A")) == aggregate.digest

        async def arrived() -> bool:
            return await wire.payloads("A") == ["2", "5"]

        await until(arrived)


async def test_a_limit_of_inactivity_and_a_name_alone_make_durables_of_sources_delete_themselves(any_server: Server) -> None:
    """Why `self-deleting-source` and `durable: false` are refused."""
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", {"name": "S", "consumer_limits": {"inactive_threshold": 3600 * 10**9}})
        config = {"name": "c", "durable_name": "c", "ack_policy": "flow_control", "deliver_subject": "d"}
        echoed = (await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config}))["config"]
        assert echoed["inactive_threshold"] == 3600 * 10**9
        await wire.expect("STREAM.CREATE.T", {"name": "T"})
        config = {"name": "c", "ack_policy": "flow_control", "deliver_subject": "d"}
        echoed = (await wire.expect("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config}))["config"]
        assert echoed["inactive_threshold"] > 0
