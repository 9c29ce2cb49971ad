"""What changing each field can lose, and the code that blocks it then; a field that is not in here has not been thought of.

Invariant: it says what servers do, seen by changing each field under stored, waiting and unacknowledged messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.model.identity import Kind
from reconciler.plan.losses import DATA_LOSS


@dataclass(frozen=True, slots=True)
class Hazard:
    """Of one field."""

    says: str
    code: str = ""
    """Of the reason with which a plan blocks what would lose something; empty where nothing can be lost."""


_LATER = "only what is published from then on"
_READING = "only how its reader is given messages"
_STREAM = {
    "description": Hazard("nothing"),
    "subjects": Hazard(f"{_LATER}: what nobody listens to any more is refused, or moves with the procedure `move-subject`"),
    "retention": Hazard("to interest: what no consumer needs", DATA_LOSS),
    "num_replicas": Hazard("fewer copies survive less", "replicas"),
    "max_age": Hazard("falling: what is older", DATA_LOSS),
    "max_msgs": Hazard("falling below what is stored: the oldest", DATA_LOSS),
    "max_bytes": Hazard("falling below what is stored: the oldest", DATA_LOSS),
    "max_msgs_per_subject": Hazard("falling: the oldest of each subject", DATA_LOSS),
    "max_msg_size": Hazard(f"{_LATER}: what is larger is refused, what is stored stays"),
    "max_consumers": Hazard("nothing: those that are there stay"),
    "discard": Hazard(f"{_LATER}: when the stream is full, it or the oldest message does not stay"),
    "discard_new_per_subject": Hazard(_LATER),
    "duplicate_window": Hazard("falling: a message that is sent again later than that is stored twice"),
    "no_ack": Hazard("nothing: publishers hear no confirmation"),
    "compression": Hazard("nothing"),
    "first_seq": Hazard("nothing: a live stream takes no notice of it"),
    "placement": Hazard("nothing: its replicas move"),
    "mirror": Hazard("removed: what was not copied yet, where the origin keeps it for this mirror alone", DATA_LOSS),
    "sources": Hazard("removed: what was not copied yet, where the origin keeps it for this stream alone", DATA_LOSS),
    "subject_transform": Hazard(_LATER),
    "republish": Hazard(_LATER),
    "consumer_limits": Hazard("nothing: they hold for consumers made or changed from then on"),
    "allow_direct": Hazard("nothing"),
    "mirror_direct": Hazard("nothing"),
    "allow_rollup_hdrs": Hazard(f"{_LATER}: a message with that header may remove others"),
    "deny_delete": Hazard("nothing"),
    "deny_purge": Hazard("nothing"),
    "sealed": Hazard(f"{_LATER}: it is refused"),
    "allow_msg_ttl": Hazard(f"{_LATER}: a message may say how long it stays"),
    "subject_delete_marker_ttl": Hazard(_LATER),
    "allow_atomic": Hazard(_LATER),
    "allow_msg_schedules": Hazard(_LATER),
    "allow_batched": Hazard(_LATER),
    "metadata": Hazard("nothing"),
}
_CONSUMER = {
    "description": Hazard("nothing"),
    "ack_wait": Hazard(f"{_READING}: what takes longer is delivered again"),
    "max_deliver": Hazard("falling: what is unacknowledged and was delivered as often already", DATA_LOSS),
    "backoff": Hazard(f"{_READING}: when it is delivered again"),
    "filter_subject": Hazard("removed: what waits on it, or is unacknowledged", DATA_LOSS),
    "filter_subjects": Hazard("removed: what waits on them, or is unacknowledged", DATA_LOSS),
    "rate_limit_bps": Hazard(_READING),
    "sample_freq": Hazard("nothing"),
    "max_ack_pending": Hazard(_READING),
    "headers_only": Hazard(f"{_READING}: without what is in them"),
    "max_batch": Hazard(_READING),
    "max_expires": Hazard(_READING),
    "max_bytes": Hazard(_READING),
    "inactive_threshold": Hazard(
        "set or falling: the consumer, once nobody reads that long; on interest what waits for it goes, too", DATA_LOSS
    ),
    "num_replicas": Hazard("fewer copies survive less", "replicas"),
    "deliver_subject": Hazard("only where its reader is given messages"),
    "deliver_group": Hazard("only which of its readers is given messages"),
    "priority_groups": Hazard(_READING),
    "priority_policy": Hazard(_READING),
    "priority_timeout": Hazard(_READING),
    "metadata": Hazard("nothing"),
}
HAZARDS: Mapping[Kind, Mapping[str, Hazard]] = {"Stream": _STREAM, "Consumer": _CONSUMER}
