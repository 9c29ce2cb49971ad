"""Durables that nobody has used for long: a name on a stream is kept for ever, and on some streams so are its messages.

Used means: something was delivered or acknowledged, somebody waits for messages, or listens. A server that was started since may
have forgotten when that was, and says nothing then: what is left is when the durable was made.

Invariant: pure; what may be in use is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.live import Live, LiveConsumer


@dataclass(frozen=True, slots=True)
class Unused:
    """One durable."""

    key: Key
    owner: str
    """Empty: nobody's."""
    since: int
    """The last sign of use, in nanoseconds since the epoch."""
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
        yield Unused(key, consumer.owner, _last_used(consumer), info["ack_floor"]["stream_seq"], waiting, holds)


def _last_used(consumer: LiveConsumer) -> int:
    info = consumer.info
    signs = (info["created"], info["delivered"].get("last_active"), info["ack_floor"].get("last_active"))
    return max(units.parse_time(sign) for sign in signs if sign)
