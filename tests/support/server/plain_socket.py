"""NATS on a plain, blocking socket: a hundred lines that publish and read far faster than a client library in Python.

Invariant: `frames` returns whole messages in the order of their arrival; a connection that has ended raises OSError.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

_CHUNK = 1 << 20
_HELLO = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "tests", "version": "1"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    subject: bytes
    reply: bytes
    headers: bytes
    body: bytes


class PlainSocket:
    """One connection to one server; every subscription of it ends up in `frames`."""

    def __init__(self, url: str, seconds: float = 5.0) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 4222), seconds)
        self._buffer = bytearray()
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        hello = json.dumps({**_HELLO, "name": "load"}).encode()
        self.send(b"CONNECT %b\r\nSUB %b.> 1\r\nPING\r\n" % (hello, self.inbox.encode()))
        deadline = time.monotonic() + seconds
        while b"PONG\r\n" not in self._buffer:
            if b"-ERR" in self._buffer or time.monotonic() > deadline:
                raise ConnectionError(self._buffer.decode(errors="replace"))
            self._receive(0.1)
        self._buffer.clear()

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Write all of it."""
        self._socket.sendall(data)

    def frames(self, seconds: float) -> list[Frame]:
        """What has arrived, after waiting at most that long for more of it."""
        self._receive(seconds)
        found: list[Frame] = []
        data, position = bytes(self._buffer), 0
        while (end := data.find(b"\r\n", position)) >= 0:
            words = data[position:end].split(b" ")
            if words[0] in (b"MSG", b"HMSG"):
                begin, total = end + 2, int(words[-1])
                if len(data) < begin + total + 2:
                    break
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                reply = words[3] if len(words) > (5 if head else 4) else b""
                found.append(Frame(words[1], reply, data[begin : begin + head], data[begin + head : begin + total]))
                end = begin + total
            elif words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise ConnectionError(data[position:end].decode())
            position = end + 2
        del self._buffer[:position]
        return found

    def ask(self, subject: str, body: bytes = b"", seconds: float = 10.0) -> bytes:
        """A request and its answer; for a connection on which nothing else is under way."""
        self.send(b"PUB %b %b.answer %d\r\n%b\r\n" % (subject.encode(), self.inbox.encode(), len(body), body))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for frame in self.frames(0.1):
                return frame.body
        raise TimeoutError(subject)

    def _receive(self, seconds: float) -> None:
        if not select.select([self._socket], [], [], seconds)[0]:
            return
        data = self._socket.recv(_CHUNK)
        if not data:
            msg = "the server ended the connection"
            raise ConnectionError(msg)
        self._buffer += data
