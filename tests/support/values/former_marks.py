"""Marks as the version before names wrote them: recorded from that version on nats-server 2.15.1, to the byte.

Invariant: nothing here is made by what is tested.
"""

from __future__ import annotations

import json
from typing import Any

_REPLACED = "{stream: ORDERS, filterSubjects: [orders.paid], maxWaiting: 99, deliverPolicy: new}"
_STILL = '{stream: ORDERS, filterSubjects: [orders.open], pauseUntil: "2098-01-01T00:00:00Z"}'
MANIFESTS = (
    "kind: Stream\nmetadata: {name: ORDERS}\nspec: {subjects: [orders.>], maxAge: 30d, metadata: {team: a}}",
    "kind: Consumer\nmetadata: {name: billing}\nspec: {stream: ORDERS, filterSubjects: [orders.paid]}",
    "kind: Consumer\nmetadata: {name: replaced, annotations: {reconciler/allow: recreate}}\nspec: " + _REPLACED,
    "kind: Consumer\nmetadata: {name: still}\nspec: " + _STILL,
    "kind: KeyValue\nmetadata: {name: settings}\nspec: {history: 5}",
    "kind: Stream\nmetadata: {name: ALL}\nspec: {sources: [{name: ORDERS, consumer: {name: all, serverManaged: true}}]}",
    "kind: Stream\nmetadata: {name: PART}\nspec: {sources: [{name: ORDERS, filterSubject: orders.paid}]}",
)
_SAID = {"filter_subject": "orders.paid", "name": "ORDERS"}
VARIED = {
    "name": "ORDERS",
    "opt_start_seq": 6,
    "subject_transforms": [
        {"src": "orders.paid", "dest": "orders.paid"},
        {"src": "_reconciler.from.3e30ed9d43b8f8de", "dest": "_reconciler.from.3e30ed9d43b8f8de"},
    ],
}
"""The entry of PART, which had been a durable one."""


def _rows(*rows: tuple[str, Any, Any]) -> str:
    return json.dumps([{"field": one, "live": live, "declared": said} for one, live, said in rows], separators=(",", ":"))


MARKS: dict[tuple[str, str], dict[str, str]] = {
    ("ORDERS", ""): {"reconciler.owner": "default", "reconciler.spec": "662e5673794640b184059cc38522e60e"},
    ("ORDERS", "billing"): {"reconciler.owner": "default", "reconciler.spec": "fa437b6d8bad921496837cfe0fba9805"},
    ("ORDERS", "replaced"): {
        "reconciler.owner": "default",
        "reconciler.residue": _rows(("deliver_policy", "by_start_sequence", "new"), ("opt_start_seq", 1, None)),
        "reconciler.spec": "9a45787dbfcbc08a6cec45330d06ec76",
    },
    ("ORDERS", "still"): {
        "reconciler.owner": "default",
        "reconciler.pauseUntil": "2098-01-01T00:00:00Z",
        "reconciler.spec": "e8f1a6d8ec04361458c8498ee2cc0d0f",
    },
    ("KV_settings", ""): {"reconciler.owner": "default", "reconciler.spec": "1e327309296407c0c8a8427de525ff6a"},
    ("ORDERS", "all"): {
        "reconciler.owner": "default",
        "reconciler.source": "Stream/ALL",
        "reconciler.spec": "887fb80745a4f4133649913f791d1466",
    },
    ("PART", ""): {
        "reconciler.owner": "default",
        "reconciler.residue": _rows(("sources", VARIED, _SAID)),
        "reconciler.spec": "abff4a579a81432dcb6fd83121c9e781",
    },
}
