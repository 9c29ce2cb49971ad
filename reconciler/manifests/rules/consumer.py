"""Rules for one consumer, on its wire configuration as it was declared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.manifests.findings import Finding, Path, warning
from reconciler.manifests.rules.reserved import check_subject
from reconciler.manifests.rules.stream import check_metadata, check_numbers
from reconciler.manifests.suggest import quoted
from reconciler.model.flow import filters_of
from reconciler.model.subjects import SubjectIndex, covers, is_literal
from reconciler.model.units import MILLISECOND, SECOND

Config = Mapping[str, Any]

_NO_TIME = MILLISECOND
_MOST_COMPARED = 1000
"""Only crafted filters overlap so many others that neither contain them nor lie within them."""
_SAMPLE = re.compile(r"[+-]?\d{1,9}%?")
_GROUP = re.compile(r"[A-Za-z0-9_/=)+-]{1,16}")
_STARTS = {
    "by_start_sequence": ("opt_start_seq", "optStartSeq"),
    "by_start_time": ("opt_start_time", "optStartTime"),
}
_PUSH_ONLY = {"rate_limit_bps": "rateLimitBps", "idle_heartbeat": "idleHeartbeat", "flow_control": "flowControl"}
_NOT_ON_FLOW_CONTROL = {
    "ack_wait": "ackWait",
    "backoff": "backoff",
    "deliver_group": "deliverGroup",
    "headers_only": "headersOnly",
    "mem_storage": "memStorage",
    "inactive_threshold": "inactiveThreshold",
}


def check_consumer(config: Config, at: Path = ("spec",)) -> Iterator[Finding]:
    """Everything that is wrong with a consumer by itself."""
    if config.get("filter_subject") or "filter_subjects" in config:
        yield from _check_filters(config, at)
    yield from _check_start(config, at)
    if 0 < config.get("ack_wait", 0) < _NO_TIME and config["ack_policy"] != "none":
        message = f"a message is delivered again {config['ack_wait']:,} ns after it was delivered: no worker is so quick"
        yield warning((*at, "ackWait"), "ack-wait-short", message)
    if "backoff" in config:
        yield from _check_backoff(config, at)
    if config["ack_policy"] == "flow_control":
        yield from _check_flow_control(config, at)
    if config.get("deliver_subject"):
        yield from _check_push(config, at)
    else:
        yield from _check_pull(config, at)
    yield from _check_priority(config, at)
    sample = config.get("sample_freq")
    if sample and not _SAMPLE.fullmatch(sample):
        yield Finding((*at, "sampleFreq"), "bad-value", f"{quoted(sample)} is no share: write 50 or 50%")
    if "metadata" in config:
        yield from check_metadata(config)
    yield from check_numbers(config)


def _check_filters(config: Config, at: Path) -> Iterator[Finding]:
    for place, subject in enumerate(filters_of(config)):
        steps: Path = ("filterSubject",) if config.get("filter_subject") else ("filterSubjects", place)
        yield from check_subject((*at, *steps), subject)
    if config.get("filter_subject") and config.get("filter_subjects"):
        yield Finding((*at, "filterSubject"), "filter-twice", "give either filterSubject or filterSubjects, not both")
        return
    filters: Sequence[str] = config.get("filter_subjects", ())
    if len(filters) < 2:  # noqa: PLR2004 - one alone overlaps nothing
        return
    for place, other in covered_pairs(filters):
        message = f"{quoted(filters[place])} overlaps {quoted(other)}: the server refuses that within one consumer"
        yield Finding((*at, "filterSubjects", place), "filter-overlap", message)


def covered_pairs(filters: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The places of subjects that are equal to, within, or around an earlier one."""
    if len(set(filters)) == len(filters) and all(map(is_literal, filters)):
        return
    index: SubjectIndex[None] = SubjectIndex()
    for place, subject in enumerate(filters):
        near = itertools.islice(index.overlapping(subject), _MOST_COMPARED)
        other = next((other for other, _ in near if covers(other, subject) or covers(subject, other)), None)
        if other is not None:
            yield place, other
        index.add(subject, None)


def _check_start(config: Config, at: Path) -> Iterator[Finding]:
    policy = config.get("deliver_policy", "all")
    for needed, (field, yaml) in _STARTS.items():
        if policy == needed and not config.get(field):
            yield Finding((*at, yaml), "start-missing", f"deliverPolicy: {policy} needs {yaml}")
        if policy != needed and config.get(field):
            yield Finding((*at, yaml), "start-without-policy", f"{yaml} needs deliverPolicy: {needed}")
    if policy == "last_per_subject" and not filters_of(config):
        yield Finding((*at, "deliverPolicy"), "filter-missing", "deliverPolicy: last_per_subject needs a filter subject")


