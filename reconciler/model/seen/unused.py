"""Durables that nobody has used for long: a name on a stream is kept for ever, and on some streams so are its messages.

Used means: something was delivered or acknowledged, somebody waits for messages, or listens. A server that was started since has
forgotten when that was: what is left is that something was delivered, and when the durable was made.

Invariant: pure; what is in use just now is not listed, and what was used at a time that nobody knows is not called unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live


@dataclass(frozen=True, slots=True)
class Unused:
    """One durable."""

    key: Key
    owner: str
    """Empty: nobody's."""
    since: int
    """The last sign of use, or when it was made, in nanoseconds since the epoch."""
    known: bool
    """Whether it is known when it was used last."""
    delivered: bool
    """Whether anything was ever delivered to it."""
    floor: int
    """The stream's sequence up to which it has acknowledged everything."""
    pending: int
    """Messages that wait for it."""
    holds: bool
    """Its stream keeps them until it has acknowledged them."""


def unused(live: Live, now: int, least: int) -> tuple[Unused, ...]:
    """Durables without a sign of use for that many nanoseconds, the longest unused first."""
    found = (one for key in live.streams for one in _of_stream(live, key) if now - one.since >= least)
    return tuple(sorted(found, key=lambda one: (one.since, one.key.sort_key)))


def _of_stream(live: Live, stream: Key) -> Iterator[Unused]:
    holds = live.streams[stream].config.get("retention", "limits") != "limits"
    for name, consumer in live.consumers_of(stream).items():
        info = consumer.info
        lasting = info["config"].get("durable_name") and not (consumer.server_made or consumer.marker.source)
        if not lasting or info.get("push_bound") or info.get("num_waiting") or info.get("paused"):
            continue
        waiting = info.get("num_pending", 0) + info.get("num_ack_pending", 0)
        key = Key("Consumer", name, stream.name, stream.domain)
        signs = [sign for sign in (info["delivered"].get("last_active"), info["ack_floor"].get("last_active")) if sign]
        since = max(map(units.parse_time, (info["created"], *signs)))
        delivered = bool(signs) or info["delivered"]["consumer_seq"] > 0
        yield Unused(key, consumer.owner, since, bool(signs), delivered, info["ack_floor"]["stream_seq"], waiting, holds)
