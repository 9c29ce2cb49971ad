"""One case per field: what we declare, what somebody else makes of it, and how a plan has to show the difference.

Invariant: together the cases name every field of the tables, each once; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SECOND = 10**9
MINUTE = 60 * SECOND
ABSENT: Any = object()
"""Instead of a value: the field is not there, or cannot be missing."""
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A field that an update can change both ways."""

    wire: str
    path: str
    ours: Any
    """What the manifest says, in YAML and as a plan shows it."""
    theirs: Any
    """What somebody else sets, as it travels."""
    shown: Any
    """The same, as a plan shows it."""
    default: Any
    """What a plan shows where nothing is said."""
    beside: Fields = field(default_factory=dict)
    """What else the manifest has to say for it, in YAML."""
    level: int = 0
    """From which on an update can change it."""

    def __str__(self) -> str:
        return self.wire

    @property
    def said(self) -> str:
        """The path under which the manifest says it: one filter is a list of one in every plan."""
        return "filterSubject" if self.wire == "filter_subject" else self.path


def mutable(wire: str, path: str, values: tuple[Any, Any, Any, Any], **more: Any) -> Case:
    """A case; the values are ours, theirs, theirs as shown, and the default as shown."""
    ours, theirs, shown, default = values
    return Case(wire=wire, path=path, ours=ours, theirs=theirs, shown=shown, default=default, **more)


def _flag(wire: str, path: str, **more: Any) -> Case:
    return mutable(wire, path, (True, True, True, False), **more)


def _to(dest: str) -> Fields:
    return {"src": "{name}.a", "dest": dest}


_ORIGINS = [{"name": "NOWHERE_A"}, {"name": "NOWHERE_B"}]
_FULL = {"discard": "new", "maxMsgsPerSubject": 5}

STREAM_CASES = (
    mutable("description", "description", ("ours", "theirs", "theirs", "")),
    mutable("retention", "retention", ("interest", "interest", "interest", "limits")),
    mutable("max_age", "maxAge", ("1h", 2 * 3600 * SECOND, "2h", "0s")),
    mutable("max_msgs", "maxMsgs", (10, 20, 20, -1)),
    mutable("max_bytes", "maxBytes", ("64MB", 1024, "1KiB", -1)),
    mutable("max_msgs_per_subject", "maxMsgsPerSubject", (3, 4, 4, -1)),
    mutable("max_msg_size", "maxMsgSize", ("1KB", 2048, "2KiB", -1)),
    mutable("max_consumers", "maxConsumers", (10, 20, 20, -1), level=2),
    mutable("discard", "discard", ("new", "new", "new", "old")),
    _flag("discard_new_per_subject", "discardNewPerSubject", beside=_FULL),
    mutable("duplicate_window", "duplicateWindow", ("30s", 60 * SECOND, "1m", "2m")),
    _flag("no_ack", "noAck"),
    mutable("compression", "compression", ("s2", "s2", "s2", "none")),
    mutable("first_seq", "firstSeq", (7, 8, 8, 0)),
    mutable("placement", "placement", ({"tags": ["a"]}, {"tags": ["b"]}, {"tags": ["b"]}, None)),
    mutable("sources", "sources", (_ORIGINS, _ORIGINS[:1], _ORIGINS[:1], None)),
    mutable(
        "subject_transform",
        "subjectTransform",
        (_to("{name}.b"), _to("{name}.c"), _to("{name}.c"), None),
    ),
    mutable("republish", "republish", ({"dest": "r.{name}.>"}, {"src": ">", "dest": "q.{name}.>"}, {"dest": "q.{name}.>"}, None)),
    mutable("consumer_limits", "consumerLimits", ({"maxAckPending": 10}, {"max_ack_pending": 20}, {"maxAckPending": 20}, None)),
    _flag("allow_direct", "allowDirect"),
    _flag("mirror_direct", "mirrorDirect", beside={"mirror": {"name": "AWAY", "external": {"domain": "leaf"}}}),
    _flag("allow_rollup_hdrs", "allowRollupHdrs"),
    mutable(
        "subject_delete_marker_ttl",
        "subjectDeleteMarkerTtl",
        ("1m", 120 * SECOND, "2m", "0s"),
        beside={"allowMsgTtl": True, "allowRollupHdrs": True},
        level=1,
    ),
    _flag("allow_atomic", "allowAtomic", level=2),
    _flag("allow_batched", "allowBatched", level=4),
    mutable("metadata", "metadata", ({"team": "ours"}, {"team": "theirs"}, {"team": "theirs"}, None)),
    mutable("subjects", "subjects", (["{name}.a", "{name}.b"], ["{name}.a"], ["{name}.a"], None)),
)
STREAM_IN_CLUSTER = frozenset({"num_replicas"})
STREAM_ONE_WAY = frozenset({"deny_delete", "deny_purge", "sealed", "allow_msg_ttl", "allow_msg_schedules"})
STREAM_IMMUTABLE = frozenset({"storage", "allow_msg_counter", "persist_mode", "mirror"})

