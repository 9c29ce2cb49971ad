"""NACK's documents mean here what they mean to NACK: fields, the defaults of its CRDs, and what its controller adds."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.findings import Finding
from reconciler.manifests.nack.documents import is_nack, translate, written_path
from reconciler.manifests.nack.fields import NACK_VERSION
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared
from reconciler.model.identity import Location
from reconciler.plan.change import Action, Rules
from tests.support.values.build import consumer_info, desired, live, stream_info
from tests.support.values.planned import plan

S = 10**9
YEAR = 365 * 24 * 3600 * S


def nack(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": NACK_VERSION, "kind": kind, "metadata": {"name": "k8s-name", **metadata}, "spec": spec}


def native(document: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    findings: list[Finding] = []
    translated = translate(document, findings)
    assert translated is not None, findings
    return translated, findings


def faults(document: dict[str, Any]) -> list[tuple[str, str]]:
    findings: list[Finding] = []
    translated = translate(document, findings)
    assert translated is None
    return [(".".join(map(str, finding.path)), finding.code) for finding in findings if finding.severity == "error"]


def declared(document: dict[str, Any]) -> Declared:
    translated, _ = native(document)
    compiled = compile_document(Document(translated, Location("nack.yaml")), Context())
    assert isinstance(compiled.declares, Declared), compiled.problems
    return compiled.declares


def test_only_its_own_api_version_is_nack() -> None:
    assert is_nack(nack("Stream", {}))
    assert not is_nack({"apiVersion": "reconciler/v1", "kind": "Stream"})
    assert not is_nack({"kind": "Stream"})


def test_a_bare_stream_is_what_the_crd_makes_of_it() -> None:
    translated, findings = native(nack("Stream", {"name": "ORDERS", "subjects": ["orders.>"]}))
    assert translated["metadata"]["name"] == "ORDERS"
    assert translated["spec"] == {
        "subjects": ["orders.>"],
        "retention": "limits",
        "maxConsumers": -1,
        "maxMsgs": -1,
        "maxBytes": -1,
        "maxMsgSize": -1,
        "discard": "old",
        "storage": "memory",
        "replicas": 1,
        "ignore": ["maxAge"],
    }
    assert [(finding.severity, finding.code) for finding in findings] == [("warning", "nack-max-age")]


def test_a_bare_consumer_is_what_the_crd_makes_of_it() -> None:
    translated, findings = native(nack("Consumer", {"durableName": "c", "streamName": "ORDERS"}))
    assert translated["metadata"]["name"] == "c"
    assert translated["spec"] == {
        "stream": "ORDERS",
        "deliverPolicy": "all",
        "ackPolicy": "none",
        "ackWait": "1ns",
        "replayPolicy": "instant",
    }
    assert findings == []


@pytest.mark.parametrize("max_age", [0, YEAR], ids=["unlimited", "a year"])
def test_what_either_controller_made_shows_no_difference(max_age: int) -> None:
    """The control loop starts from a template with a year, the older controller from one without a limit."""
    stream = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "max_age": max_age, "num_replicas": 1}
    consumer = {"name": "c", "durable_name": "c", "ack_policy": "none", "ack_wait": 1, "max_deliver": -1, "max_waiting": 512}
    wanted = desired(
        declared(nack("Stream", {"name": "ORDERS", "subjects": ["orders.>"]})),
        declared(nack("Consumer", {"durableName": "c", "streamName": "ORDERS"})),
    )
    changes = plan(wanted, live(stream_info(stream), consumer_info("ORDERS", consumer)), Rules(adopt=True)).changes
    assert [(change.action, change.fields) for change in changes] == [(Action.ADOPT, ())] * 2


def test_what_kubectl_prints_means_the_same_as_what_was_written() -> None:
    written = nack("Stream", {"name": "S", "subjects": ["s"], "maxAge": "1h", "allowMsgSchedules": True})
    printed = nack(
        "Stream",
        written["spec"]
        | {"retention": "limits", "allowRollup": False, "denyPurge": False, "firstSequence": 0, "compression": "", "creds": ""}
        | {
            "nkey": "",
            "servers": [],
            "preventDelete": False,
            "preventUpdate": False,
            "subjectDeleteMarkerTtl": "",
            "sealed": False,
        }
        | {"maxMsgsPerSubject": 0, "persistMode": "", "tlsFirst": False},
        namespace="default",
        uid="x",
        generation=3,
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        managedFields=[],
    ) | {"status": {"observedGeneration": 3}}
    assert native(printed) == native(written)


def test_every_renamed_field() -> None:
    transform = {"source": "a.*", "dest": "b.$1"}
    source = {
        "name": "UP",
        "optStartSeq": 5,
        "filterSubject": "up.>",
        "externalApiPrefix": "$JS.leaf.API",
        "externalDeliverPrefix": "leaf",
        "subjectTransforms": [transform],
        "consumer": {"name": "d", "deliverSubject": "d.in"},
    }
    spec = native(
        nack(
            "Stream",
            {
                "name": "S",
                "maxAge": "1h",
                "discardPerSubject": True,
                "maxMsgsPerSubject": 1,
                "allowRollup": True,
                "firstSequence": 42,
                "allowAtomicPublish": True,
                "republish": {"source": "a", "destination": "b", "headers_only": True},
                "subjectTransform": transform,
                "sources": [source],
                "jsDomain": "hub",
            },
        )
    )[0]["spec"]
    moved = {"src": "a.*", "dest": "b.$1"}
    expected = {
        "discardNewPerSubject": True,
        "discard": "new",
        "allowRollupHdrs": True,
        "firstSeq": 42,
        "allowAtomic": True,
        "republish": {"src": "a", "dest": "b", "headersOnly": True},
        "subjectTransform": moved,
        "domain": "hub",
        "sources": [
            {
                "name": "UP",
                "optStartSeq": 5,
                "filterSubject": "up.>",
                "external": {"api": "$JS.leaf.API", "deliver": "leaf"},
                "subjectTransforms": [moved],
                "consumer": {"name": "d", "deliverSubject": "d.in"},
            }
        ],
    }
    assert {name: spec[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"deliverPolicy": "byStartSequence", "optStartSeq": 3}, {"deliverPolicy": "by_start_sequence", "optStartSeq": 3}),
        ({"deliverPolicy": "lastPerSubject", "filterSubject": "a"}, {"deliverPolicy": "last_per_subject", "filterSubject": "a"}),
        ({"heartbeatInterval": "5s"}, {"idleHeartbeat": "5s"}),
        ({"maxRequestBatch": 5}, {"maxBatch": 5}),
        ({"maxRequestExpires": "5s"}, {"maxExpires": "5s"}),
        ({"maxRequestMaxBytes": 5}, {"maxBytes": 5}),
        ({"priorityPolicy": "pinned_client"}, {"priorityPolicy": "pinned_client", "priorityTimeout": "5m"}),
        ({"priorityPolicy": "pinned_client", "pinnedTtl": "1m"}, {"priorityTimeout": "1m"}),
        ({"ackWait": ""}, {"ackWait": "30s"}),
    ],
)
def test_consumer_fields(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    spec = native(nack("Consumer", {"durableName": "c", "streamName": "S", **theirs}))[0]["spec"]
    assert {name: spec.get(name) for name in ours} == ours


@pytest.mark.parametrize(
    "theirs", [{"ackWait": "0s"}, {"backoff": ["1s"]}, {"ackPolicy": "flow_control", "deliverSubject": "x"}], ids=str
)
def test_an_ack_wait_that_the_server_would_not_keep_is_left_out(theirs: dict[str, Any]) -> None:
    assert "ackWait" not in native(nack("Consumer", {"durableName": "c", "streamName": "S", **theirs}))[0]["spec"]


@pytest.mark.parametrize(
    ("kind", "spec", "stream"),
    [
        ("KeyValue", {"bucket": "b", "history": 5, "ttl": "1h", "limitMarkerTtl": 60 * S}, "KV_b"),
        ("ObjectStore", {"bucket": "b", "ttl": "1h", "compression": True, "metadata": {"a": "b"}}, "OBJ_b"),
    ],
)
def test_buckets(kind: str, spec: dict[str, Any], stream: str) -> None:
    resource = declared(nack(kind, spec))
    assert str(resource.key) == f"{kind}/b"
    assert resource.config["name"] == stream
    assert resource.config["storage"] == "file"
    assert resource.config["max_age"] == 3600 * S
    assert resource.config.get("subject_delete_marker_ttl", 60 * S) == 60 * S


def test_prevented_operations_become_an_annotation() -> None:
    translated, _ = native(nack("Stream", {"name": "S", "maxAge": "1h", "preventUpdate": True, "preventDelete": True}))
    assert translated["metadata"]["annotations"] == {"reconciler/prevent": "update,delete"}


def test_our_annotations_and_labels_come_along() -> None:
    document = nack(
        "Stream", {"name": "S", "maxAge": "1h"}, labels={"team": "x"}, annotations={"reconciler/adopt": "true", "helm.sh/x": "y"}
    )
    metadata = native(document)[0]["metadata"]
    assert metadata == {"name": "S", "labels": {"team": "x"}, "annotations": {"reconciler/adopt": "true"}}


@pytest.mark.parametrize("field", ["account", "creds", "nkey", "servers", "tls", "tlsFirst"])
def test_a_connection_of_its_own_is_a_warning(field: str) -> None:
    findings = native(nack("Stream", {"name": "S", "maxAge": "1h", field: ["x"]}))[1]
    assert [(finding.path, finding.code) for finding in findings] == [(("spec", field), "nack-connection")]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (nack("Stream", {"name": "S", "maxAges": "1h"}), ("spec.maxAges", "unknown-field")),
        (nack("Stream", {"subjects": ["a"]}), ("spec.name", "missing-field")),
        (nack("Stream", {"name": "S", "sources": [{"name": "A", "filter": "x"}]}), ("spec.sources.0.filter", "unknown-field")),
        (nack("Stream", {"name": "S"}, labelz={}), ("metadata.labelz", "unknown-field")),
        (nack("Stream", {"name": "S"}) | {"specs": {}}, ("specs", "unknown-field")),
        (nack("Account", {"name": "a"}), ("kind", "unknown-kind")),
        (nack("Consumer", {"durableName": "c", "streamName": "S", "deliverPolicy": "x"}), ("spec.deliverPolicy", "bad-value")),
        (nack("Consumer", {"durableName": "c", "name": "d", "streamName": "S"}), ("spec.name", "bad-value")),
        ({"apiVersion": NACK_VERSION, "kind": "Stream", "metadata": {"name": "x"}}, ("spec", "missing-field")),
    ],
)
def test_what_nack_does_not_know_is_an_error(document: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in faults(document)


@pytest.mark.parametrize("value", [None, [], "x", 5, {"name": 5}])
def test_no_shape_of_a_document_is_a_crash(value: Any) -> None:
    for kind in ("Stream", "Consumer", "KeyValue", "ObjectStore", value):
        for spec in (value, {"name": value, "bucket": value, "durableName": value, "mirror": value, "sources": [value]}):
            findings: list[Finding] = []
            translated = translate(nack(kind, spec), findings)
            assert translated is not None or findings


def test_paths_lead_back_to_what_was_written() -> None:
    assert written_path("Stream", ("metadata", "name")) == ("spec", "name")
    assert written_path("Stream", ("spec", "firstSeq")) == ("spec", "firstSequence")
    assert written_path("Stream", ("spec", "republish", "dest")) == ("spec", "republish", "destination")
    assert written_path("Stream", ("spec", "sources", 0, "external", "api")) == ("spec", "sources", 0, "externalApiPrefix")
    path = ("spec", "sources", 0, "subjectTransforms", 1)
    assert written_path("Stream", (*path, "src")) == (*path, "source")
    assert written_path("Stream", (*path, "dest")) == (*path, "dest")
    assert written_path("Consumer", ("spec", "idleHeartbeat")) == ("spec", "heartbeatInterval")
    assert written_path("Consumer", ("spec", "domain")) == ("spec", "jsDomain")
