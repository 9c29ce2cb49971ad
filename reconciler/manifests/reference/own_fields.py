"""What the fields of our own mean: those that are no part of a JetStream configuration and so in no field table.

Invariant: every field of every model that has no row in a table has a line here; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

_RESOURCE = {
    "state": "`present`; `absent`: remove it on purpose; `unmanaged`: only check that it exists and obeys the rules.",
    "domain": "The JetStream domain it lives in.",
    "ignore": "Fields left to others: paths such as `metadata.team` or `republish`.",
}
_BUCKET = {
    "description": "What the bucket is for.",
    "ttl": "How long an entry lives; absent: for ever.",
    "maxBytes": "Most bytes kept; -1: no limit.",
    "storage": "Where entries are kept.",
    "replicas": "How many servers keep each entry.",
    "placement": "Where replicas go.",
    "compression": "Whether files are compressed (s2).",
    "metadata": "Your own labels.",
}

DOCS: Mapping[str, Mapping[str, str]] = {
    "StreamSpec": _RESOURCE,
    "External": {"domain": "The JetStream domain of the other side: short for `api: $JS.<domain>.API`."},
    "SourceConsumer": {
        "serverManaged": "The reconciler makes, migrates and removes this durable; `name` is all there is to say.",
        "unmanaged": "Somebody else looks after this durable.",
    },
    "ConsumerSpec": _RESOURCE
    | {
        "stream": "The stream it reads.",
        "durable": "`false`: a named consumer that the server may forget after `inactiveThreshold`.",
        "pauseUntil": "Delivers nothing before this moment; removed: resumed, unless somebody else changed it since.",
        "deadLetter": "Where messages go that were delivered too often.",
        "onMissing": "When it is gone though it was there: go on from the last seen position, start as declared, or wait.",
    },
    "DeadLetter": {"subject": "The subject they are published to."},
    "KeyValueSpec": _RESOURCE
    | _BUCKET
    | {
        "history": "Values kept per key.",
        "maxValueSize": "Largest value; -1: no limit.",
        "republish": "Publishes every change again.",
        "mirror": "Copies one bucket exactly.",
        "sources": "Buckets copied into this one.",
        "limitMarkerTtl": "Leaves markers where limits removed a key, for this long.",
        "allowDirect": "Any replica may answer reads; some clients create buckets without it.",
        "allowMsgTtl": "Entries may have a lifetime of their own; some clients turn it on for every bucket.",
    },
    "ObjectStoreSpec": _RESOURCE | _BUCKET,
    "WorkerPoolSpec": _RESOURCE
    | {
        "stream": "The stream the workers share.",
        "consumerPrefix": "What the names of its consumers begin with; absent: the pool's name.",
        "consumer": "What each worker's consumer is made with.",
        "limits": "How much one consumer carries, and how often it may change.",
        "handoff": "How a subject moves from one worker to another.",
        "claims": "Whether workers check who owns a subject before they acknowledge.",
        "overlap": "Whether a subject may be in two workers.",
        "startNew": "Where the consumer of a new worker starts.",
        "shardOverCap": "Splits a worker over `limits.maxSubjects` into several consumers.",
        "migrateFrom": "The way from one consumer per partition to one per worker.",
        "workers": "The workers, for small pools; others have a WorkerAssignment each.",
    },
    "PoolConsumer": {"deadLetter": "Where messages go that were delivered too often."},
    "PoolLimits": {
        "maxSubjects": "Most subjects of one consumer.",
        "minUpdateInterval": "Shortest time between two updates of one consumer.",
        "stabilization": "How long assignments must be quiet before they are acted on.",
    },
    "Handoff": {
        "ordered": "The new owner starts only after the old one has finished.",
        "deadline": "How long the old owner may take.",
        "deadAfter": "Silent for this long, an owner counts as dead.",
        "whenDead": "Whether a dead owner's unfinished messages are only reported, or delivered again.",
    },
    "Migration": {
        "consumers": "The names of the legacy consumers, with `*`.",
        "phase": "How far the migration has come.",
        "maxShadow": "Longest time in the shadow phase.",
        "rollback": "When it goes back one phase by itself.",
    },
    "Rollback": {
        "redeliveries": "Share of redelivered messages.",
        "lag": "Messages behind.",
        "windows": "For how many windows.",
    },
    "PoolWorker": {"id": "The worker.", "filterSubjects": "Its subjects; none: parked."},
    "WorkerAssignmentSpec": {
        "pool": "The pool.",
        "worker": "The worker.",
        "filterSubjects": "Its subjects; none: parked.",
        "domain": "The JetStream domain of the pool.",
    },
    "AssignmentIndexSpec": {
        "pool": "The pool these files belong to.",
        "generation": "The number of the plan that wrote them.",
        "files": "The only files of this directory that count.",
    },
    "IndexedFile": {"path": "Relative to the index.", "sha256": "Of its bytes."},
    "EnvironmentSpec": {
        "context": "The natscli context to connect with.",
        "url": "The server to connect to, where there is no context.",
        "expect": "What the server must say of itself before anything is written there.",
        "defaults": "By kind: what resources take that do not say it themselves, where it is legal for them.",
        "patches": "What is different about single resources.",
    },
    "Expect": {"cluster": "The name of the cluster.", "domain": "The JetStream domain; empty: none."},
    "Defaults": {
        "Stream": "For streams.",
        "Consumer": "For consumers.",
        "WorkerPool": "For worker pools.",
        "KeyValue": "For key-value buckets.",
        "ObjectStore": "For object buckets.",
    },
    "EnvironmentPatch": {"target": "The resource.", "spec": "Merged into its spec as RFC 7396: null unsets, lists replace."},
    "Target": {"kind": "Its kind.", "name": "Its name."},
    "PolicySpec": {
        "consumers": "Rules for consumers.",
        "subjects": "Rules for subjects; advisory.",
        "owner": "The name under which resources are owned; a flag or RECONCILER_OWNER goes before it.",
        "approve": "The fingerprint of a plan whose mass change was reviewed.",
    },
    "ConsumerPolicy": {
        "namePattern": "A regular expression, as RE2 has them, that is found in their names.",
        "requirePull": "No `deliverSubject`; consumers of sources excepted.",
        "requireExplicitAck": "`ackPolicy: explicit`; consumers of sources excepted.",
        "requireDurable": "No `durable: false`.",
        "protectNames": "A consumer goes only by tombstone or --allow.",
        "unusedAfter": "Unused for this long, it is listed by `reconciler unused`.",
    },
    "SubjectPolicy": {"forbidDirectPublish": "Subjects that only the system itself publishes to."},
}
"""By model and YAML name."""

STANDS_FOR: Mapping[str, str] = {
    "description": "description",
    "ttl": "max_age",
    "maxBytes": "max_bytes",
    "storage": "storage",
    "replicas": "num_replicas",
    "placement": "placement",
    "compression": "compression",
    "metadata": "metadata",
    "maxValueSize": "max_msg_size",
    "history": "max_msgs_per_subject",
    "republish": "republish",
    "mirror": "mirror",
    "sources": "sources",
    "limitMarkerTtl": "subject_delete_marker_ttl",
    "allowDirect": "allow_direct",
    "allowMsgTtl": "allow_msg_ttl",
}
"""A bucket's field → the field of its stream that it sets, which decides what an update may do to it."""
