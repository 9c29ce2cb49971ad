"""Streams and consumers that use every field a manifest can say, as others would create them: raw wire configurations."""

from __future__ import annotations

from typing import Any, NamedTuple

S = 10**9
H = 3600 * S
TIME = "2026-01-31T12:00:00.12+02:00"


class Case(NamedTuple):
    """A configuration, and the API level from which servers take it."""

    config: dict[str, Any]
    level: int = 0


def _stream(name: str, level: int = 0, **config: Any) -> Case:
    return Case({"name": name, **config}, level)


_KV: dict[str, Any] = {
    "max_msgs_per_subject": 1,
    "discard": "new",
    "deny_delete": True,
    "allow_rollup_hdrs": True,
    "allow_direct": True,
}


def _kv(bucket: str, level: int = 0, **config: Any) -> Case:
    return Case({"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "duplicate_window": 120 * S, **_KV, **config}, level)


STREAMS = (
    _stream("PLAIN"),
    _stream(
        "FULL", subjects=["full.b.>", "full.a.*"], description="all – limits", max_age=30 * 24 * H, max_bytes=64_000_000
    )._replace(level=0),
    _stream(
        "LIMITS",
        subjects=["limits.>"],
        max_msgs=1000,
        max_bytes=64 * 2**20,
        max_msgs_per_subject=5,
        max_msg_size=1000,
        max_consumers=99,
        discard="new",
        discard_new_per_subject=True,
        duplicate_window=30 * S,
        max_age=H,
        compression="s2",
        first_seq=10,
        no_ack=True,
        allow_rollup_hdrs=True,
        allow_direct=True,
        deny_delete=True,
        metadata={"team": "x", "": "empty", "true": "no"},
    ),
    _stream("WORK", subjects=["work.>"], retention="workqueue", storage="memory", deny_purge=True, discard="new"),
    _stream(
        "INTEREST",
        subjects=["interest.>"],
        retention="interest",
        consumer_limits={"inactive_threshold": H, "max_ack_pending": 50},
    ),
    _stream("SHAPED", subjects=["shaped.*"], subject_transform={"src": "shaped.*", "dest": "stored.{{wildcard(1)}}"}),
    _stream("AGAIN", subjects=["again.>"], republish={"src": "again.>", "dest": "copy.>", "headers_only": True}),
    _stream("AGAIN2", subjects=["again2.>"], republish={"src": ">", "dest": "copy2.>"}),
    _stream("PLACED", subjects=["placed.>"], placement={"cluster": "", "tags": ["b", "a"]}),
    _stream("MIRROR", mirror={"name": "FULL", "opt_start_time": TIME, "filter_subject": "full.a.*"}),
    _stream(
        "MIRROR2", mirror={"name": "AWAY", "external": {"api": "$JS.leaf.API", "deliver": "leaf.deliver"}}, mirror_direct=True
    ),
    _stream(
        "SOURCED",
        subjects=["own.>"],
        sources=[
            {"name": "WORK", "subject_transforms": [{"src": "work.>", "dest": "w.>"}, {"src": "nothing", "dest": ""}]},
            {"name": "FULL", "opt_start_seq": 7},
            {"name": "AWAY", "external": {"api": "$JS.leaf.API"}, "filter_subject": "a.>"},
        ],
    ),
    _stream("SOURCED_WINDOW", sources=[{"name": "FULL"}], duplicate_window=120 * S),
    _stream("TTL", 1, subjects=["ttl.>"], allow_msg_ttl=True),
    _stream("MARKERS", 1, subjects=["markers.>"], subject_delete_marker_ttl=60 * S),
    _stream("ATOMIC", 2, subjects=["atomic.>"], allow_atomic=True),
    _stream("COUNTER", 2, subjects=["counter.>"], allow_msg_counter=True),
    _stream("SCHEDULES", 2, subjects=["schedules.>"], allow_msg_schedules=True),
    _stream("ASYNC", 2, subjects=["async.>"], persist_mode="async"),
    _stream("BATCHED", 4, subjects=["batched.>"], allow_batched=True),
    _kv("plain"),
    _kv("older", allow_direct=False, allow_msg_ttl=True),
    _kv("full", description="d", max_msgs_per_subject=5, max_age=H, max_bytes=10**6, max_msg_size=1024, compression="s2"),
    _kv("placed", placement={"tags": ["x"]}, storage="memory", metadata={"a": "b"}, republish={"src": ">", "dest": "kv.again.>"}),
    _kv("short", max_age=60 * S, duplicate_window=60 * S),
    _kv("markers", 1, allow_msg_ttl=True, subject_delete_marker_ttl=H),
    Case({"name": "KV_mirror", "mirror": {"name": "KV_plain"}, "mirror_direct": True, "duplicate_window": 120 * S, **_KV}),
    _kv(
        "sourced",
        sources=[{"name": "KV_plain", "subject_transforms": [{"src": "$KV.plain.>", "dest": "$KV.sourced.>"}]}],
    ),
    _kv("strange", max_msgs=10),
    _kv("deny", deny_purge=True, allow_rollup_hdrs=False),
    _stream("KV_no_bucket", subjects=["nobucket.>"]),
    Case(
        {
            "name": "OBJ_files",
            "subjects": ["$O.files.C.>", "$O.files.M.>"],
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "max_age": 10 * S,
            "max_bytes": 10**9,
            "metadata": {"x": "y"},
            "description": "o",
            "compression": "s2",
        }
    ),
)


def _consumer(stream: str, name: str, level: int = 0, **config: Any) -> Case:
    return Case({"stream": stream, "name": name, "durable_name": name, **config}, level)


CONSUMERS = (
    _consumer("FULL", "none"),
    _consumer("FULL", "none_waiting", ack_policy="none", ack_wait=1),
    _consumer("FULL", "explicit", ack_policy="explicit"),
    _consumer("FULL", "all", ack_policy="all", replay_policy="original"),
    _consumer(
        "FULL",
        "full",
        ack_policy="explicit",
        description="d",
        ack_wait=45 * S,
        max_deliver=20,
        filter_subjects=["full.b.2", "full.b.1"],
        sample_freq="50%",
        max_waiting=7,
        max_ack_pending=-1,
        headers_only=True,
        max_batch=10,
        max_expires=S,
        max_bytes=2**20,
        inactive_threshold=H,
        num_replicas=1,
        mem_storage=True,
        metadata={"a": "b", "reconciler.deadLetter": "dlq.full"},
    ),
    _consumer("FULL", "single", ack_policy="explicit", filter_subject="full.a.*"),
    _consumer("FULL", "backoff", ack_policy="explicit", backoff=[S, 10 * S], max_deliver=5),
    _consumer("FULL", "last", ack_policy="explicit", deliver_policy="last"),
    _consumer("FULL", "new", ack_policy="explicit", deliver_policy="new"),
    _consumer("FULL", "seq", ack_policy="explicit", deliver_policy="by_start_sequence", opt_start_seq=9),
    _consumer("FULL", "time", ack_policy="explicit", deliver_policy="by_start_time", opt_start_time=TIME),
    _consumer("FULL", "subject", ack_policy="explicit", deliver_policy="last_per_subject", filter_subject=">"),
    _consumer(
        "FULL",
        "push",
        ack_policy="explicit",
        deliver_subject="push.here",
        deliver_group="g",
        rate_limit_bps=1000,
    ),
    _consumer("FULL", "pushed", ack_policy="none", deliver_subject="pushed.here", flow_control=True, idle_heartbeat=5 * S),
    _consumer("FULL", "fc", 4, ack_policy="flow_control", deliver_subject="fc.here", max_ack_pending=10),
    _consumer("FULL", "overflow", 1, ack_policy="explicit", priority_policy="overflow", priority_groups=["a"]),
    _consumer("FULL", "pinned", 1, ack_policy="explicit", priority_policy="pinned_client", priority_groups=["a"]),
    _consumer(
        "FULL",
        "pinned60",
        1,
        ack_policy="explicit",
        priority_policy="pinned_client",
        priority_groups=["a"],
        priority_timeout=60 * S,
    ),
    _consumer("FULL", "prioritized", 2, ack_policy="explicit", priority_policy="prioritized", priority_groups=["a"]),
    _consumer("INTEREST", "limited", ack_policy="explicit"),
    _consumer("INTEREST", "limited_none", ack_policy="none"),
    _consumer("INTEREST", "limited_own", ack_policy="explicit", max_ack_pending=10, inactive_threshold=60 * S),
    _consumer("WORK", "worker", ack_policy="explicit", filter_subject="work.a"),
)
