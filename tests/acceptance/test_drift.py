"""Whatever field somebody else changes, sets or unsets: the plan names it, apply puts it back, and then nothing is left.

The list of fields is the product's own table, so that a new field without a case fails here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reconciler.engine.apply.outcome import Verdict
from reconciler.model.desired import Declared
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import table
from reconciler.model.kinds.stream import StreamSpec
from reconciler.plan.change import Action, Cause, Change
from tests.support.account.wire import Json, Wire, without_everything
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.daemon.engine import Engine, Start
from tests.support.server.process import Server
from tests.support.values.field_cases import (
    ABSENT,
    CONSUMER_CASES,
    CONSUMER_IMMUTABLE,
    FIXED_CASES,
    STREAM_CASES,
    STREAM_IMMUTABLE,
    STREAM_IN_CLUSTER,
    STREAM_ONE_WAY,
    Case,
    Fixed,
    covered,
    named,
)
from tests.support.values.manifests import load, written

pytestmark = pytest.mark.differs

S = "S"
US = "reconciler"
"""The name of our connections."""


def test_every_field_of_a_stream_has_a_case() -> None:
    assert covered(STREAM_CASES, STREAM_IN_CLUSTER, STREAM_ONE_WAY, STREAM_IMMUTABLE) == sorted(table(StreamSpec))


def test_every_field_of_a_consumer_has_a_case() -> None:
    assert covered(CONSUMER_CASES, CONSUMER_IMMUTABLE) == sorted(table(ConsumerSpec))


@pytest.fixture(scope="module")
def each_server(server_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server per version for all fields; each test leaves it empty."""
    with Server(tmp_path_factory.mktemp("each"), version=server_version) as running:
        yield running


@dataclass
class Place:
    """A server with us and somebody else on it."""

    engine: Engine
    wire: Wire
    directory: Path
    level: int

    def declared(self, kind: str, spec: dict[str, Any]) -> list[Declared]:
        """Stream S, and consumer c of it when that is what the spec is for, as a user writes them."""
        stream = spec if kind == "Stream" else {}
        own = {} if "mirror" in stream else {"subjects": [f"{S}.>"]}
        documents = [_document("Stream", S, {**own, **stream})]
        if kind == "Consumer":
            documents.append(_document("Consumer", "c", {"stream": S, **spec}))
        return list(load(self.directory, *documents).desired.resources.values())

    def only_stream(self, spec: dict[str, Any]) -> list[Declared]:
        """Stream S of exactly this spec."""
        return list(load(self.directory, _document("Stream", S, spec)).desired.resources.values())

    async def has_copied(self, messages: int) -> bool:
        """Whether S holds that many messages."""
        state = (await self.wire.stream_info(S))["state"]
        return bool(state["messages"] == messages)

    async def apply(self, kind: str, spec: dict[str, Any]) -> None:
        """Apply, and see that it is in place."""
        applied = await self.engine.apply(*self.declared(kind, spec))
        assert applied.verdict is Verdict.IN_PLACE, [(str(o.change.key), o.why, o.change.reasons) for o in applied.outcomes] + [
            str(reason) for reason in applied.refused
        ]
        assert (await self.changes(kind, spec)) == ()

    async def changes(self, kind: str, spec: dict[str, Any]) -> tuple[Change, ...]:
        """What a plan finds."""
        return (await self.engine.plan(*self.declared(kind, spec))).plan.changes

    async def config(self, kind: str) -> Json:
        """What is live."""
        info = await (self.wire.stream_info(S) if kind == "Stream" else self.wire.consumer_info(S, "c"))
        config: Json = info["config"]
        return without_everything(config)

    async def meddle(self, kind: str, field: str, value: Any) -> None:
        """Somebody else changes exactly this field, and leaves the marker where it is."""
        config = {name: old for name, old in (await self.config(kind)).items() if name != field}
        if value is not ABSENT:
            config[field] = value
        if field == "metadata":
            kept = (await self.config(kind))["metadata"]
            config[field] = {name: old for name, old in kept.items() if name.startswith("reconciler.")}
            config[field] |= {} if value is ABSENT else value
        for one, several in (("filter_subject", "filter_subjects"), ("filter_subjects", "filter_subject")):
            if field == one:
                config.pop(several, None)
        if kind == "Stream":
            await self.wire.expect(f"STREAM.UPDATE.{S}", config)
        else:
            await self.wire.expect(f"CONSUMER.CREATE.{S}.c", {"stream_name": S, "config": config, "action": "update"})

    async def plan_shows(self, kind: str, spec: dict[str, Any], cause: Cause, *difference: Any) -> None:
        """Exactly one change, of exactly one field: path, from, to."""
        (change,) = await self.changes(kind, spec)
        how = Action.PROCEDURE if change.machine else Action.UPDATE  # a filter that comes back takes more than one request
        assert (change.action, change.cause) == (how, cause), (change.reasons, change.fields)
        assert not change.machine or difference[0] == "filterSubjects"
        assert [(field.path, field.live, field.declared) for field in change.fields] == [difference]


