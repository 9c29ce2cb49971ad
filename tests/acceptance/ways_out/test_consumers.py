"""Ways out about ordinary consumers: each is printed, then taken, and leads where somebody wanted to go."""

from __future__ import annotations

from tests.support.account.guarded import Guarded, consumer, stream
from tests.support.account.wire import Wire
from tests.support.promises import tried


async def test_max_consumers(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S", maxConsumers=1))
    await wire.expect("CONSUMER.CREATE.S.theirs", {"stream_name": "S", "config": {"name": "theirs", "durable_name": "theirs"}})
    way = (await guarded.offered(stream("S", maxConsumers=1), consumer("S")))["Consumer/S/c"]["max-consumers"]
    assert way == "declare maxConsumers: 2 (or more) on the stream"
    wider = stream("S", maxConsumers=2)
    guarded.apply(wider, consumer("S"), flags=["--allow", "recreate=Stream/S"])
    assert await wire.consumer_info("S", "c")
    tried(way)
