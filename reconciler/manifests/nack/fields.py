"""The fields of NACK's own resources (`jetstream.nats.io/v1beta2`) beside ours, with the defaults of NACK's CRDs.

Invariant: one table serves both directions, reading NACK manifests and writing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NACK_VERSION = "jetstream.nats.io/v1beta2"

CONNECTION = ("account", "creds", "nkey", "servers", "tls", "tlsFirst")
"""How NACK is to connect for one resource: a connection of ours serves all resources, so these cannot be honoured."""

PREVENT = {"preventUpdate": "update", "preventDelete": "delete"}

OBJECT_METADATA = tuple(
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation labels "
    "managedFields name namespace ownerReferences resourceVersion selfLink uid".split()
)
"""What Kubernetes keeps in `metadata` of any object; only labels and our own annotations mean something here."""

DELIVER_POLICIES = {
    "all": "all",
    "last": "last",
    "new": "new",
    "byStartSequence": "by_start_sequence",
    "byStartTime": "by_start_time",
    "lastPerSubject": "last_per_subject",
}


@dataclass(frozen=True, slots=True)
class NackKind:
    """One kind: which field names the resource in JetStream, what each field is called here, and what the CRD fills in."""

    identity: str
    names: Mapping[str, str]
    """NACK's name → ours."""
    defaults: Mapping[str, Any]
    """By NACK's names: where they differ from the server's own, or where an Environment might say otherwise."""

    @property
    def known(self) -> tuple[str, ...]:
        """Everything that may stand in `spec`."""
        return (self.identity, *self.names, *CONNECTION, *PREVENT, "jsDomain")


def _names(same: str, renamed: Mapping[str, str]) -> Mapping[str, str]:
    return {name: name for name in same.split()} | dict(renamed)


KINDS: Mapping[str, NackKind] = {
    "Stream": NackKind(
        identity="name",
        names=_names(
            "description subjects retention maxConsumers maxMsgs maxBytes discard maxAge maxMsgsPerSubject maxMsgSize storage "
            "replicas noAck duplicateWindow placement mirror sources sealed denyDelete denyPurge compression subjectTransform "
            "republish allowDirect mirrorDirect allowMsgTtl subjectDeleteMarkerTtl allowMsgCounter allowMsgSchedules "
            "allowBatched persistMode consumerLimits metadata",
            {
                "discardPerSubject": "discardNewPerSubject",
                "allowRollup": "allowRollupHdrs",
                "firstSequence": "firstSeq",
                "allowAtomicPublish": "allowAtomic",
            },
        ),
        defaults={
            "retention": "limits",
            "maxConsumers": -1,
            "maxMsgs": -1,
            "maxBytes": -1,
            "maxMsgSize": -1,
            "discard": "old",
            "storage": "memory",
            "replicas": 1,
        },
    ),
    "Consumer": NackKind(
        identity="durableName",
        names=_names(
            "description ackPolicy ackWait deliverPolicy deliverSubject deliverGroup filterSubject filterSubjects flowControl "
            "maxAckPending maxDeliver backoff maxWaiting optStartSeq optStartTime rateLimitBps replayPolicy sampleFreq "
            "headersOnly inactiveThreshold replicas memStorage metadata pauseUntil priorityPolicy priorityGroups",
            {
                "streamName": "stream",
                "heartbeatInterval": "idleHeartbeat",
                "maxRequestBatch": "maxBatch",
                "maxRequestExpires": "maxExpires",
                "maxRequestMaxBytes": "maxBytes",
                "pinnedTtl": "priorityTimeout",
            },
        ),
        defaults={"deliverPolicy": "all", "ackPolicy": "none", "ackWait": "1ns", "replayPolicy": "instant"},
    ),
    "KeyValue": NackKind(
        identity="bucket",
        names=_names(
            "description maxValueSize history ttl limitMarkerTtl maxBytes storage replicas placement republish mirror "
            "compression sources",
            {},
        ),
        defaults={"storage": "file", "replicas": 1},
    ),
    "ObjectStore": NackKind(
        identity="bucket",
        names=_names("description ttl maxBytes storage replicas placement compression metadata", {}),
        defaults={"storage": "file", "replicas": 1},
    ),
}
