"""One fault holds up its own key and nobody else, and what cannot be done now is done when it can be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.engine.apply.outcome import Verdict, Word
from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change
from reconciler.plan.decide import decide
from reconciler.plan.scene import Scene
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Engine, Start
from tests.support.daemon.passes import DOCUMENTS, Bench
from tests.support.server.process import Server
from tests.support.values import catalogues
from tests.support.values.build import consumer, stream

pytestmark = pytest.mark.differs

DAMAGED = '[{"field":"max_age","live":"1h","declared":60000000000}]'
SMALL = "max_payload: 16384"


async def _damage(wire: Wire, name: str) -> None:
    """Another client writes what none of our procedures writes into our mark."""
    config = (await wire.stream_info(name))["config"]
    await wire.expect(f"STREAM.UPDATE.{name}", {**config, "metadata": {**config["metadata"], "reconciler.residue": DAMAGED}})


async def test_a_damaged_mark_blocks_its_own_stream(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    await engine.apply(stream("S", {"subjects": ["s.>"]}))
    async with await Wire.connect(any_server.url) as wire:
        await _damage(wire, "S")
    declared = stream("S", {"subjects": ["s.>"], "maxAge": "1m"}), stream("T", {"subjects": ["t.>"]})
    planned = await engine.plan(*declared)
    found = {str(change.key): change for change in planned.plan.changes}
    assert found["Stream/S"].action is Action.BLOCKED
    assert found["Stream/S"].reasons[0].code == "damaged-mark"
    assert found["Stream/T"].action is Action.CREATE
    async with await Wire.connect(any_server.url) as wire:  # the way out that is told
        config = (await wire.stream_info("S"))["config"]
        config["metadata"] = {name: value for name, value in config["metadata"].items() if name != "reconciler.residue"}
        await wire.expect("STREAM.UPDATE.S", config)
    assert (await engine.apply(*declared)).verdict is Verdict.IN_PLACE


async def test_a_bug_about_one_resource_stops_no_other(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(scene: Scene, declared: Declared) -> Change | None:
        return 1 // 0 if declared.key.name == "S" else decide(scene, declared)  # type: ignore[return-value]  # it never does

    monkeypatch.setattr("reconciler.plan.plan.decide", decided)
    applied = await engine.apply(stream("S", {"subjects": ["s.>"]}), stream("T", {"subjects": ["t.>"]}), continue_=True)
    ended = {str(outcome.change.key): outcome for outcome in applied.outcomes}
    assert ended["Stream/T"].word is Word.APPLIED
    assert "internal-error: a bug in reconciler: ZeroDivisionError" in ended["Stream/S"].why


async def test_limits_for_consumers_fall_when_the_procedures_of_these_have_ended(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    limits = {"consumerLimits": {"maxAckPending": 100}}
    before = {"maxAckPending": 100, "filterSubjects": ["s.a"]}
    await engine.apply(stream("S", {"subjects": ["s.>"], **limits}), consumer("S", "c", before))
    async with await Wire.connect(any_server.url) as wire:
        await wire.publish("s.b", 5)
        limits["consumerLimits"] = {"maxAckPending": 10}
        after = {"maxAckPending": 10, "filterSubjects": ["s.a", "s.b"]}
        applied = await engine.apply(stream("S", {"subjects": ["s.>"], **limits}), consumer("S", "c", after))
        assert applied.verdict is Verdict.IN_PLACE, [outcome.why for outcome in applied.outcomes]
        assert (await wire.stream_info("S"))["config"]["consumer_limits"]["max_ack_pending"] == 10
    assert "filter-add" in {outcome.change.procedure.name for outcome in applied.outcomes if outcome.change.procedure}


def _many_filters() -> dict[str, list[str]]:
    return {"filterSubjects": [f"s.{number}.{'x' * 60}" for number in range(400)]}


@pytest.fixture
def small(server_version: str, tmp_path: Path) -> Server:
    """A server that takes small requests only."""
    return Server(tmp_path / "small", version=server_version, config=SMALL)


async def test_what_is_too_large_to_send_is_said_with_both_numbers_before_it_is_sent(small: Server, start: Start) -> None:
    with small:
        engine = await start(small)
        declared = stream("S", {"subjects": ["s.>"]}), consumer("S", "c", _many_filters()), consumer("S", "d")
        (blocked,) = (await engine.plan(*declared)).plan.blocked
        assert [reason.code for reason in blocked.reasons] == ["too-large"]
        applied = await engine.apply(*declared, continue_=True)
        ended = {str(outcome.change.key): outcome for outcome in applied.outcomes}
        assert ended["Consumer/S/d"].word is Word.APPLIED
        assert ended["Consumer/S/c"].word is not Word.APPLIED
        assert "too-large" in ended["Consumer/S/c"].why
        assert "16,384" in ended["Consumer/S/c"].why


async def test_a_resource_that_cannot_be_made_does_not_keep_the_process_from_being_ready(bench: Bench) -> None:
    impossible = catalogues.stream("THREE", "three.>", replicas=3)  # on a single server
    catalogues.write(bench.path, [*DOCUMENTS, impossible])
    await bench.manifests.load(full=True)
    await bench.full()
    assert bench.shown(Key("Stream", "THREE"))["state"] == "Error"
    assert bench.state.passed


async def test_room_that_comes_free_is_used_soon(server_version: str, tmp_path: Path, start: Start) -> None:
    """The server says that there is not enough storage (10047), which is no answer for ever."""
    with Server(tmp_path / "full", version=server_version, jetstream="max_file: 10MB") as server:
        engine = await start(server)
        async with await Wire.connect(server.url) as wire:
            await wire.expect("STREAM.CREATE.FULL", {"name": "FULL", "subjects": ["full"], "max_bytes": 8 << 20})
            refused = asyncio.Event()

            def tried(code: str) -> None:
                if code == "10047":
                    refused.set()

            engine.answers.append(tried)

            async def make_room() -> None:
                await refused.wait()
                await wire.expect("STREAM.DELETE.FULL")

            making = asyncio.create_task(make_room())
            applied = await engine.apply(stream("S", {"subjects": ["s"], "maxBytes": "8MiB"}))
            await making
        assert applied.verdict is Verdict.IN_PLACE, applied.outcomes[0].why