def _document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return f"kind: {kind}\nmetadata: {{name: {name}}}\nspec: {json.dumps(spec)}"


@pytest_asyncio.fixture
async def place(each_server: Server, start: Start, tmp_path: Path) -> AsyncIterator[Place]:
    """The server, empty before and after."""
    async with await Wire.connect(each_server.url) as wire:
        level = (await wire.expect("INFO"))["api"].get("level", 0)
        yield Place(await start(each_server), wire, tmp_path, level)
        for name in (await wire.expect("STREAM.NAMES"))["streams"] or ():
            await wire.expect(f"STREAM.DELETE.{name}")


ALL = [*(("Stream", case) for case in STREAM_CASES), *(("Consumer", case) for case in CONSUMER_CASES)]
UNSETTABLE = [(kind, case) for kind, case in ALL if case.default is not ABSENT]


def of_each(cases: list[tuple[str, Case]]) -> pytest.MarkDecorator:
    """A test for each of these fields."""
    return pytest.mark.parametrize(("kind", "case"), cases, ids=str)


def spec_of(place: Place, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a manifest says beside the field, and with it; skipped where this server cannot do it."""
    if place.level < case.level:
        pytest.skip(f"{case} needs API level {case.level}")
    beside: dict[str, Any] = named(case.beside, S)
    return beside, {**beside, case.said: named(case.ours, S)}


def shown_of(case: Case) -> tuple[Any, Any, Any]:
    """What a plan shows: ours, theirs, nobody's."""
    ours = [case.ours] if case.wire == "filter_subject" else case.ours
    default = [f"{S}.>"] if case.wire == "subjects" else case.default  # a stream of these tests always says some
    return named(ours, S), named(case.shown, S), default


@of_each(ALL)
async def test_what_somebody_changes_is_shown_and_put_back(place: Place, kind: str, case: Case) -> None:
    _, spec = spec_of(place, case)
    ours, theirs, default = shown_of(case)
    await place.apply(kind, spec)
    before = await place.config(kind)
    other = theirs != ours
    await place.meddle(kind, case.wire, named(case.theirs, S) if other else ABSENT)
    await place.plan_shows(kind, spec, Cause.DRIFT, case.path, theirs if other else default, ours)
    await place.apply(kind, spec)
    assert await place.config(kind) == before


@of_each(UNSETTABLE)
async def test_what_somebody_sets_that_was_never_declared_counts_too(place: Place, kind: str, case: Case) -> None:
    spec, _ = spec_of(place, case)
    _, theirs, default = shown_of(case)
    await place.apply(kind, spec)
    before = await place.config(kind)
    await place.meddle(kind, case.wire, named(case.theirs, S))
    await place.plan_shows(kind, spec, Cause.DRIFT, case.path, theirs, default)
    await place.apply(kind, spec)
    assert await place.config(kind) == before


@of_each(UNSETTABLE)
async def test_what_a_manifest_no_longer_says_is_unset(place: Place, kind: str, case: Case) -> None:
    without, spec = spec_of(place, case)
    ours, _, default = shown_of(case)
    await place.apply(kind, without)
    bare = await place.config(kind)
    await place.apply(kind, spec)
    await place.plan_shows(kind, without, Cause.MANIFEST, case.path, ours, default)
    await place.apply(kind, without)
    assert await place.config(kind) == bare


async def test_groups_and_their_policy_go_together(place: Place) -> None:
    if place.level < 1:
        pytest.skip("priority groups need API level 1")
    await place.apply("Consumer", {})
    bare = await place.config("Consumer")
    await place.apply("Consumer", {"priorityGroups": ["a"], "priorityPolicy": "overflow"})
    await place.apply("Consumer", {})
    assert await place.config("Consumer") == bare


async def test_removing_a_mirror_promotes_it(place: Place) -> None:
    """On 2.11 the server cannot do that: said before any request."""
    await place.wire.expect("STREAM.CREATE.ORIGIN", {"name": "ORIGIN", "subjects": ["o.>"]})
    await place.wire.publish("o.1", 3)
    copy = place.only_stream({"mirror": {"name": "ORIGIN"}})
    assert (await place.engine.apply(*copy)).verdict is Verdict.IN_PLACE
    await until(lambda: place.has_copied(3))
    promoted = place.only_stream({"subjects": [f"{S}.>"]})
    applied = await place.engine.apply(*promoted)
    if place.level < 2:
        assert applied.verdict is Verdict.REFUSED
        assert [reason.code for reason in applied.refused] == ["level"]
        return
    assert applied.verdict is Verdict.IN_PLACE
    await place.wire.publish(f"{S}.new")
    await until(lambda: place.has_copied(4))
    assert (await place.engine.plan(*promoted)).plan.changes == ()


async def test_replicas_that_somebody_changes_are_put_back(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    async with await Wire.connect(cluster.url) as wire:
        place = Place(await start(cluster.servers[0], timeout=10.0), wire, tmp_path, 5)
        spec = {"replicas": 3}
        await place.apply("Stream", spec)
        await place.meddle("Stream", "num_replicas", 1)
        await until(lambda: _answers(place, spec))  # it has no leader for a moment
        await place.plan_shows("Stream", spec, Cause.DRIFT, "replicas", 1, 3)
        await place.apply("Stream", spec)
        assert (await place.config("Stream"))["num_replicas"] == 3


async def _answers(place: Place, spec: dict[str, Any]) -> bool:
    return all(change.action is not Action.BLOCKED for change in await place.changes("Stream", spec))


def test_every_fixed_field_has_a_case() -> None:
    named_here = {(case.kind, case.wire) for case in FIXED_CASES}
    assert {name for kind, name in named_here if kind == "Stream"} >= STREAM_ONE_WAY | STREAM_IMMUTABLE
    assert {name for kind, name in named_here if kind == "Consumer"} >= CONSUMER_IMMUTABLE


async def test_what_no_update_can_do_is_refused_before_any_request(any_server: Server, offline: Command, tmp_path: Path) -> None:
    cli = Command(offline.home, any_server.url)
    async with await Wire.connect(any_server.url) as wire:
        level = (await wire.expect("INFO"))["api"].get("level", 0)
        cases = [(f"F{number}", case) for number, case in enumerate(FIXED_CASES) if case.level <= level]
        file = written(tmp_path, *(document for name, case in cases for document in _documents(name, case, case.live)))
        cli("apply", "-f", file, "--yes")
        written(tmp_path, *(document for name, case in cases for document in _documents(name, case, case.wanted)))
        async with wire.audit() as audit:
            ended = cli("apply", "-f", file, "--yes", "--format", "json", code=3)
            cli("apply", "-f", file, "--yes", "--continue", code=3)
        assert audit.subjects(US)
        assert audit.writes(US) == []  # a mirror's server asks for its origin itself
    found = {change["key"]: change for change in ended.json["changes"]}
    assert set(found) == {f"Stream/{name}" if case.kind == "Stream" else f"Consumer/{name}/c" for name, case in cases}
    for name, case in cases:
        change = found[f"Stream/{name}" if case.kind == "Stream" else f"Consumer/{name}/c"]
        assert change["action"] == "blocked", (case, change)
        assert case.code in change["reasons"], (case, change)
        assert all(reason["wayOut"] for reason in change["explanations"]), (case, change)


def _documents(name: str, case: Fixed, spec: Mapping[str, Any]) -> Iterator[str]:
    own: dict[str, Any] = {} if "mirror" in spec else {"subjects": [f"{name}.>"]}
    yield _document("Stream", name, {**own, **named(spec, name)} if case.kind == "Stream" else own)
    if case.kind == "Consumer":
        yield _document("Consumer", "c", {"stream": name, **named(spec, name)})
