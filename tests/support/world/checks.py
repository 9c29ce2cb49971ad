"""What the model server refuses about sources and the durables they read through.

Invariant: pure; the codes are those of real servers, the texts are not.
"""

from __future__ import annotations

from typing import Any

from reconciler.errors import ApiError
from reconciler.model import subjects
from reconciler.model.sourcing import identity_of


def check_entries(config: dict[str, Any], level: int) -> None:
    """Refuse entries as a server of this level does; one of 2.11 drops what it does not know."""
    entries = config.get("sources") or []
    if level < 2:
        config |= {"sources": [{k: v for k, v in one.items() if k != "consumer"} for one in entries]} if entries else {}
        return
    readers: dict[tuple[str, str], str] = {}
    for entry in entries:
        if "consumer" not in entry:
            continue
        if level < 4:
            raise ApiError(400, 10025, 'invalid JSON: json: unknown field "consumer"')
        name, deliver = entry["consumer"].get("name", ""), entry["consumer"].get("deliver_subject", "")
        if (
            not name
            or not subjects.is_literal(deliver or "*")
            or {"filter_subject", "opt_start_seq", "opt_start_time"} & {*entry}
        ):
            raise ApiError(400, 10215, "stream source consumer configuration is invalid")
        if readers.setdefault((entry["name"], name), identity_of(entry)) != identity_of(entry):
            raise ApiError(400, 10216, "duplicate source consumer configuration detected")
    if len({identity_of(entry) for entry in entries}) < len(entries):
        raise ApiError(400, 10140, "duplicate source configuration detected")


def check_flow_control(config: dict[str, Any], listens: list[str]) -> None:
    """Refuse what a consumer of this ack policy may not have."""
    if config.get("ack_policy") != "flow_control":
        return
    deliver = config.get("deliver_subject", "")
    faults = {
        10218: not deliver,
        10221: bool(config.get("ack_wait") or config.get("backoff")),
        10222: config.get("max_deliver", -1) > 0,
        10220: config.get("max_ack_pending", 0) < 0,
        10079: bool(deliver) and not subjects.is_literal(deliver),
        10081: bool(deliver) and subjects.covered(deliver, listens),
        10094: config.get("deliver_policy") == "last_per_subject"
        and not (config.get("filter_subjects") or config.get("filter_subject")),
    }
    for code, wrong in faults.items():
        if wrong:
            raise ApiError(400, code, "consumer with flow control configured wrongly")
