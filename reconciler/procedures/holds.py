"""The hold: a paused consumer beside another one, which keeps its place while that one is away.

On limits and on interest it remembers the position (where it begins, which nobody can change), and on interest it keeps the
messages. A workqueue keeps them anyway, and allows no second consumer.

Invariant: a position is taken from a hold only where there is nothing else to go by: while its consumer is away, or was made
after it and has delivered nothing yet. It has to name that consumer and the very stream, and not to lie beyond its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.model import units
from reconciler.model.identity import MAX_NAME, Key
from reconciler.model.journals import HOLD, RECREATE, START
from reconciler.model.marker import read_marker
from reconciler.model.normal import EVERYTHING, Config
from reconciler.model.subjects import covers
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, encode_paused, journal_data
from reconciler.procedures.requests import CreateConsumer

HOLD_PREFIX = "_reconciler_hold_"
_FAR = 10 * 365 * 24 * 3600 * 10**9


def hold_key(consumer: Key) -> Key:
    """The key of the hold of a consumer."""
    name = HOLD_PREFIX + consumer.name
    if len(name) > MAX_NAME:
        name = HOLD_PREFIX + hashlib.blake2b(consumer.name.encode(), digest_size=16).hexdigest()
    return consumer._replace(name=name)


def held_consumer(hold: Key, config: Mapping[str, Any]) -> Key | None:
    """The consumer whose place this one keeps; None when it is no hold."""
    journal = read_marker(config.get("metadata"), hold.mark).journal
    if journal is None or (journal.name, journal.step) != (RECREATE, HOLD):
        return None
    name = journal_data(journal).get("consumer")
    return hold._replace(name=name) if isinstance(name, str) else None


def create_hold(target: ConsumerTarget, filters: Iterable[str], start: int, stream: Config, now: int) -> CreateConsumer:
    """A hold for what the target will deliver, and these filters, at a position in the stream with this INFO."""
    hold, widest = hold_key(target.key), _widest({*filters, *target.filters})
    config: Config = {
        "name": hold.name,
        "durable_name": hold.name,
        "description": f"keeps the place of {target.key.name} while it is replaced",
        "ack_policy": "explicit",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "filter_subjects": [] if EVERYTHING in widest else widest,
    }
    data = {"consumer": target.key.name, START: start, "created": stream["created"]}
    journal = target.journal(RECREATE, HOLD, data)
    return CreateConsumer(hold, encode_paused(hold, config, journal, target.marker.owner, now + _FAR))


def held_at(hold: ConsumerSeen) -> int:
    """Where a hold stands."""
    return int(hold.config.get("opt_start_seq") or 0)


def proven(consumer: Key, hold: ConsumerSeen | None, stream: Config | None) -> int:
    """The position that the hold of a consumer which is away keeps for it; 0 where that is not to be believed."""
    if hold is None or stream is None:
        return 0
    start, said = held_at(hold), (hold.data.get("consumer"), hold.data.get(START), hold.data.get("created"))
    own = bool(hold.marker.key) and hold.journal is not None and (hold.journal.name, hold.journal.step) == (RECREATE, HOLD)
    known = said == (consumer.name, start, stream["created"]) and start <= int(stream["state"]["last_seq"]) + 1
    return start if own and known else 0


def proven_since(consumer: Key, seen: ConsumerSeen, hold: ConsumerSeen | None, stream: Config | None) -> int:
    """The same for a consumer that is there again: made after its hold, and without a delivery so far."""
    untouched = not seen.info["delivered"]["consumer_seq"]
    after = hold is not None and units.parse_time(hold.info["created"]) <= units.parse_time(seen.info["created"])
    return proven(consumer, hold, stream) if untouched and after else 0


def _widest(filters: set[str]) -> list[str]:
    """Without those that another one covers: the server refuses overlapping filters in one consumer."""
    return sorted(one for one in filters if not any(other != one and covers(other, one) for other in filters))
