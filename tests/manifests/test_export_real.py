"""What export writes of a real server's resources plans to nothing, whatever the version and whoever made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.compile import Compiled, Context, compile_document
from reconciler.manifests.export.documents import Exported, export
from reconciler.manifests.nack.documents import translate
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key, Location
from reconciler.model.marker import Marker
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.model.seen.live import Server as ServerFacts
from reconciler.model.sourcing import with_durables
from reconciler.plan.change import Action, Change, Rules
from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tests.support.values import build
from tests.support.values.export_cases import CONSUMERS, STREAMS
from tests.support.values.manifests import load
from tests.support.values.planned import plan

pytestmark = pytest.mark.differs


async def _create_everything(wire: Wire, level: int) -> int:
    made = 0
    for case in STREAMS:
        if case.level <= level:
            await wire.expect(f"STREAM.CREATE.{case.config['name']}", case.config)
            made += 1
    for case in CONSUMERS:
        if case.level <= level:
            config = {name: value for name, value in case.config.items() if name != "stream"}
            stream = case.config["stream"]
            await wire.expect(f"CONSUMER.CREATE.{stream}.{config['name']}", {"stream_name": stream, "config": config})
            made += 1
    return made


async def _look(wire: Wire) -> Live:
    info = await wire.expect("INFO")
    listed = await wire.expect("STREAM.LIST", {})
    streams = {Key("Stream", entry["config"]["name"]): LiveStream.seen(entry) for entry in listed["streams"]}
    consumers: dict[Key, dict[str, LiveConsumer]] = {}
    for key in streams:
        entries = (await wire.expect(f"CONSUMER.LIST.{key.name}", {}))["consumers"]
        consumers[key] = {entry["name"]: LiveConsumer.seen(entry) for entry in entries}
    return Live(ServerFacts(level=info["api"].get("level", 0)), 0, streams, consumers)


def _declared(documents: tuple[dict[str, Any], ...]) -> Desired:
    resources: dict[Key, Declared] = {}
    for document in documents:
        compiled: Compiled = compile_document(Document(document, Location("export.yaml")), Context())
        assert not [problem for problem in compiled.problems if problem.severity == "error"], (document, compiled.problems)
        assert isinstance(compiled.declares, Declared)
        assert compiled.declares.key not in resources
        resources[compiled.declares.key] = compiled.declares
    return Desired(resources)


def _differences(desired: Desired, live: Live) -> list[tuple[Change, Any]]:
    found = plan(desired, live, Rules(adopt=True)).changes
    return [(change, change.fields) for change in found if change.fields or change.action is not Action.ADOPT]


def _native(exported: Exported) -> tuple[dict[str, Any], ...]:
    natives = []
    for document in exported.documents:
        findings: list[Any] = []
        native = translate(document, findings)
        assert native is not None, (document, findings)
        natives.append(native)
    return tuple(natives)


async def test_what_export_writes_plans_to_nothing_but_adoption(server_version: str, tmp_path: Path) -> None:
    with Server(tmp_path / "s", version=server_version) as server:
        async with await Wire.connect(server.url) as wire:
            level = (await wire.expect("INFO"))["api"].get("level", 0)
            made = await _create_everything(wire, level)
            live = await _look(wire)
    exported = export(live)
    desired = _declared(exported.documents)
    assert len(desired.resources) == made
    assert exported.notes == ()
    assert _differences(desired, live) == []
    kinds = [document["kind"] for document in exported.documents]
    assert kinds.count("KeyValue") == sum(key.name.startswith("KV_") for key in live.streams) - 3  # strange, deny, no_bucket
    assert kinds.count("ObjectStore") == 1


async def test_nack_form_means_the_same(server_version: str, tmp_path: Path) -> None:
    with Server(tmp_path / "s", version=server_version) as server:
        async with await Wire.connect(server.url) as wire:
            await _create_everything(wire, (await wire.expect("INFO"))["api"].get("level", 0))
            live = await _look(wire)
    exported = export(live, fmt="nack")
    unsaid = {note.split(":")[0] for note in exported.notes if "NACK cannot say" in note}
    differing = {str(change.key) for change, _ in _differences(_declared(_native(exported)), live)}
    assert differing <= unsaid
    assert len({(document["kind"], document["metadata"]["name"]) for document in exported.documents}) == len(exported.documents)


@pytest.mark.parametrize("stream", ["FULL", "KV_plain"])
async def test_one_stream_comes_with_its_consumers_only(wire: Wire, stream: str) -> None:
    await _create_everything(wire, 5)
    documents = export(await _look(wire), stream).documents
    (first, *rest) = documents
    assert first["metadata"]["name"] == stream.removeprefix("KV_")
    assert all(document["kind"] == "Consumer" and document["spec"]["stream"] == stream for document in rest)


MANAGED = """\
kind: Stream
metadata: {name: A}
spec:
  sources:
    - {name: S, filterSubject: s.a, optStartSeq: 2, consumer: {name: c, serverManaged: true}}
    - {name: Q, subjectTransforms: [{src: q.a, dest: t.a}], consumer: {name: d, serverManaged: true}}
    - {name: I}
"""


@pytest.mark.since("2.14")
async def test_durables_of_sources_come_back_as_parts_of_their_entries(any_server: Server, tmp_path: Path) -> None:
    origins = [
        f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {{subjects: [{name.lower()}.>], retention: {retention}}}"
        for name, retention in (("S", "limits"), ("Q", "workqueue"), ("I", "interest"))
    ]
    desired = load(tmp_path, *origins, MANAGED).desired
    async with await Wire.connect(any_server.url) as wire:
        for name in "SQI":
            await wire.expect(f"STREAM.CREATE.{name}", build.marked(desired.resources[Key("Stream", name)]))
        for key, durable in desired.durables.items():
            marker = Marker(owner="default", spec=durable.declared.digest, source=str(durable.aggregate))
            config = {**durable.declared.config, "metadata": marker.to_metadata()}
            await wire.expect(f"CONSUMER.CREATE.{key.stream}.{key.name}", {"stream_name": key.stream, "config": config})
        await wire.expect("STREAM.CREATE.A", build.marked(desired.resources[Key("Stream", "A")]))
        live = await _look(wire)
    exported = export(live)
    assert exported.notes == ()
    assert [document["kind"] for document in exported.documents] == ["Stream"] * 4
    assert "JS_SRC" not in str(exported.documents)
    assert plan(with_durables(_declared(exported.documents), "default"), live, Rules(policy="sync")).changes == ()
