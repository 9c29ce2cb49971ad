"""One write: whether we may, when its turn has come."""

from __future__ import annotations

import pytest

from reconciler.engine import SystemClock
from reconciler.engine.sending import Sender
from reconciler.engine.throttle import Throttle
from reconciler.errors import LeaseLost
from reconciler.model.identity import Key
from reconciler.procedures.requests import CreateStream
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Engine, Right, plain


class Losing(SystemClock):
    """Whoever waits has lost the lease by then."""

    def __init__(self, lease: Right) -> None:
        self._lease = lease

    async def sleep(self, seconds: float) -> None:
        """Takes it away."""
        assert seconds > 0
        self._lease.held = False


async def test_a_lease_that_was_lost_while_a_write_waited_for_its_turn_is_noticed(engine: Engine, wire: Wire) -> None:
    sender = Sender(engine.ports, Throttle(1, Losing(engine.lease)), plain)
    await sender.send(CreateStream(Key("Stream", "A"), b'{"name":"A","subjects":["a"]}'))
    with pytest.raises(LeaseLost):
        await sender.send(CreateStream(Key("Stream", "B"), b'{"name":"B","subjects":["b"]}'))
    assert (await wire.expect("STREAM.NAMES"))["streams"] == ["A"]
