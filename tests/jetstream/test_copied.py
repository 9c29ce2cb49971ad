"""How far a stream has copied under an identity, and purges, against real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.hearing.advisories import AUDITED, Home, OwnWrites
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.sourcing import identity_of
from reconciler.procedures.requests import Absent, Copied, LastCopied, PurgeStream, UpdateStream
from tests.support.account.connecting import Connect
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.server.process import Server

pytestmark = [pytest.mark.since("2.14"), pytest.mark.differs]

S, A = Key("Stream", "S"), Key("Stream", "A")
PLAIN: Json = {"name": "S"}
FILTERED: Json = {"name": "S", "filter_subject": "s.a"}
TRANSFORMED: Json = {"name": "S", "subject_transforms": [{"src": "s.b", "dest": "x.b"}, {"src": "s.c", "dest": "x.c"}]}
DURABLE: Json = {"name": "S", "consumer": {"name": "c", "deliver_subject": "dlv.c"}}
FOREIGN: Json = {"name": "T"}
CONSUMER: Json = {"name": "c", "durable_name": "c", "ack_policy": "flow_control", "deliver_subject": "dlv.c"}


@dataclass
class Scene:
    """Streams S (on `s.>`) and T (on `t.>`), and A, which listens to `own` and copies what a test lets it."""

    wire: Wire
    apis: DomainApis
    reader: JetStreamReader

    async def copying(self, *entries: Json) -> None:
        """Makes the origins and the copy."""
        await self.wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        await self.wire.expect("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]})
        await self.wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "action": "create", "config": CONSUMER})
        await self.set_sources(*entries, new=True)

    async def set_sources(self, *entries: Json, new: bool = False) -> None:
        """What A copies from now on."""
        config = {"name": "A", "subjects": ["own"], "sources": list(entries)}
        await self.wire.expect(f"STREAM.{'CREATE' if new else 'UPDATE'}.A", config)

    async def stored(self, count: int) -> None:
        """Waits until A has stored that many messages in all its life."""
        await stored_by(self.wire, "A", count)

    async def copied(self, entry: Json) -> Copied:
        """The answer for an entry."""
        fact = await self.reader.read(LastCopied(A, identity_of(entry)))
        assert isinstance(fact, Copied)
        return fact

    async def copied_below(self, entry: Json, below: int) -> int | None:
        """The last sequence before that; None where nobody can tell."""
        fact = await self.reader.read(LastCopied(A, identity_of(entry), below))
        assert isinstance(fact, Copied)
        return fact.seq if fact.seq or fact.complete else None

    async def looked_at(self, entry: Json) -> tuple[int, int]:
        """The sequence that is answered for an entry, and how many messages were asked for."""
        requests = self.apis("").requests
        before = requests["STREAM.MSG.GET"]
        answer = await self.copied(entry)
        return answer.seq, requests["STREAM.MSG.GET"] - before


async def stored_by(wire: Wire, stream: str, count: int) -> None:
    async def arrived() -> bool:
        return bool((await wire.stream_info(stream))["state"]["last_seq"] >= count)

    await until(arrived)


@pytest_asyncio.fixture
async def scene(any_server: Server, connect: Connect) -> AsyncIterator[Scene]:
    apis = DomainApis(await connect(any_server.url))
    async with await Wire.connect(any_server.url) as wire:
        yield Scene(wire, apis, JetStreamReader(apis))


async def test_every_kind_of_entry_is_told_apart(scene: Scene) -> None:
    await scene.copying(PLAIN, FILTERED, TRANSFORMED, DURABLE, FOREIGN)
    for name in ("s.a", "s.b", "s.c", "s.d", "t.a"):
        await scene.wire.publish(name, 3)
        await scene.wire.publish("own", 2)
    await scene.stored(12 + 3 + 6 + 12 + 3 + 10)
    entries = (PLAIN, FILTERED, TRANSFORMED, DURABLE, FOREIGN)
    assert [(await scene.copied(entry)).seq for entry in entries] == [12, 3, 9, 12, 3]
    assert (await scene.copied(PLAIN)).complete


async def test_an_identity_that_never_copied_is_at_zero(scene: Scene) -> None:
    await scene.copying(PLAIN)
    assert await scene.copied(DURABLE) == Copied(0, "", complete=True)
    await scene.wire.publish("s.a", 3)
    await scene.stored(3)
    assert await scene.copied(DURABLE) == Copied(0, "", complete=True)


async def test_a_durable_s_position_is_not_taken_for_a_copy(scene: Scene) -> None:
    await scene.copying()
    await scene.wire.publish("s.a", 9)
    await scene.wire.expect("CONSUMER.RESET.S.c", {"seq": 10})
    await scene.set_sources(DURABLE)
    # Heartbeats have told the stream where the consumer stands. Where they come later this proves less, and cannot fail falsely.
    await asyncio.sleep(1.2)
    assert (await scene.copied(DURABLE)).seq == 0


async def test_the_last_copy_before_some_place_is_found_among_others_with_few_looks(scene: Scene) -> None:
    await scene.copying(PLAIN, FILTERED)
    for number in range(1, 61):
        await scene.wire.publish("s.a", 5)
        await scene.wire.publish("s.b", 5)
        await scene.wire.publish("own", 3)
        await scene.stored(number * (10 + 5 + 3))  # else one entry copies ahead of the others, and more has to be looked at
    before = scene.apis("").requests["STREAM.MSG.GET"]
    assert [await scene.copied_below(PLAIN, below) for below in (1, 2, 400, 600, 601, 9000)] == [0, 1, 399, 599, 600, 600]
    assert scene.apis("").requests["STREAM.MSG.GET"] - before < 6 * 1080 / 4
    assert [await scene.copied_below(FILTERED, below) for below in (1, 6, 11, 16, 596)] == [0, 5, 5, 15, 595]
    assert await scene.copied_below(DURABLE, 100) == 0


async def test_of_what_was_removed_nobody_can_tell_how_far_it_went(scene: Scene) -> None:
    await scene.copying(PLAIN)
    await scene.wire.publish("s.a", 9)
    await scene.stored(9)
    await scene.wire.expect("STREAM.PURGE.A", {"seq": 6})
    assert [await scene.copied_below(PLAIN, below) for below in (3, 7)] == [None, 6]


async def test_a_mirror_keeps_the_sequences_of_its_origin(scene: Scene) -> None:
    await scene.copying()
    await scene.wire.publish("s.a", 9)
    await scene.wire.expect("STREAM.MSG.DELETE.S", {"seq": 6})
    await scene.wire.expect("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}})
    await stored_by(scene.wire, "M", 9)
    fact = await scene.reader.read(LastCopied(Key("Stream", "M"), "", 7))
    assert isinstance(fact, Copied)
    assert fact.seq == 5
    last = await scene.reader.read(LastCopied(Key("Stream", "M"), identity_of(PLAIN)))
    assert isinstance(last, Copied)
    assert (last.seq, last.complete, bool(last.time)) == (9, True, True), "no message has to be looked at for that"


async def test_the_time_is_that_of_the_copy(scene: Scene) -> None:
    await scene.copying(PLAIN)
    await scene.wire.publish("s.a", 2)
    await scene.stored(2)
    await scene.wire.publish("own", 3)
    message = (await scene.wire.expect("STREAM.MSG.GET.A", {"seq": 2}))["message"]
    assert await scene.copied(PLAIN) == Copied(2, message["time"], complete=True)


async def test_an_entry_that_is_gone_is_still_known_by_what_it_copied(scene: Scene) -> None:
    await scene.copying(PLAIN)
    await scene.wire.publish("s.a", 5)
    await scene.stored(5)
    await scene.set_sources(FOREIGN)
    assert (await scene.copied(PLAIN)).seq == 5


async def test_a_message_that_only_looks_like_a_copy_is_none(scene: Scene) -> None:
    await scene.copying(PLAIN)
    for value in ("$JS.ACK.S.c.1.7.7.1.0", "S", "S x > >", "S 7", "", "S 9 s.a >", f"S {'9' * 5000} > >"):
        await scene.wire.client.request("own", b"", headers={"Nats-Stream-Source": value})
    assert (await scene.copied(PLAIN)).seq == 0


async def test_holes_are_passed_over_in_strides(scene: Scene) -> None:
    await scene.copying(PLAIN)
    await scene.wire.publish("s.a", 2)
    await scene.stored(2)
    await scene.set_sources(FOREIGN)  # so that no server tells by itself
    await scene.wire.publish("own", 4000)
    await scene.wire.publish("own", 1)
    await scene.wire.expect("STREAM.PURGE.A", {"filter": "own", "seq": 4002})
    seq, asked = await scene.looked_at(PLAIN)
    assert seq == 2
    assert asked < 600
    assert not (await scene.copied(PLAIN)).complete


async def test_everything_above_a_hole_down_to_its_edge_is_looked_at(scene: Scene) -> None:
    await scene.copying(PLAIN)
    await scene.wire.publish("s.a", 1)
    await scene.stored(1)
    await scene.set_sources(FOREIGN)
    await scene.wire.publish("own", 300)
    for gone in range(2, 301):
        await scene.wire.expect("STREAM.MSG.DELETE.A", {"seq": gone, "no_erase": True})
    assert (await scene.copied(PLAIN)).seq == 1
    await scene.wire.expect("STREAM.MSG.DELETE.A", {"seq": 1, "no_erase": True})
    fresh = JetStreamReader(scene.apis)
    assert await fresh.read(LastCopied(A, identity_of(PLAIN))) == Copied(0, "", complete=False)


async def test_nothing_is_looked_at_twice(scene: Scene) -> None:
    await scene.copying(DURABLE)
    await scene.wire.publish("own", 300)
    assert await scene.looked_at(DURABLE) == (0, 300)
    assert await scene.looked_at(DURABLE) == (0, 0)
    await scene.wire.publish("own", 5)
    assert await scene.looked_at(DURABLE) == (0, 5)
    await scene.wire.publish("s.a", 4)
    await scene.stored(309)
    await scene.wire.publish("own", 2)
    assert await scene.looked_at(DURABLE) == (4, 6)
    await scene.wire.publish("own", 1)
    assert await scene.looked_at(DURABLE) == (4, 1)
    assert await scene.looked_at(PLAIN) == (0, 312)


async def test_what_is_asked_for_at_the_same_time_is_looked_at_once(scene: Scene) -> None:
    entries = (PLAIN, FILTERED, TRANSFORMED, DURABLE, FOREIGN)
    await scene.copying(*entries)
    await scene.wire.publish("s.a", 3)
    await scene.stored(9)
    await scene.set_sources(*[{**one, "name": "GONE"} for one in entries[:1]])  # so that no server tells by itself
    await scene.wire.publish("own", 90)
    requests = scene.apis("").requests
    before = {name: requests[name] for name in ("STREAM.INFO", "STREAM.MSG.GET")}
    found = await asyncio.gather(*map(scene.copied, entries))
    assert [one.seq for one in found] == [3, 3, 0, 3, 0]
    assert requests["STREAM.INFO"] - before["STREAM.INFO"] == 1
    assert requests["STREAM.MSG.GET"] - before["STREAM.MSG.GET"] == 99
    again = await asyncio.gather(*(JetStreamReader(scene.apis).read(LastCopied(A, identity_of(one))) for one in entries))
    assert again == found


async def test_another_stream_of_the_same_name_is_looked_at_anew(scene: Scene) -> None:
    await scene.copying(DURABLE)
    await scene.wire.publish("s.a", 4)
    await scene.stored(4)
    assert (await scene.copied(DURABLE)).seq == 4
    await scene.wire.expect("STREAM.DELETE.A")
    await scene.set_sources(FOREIGN, new=True)
    await scene.wire.publish("own", 9)
    assert await scene.copied(DURABLE) == Copied(0, "", complete=True)


async def test_a_stream_that_is_not_there_is_absent(scene: Scene) -> None:
    assert await scene.reader.read(LastCopied(A, "S > >")) == Absent()


async def test_a_server_that_tells_by_itself_spares_the_long_way(server: Server, connect: Connect) -> None:
    apis = DomainApis(await connect(server.url))
    async with await Wire.connect(server.url) as wire:
        scene = Scene(wire, apis, JetStreamReader(apis))
        await scene.copying(PLAIN, FILTERED)
        await wire.publish("s.b", 3)
        await scene.stored(3)
        await wire.publish("own", 3000)
        seq, asked = await scene.looked_at(PLAIN)
        assert seq == 3
        assert asked < 1500
        answer = await scene.copied(PLAIN)
        copy = (await wire.expect("STREAM.MSG.GET.A", {"seq": 3}))["message"]["time"]
        assert units.parse_time(answer.time) >= units.parse_time(copy)
        # An ephemeral entry and a durable one look the same in INFO: the server's word is nobody's.
        await scene.set_sources(PLAIN, FILTERED, DURABLE)
        await scene.stored(3006)
        fresh = JetStreamReader(apis)
        assert await fresh.read(LastCopied(A, identity_of(PLAIN))) == Copied(3, copy, complete=True)


async def test_purged_copies_are_still_known_where_the_server_tells(server: Server, connect: Connect) -> None:
    apis = DomainApis(await connect(server.url))
    async with await Wire.connect(server.url) as wire:
        scene = Scene(wire, apis, JetStreamReader(apis))
        await scene.copying(PLAIN)
        await wire.publish("s.b", 3)
        await scene.stored(3)
        await wire.expect("STREAM.PURGE.A")
        assert await scene.copied(PLAIN) == Copied(3, "", complete=False)


async def test_an_origin_in_another_domain_is_told_apart(server_version: str, tmp_path: Path, connect: Connect) -> None:
    away: Json = {"name": "S", "external": {"api": "$JS.leaf.API", "deliver": ""}, "consumer": DURABLE["consumer"]}
    ephemeral = {part: away[part] for part in ("name", "external")}
    listening = "leafnodes { listen: 127.0.0.1:-1 }"
    with Server(tmp_path / "hub", version=server_version, jetstream="domain: hub", config=listening) as hub:
        remote = f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leaf_port(hub)}" }} ] }}'
        with Server(tmp_path / "leaf", version=server_version, jetstream="domain: leaf", config=remote) as leaf:
            apis = DomainApis(await connect(hub.url))
            async with await Wire.connect(hub.url) as wire, await Wire.connect(leaf.url) as far:
                await far.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
                await far.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "action": "create", "config": CONSUMER})
                await far.publish("s.a", 3)
                scene = Scene(wire, apis, JetStreamReader(apis))
                await scene.set_sources(away, ephemeral, new=True)
                await scene.stored(6)
                assert [(await scene.copied(entry)).seq for entry in (away, ephemeral, DURABLE, PLAIN)] == [3, 3, 0, 0]
                await JetStreamWriter(apis).write(PurgeStream(Key("Stream", "S", "", "leaf"), 3, "s.>"))
                assert await far.payloads("S") == ["2"]


def leaf_port(hub: Server) -> int:
    (listening,) = (line for line in hub.logs().splitlines() if "Listening for leafnode connections" in line)
    return int(listening.rpartition(":")[2])


async def test_a_purge_keeps_what_it_names_and_what_it_does_not_match(scene: Scene) -> None:
    await scene.copying()
    writer = JetStreamWriter(scene.apis)
    for first, name in enumerate(("s.a", "s.b", "s.a", "s.b", "s.a", "s.c")):
        await scene.wire.publish(name, first=first)
    await writer.write(PurgeStream(S, 4, "s.a"))
    assert await scene.wire.payloads("S") == ["1", "3", "4", "5"]
    await writer.write(PurgeStream(S, 5, ""))
    assert await scene.wire.payloads("S") == ["4", "5"]
    await writer.write(PurgeStream(S, 6, ">"))
    assert await scene.wire.payloads("S") == ["5"]


async def test_a_purge_waits_for_no_advisory(scene: Scene) -> None:
    own = OwnWrites(Home(scene.apis.connection))
    with own.expecting(PurgeStream(S, 4, "s.a")):
        pass
    assert not own.claim(AUDITED, S)
    with own.expecting(UpdateStream(S, b"{}")):
        pass
    assert own.claim(AUDITED, S)
