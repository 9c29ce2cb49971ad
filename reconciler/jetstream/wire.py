"""nats-py's client, bent to our rules. The only place that touches its private parts.

Invariants:
- nothing is kept for later: what a lost connection has not sent is thrown away, and there is no reconnecting in place;
- who asked for TLS never sends a login in the clear;
- a loss is reported exactly once, at once, by `on_lost`;
- `flush` is an answer to everything sent before it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.client import PING_PROTO, Client
from nats.aio.transport import TcpTransport

# nats-py logs what it also reports through callbacks; without a handler Python would print that on stderr.
logging.getLogger("nats").addHandler(logging.NullHandler())
# asyncio says this at the end of every connection that nats-py has upgraded to TLS.
logging.getLogger("asyncio").addFilter(lambda record: "returning true from eof_received()" not in record.getMessage())


class WireClient(Client):
    """One TCP connection's worth of NATS client; a new connection needs a new instance."""

    def __init__(self, *, wants_tls: bool, on_lost: Callable[[], None]) -> None:
        super().__init__()
        self.info: dict[str, Any] = {}
        self._wants_tls = wants_tls
        self._on_lost: Callable[[], None] | None = on_lost
        self._ending: asyncio.Task[None] | None = None

    def lost(self) -> None:
        """Drops what was not sent and tells the owner, once."""
        self._pending = []
        self._pending_data_size = 0
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def abort(self) -> None:
        """Cuts the connection so that not even bytes in the kernel's buffer still reach the server."""
        self.lost()
        if not self._cut():
            self._ending = asyncio.get_running_loop().create_task(self._close(Client.CLOSED))

    async def discard(self) -> None:
        """Ends a client that never got in."""
        self.lost()
        if not self._cut() and self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # untyped in nats-py
            await self._transport.wait_closed()  # type: ignore[no-untyped-call]  # the same

    def _cut(self) -> bool:
        """Resets the TCP connection; False for a websocket, whose socket is aiohttp's."""
        transport = self._transport
        if not isinstance(transport, TcpTransport):
            return False
        writer = transport._io_writer  # noqa: SLF001
        if writer is None:
            return True
        raw = writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return True

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        """Called with the server's greeting before the login is sent: the last moment to insist on TLS."""
        self.info = {**self.info, **info}
        if initial_connection and self._wants_tls and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise nats.errors.SecureConnWantedError
            info["tls_required"] = True  # nats-py upgrades only when it is required
        await super()._process_info(info, initial_connection)

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Sends the PING behind what waits to be sent; nats-py's own overtakes it, so its `flush` proves nothing."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        """A PONG whose waiter has given up would end nats-py's read loop with InvalidStateError."""
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    def _process_disconnect(self) -> None:
        super()._process_disconnect()
        self.lost()

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002
        self.lost()
        await super()._close(status, do_cbs)