def _check_backoff(config: Config, at: Path) -> Iterator[Finding]:
    backoff = config["backoff"]
    if not backoff:
        return
    if any(wait <= 0 for wait in backoff):
        yield Finding((*at, "backoff"), "bad-value", "every wait must be longer than nothing")
    if "ack_wait" in config and config["ack_wait"] != backoff[0] and config["ack_policy"] != "flow_control":
        message = "ackWait and the first backoff must be equal: every server takes the first backoff as the ack wait"
        yield Finding((*at, "ackWait"), "backoff-ack-wait", message)
    if 0 < config.get("max_deliver", 0) < len(backoff):
        message = f"maxDeliver must be at least the number of waits ({len(backoff)})"
        yield Finding((*at, "maxDeliver"), "backoff-max-deliver", message)


def _check_flow_control(config: Config, at: Path) -> Iterator[Finding]:
    code = "flow-control"
    if not config.get("deliver_subject"):
        yield Finding(
            (*at, "ackPolicy"), code, "ackPolicy: flow_control needs deliverSubject: it is for push consumers of sources"
        )
    for field, yaml in _NOT_ON_FLOW_CONTROL.items():
        if config.get(field):
            yield Finding((*at, yaml), code, f"ackPolicy: flow_control cannot go with {yaml}")
    if not config.get("durable_name"):
        message = "ackPolicy: flow_control needs durable: true: another is gone when its source was away for some seconds"
        yield Finding((*at, "durable"), code, message)
    if config.get("max_deliver", 0) > 0:
        yield Finding((*at, "maxDeliver"), code, "ackPolicy: flow_control cannot go with maxDeliver")
    if config.get("max_ack_pending", 0) < 0:
        yield Finding((*at, "maxAckPending"), code, "ackPolicy: flow_control needs a maxAckPending above 0")
    if config.get("idle_heartbeat", SECOND) != SECOND:
        yield Finding((*at, "idleHeartbeat"), code, "with ackPolicy: flow_control the server makes every idleHeartbeat 1s")
    if config.get("flow_control") is False:
        yield Finding((*at, "flowControl"), code, "with ackPolicy: flow_control the server turns flowControl on")
    if config.get("deliver_policy") in ("new", "last"):
        message = f"a source that starts with {config['deliver_policy']} leaves out what is stored before"
        yield warning((*at, "deliverPolicy"), "flow-control-start", message)


def _check_push(config: Config, at: Path) -> Iterator[Finding]:
    yield from check_subject((*at, "deliverSubject"), config["deliver_subject"])
    if config.get("max_waiting"):
        yield Finding((*at, "maxWaiting"), "pull-only-field", "maxWaiting is for pull consumers; this one has a deliverSubject")
    for field, yaml in (("max_batch", "maxBatch"), ("max_expires", "maxExpires"), ("max_bytes", "maxBytes")):
        if config.get(field):
            yield warning((*at, yaml), "no-effect", f"{yaml} means nothing on a push consumer")
    heartbeat = config.get("idle_heartbeat", 0)
    if config["ack_policy"] == "flow_control":
        return
    if 0 < heartbeat < 100 * MILLISECOND:
        yield Finding((*at, "idleHeartbeat"), "heartbeat-too-short", "idleHeartbeat must be at least 100ms")
    if config.get("flow_control") and not heartbeat:
        yield Finding((*at, "flowControl"), "heartbeat-missing", "flowControl needs idleHeartbeat")
    if config["ack_policy"] == "none" and config.get("max_ack_pending", 0) > 0:
        yield Finding((*at, "maxAckPending"), "ack-pending-without-ack", "maxAckPending needs acknowledgements")


def _check_pull(config: Config, at: Path) -> Iterator[Finding]:
    for field, yaml in _PUSH_ONLY.items():
        if config.get(field):
            yield Finding((*at, yaml), "push-only-field", f"{yaml} is for push consumers; this one has no deliverSubject")
    if config.get("deliver_group"):
        yield warning((*at, "deliverGroup"), "no-effect", "deliverGroup means nothing on a pull consumer")
    if 0 < config.get("max_expires", 0) < MILLISECOND:
        yield Finding((*at, "maxExpires"), "expires-too-short", "maxExpires must be at least 1ms")


def _check_priority(config: Config, at: Path) -> Iterator[Finding]:
    policy, groups = config.get("priority_policy", "none"), config.get("priority_groups")
    if policy == "none":
        if groups:
            yield Finding((*at, "priorityGroups"), "priority-policy", "priorityGroups need a priorityPolicy")
        if config.get("priority_timeout"):
            yield Finding((*at, "priorityTimeout"), "priority-policy", "priorityTimeout needs a priorityPolicy")
        return
    if config.get("deliver_subject"):
        yield Finding((*at, "priorityPolicy"), "pull-only-field", "priority groups are for pull consumers")
    if not groups:
        yield Finding((*at, "priorityGroups"), "priority-policy", f"priorityPolicy: {policy} needs priorityGroups")
    for number, group in enumerate(groups or ()):
        if not _GROUP.fullmatch(group):
            message = f"{quoted(group)} is no name of a group: 1 to 16 of A-Z a-z 0-9 - _ / = ) +"
            yield Finding((*at, "priorityGroups", number), "bad-name", message)
