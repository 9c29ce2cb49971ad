"""An origin that somebody deletes is made anew, and all that it gets from then on is copied, whatever the server still knows."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.sources.watched import flows, source_of, stalls, told, until_source
from tests.support.values.catalogues import stream, write

BEFORE, AFTER = 20, 35
UNSEEN = {"limits": 15, "interest": 0, "workqueue": 0}
"""Fewer than were copied: once that many have come, what is skipped cannot be told from what was copied.

Where a message goes as soon as it is acknowledged, a server of 2.14 drops what it skips a few seconds later.
"""


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_what_a_new_origin_gets_is_copied(tmp_path: Path, version: str, restarted: bool) -> None:
    source = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
    manifests = write(tmp_path / "all.yaml", [stream("S", "s.>"), {**stream("A"), "spec": {"sources": [source]}}])
    with Server(tmp_path / "server", version=version) as server:
        command = Command(tmp_path, server.url)
        async with daemon(command, tmp_path / "log", "-f", manifests, "--interval", "5s") as running:
            await running.until(settled)
            async with await Wire.connect(server.url) as wire:
                await wire.publish("s.x", BEFORE)
                await until(lambda: copied(wire, BEFORE), 30.0)
            if restarted:
                server.restart()
            async with await Wire.connect(server.url) as wire:
                await until(lambda: there(wire, "S"), 30.0)
                await wire.expect("STREAM.DELETE.S")
                await until(lambda: there(wire, "S"), 30.0)
                await wire.publish("s.x", AFTER, first=100)
                await until(lambda: copied(wire, BEFORE + AFTER), 60.0)
                numbers = [int(text) for text in await wire.payloads("A")]
                assert numbers == [*range(BEFORE), *range(100, 100 + AFTER)]


@pytest.mark.slow
async def test_its_durable_is_shown_as_ours_under_the_declared_name_with_one_suffix(tmp_path: Path) -> None:
    """However often that happens; and what is exported is what was declared."""
    source = {"name": "S", "consumer": {"name": "to_all", "serverManaged": True}}
    manifests = write(tmp_path / "all.yaml", [stream("S", "s.>"), {**stream("A"), "spec": {"sources": [source]}}])
    names = ["to_all"]
    with Server(tmp_path / "server", version="2.14.6") as server:
        command = Command(tmp_path, server.url)
        async with daemon(command, tmp_path / "log", "-f", manifests) as running, await Wire.connect(server.url) as wire:
            await running.until(settled)
            for number in range(1, 4):
                await wire.publish("s.x", BEFORE)
                await until(partial(copied, wire, BEFORE * number), 60.0)
                await wire.expect("STREAM.DELETE.S")

                def reads_another(document: Json) -> bool:
                    rows = [row for row in document["sources"] if row["consumer"] not in names and row["state"] == "Flowing"]
                    return bool(rows) and settled(document)

                (row,) = (await running.until(reads_another))["sources"]
                assert (row["mode"], row["declaredConsumer"]) == ("managed", "to_all")
                names.append(row["consumer"])
            assert all(name.startswith("to_all-") and name.count("-") == 1 for name in names[1:])
            for where in (("--daemon", running.url), ("-f", manifests), ()):
                shown = (await ran(command, "status", *where)).out
                assert re.search(rf"managed consumer {names[-1]}", shown)
                assert "unmanaged" not in shown
            assert f"managed consumer {names[-1]} (declared: to_all)" in (await ran(command, "status", "-f", manifests)).out
            assert "unmanaged" not in (await ran(command, "graph", "--daemon", running.url)).out
            await running.stop()
        exported = await ran(command, "export")
        assert "was not seen" not in f"{exported.out}{exported.err}"
        again = tmp_path / "exported.yaml"
        again.write_text(exported.out)
        ended = await ran(command, "plan", "-f", again, "--format", "json")
        assert not ended.json["changes"]


@pytest.mark.slow
@pytest.mark.parametrize(("retention", "unseen"), UNSEEN.items())
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_and_what_it_got_while_nobody_looked(tmp_path: Path, version: str, retention: str, unseen: int) -> None:
    """Somebody has made the durable anew as well, so that nothing seems to be missing."""
    manifests = write(tmp_path / "all.yaml", documents("c", retention, declared=False))
    with Server(tmp_path / "server", version=version) as server:
        command = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:
            await copied_and_made_anew(command, wire, manifests, unseen)
            async with daemon(command, tmp_path / "log2", "-f", manifests) as running:
                await running.until(settled)
                await wire.publish("s.x", AFTER - unseen, first=100 + unseen)
                await all_is_copied(wire)
                await running.stop()
            # A server of 2.15 may have taken notice by itself, before anybody looked.
            assert await read_by(wire, "c-") or version == "2.15.1"
            ended = await ran(command, "plan", "-f", manifests, "--format", "json")
            assert not ended.json["changes"]


@pytest.mark.slow
@pytest.mark.parametrize(("retention", "unseen"), UNSEEN.items())
async def test_a_name_that_a_person_chose_is_theirs_to_change(tmp_path: Path, retention: str, unseen: int) -> None:
    """Which is the way out that is told; nobody waits for what the durable of that name never hands over."""
    manifests = write(tmp_path / "all.yaml", documents("c", retention, declared=True))
    with Server(tmp_path / "server", version="2.14.6") as server:
        command = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:
            await copied_and_made_anew(command, wire, manifests, unseen)
            async with daemon(command, tmp_path / "log2", "-f", manifests, "--prune", ready=False) as running:
                await running.listening()
                await running.until(lambda document: any(one["cause"] for one in document.get("sources", ())))
                write(manifests, documents("d", retention, declared=True))
                await running.post("/-/reload")
                await until(lambda: copied(wire, BEFORE + unseen), 60.0)
                await until(lambda: read_by(wire, "d"), 60.0)
                await wire.publish("s.x", AFTER - unseen, first=100 + unseen)
                await all_is_copied(wire)
                await running.until(settled)
                assert await read_by(wire, "d")
                await running.stop()


@pytest.mark.slow
async def test_where_somebody_else_keeps_the_durable_it_is_told(tmp_path: Path) -> None:
    """Another name for it is theirs to choose."""
    source = {"name": "S", "consumer": {"name": "c", "deliverSubject": "d.c"}}
    manifests = write(tmp_path / "all.yaml", [{**stream("A"), "spec": {"sources": [source]}}])
    durable = {"durable_name": "c", "deliver_subject": "d.c", "ack_policy": "flow_control", "flow_control": True}
    durable |= {"idle_heartbeat": 10**9, "max_ack_pending": 1000}
    with Server(tmp_path / "server", version="2.14.6") as server:
        command = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:

            async def made() -> None:
                await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
                await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": durable, "action": "create"})

            await ran(command, "apply", "-f", manifests, "--yes")
            await made()
            await wire.publish("s.x", BEFORE)
            await until(lambda: copied(wire, BEFORE), 60.0)
            await wire.expect("STREAM.DELETE.S")
            await made()
            await wire.publish("s.x", UNSEEN["limits"], first=100)
            async with daemon(command, tmp_path / "log", "-f", manifests, ready=False) as running:
                await running.listening()
                document = await running.until(lambda document: any(one["cause"] for one in document.get("sources", ())))
                (seen,) = document["sources"]
                assert (seen["cause"], f"up to {BEFORE} is skipped" in seen["message"]) == ("origin-recreated", True)
                await running.stop()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_a_mirror_takes_nothing_of_a_new_origin_and_that_is_told_with_the_way_out(tmp_path: Path, version: str) -> None:
    mirror = {"mirror": {"name": "S"}}
    manifests = write(tmp_path / "all.yaml", [{**stream("M"), "spec": mirror}])
    with Server(tmp_path / "server", version=version) as server:
        command = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            async with daemon(command, tmp_path / "log", "-f", manifests) as running:
                await running.until(settled)
                await wire.publish("s.x", 30)
                await until(lambda: stored(wire, "M", 30), 30.0)
                await until_source(running, "M", flows)
                assert not running.lines("source.stalled")
                await wire.expect("STREAM.DELETE.S")
                await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
                await wire.publish("s.x", 12, first=100)
                found = await until_source(running, "M", stalls("origin-recreated"))
                assert "ends at 12" in found["message"]
                assert "declare a new stream with that mirror, or remove `mirror`" in found["message"]
                (told_of,) = await told(running, "source.recreated")
                assert (told_of["first"], told_of["last"]) == (1, 30)
                await heard_again(wire, "M")
                assert (await source_of(running, "M"))["cause"] == "origin-recreated"
                assert not running.lines("source.recovered")
                await running.stop()
            ended = await ran(command, "status", "-f", manifests, "--format", "json")
            (seen,) = ended.json["sources"]
            assert (seen["state"], seen["cause"]) == ("Stalled", "origin-recreated")
            write(manifests, [{**stream("M"), "spec": mirror}, {**stream("N"), "spec": mirror}])
            await ran(command, "apply", "-f", manifests, "--yes")
            await until(lambda: stored(wire, "N", 12), 30.0)
            write(manifests, [stream("M", "m.>"), {**stream("N"), "spec": mirror}])
            await ran(command, "apply", "-f", manifests, "--yes")
            (seen,) = (await ran(command, "status", "-f", manifests, "--format", "json")).json["sources"]
            assert (seen["key"], seen["state"]) == ("Stream/N", "Flowing")


@pytest.mark.slow
async def test_a_mirror_of_an_origin_that_was_purged_or_is_far_ahead_flows(tmp_path: Path) -> None:
    """One begins at 100 of 30, one has all of what is gone by now, one has been purged itself."""
    begins = {"mirror": {"name": "S", "optStartSeq": 100}}
    documents = [{**stream("L"), "spec": begins}, *({**stream(name), "spec": {"mirror": {"name": "S"}}} for name in "MP")]
    manifests = write(tmp_path / "all.yaml", documents)
    with Server(tmp_path / "server", version="2.15.1") as server:
        command = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            await wire.publish("s.x", 30)
            await ran(command, "apply", "-f", manifests, "--yes")
            await until(lambda: stored(wire, "P", 30), 30.0)
            await wire.expect("STREAM.PURGE.S")
            await wire.expect("STREAM.PURGE.P")
            for name in "LMP":
                await heard_again(wire, name)
            ended = await ran(command, "status", "-f", manifests, "--format", "json")
            seen = {(one["key"], one["state"]) for one in ended.json["sources"]}
            assert seen == {(f"Stream/{name}", "Flowing") for name in "LMP"}


async def stored(wire: Wire, name: str, count: int) -> bool:
    """Whether a stream has that many messages."""
    return int((await wire.stream_info(name))["state"]["messages"]) == count


async def heard_again(wire: Wire, name: str) -> None:
    """Waits until the mirror is attached: then the server itself says nothing odd."""

    async def heard() -> bool:
        return 0 <= int((await wire.stream_info(name))["mirror"]["active"]) < 10**9

    await until(heard, 90.0)
    await asyncio.sleep(7.0)


def documents(durable: str, retention: str, *, declared: bool) -> list[dict[str, Any]]:
    """A stream that copies another one through a durable, which is declared, or kept for it."""
    through = {"deliverSubject": f"d.{durable}"} if declared else {"serverManaged": True}
    source = {"name": "S", "consumer": {"name": durable, **through}}
    spec = {"stream": "S", "ackPolicy": "flow_control", **through}
    consumers = [{"kind": "Consumer", "metadata": {"name": durable}, "spec": spec}] if declared else []
    return [stream("S", "s.>", retention=retention), {**stream("A"), "spec": {"sources": [source]}}, *consumers]


async def copied_and_made_anew(command: Command, wire: Wire, manifests: Path, unseen: int) -> None:
    """A daemon has come and gone; then the origin and its durable are made anew, and nothing seems to be missing."""
    async with daemon(command, command.home / "log", "-f", manifests) as running:
        await running.until(settled)
        await wire.publish("s.x", BEFORE)
        await until(lambda: copied(wire, BEFORE), 30.0)
        await running.stop()
    origin, durable = [(await wire.expect(one))["config"] for one in ("STREAM.INFO.S", "CONSUMER.INFO.S.c")]
    await wire.expect("STREAM.DELETE.S")
    await wire.expect("STREAM.CREATE.S", origin)
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": durable, "action": "create"})
    await wire.publish("s.x", unseen, first=100)


async def all_is_copied(wire: Wire) -> None:
    """What was published before and afterwards, once."""
    await until(lambda: copied(wire, BEFORE + AFTER), 60.0)
    assert [int(text) for text in await wire.payloads("A")] == [*range(BEFORE), *range(100, 100 + AFTER)]


async def read_by(wire: Wire, name: str) -> bool:
    """Whether the origin has this durable alone."""
    there = [one["name"] for one in (await wire.expect("CONSUMER.LIST.S"))["consumers"]]
    return len(there) == 1 and there[0].startswith(name)


async def copied(wire: Wire, count: int) -> bool:
    return len(await wire.payloads("A")) >= count


async def there(wire: Wire, name: str) -> bool:
    return "error" not in await wire.call(f"STREAM.INFO.{name}")
