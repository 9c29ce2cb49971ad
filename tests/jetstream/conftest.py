"""Connections for the tests of this room.

Invariant: every connection a test opens through these is closed when the test is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from tests.support.account.connecting import Connect
from tests.support.server.process import Server


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections from URLs and the fields of ConnectionSettings."""
    async with AsyncExitStack() as stack:

        async def opened(*urls: str, **settings: object) -> Connection:
            made = ConnectionSettings(servers=urls, **settings)  # type: ignore[arg-type]  # the test names the fields
            return await stack.enter_async_context(await Connection.open(made))

        yield opened


@pytest_asyncio.fixture
async def connection(server: Server, connect: Connect) -> Connection:
    """A connection to `server`."""
    return await connect(server.url, timeout=30.0)


@pytest_asyncio.fixture
async def api(connection: Connection) -> JetStreamApi:
    """The JetStream API of `server`."""
    return JetStreamApi(connection)