_PUSH = {"deliverSubject": "push.{name}"}
_GROUPS = {"priorityGroups": ["a"], "priorityPolicy": "pinned_client"}

CONSUMER_CASES = (
    mutable("description", "description", ("ours", "theirs", "theirs", "")),
    mutable("ack_wait", "ackWait", ("45s", 7 * SECOND, "7s", "30s")),
    mutable("max_deliver", "maxDeliver", (10, 20, 20, -1)),
    mutable("backoff", "backoff", (["1s", "2s"], [SECOND, 3 * SECOND], ["1s", "3s"], None)),
    mutable("filter_subject", "filterSubjects", ("{name}.a", "{name}.b", ["{name}.b"], None)),
    mutable("filter_subjects", "filterSubjects", (["{name}.a", "{name}.b"], ["{name}.a"], ["{name}.a"], None)),
    mutable("rate_limit_bps", "rateLimitBps", (1000, 2000, 2000, 0), beside=_PUSH),
    mutable("sample_freq", "sampleFreq", ("50", "20%", "20", "")),
    mutable("max_ack_pending", "maxAckPending", (10, 20, 20, 1000)),
    _flag("headers_only", "headersOnly"),
    mutable("max_batch", "maxBatch", (10, 20, 20, 0)),
    mutable("max_expires", "maxExpires", ("1s", MINUTE, "1m", "0s")),
    mutable("max_bytes", "maxBytes", ("1KB", 2048, "2KiB", 0)),
    mutable("inactive_threshold", "inactiveThreshold", ("1h", 2 * 3600 * SECOND, "2h", "0s")),
    mutable("deliver_subject", "deliverSubject", ("push.{name}", "other.{name}", "other.{name}", ABSENT)),
    mutable("deliver_group", "deliverGroup", ("ours", "theirs", "theirs", ""), beside=_PUSH),
    mutable("priority_groups", "priorityGroups", (["a"], ["b"], ["b"], ABSENT), beside={"priorityPolicy": "overflow"}, level=1),
    mutable(
        "priority_policy",
        "priorityPolicy",
        ("overflow", "pinned_client", "pinned_client", ABSENT),
        beside={"priorityGroups": ["a"]},
        level=1,
    ),
    mutable("priority_timeout", "priorityTimeout", ("1m", 3 * MINUTE, "3m", "2m"), beside=_GROUPS, level=1),
    mutable("metadata", "metadata", ({"team": "ours"}, {"team": "theirs"}, {"team": "theirs"}, None)),
    mutable("num_replicas", "replicas", (1, 1, 1, 0)),
)
CONSUMER_IMMUTABLE = frozenset(
    "ack_policy deliver_policy opt_start_seq opt_start_time replay_policy max_waiting mem_storage".split()
) | {"flow_control", "idle_heartbeat"}


