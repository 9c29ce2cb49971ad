"""What NACK's control loop makes on a real server shows no difference to NACK's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.nack.fields import NACK_VERSION
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key, Location
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.model.seen.live import Server as ServerFacts
from reconciler.plan.change import Action, Rules
from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tests.support.values.planned import plan

pytestmark = pytest.mark.differs

S = 10**9
YEAR = 365 * 24 * 3600 * S

# What its library starts from, overlaid with what the CRD fills in.
STREAM: dict[str, Any] = {
    "retention": "limits",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "max_bytes": -1,
    "max_age": YEAR,
    "max_msg_size": -1,
    "num_replicas": 1,
    "storage": "memory",
    "allow_direct": False,
    "allow_rollup_hdrs": False,
}
CONSUMER: dict[str, Any] = {"deliver_policy": "all", "ack_policy": "none", "ack_wait": 1, "replay_policy": "instant"}

STREAMS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"maxAge": "24h", "storage": "file"}, {"max_age": 24 * 3600 * S, "storage": "file"}),
    (
        {"discardPerSubject": True, "maxMsgsPerSubject": 5},
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 5},
    ),
    (
        {"retention": "workqueue", "allowRollup": True, "denyDelete": True},
        {"retention": "workqueue", "allow_rollup_hdrs": True, "deny_delete": True},
    ),
    (
        {"duplicateWindow": "30s", "compression": "s2", "noAck": True},
        {"duplicate_window": 30 * S, "compression": "s2", "no_ack": True},
    ),
    ({"firstSequence": 5, "metadata": {"a": "b"}}, {"first_seq": 5, "metadata": {"a": "b"}}),
    (
        {
            "republish": {"source": "s.>", "destination": "again.>"},
            "consumerLimits": {"inactiveThreshold": "1h", "maxAckPending": 5},
        },
        {
            "republish": {"src": "s.>", "dest": "again.>"},
            "consumer_limits": {"inactive_threshold": 3600 * S, "max_ack_pending": 5},
        },
    ),
    (
        {
            "sources": [
                {"name": "UP", "externalApiPrefix": "$JS.leaf.API", "subjectTransforms": [{"source": "u.*", "dest": "v.$1"}]}
            ]
        },
        {
            "sources": [
                {
                    "name": "UP",
                    "external": {"api": "$JS.leaf.API", "deliver": ""},
                    "subject_transforms": [{"src": "u.*", "dest": "v.$1"}],
                }
            ]
        },
    ),
)
CONSUMERS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"ackPolicy": "explicit"}, {"ack_policy": "explicit"}),
    ({"ackPolicy": "explicit", "ackWait": ""}, {"ack_policy": "explicit", "ack_wait": 30 * S}),
    (
        {"ackPolicy": "explicit", "backoff": ["1s", "5s"], "maxDeliver": 3},
        {"ack_policy": "explicit", "backoff": [S, 5 * S], "max_deliver": 3},
    ),
    ({"deliverPolicy": "byStartSequence", "optStartSeq": 7}, {"deliver_policy": "by_start_sequence", "opt_start_seq": 7}),
    (
        {"deliverPolicy": "byStartTime", "optStartTime": "2026-01-31T12:00:00+02:00"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2026-01-31T12:00:00+02:00"},
    ),
    ({"filterSubjects": ["s.a"]}, {"filter_subject": "s.a"}),
    ({"sampleFreq": "50"}, {"sample_freq": "50%"}),
    (
        {"deliverSubject": "to", "flowControl": True, "heartbeatInterval": "5s", "rateLimitBps": 9000},
        {"deliver_subject": "to", "flow_control": True, "idle_heartbeat": 5 * S, "rate_limit_bps": 9000},
    ),
    (
        {"maxRequestBatch": 5, "maxRequestExpires": "5s", "maxRequestMaxBytes": 100, "inactiveThreshold": "1h", "replicas": 1},
        {"max_batch": 5, "max_expires": 5 * S, "max_bytes": 100, "inactive_threshold": 3600 * S, "num_replicas": 1},
    ),
    (
        {"priorityPolicy": "pinned_client", "priorityGroups": ["g"], "ackPolicy": "explicit"},
        {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": 300 * S, "ack_policy": "explicit"},
    ),
)


def _compiled(kind: str, spec: dict[str, Any]) -> Declared:
    document: dict[str, object] = {"apiVersion": NACK_VERSION, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    compiled = compile_document(Document(document, Location("nack.yaml")), Context())
    assert isinstance(compiled.declares, Declared), compiled.problems
    return compiled.declares


def _fields(declared: Declared, live: Live) -> list[Any]:
    (change,) = plan(Desired({declared.key: declared}), live, Rules(adopt=True)).changes
    assert change.action is Action.ADOPT, change
    return list(change.fields)


@pytest.mark.parametrize("max_age", [YEAR, 0], ids=["control loop", "older controller"])
async def test_streams(server_version: str, tmp_path: Path, max_age: int) -> None:
    with Server(tmp_path / "s", version=server_version) as server:
        async with await Wire.connect(server.url) as wire:
            level = (await wire.expect("INFO"))["api"].get("level", 0)
            for number, (spec, sent) in enumerate(STREAMS):
                name = f"S{number}"
                answer = await wire.expect(
                    f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"], **STREAM, "max_age": max_age, **sent}
                )
                declared = _compiled("Stream", {"name": name, "subjects": [f"s{number}.>"], **spec})
                live = Live(ServerFacts(level=level), 0, {Key("Stream", name): LiveStream.seen(answer)}, {})
                assert _fields(declared, live) == [], spec


async def test_consumers(server_version: str, tmp_path: Path) -> None:
    with Server(tmp_path / "s", version=server_version) as server:
        async with await Wire.connect(server.url) as wire:
            level = (await wire.expect("INFO"))["api"].get("level", 0)
            stream = await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            for number, (spec, sent) in enumerate(CONSUMERS):
                name = f"c{number}"
                config = {"durable_name": name, **CONSUMER, **sent}
                answer = await wire.expect(f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
                declared = _compiled("Consumer", {"durableName": name, "streamName": "S", **spec})
                key = Key("Stream", "S")
                seen = {name: LiveConsumer.seen(answer)}
                live = Live(ServerFacts(level=level), 0, {key: LiveStream.seen(stream)}, {key: seen})
                assert _fields(declared, live) == [], spec
