"""The offline rules against a real server: what we refuse it refuses (or rewrites), and what we send it takes as it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared
from reconciler.model.identity import Location
from reconciler.model.kinds.buckets import KeyValueSpec, ObjectStoreSpec, compile_key_value, compile_object_store
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import to_wire
from reconciler.model.kinds.stream import StreamSpec
from reconciler.model.normal import digest, normal_consumer, normal_stream
from tests.support.account.wire import Wire

Config = dict[str, Any]


def compiled(kind: str, name: str, spec: Config) -> tuple[Declared | None, list[str]]:
    """What a document of this spec declares, and the codes of its errors."""
    value: Config = {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    result = compile_document(Document(value, Location("x.yaml")), Context())
    assert result.declares is None or isinstance(result.declares, Declared)
    return result.declares, [problem.code for problem in result.problems if problem.severity == "error"]


async def send_stream(wire: Wire, config: Config) -> Config:
    return await wire.call(f"STREAM.CREATE.{config['name']}", config)


async def send_consumer(wire: Wire, stream: str, config: Config) -> Config:
    request = {"stream_name": stream, "config": config, "action": "create"}
    return await wire.call(f"CONSUMER.CREATE.{stream}.{config['name']}", request)


def rewritten(sent: Config, kept: Config) -> bool:
    """Whether the server changed something that was said."""
    return any(kept.get(name) != value for name, value in sent.items())


BAD_STREAMS = [
    ("subject-overlap", "{subjects: [b.>, b.1]}"),
    ("subject-overlap", "{subjects: [b.1, b.1]}"),
    ("max-age-too-short", "{maxAge: 50ms}"),
    ("duplicate-window-too-short", "{duplicateWindow: 50ms}"),
    ("duplicate-window-too-long", "{maxAge: 60s, duplicateWindow: 2m}"),
    ("discard-new-per-subject", "{discardNewPerSubject: true, maxMsgsPerSubject: 1}"),
    ("discard-new-per-subject", "{discard: new, discardNewPerSubject: true}"),
    ("placement-preferred", "{placement: {preferred: n1}}"),
    ("rollup-needs-purge", "{allowRollupHdrs: true, denyPurge: true}"),
    ("counter-stream", "{allowMsgCounter: true, discard: new}"),
    ("counter-stream", "{allowMsgCounter: true, allowMsgTtl: true}"),
    ("counter-stream", "{allowMsgCounter: true, allowMsgSchedules: true}"),
    ("counter-stream", "{allowMsgCounter: true, retention: workqueue}"),
    ("mirror-direct", "{mirrorDirect: true}"),
    ("republish-cycle", "{subjects: [b.>], republish: {src: b.>, dest: b.x.>}}"),
    ("marker-ttl-too-short", "{subjectDeleteMarkerTtl: 500ms}"),
    ("forced-value", "{subjectDeleteMarkerTtl: 10s, denyPurge: true}"),
    ("forced-value", "{subjectDeleteMarkerTtl: 10s, allowMsgTtl: false}"),
    ("forced-value", "{subjectDeleteMarkerTtl: 10s, allowRollupHdrs: false}"),
    ("forced-value", "{allowMsgSchedules: true, allowRollupHdrs: false}"),
    ("forced-value", "{allowMsgSchedules: true, denyPurge: true}"),
    ("async-persist", "{persistMode: async, storage: memory}"),
    ("async-persist", "{persistMode: async, allowAtomic: true}"),
    ("system-subject", "{subjects: ['>']}"),
    ("system-subject", "{subjects: ['$JS.API.x']}"),
    ("system-subject", "{subjects: ['$JS.>']}"),
    ("system-subject", "{subjects: ['$SYS.x']}"),
    ("system-subject", "{subjects: ['*.API.>']}"),
    ("bad-transform", "{subjectTransform: {src: 'X.*', dest: 't.{{wildcard(2)}}'}}"),
    ("not-on-mirror", "{mirror: {name: O}, subjects: [a]}"),
    ("not-on-mirror", "{mirror: {name: O}, sources: [{name: P}]}"),
    ("not-on-mirror", "{mirror: {name: O}, firstSeq: 5}"),
    ("not-on-mirror", "{mirror: {name: O}, allowMsgCounter: true}"),
    ("not-on-mirror", "{mirror: {name: O}, allowMsgSchedules: true}"),
    ("not-on-mirror", "{mirror: {name: O}, subjectDeleteMarkerTtl: 10s}"),
    ("not-on-mirror", "{mirror: {name: O}, allowAtomic: true}"),
    ("not-on-mirror", "{mirror: {name: O}, allowBatched: true}"),
    ("not-on-sources", "{sources: [{name: O}], allowMsgSchedules: true}"),
    ("sourcing-cycle", "{mirror: {name: X}}"),
    ("sourcing-cycle", "{sources: [{name: X}]}"),
    ("duplicate-source", "{sources: [{name: O}, {name: O}]}"),
    ("filter-and-transforms", "{sources: [{name: O, filterSubject: a, subjectTransforms: [{src: a, dest: b}]}]}"),
    ("transforms-overlap", "{sources: [{name: O, subjectTransforms: [{src: a.>, dest: b.>}, {src: a.b, dest: c}]}]}"),
    ("bad-external", "{sources: [{name: O, external: {api: $JS.API}}]}"),
    ("bad-external", "{sources: [{name: O, external: {api: '$JS.*.API'}}]}"),
    ("start-or-filter-on-source", "{sources: [{name: O, filterSubject: a, consumer: {name: c, deliverSubject: d}}]}"),
    ("start-or-filter-on-source", "{sources: [{name: O, optStartSeq: 5, consumer: {name: c, deliverSubject: d}}]}"),
    ("source-mode", "{sources: [{name: O, consumer: {name: c}}]}"),
    ("bad-name", "{sources: [{name: O, consumer: {name: a.b, deliverSubject: d}}]}"),
]


@pytest.mark.parametrize(("code", "spec"), BAD_STREAMS)
async def test_the_server_minds_every_stream_that_we_refuse(wire: Wire, code: str, spec: str) -> None:
    values = yaml.safe_load(spec)
    _, codes = compiled("Stream", "X", values)
    assert code in codes
    sent = {"name": "X"} | to_wire(StreamSpec.model_validate(values))
    answer = await send_stream(wire, sent)
    assert "error" in answer or rewritten(sent, answer["config"]), answer


GOOD_STREAMS = [
    "{}",
    "{subjects: [a, b.*], maxAge: 1h, duplicateWindow: 1h, maxBytes: 64MB, maxMsgs: 10, maxMsgsPerSubject: 5, maxMsgSize: 1KB}",
    "{subjects: ['>'], noAck: true}",
    "{subjects: ['$JS.EVENT.ADVISORY.>']}",
    "{subjects: ['$SYS.ACCOUNT.>']}",
    "{retention: workqueue, storage: memory, compression: s2}",
    "{retention: interest, discard: new, maxMsgsPerSubject: 1, discardNewPerSubject: true}",
    "{denyDelete: true, denyPurge: true, allowDirect: true, allowAtomic: true, allowBatched: true}",
    "{subjectDeleteMarkerTtl: 10s}",
    "{allowMsgSchedules: true}",
    "{allowMsgCounter: true}",
    "{persistMode: async}",
    "{republish: {src: X, dest: rp.x, headersOnly: true}, metadata: {team: a}}",
    "{subjects: [d.*], subjectTransform: {src: 'd.*', dest: 't.{{wildcard(1)}}'}}",
    "{mirror: {name: O, optStartSeq: 5, filterSubject: a}, maxAge: 1h}",
    "{sources: [{name: O, optStartTime: '2024-01-01T02:00:00+02:00'}, {name: P, subjectTransforms: [{src: a.>, dest: b.>}]}]}",
    "{sources: [{name: O, external: {domain: leaf}, consumer: {name: c, deliverSubject: d}}], subjects: [own.>]}",
    "{consumerLimits: {maxAckPending: 50, inactiveThreshold: 1m}, firstSeq: 100, maxConsumers: 10}",
    "{subjects: [], sources: [], metadata: {}, placement: {}, consumerLimits: {}}",
    "{placement: {tags: [b, a]}, description: hello}",
]


@pytest.mark.parametrize("spec", GOOD_STREAMS)
async def test_a_stream_comes_back_as_it_was_declared(wire: Wire, spec: str) -> None:
    declared, codes = compiled("Stream", "X", yaml.safe_load(spec))
    assert declared is not None, codes
    answer = await send_stream(wire, declared.config)
    assert "error" not in answer, answer
    assert digest(normal_stream(answer["config"], "X")) == declared.digest


BAD_CONSUMERS = [
    ("start-missing", "{deliverPolicy: by_start_sequence}"),
    ("start-missing", "{deliverPolicy: by_start_time}"),
    ("start-without-policy", "{optStartSeq: 5}"),
    ("start-without-policy", "{optStartTime: '2024-01-01T00:00:00Z'}"),
    ("filter-missing", "{deliverPolicy: last_per_subject}"),
    ("backoff-max-deliver", "{backoff: [1s, 5s], maxDeliver: 1}"),
    ("backoff-ack-wait", "{backoff: [1s, 5s], ackWait: 30s}"),
    ("filter-overlap", "{filterSubjects: [s.a, s.>]}"),
    ("filter-overlap", "{filterSubjects: [s.a, s.a]}"),
    ("filter-twice", "{filterSubject: s.a, filterSubjects: [s.b]}"),
    ("bad-value", "{sampleFreq: abc}"),
    ("bad-value", "{sampleFreq: '%'}"),
    ("push-only-field", "{rateLimitBps: 1000}"),
    ("push-only-field", "{idleHeartbeat: 5s}"),
    ("push-only-field", "{flowControl: true}"),
    ("expires-too-short", "{maxExpires: 1ns}"),
    ("pull-only-field", "{deliverSubject: d, maxWaiting: 10}"),
    ("pull-only-field", "{deliverSubject: d, priorityPolicy: overflow, priorityGroups: [A]}"),
    ("heartbeat-too-short", "{deliverSubject: d, idleHeartbeat: 50ms}"),
    ("heartbeat-missing", "{deliverSubject: d, flowControl: true}"),
    ("ack-pending-without-ack", "{deliverSubject: d, ackPolicy: none, maxAckPending: 50}"),
    ("priority-policy", "{priorityGroups: [A]}"),
    ("priority-policy", "{priorityPolicy: overflow}"),
    ("priority-policy", "{priorityTimeout: 5s}"),
    ("bad-name", "{priorityPolicy: overflow, priorityGroups: [a.b]}"),
    ("bad-name", "{priorityPolicy: overflow, priorityGroups: [abcdefghijklmnopq]}"),
    ("flow-control", "{ackPolicy: flow_control}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, ackWait: 10s}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, backoff: [1s]}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, maxDeliver: 5}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, maxAckPending: -1}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, idleHeartbeat: 5s}"),
    ("flow-control", "{ackPolicy: flow_control, deliverSubject: d, flowControl: false}"),
]


@pytest.mark.parametrize(("code", "spec"), BAD_CONSUMERS)
async def test_the_server_minds_every_consumer_that_we_refuse(wire: Wire, code: str, spec: str) -> None:
    values = yaml.safe_load(spec) | {"stream": "S"}
    _, codes = compiled("Consumer", "c", values)
    assert code in codes
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    sent = {"ack_policy": "explicit"} | to_wire(ConsumerSpec.model_validate(values)) | {"name": "c", "durable_name": "c"}
    answer = await send_consumer(wire, "S", sent)
    assert "error" in answer or rewritten(sent, answer["config"]), answer


GOOD_CONSUMERS = [
    "{}",
    "{ackPolicy: none}",
    "{ackPolicy: all, ackWait: 10s, maxDeliver: 5}",
    "{durable: false}",
    "{durable: false, inactiveThreshold: 1h}",
    "{backoff: [1s, 5s], maxDeliver: 2}",
    "{backoff: [1s, 5s], ackWait: 1s}",
    "{filterSubject: s.a}",
    "{filterSubjects: [s.b, s.a]}",
    "{deliverPolicy: by_start_time, optStartTime: '2024-01-01T02:00:00.120+02:00'}",
    "{deliverPolicy: last_per_subject, filterSubject: s.>}",
    "{sampleFreq: 50%, maxBatch: 10, maxExpires: 1s, maxBytes: 1KB, maxWaiting: 10, headersOnly: true}",
    "{maxAckPending: -1, replicas: 1, memStorage: true, replayPolicy: original}",
    "{priorityPolicy: pinned_client, priorityGroups: [A]}",
    "{priorityPolicy: overflow, priorityGroups: [A, B], priorityTimeout: 30s}",
    "{deliverSubject: d, deliverGroup: g, idleHeartbeat: 5s, flowControl: true, rateLimitBps: 1000}",
    "{deliverSubject: d, ackPolicy: none}",
    "{deliverSubject: d, ackPolicy: flow_control}",
    "{deliverSubject: d, ackPolicy: flow_control, idleHeartbeat: 1s, flowControl: true, maxAckPending: 10}",
    "{deadLetter: {subject: dlq.x}, metadata: {team: a}, description: hello}",
    "{backoff: [], filterSubjects: [], priorityGroups: [], metadata: {}}",
]


@pytest.mark.parametrize("spec", GOOD_CONSUMERS)
async def test_a_consumer_comes_back_as_it_was_declared(wire: Wire, spec: str) -> None:
    declared, codes = compiled("Consumer", "c", yaml.safe_load(spec) | {"stream": "S"})
    assert declared is not None, codes
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    answer = await send_consumer(wire, "S", declared.config)
    assert "error" not in answer, answer
    assert digest(normal_consumer(answer["config"])) == declared.digest


async def test_the_python_client_uses_our_buckets_and_makes_the_same(wire: Wire) -> None:
    js = wire.client.jetstream()
    await js.create_key_value(bucket="py", history=3, direct=True)
    theirs = (await wire.expect("STREAM.INFO.KV_py"))["config"]
    ours = compile_key_value("py", KeyValueSpec.model_validate({"history": 3, "allowMsgTtl": True}))
    assert normal_stream(theirs, "KV_py") == normal_stream(ours, "KV_py")

    made = compile_key_value("own", KeyValueSpec())
    await wire.expect("STREAM.CREATE.KV_own", {"name": "KV_own", **made})
    bucket = await js.key_value("own")
    await bucket.put("key", b"value")
    assert (await bucket.get("key")).value == b"value"


async def test_the_python_client_uses_our_object_stores_and_makes_the_same(wire: Wire) -> None:
    js = wire.client.jetstream()
    await js.create_object_store("py")
    theirs = (await wire.expect("STREAM.INFO.OBJ_py"))["config"]
    ours = compile_object_store("py", ObjectStoreSpec())
    assert normal_stream(theirs, "OBJ_py") == normal_stream(ours, "OBJ_py")
