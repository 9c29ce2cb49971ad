"""What a few keys look like now: nothing but these keys, unless one of them makes others doubtful; silence stays silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from reconciler.errors import ApiError, NatsError, NoAnswer
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.read.refresh import refresh
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveStream, Patch
from reconciler.model.seen.wanted import EVERYTHING
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tests.support.values.build import NOW, consumer, consumer_info, live, marked, stream, stream_info

A = Key("Stream", "A")
GONE = ApiError(404, 10059, "stream not found")


def _key(name: str, stream_name: str = "A") -> Key:
    return Key("Consumer", name, stream_name)


async def _stream(wire: Wire, name: str, *consumers: str) -> None:
    await wire.expect(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    for consumer_name in consumers:
        await _consumer(wire, name, consumer_name)


async def _consumer(wire: Wire, stream_name: str, name: str) -> None:
    config = {"durable_name": name, "ack_policy": "explicit"}
    await wire.expect(f"CONSUMER.CREATE.{stream_name}.{name}", {"stream_name": stream_name, "config": config, "action": "create"})


class Eye:
    """Looks, and looks again at a few keys."""

    def __init__(self, apis: DomainApis) -> None:
        self.requests = apis("").requests
        self._reader = JetStreamReader(apis)

    async def everything(self) -> Live:
        """All there is; requests are counted from then on."""
        found = await self._reader.snapshot(EVERYTHING)
        self.requests.clear()
        return found

    async def again(self, before: Live, *keys: Key) -> Live:
        """What was seen before, with these keys as they are now."""
        return before.patched(await self._reader.refresh(before, keys))


@pytest.fixture
async def eye(server: Server, connect: Connect) -> Eye:
    """Of a client with short timeouts."""
    return Eye(DomainApis(await connect(server.url, timeout=1.0)))


async def test_a_stream_with_as_many_consumers_as_are_known_costs_one_request(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0", "c1")
    before = await eye.everything()
    await wire.expect("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>", "B.>"]})
    after = await eye.again(before, A)
    assert after.streams[A].config["subjects"] == ["A.>", "B.>"]
    assert after.consumers_of(A) == before.consumers_of(A)
    assert eye.requests == Counter({"STREAM.INFO": 1})


async def test_a_stream_with_another_number_of_consumers_has_them_listed(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0")
    before = await eye.everything()
    await _consumer(wire, "A", "c1")
    after = await eye.again(before, A)
    assert set(after.consumers_of(A)) == {"c0", "c1"}
    await wire.expect("CONSUMER.DELETE.A.c0")
    await wire.expect("CONSUMER.DELETE.A.c1")
    assert set((await eye.again(after, A)).consumers_of(A)) == set()
    assert eye.requests == Counter({"STREAM.INFO": 2, "CONSUMER.LIST": 1})


async def test_consumers_that_were_read_beside_their_stream_are_counted(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0")
    before = await eye.everything()
    await _consumer(wire, "A", "c1")
    await _consumer(wire, "A", "c2")
    await wire.expect("CONSUMER.DELETE.A.c0")
    after = await eye.again(before, A, _key("c0"), _key("c1"), _key("c2"))
    assert set(after.consumers_of(A)) == {"c1", "c2"}
    assert eye.requests == Counter({"STREAM.INFO": 1, "CONSUMER.INFO": 3})


async def test_a_stream_made_anew_has_its_consumers_listed(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0")
    before = await eye.everything()
    await wire.expect("STREAM.DELETE.A")
    await _stream(wire, "A", "c1")
    after = await eye.again(before, A)
    assert set(after.consumers_of(A)) == {"c1"}
    assert eye.requests == Counter({"STREAM.INFO": 1, "CONSUMER.LIST": 1})


async def test_a_new_stream_is_read_with_its_consumers_even_if_only_one_of_them_was_hinted(eye: Eye, wire: Wire) -> None:
    before = await eye.everything()
    await _stream(wire, "A", "c0", "c1")
    after = await eye.again(before, _key("c0"))
    assert (set(after.streams), set(after.consumers_of(A))) == ({A}, {"c0", "c1"})
    assert eye.requests == Counter({"STREAM.INFO": 1, "CONSUMER.INFO": 1, "CONSUMER.LIST": 1})


async def test_a_consumer_without_its_stream_says_that_the_stream_is_gone(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0", "c1")
    before = await eye.everything()
    await wire.expect("STREAM.DELETE.A")
    after = await eye.again(before, _key("c0"))
    assert (after.streams, after.consumers, after.unknown) == ({}, {}, {})
    assert eye.requests == Counter({"CONSUMER.INFO": 1})


async def test_more_than_twenty_consumers_of_a_stream_that_is_gone_are_gone(eye: Eye, wire: Wire) -> None:
    await _stream(wire, "A", "c0")
    before = await eye.everything()
    await wire.expect("STREAM.DELETE.A")
    after = await eye.again(before, *(_key(f"c{number}") for number in range(21)))
    assert (after.streams, after.consumers, after.unknown) == ({}, {}, {})
    assert eye.requests == Counter({"CONSUMER.LIST": 1})


async def test_a_stream_that_was_silent_is_known_again_with_all_its_consumers(eye: Eye, server: Server, wire: Wire) -> None:
    await _stream(wire, "A", "c0", "c1")
    before = await eye.everything()
    server.freeze()
    silent = await eye.again(before, A, _key("c0"))
    server.thaw()
    assert {key for key in (A, _key("c0"), _key("c1")) if silent.why_unknown(key)} == {A, _key("c0"), _key("c1")}
    assert silent.consumers_of(A) == before.consumers_of(A)
    assert (await eye.again(silent, A)).unknown == {}


DENYING = """
accounts { A { jetstream: enabled, users: [
  {user: all, password: x},
  {user: part, password: x, permissions: {publish: {deny: ["$JS.API.CONSUMER.INFO.A.c1", "$JS.API.CONSUMER.LIST.A"]}}} ] } }
