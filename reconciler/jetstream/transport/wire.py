"""nats-py's client, bent to our rules. The only place that touches its private parts.

Invariants:
- nothing is kept for later: what a lost connection has not sent is thrown away, and there is no reconnecting in place;
- who asked for TLS never sends a login in the clear;
- a loss is reported exactly once, at once, by `on_lost`;
- `flush` is an answer to everything sent before it;
- a tap gets every message of its subject in order, at once, without a queue in which some could be dropped.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio import transport
from nats.aio.client import PING_PROTO, Client
from nats.aio.subscription import Subscription as WireSubscription
from nats.aio.transport import TcpTransport
from nats.protocol.command import pub_cmd

from reconciler.jetstream.transport.subscription import Tap

_REST = 0.01
"""Seconds; waking up for each message costs several times what reading it does."""
_MOST_UNSENT = 1 << 20

# nats-py logs what it also reports through callbacks; without a handler Python would print that on stderr.
logging.getLogger("nats").addHandler(logging.NullHandler())
# asyncio says this at the end of every connection that nats-py has upgraded to TLS.
logging.getLogger("asyncio").addFilter(lambda record: "returning true from eof_received()" not in record.getMessage())


def with_websockets() -> None:
    """nats-py can open websockets from now on."""
    import aiohttp  # noqa: PLC0415 - it takes longer to load than most commands need

    transport.aiohttp = aiohttp  # type: ignore[attr-defined]


class WireClient(Client):
    """One TCP connection's worth of NATS client; a new connection needs a new instance."""

    def __init__(self, *, wants_tls: bool, on_lost: Callable[[], None]) -> None:
        super().__init__()
        self.info: dict[str, Any] = {}
        self._wants_tls = wants_tls
        self._on_lost: Callable[[], None] | None = on_lost
        self._ending: asyncio.Task[None] | None = None
        self._taps: dict[int, Tap] = {}
        self._resting = False
        self._pushing = False

    async def tap(self, tap: Tap) -> WireSubscription:
        """Subscribes so that each message goes straight from the parser to the taker."""
        self._taps[self._sid + 1] = tap  # before it is known to the server, so that not even the first one is queued
        return await self.subscribe(tap.subject)

    def send(self, subject: str, payload: bytes) -> bool:
        """Puts a message behind what waits to be sent, without waiting; False when too much waits already, or it is too big."""
        if subject.split() != [subject]:
            msg = f"not a subject: {subject!r}"
            raise ValueError(msg)
        if not self.is_connected or self._pending_data_size > _MOST_UNSENT or len(payload) > self._max_payload:
            return False
        command = pub_cmd(subject, "", payload)
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    async def publish_at_once(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Hands a message, with all that waits to be sent, to the kernel: a process that freezes now sends none of it later.

        On a websocket, whose frames are aiohttp's, it still waits for its turn.
        """
        self._pushing = isinstance(self._transport, TcpTransport)
        try:
            await self.publish(subject, payload, reply, headers)
        finally:
            self._pushing = False
            if self._pending and isinstance(self._transport, TcpTransport):
                self._transport.writelines(self._pending)  # type: ignore[no-untyped-call]  # untyped in nats-py
                self._pending = []
                self._pending_data_size = 0

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
        if not isinstance(self._transport, TcpTransport):
            return False
        transport = self._tcp()
        if transport is None:
            return True
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
        return True

    def _tcp(self) -> asyncio.Transport | None:
        """The TCP (or TLS) transport, where there is one."""
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None  # noqa: SLF001
        return writer.transport if writer is not None else None  # type: ignore[return-value]  # a WriteTransport by its type

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as nats-py has it
        """Wakes whoever sends what waits; not for what is sent at once."""
        return await super()._flush_pending(force_flush) if force_flush or not self._pushing else None

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        tap = self._taps.get(sid)
        if tap is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            tap.taker(subject.decode(errors="replace"), data)
        except Exception as error:  # noqa: BLE001 - else it would end the loop that reads for everybody
            await self._error_cb(error)
        if tap.calm and not self._resting:
            self._rest()

    def _rest(self) -> None:
        """Reads nothing more from the socket for a moment; what was read is still handed out."""
        transport = self._tcp()
        if transport is None:
            return  # a websocket
        self._resting = True
        transport.pause_reading()
        asyncio.get_running_loop().call_later(_REST, self._wake, transport)

    def _wake(self, transport: asyncio.Transport) -> None:
        self._resting = False
        transport.resume_reading()

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._taps.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

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