def named(value: Any, name: str) -> Any:
    """The value with `{name}` filled in: subjects belong to one stream only."""
    if isinstance(value, str):
        return value.replace("{name}", name)
    if isinstance(value, list):
        return [named(item, name) for item in value]
    if isinstance(value, Mapping):
        return {key: named(item, name) for key, item in value.items()}
    return value


def covered(cases: Iterable[Case], *others: frozenset[str]) -> list[str]:
    """The fields that have a case, sorted; one that has two is there twice."""
    return sorted([*(case.wire for case in cases), *(name for group in others for name in group)])


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A difference that no update can remove."""

    wire: str
    kind: str
    live: Fields
    """What is live, as a manifest says it."""
    wanted: Fields
    """What the manifest says now."""
    code: str = "immutable"
    level: int = 0

    def __str__(self) -> str:
        return self.wire


def fixed(wire: str, kind: str, live: Fields, wanted: Fields, **more: Any) -> Fixed:
    """A difference that no update can remove."""
    return Fixed(wire=wire, kind=kind, live=live, wanted=wanted, **more)


def _one_way(wire: str, path: str, level: int = 0) -> Fixed:
    return fixed(wire, "Stream", {path: True}, {}, code="one-way", level=level)


_BEAT = {"deliverSubject": "push.{name}", "idleHeartbeat": "5s"}
_AT = {"deliverPolicy": "by_start_time", "optStartTime": "2026-01-01T00:00:00Z"}
_FROM = {"deliverPolicy": "by_start_sequence", "optStartSeq": 3}
FIXED_CASES = (
    _one_way("deny_delete", "denyDelete"),
    _one_way("deny_purge", "denyPurge"),
    _one_way("sealed", "sealed"),
    _one_way("allow_msg_ttl", "allowMsgTtl", 1),
    _one_way("allow_msg_schedules", "allowMsgSchedules", 2),
    fixed("storage", "Stream", {"storage": "memory"}, {}),
    fixed("allow_msg_counter", "Stream", {"allowMsgCounter": True}, {}, level=2),
    fixed("persist_mode", "Stream", {"persistMode": "async"}, {}, level=2),
    fixed("retention", "Stream", {}, {"retention": "workqueue"}),
    fixed("retention", "Stream", {"retention": "workqueue"}, {}),
    fixed("mirror", "Stream", {"mirror": {"name": "NOWHERE"}}, {"mirror": {"name": "ELSEWHERE"}}),
    fixed("mirror", "Stream", {}, {"mirror": {"name": "ELSEWHERE"}}),
    fixed("ack_policy", "Consumer", {}, {"ackPolicy": "all"}),
    fixed("deliver_policy", "Consumer", {}, {"deliverPolicy": "new"}),
    fixed("opt_start_seq", "Consumer", _FROM, {**_FROM, "optStartSeq": 4}),
    fixed("opt_start_time", "Consumer", _AT, {**_AT, "optStartTime": "2026-01-02T00:00:00Z"}),
    fixed("replay_policy", "Consumer", {"replayPolicy": "original"}, {}),
    fixed("max_waiting", "Consumer", {"maxWaiting": 7}, {}),
    fixed("mem_storage", "Consumer", {"memStorage": True}, {}, level=4),
    fixed("idle_heartbeat", "Consumer", _BEAT, {**_BEAT, "idleHeartbeat": "6s"}),
    fixed("flow_control", "Consumer", {**_BEAT, "flowControl": True}, _BEAT),
    fixed("deliver_subject", "Consumer", {}, {"deliverSubject": "push.{name}"}),
    fixed("deliver_subject", "Consumer", {"deliverSubject": "push.{name}"}, {}),
    fixed("durable", "Consumer", {"durable": False, "inactiveThreshold": "1h"}, {"inactiveThreshold": "1h"}),
)