"""


async def test_silence_is_of_the_key_that_did_not_answer(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "denying", config=DENYING) as server:
        async with await Wire.connect(server.url, user="all", password="x") as wire:
            await _stream(wire, "A", "c0", "c1")
            before = await Eye(DomainApis(await connect(server.url, user="all", password="x"))).everything()
            eye = Eye(DomainApis(await connect(server.url, user="part", password="x", timeout=2.0)))
            after = await eye.again(before, _key("c0"), _key("c1"))
            assert set(after.unknown) == {_key("c1")}
            assert set(after.consumers_of(A)) == {"c0", "c1"}
            await _consumer(wire, "A", "c2")
            unlisted = await eye.again(before, A)
            assert set(unlisted.unknown) == {A}
            assert "permission denied" in str(unlisted.why_unknown(_key("c2")))


class Crossing:
    """An API whose answers cross each other: the first to each question is the first of its list, and so on."""

    def __init__(self, streams: Iterable[object], consumers: Iterable[object], lists: Iterable[object] = ()) -> None:
        self._streams, self._consumers, self._lists = iter(streams), iter(consumers), iter(lists)

    async def stream_info(self, _name: str) -> object:
        """Of the stream."""
        return _said(self._streams)

    async def consumer_info(self, _stream: str, _name: str) -> object:
        """Of a consumer."""
        return _said(self._consumers)

    async def consumer_pages(self, _stream: str, _count: int | None) -> AsyncIterator[bytes]:
        """One page."""
        yield orjson.dumps({"consumers": _said(self._lists)})


def _said(answers: Any) -> object:
    answer = next(answers)
    if isinstance(answer, NatsError):
        raise answer
    return answer


FOUND = stream_info(marked(stream("A")), consumer_count=1)
READER = consumer_info("A", marked(consumer("A", "c0")))
KNOWN = live(FOUND, READER)


async def _crossed(api: Crossing, *keys: Key) -> Patch:
    return await refresh(lambda _domain: cast("JetStreamApi", api), KNOWN, keys, lambda: NOW)


async def test_answers_that_cannot_all_be_true_are_asked_for_once_more() -> None:
    made = await _crossed(Crossing([GONE, FOUND], [READER], [[READER]]), A, _key("c0"))
    assert (made.streams, set(made.lists[A]), made.unknown) == ({A: LiveStream.seen(FOUND)}, {"c0"}, {})
    deleted = await _crossed(Crossing([FOUND, GONE], [GONE]), A, _key("c0"))
    assert (deleted.streams, deleted.lists, deleted.consumers, deleted.unknown) == ({A: None}, {}, {}, {})
    silent = await _crossed(Crossing([GONE, NoAnswer("silence")], [READER], [NoAnswer("silence")]), A, _key("c0"))
    assert (silent.streams, silent.lists, silent.unknown) == ({}, {}, {A: "silence"})


async def test_a_stream_that_goes_while_its_consumers_are_listed_is_gone() -> None:
    more = stream_info(marked(stream("A")), consumer_count=2)
    patch = await _crossed(Crossing([more], [], [GONE]), A)
    assert (patch.streams, patch.lists, patch.unknown, patch.at) == ({A: None}, {}, {}, NOW)
