"""One document: what it declares, and how its faults are told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reconciler.errors import InvalidInput
from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.files.loader import Loader
from reconciler.manifests.syntax.document import Text
from reconciler.manifests.syntax.texts import parse_text
from reconciler.model.identity import Key
from reconciler.model.kinds.common import DEFAULT_INTENT, State
from tests.support.values.manifests import codes, document, load, refused, warnings

SECOND = 10**9
STREAM = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>]}"


def consumer(spec: str = "", name: str = "c") -> str:
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {{stream: S{', ' if spec else ''}{spec}}}"


def stream(spec: str, name: str = "A") -> str:
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {{{spec}}}"


def test_a_stream_is_sent_with_its_name(tmp_path: Path) -> None:
    desired = load(tmp_path, stream("subjects: [a], maxAge: 7d, maxBytes: 64MB, replicas: 3")).desired
    assert desired.resources[Key("Stream", "A")].config == {
        "name": "A",
        "subjects": ["a"],
        "max_age": 7 * 86400 * SECOND,
        "max_bytes": 64_000_000,
        "num_replicas": 3,
    }


def test_a_consumer_acknowledges_explicitly_and_is_durable_unless_it_says_otherwise(tmp_path: Path) -> None:
    desired = load(tmp_path, STREAM, consumer(), consumer("durable: false, ackPolicy: none", name="d")).desired
    assert desired.resources[Key("Consumer", "c", "S")].config == {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    assert desired.resources[Key("Consumer", "d", "S")].config == {"name": "d", "ack_policy": "none"}


def test_a_dead_letter_subject_is_kept_as_metadata(tmp_path: Path) -> None:
    desired = load(tmp_path, STREAM, consumer("deadLetter: {subject: dlq.s}, metadata: {team: a}")).desired
    metadata = desired.resources[Key("Consumer", "c", "S")].config["metadata"]
    assert metadata == {"team": "a", "reconciler.deadLetter": "dlq.s"}


def test_buckets_are_the_streams_behind_them(tmp_path: Path) -> None:
    desired = load(
        tmp_path,
        "kind: KeyValue\nmetadata: {name: config}\nspec: {history: 5}",
        "kind: ObjectStore\nmetadata: {name: files}",
        "kind: Consumer\nmetadata: {name: c}\nspec: {stream: KV_config, filterSubject: $KV.config.a}",
    ).desired
    assert desired.resources[Key("KeyValue", "config")].config["subjects"] == ["$KV.config.>"]
    assert desired.resources[Key("ObjectStore", "files")].config["name"] == "OBJ_files"


def test_a_server_managed_consumer_takes_what_its_entry_selects(tmp_path: Path) -> None:
    entry = "{name: S, external: {domain: leaf}, filterSubject: s.a, optStartSeq: 7, consumer: {name: c, serverManaged: true}}"
    desired = load(tmp_path, stream(f"sources: [{entry}]")).desired
    (sent,) = desired.resources[Key("Stream", "A")].config["sources"]
    kept = desired.durables[Key("Consumer", "c", "S", "leaf")]
    delivered = kept.declared.config["deliver_subject"]
    assert sent == {"name": "S", "external": {"api": "$JS.leaf.API"}, "consumer": {"name": "c", "deliver_subject": delivered}}
    assert (kept.aggregate, kept.declared.config["filter_subjects"]) == (Key("Stream", "A"), ["s.a"])
    assert kept.declared.config["opt_start_seq"] == 7


def test_an_empty_list_is_nothing(tmp_path: Path) -> None:
    one = load(tmp_path / "one", stream("subjects: [], sources: [], placement: {}, metadata: {}")).desired
    two = load(tmp_path / "two", stream("")).desired
    key = Key("Stream", "A")
    assert one.resources[key].wire == two.resources[key].wire
    assert one.resources[key].digest == two.resources[key].digest


def test_equal_meanings_have_equal_digests(tmp_path: Path) -> None:
    one = load(tmp_path / "one", STREAM, consumer("ackWait: 30s, filterSubject: s.a, maxDeliver: -1")).desired
    two = load(tmp_path / "two", STREAM, consumer("filterSubjects: [s.a], replayPolicy: instant")).desired
    key = Key("Consumer", "c", "S")
    assert one.resources[key].digest == two.resources[key].digest
    assert one.resources[key].wire != two.resources[key].wire


def test_what_a_document_wants_beyond_the_configuration(tmp_path: Path) -> None:
    text = """
    kind: Consumer
    metadata:
      name: c
      labels: {team: payments}
      annotations: {reconciler/adopt: "true", reconciler/allow: "recreate, data-loss", reconciler/suspend: "true", other/x: z}
    spec: {stream: S, ignore: [metadata.team, ackWait], pauseUntil: 2099-01-01T00:00:00Z, onMissing: block}
    """
    declared = load(tmp_path, STREAM, text).desired.resources[Key("Consumer", "c", "S")]
    intent = declared.intent
    assert (intent.adopt, intent.suspend) == (True, True)
    assert intent.allow == frozenset({"recreate", "data-loss"})
    assert (intent.ignore, intent.pause_until, intent.on_missing) == (
        ("metadata.team", "ackWait"),
        "2099-01-01T00:00:00Z",
        "block",
    )
    assert b"team" not in declared.wire
    assert b"pause" not in declared.wire


def test_documents_that_want_nothing_special_share_one_intent(tmp_path: Path) -> None:
    desired = load(tmp_path, STREAM, consumer(), consumer(name="d")).desired
    assert {id(declared.intent) for declared in desired.resources.values()} == {id(DEFAULT_INTENT)}


def test_a_tombstone_needs_nothing_but_its_name(tmp_path: Path) -> None:
    desired = load(
        tmp_path,
        stream("state: absent"),
        consumer("state: absent"),
        "kind: WorkerPool\nmetadata: {name: p}\nspec: {state: absent}",
        "kind: KeyValue\nmetadata: {name: b}\nspec: {state: absent}",
        STREAM,
    ).desired
    states = [declared.intent.state for key, declared in desired.resources.items() if key != Key("Stream", "S")]
    assert states == [State.ABSENT] * 3
    assert desired.pools["p"].intent.state is State.ABSENT


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (
            "kind: Stream\nmetadata: {name: A}\nspec:\n  maxAeg: 7d",
            5,
            3,
            'unknown-field: unknown field "maxAeg"; did you mean maxAge? (spec.maxAeg)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec: {max_msgs_per_subject: 1}",
            4,
            8,
            'unknown-field: unknown field "max_msgs_per_subject"; did you mean maxMsgsPerSubject? (spec.max_msgs_per_subject)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec:\n  sources:\n  - {nam: B, name: C}",
            6,
            6,
            'unknown-field: unknown field "nam"; did you mean name? (spec.sources[0].nam)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec:\n  subjectTransform: {src: a, dest: b, destination: c}",
            5,
            39,
            'unknown-field: unknown field "destination"; there is src, dest (spec.subjectTransform.destination)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec: {retention: workqeue}",
            4,
            8,
            'bad-value: "workqeue" is not one of limits, interest or workqueue; did you mean workqueue? (spec.retention)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec: {maxMsgs: many}",
            4,
            8,
            'wrong-type: must be a whole number, not the text "many" (spec.maxMsgs)',
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec: {maxAge: soon}",
            4,
            8,
            "bad-value: not a duration: 'soon' (expected e.g. 30s, 1h30m, 7d) (spec.maxAge)",
        ),
        ("kind: Stream\nmetadata: {name: A}\nspec: {replicas: 7}", 4, 8, "bad-value: must be at most 5 (spec.replicas)"),
        ("kind: Strem\nmetadata: {name: A}", 2, 1, 'unknown-kind: unknown kind "Strem"; did you mean Stream? (kind)'),
        ("kind: Consumer\nmetadata: {name: c}\nspec: {}", 4, 1, "missing-field: stream is required (spec.stream)"),
        ("kind: Stream\nmetadata: {nam: A}", 3, 12, 'unknown-field: unknown field "nam"; did you mean name? (metadata.nam)'),
        (
            "kind: Stream\nmetadata: {name: 5}",
            3,
            12,
            "wrong-type: the name must be text; write a number in quotes (metadata.name)",
        ),
        (
            "kind: Stream\nmetadata: {name: A}\nspec: {ignore: [replicsa]}",
            4,
            17,
            'unknown-field: there is no field "replicsa"; did you mean replicas? (spec.ignore[0])',
        ),
    ],
)
def test_a_fault_is_told_in_plain_words_where_it_stands(tmp_path: Path, text: str, line: int, column: int, message: str) -> None:
    problems = refused(tmp_path, text)
    assert f"{tmp_path}/x.yaml:{line}:{column}: {message}" in [str(problem) for problem in problems]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    problems = refused(tmp_path, stream("maxAeg: 1, retention: x, replicas: 9"), consumer("ackWiat: 3s"))
    assert codes(problems) == ["unknown-field", "bad-value", "bad-value", "unknown-field"]


@pytest.mark.parametrize("name", ["a.b", "a b", "a*", ">", "a/b", "a\\\\b", "x" * 256, ""])
def test_names_that_jetstream_refuses_are_refused(tmp_path: Path, name: str) -> None:
    assert "bad-name" in codes(refused(tmp_path, f'kind: Stream\nmetadata: {{name: "{name}"}}'))


@pytest.mark.parametrize("name", ["a.b", "a$", "ü", "a b"])
def test_a_bucket_has_a_narrower_name(tmp_path: Path, name: str) -> None:
    assert codes(refused(tmp_path, f'kind: KeyValue\nmetadata: {{name: "{name}"}}')) == ["bad-name"]


@pytest.mark.parametrize(
    ("annotation", "code"),
    [
        ("reconciler/adpot: 'true'", "unknown-annotation"),
        ("reconciler/adopt: 'yes'", "bad-annotation"),
        ("reconciler/allow: everything", "bad-annotation"),
        ("reconciler/adopt: true", "wrong-type"),
    ],
)
def test_an_annotation_of_ours_is_checked(tmp_path: Path, annotation: str, code: str) -> None:
    assert codes(refused(tmp_path, f"kind: Stream\nmetadata: {{name: A, annotations: {{{annotation}}}}}")) == [code]


@pytest.mark.parametrize(
    "text", ["metadata: {name: A}", "kind: Stream", "kind: [Stream]\nmetadata: {name: A}", "kind: Stream\nmetadata: 5"]
)
def test_a_document_must_say_what_it_is(tmp_path: Path, text: str) -> None:
    assert codes(refused(tmp_path, text))[0] in ("missing-field", "unknown-kind", "wrong-type")


@pytest.mark.parametrize(
    ("version", "expected"), [("v1", "reconciler/v1"), ("jetstream.nats.io/v1beta1", "jetstream.nats.io/v1beta2")]
)
def test_other_api_versions_are_refused(tmp_path: Path, version: str, expected: str) -> None:
    (tmp_path / "x.yaml").write_text(f"apiVersion: {version}\nkind: Stream\nmetadata: {{name: A}}\n")
    with pytest.raises(InvalidInput) as caught:
        Loader().load([str(tmp_path)])
    assert [problem.code for problem in caught.value.problems] == ["unknown-api-version"]
    assert caught.value.problems[0].message.startswith(f'"{version}" is not known here; expected {expected}')


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("consumer: {name: c, serverManaged: true, deliverSubject: d}", "source-mode"),
        ("consumer: {name: c, serverManaged: true, unmanaged: true}", "source-mode"),
        ("consumer: {name: c, unmanaged: true}", "source-mode"),
        ("consumer: {name: c}", "source-mode"),
        ("consumer: {name: c, deliverSubject: d.*}", "bad-value"),
        ("consumer: {deliverSubject: d}", "missing-field"),
        ("external: {domain: a, api: b}", "bad-value"),
        ("external: {}", "bad-value"),
    ],
)
def test_the_modes_of_a_source_exclude_each_other(tmp_path: Path, source: str, code: str) -> None:
    assert codes(refused(tmp_path, stream(f"sources: [{{name: S, {source}}}]"))) == [code]


def test_what_means_nothing_is_a_warning(tmp_path: Path) -> None:
    loaded = load(tmp_path, STREAM, consumer("deliverGroup: g"), consumer("deliverSubject: d, maxBatch: 5", name="d"))
    assert warnings(loaded) == ["no-effect", "no-effect"]


def test_a_number_that_no_server_can_hold_is_refused(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, stream("maxMsgs: 18446744073709551615"))) == ["bad-value"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (stream("maxAge: 30"), "spec.maxAge"),
        (stream("consumerLimits: {inactiveThreshold: 5}"), "spec.consumerLimits.inactiveThreshold"),
        (consumer("backoff: [1s, 5]"), "spec.backoff[1]"),
        ("kind: WorkerPool\nmetadata: {name: p}\nspec: {stream: S, handoff: {deadline: 120}}", "spec.handoff.deadline"),
        ("kind: WorkerPool\nmetadata: {name: p}\nspec: {stream: S, consumer: {ackWait: 30}}", "spec.consumer.ackWait"),
        ("kind: KeyValue\nmetadata: {name: b}\nspec: {ttl: 60}", "spec.ttl"),
        ("kind: Policy\nmetadata: {name: p}\nspec: {consumers: {unusedAfter: 30}}", "spec.consumers.unusedAfter"),
    ],
)
def test_a_duration_has_a_unit(tmp_path: Path, text: str, field: str) -> None:
    found = {problem.field: problem.message for problem in refused(tmp_path, text) if problem.code == "bad-value"}
    assert list(found) == [field]
    assert "needs a unit" in found[field]


def test_no_duration_at_all_needs_no_unit(tmp_path: Path) -> None:
    assert load(tmp_path, stream("maxAge: 0, maxBytes: 64")).desired.resources


def test_metadata_has_a_limit_and_reserved_names(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, stream(f"metadata: {{a: {'x' * 131072}}}"))) == ["metadata-too-large"]
    assert codes(refused(tmp_path, stream("metadata: {reconciler.owner: me}"))) == ["bad-value"]


@pytest.mark.parametrize("kind", ["PartitionPlan"])
def test_kinds_of_other_programs_are_skipped(tmp_path: Path, kind: str) -> None:
    assert load(tmp_path, f"kind: {kind}\nmetadata: {{name: p}}\nspec: {{anything: [goes]}}").desired.resources == {}


def test_the_pool_of_the_manual_gives_its_template_and_workers(tmp_path: Path) -> None:
    text = """
    kind: WorkerPool
    metadata: {name: processor}
    spec:
      stream: DC
      workers:
        - {id: worker-0, filterSubjects: [dc.b, dc.a, dc.b]}
    """
    assignment = """
    kind: WorkerAssignment
    metadata: {name: processor.worker-1}
    spec: {pool: processor, worker: worker-1, filterSubjects: [dc.c]}
    """
    loaded = load(tmp_path, stream("subjects: [dc.>]", name="DC"), text, assignment)
    pool = loaded.desired.pools["processor"]
    assert pool.config == {
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_ack_pending": 500,
        "max_waiting": 256,
        "max_deliver": 3,
    }
    assert {name: worker.subjects for name, worker in pool.workers.items()} == {
        "worker-0": ["dc.a", "dc.b"],
        "worker-1": ["dc.c"],
    }
    assert pool.consumer_names(pool.workers["worker-0"]) == ["processor-worker-0"]
    assert warnings(loaded) == ["duplicate-subjects"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("consumer: {filterSubjects: [a]}", "pool-field"),
        ("consumer: {deliverPolicy: new}", "pool-field"),
        ("consumer: {ackPolicy: none}", "pool-field"),
        ("consumer: {ackWait: 30s, backoff: [2s, 5s]}", "backoff-ack-wait"),
        ("consumer: {idleHeartbeat: 5s}", "push-only-field"),
        ("workers: [{id: a, filterSubjects: []}, {id: a, filterSubjects: []}]", "duplicate-worker"),
        ("workers: [{id: a.b, filterSubjects: []}]", "bad-name"),
        ("workers: [{id: a, filterSubjects: [x.*, x.a]}]", "filter-overlap"),
        ("handoff: {deadline: 0s}", "bad-value"),
        ("migrateFrom: {consumers: 'p-*', phase: later}", "bad-value"),
    ],
)
def test_a_pool_is_checked(tmp_path: Path, spec: str, code: str) -> None:
    assert codes(refused(tmp_path, f"kind: WorkerPool\nmetadata: {{name: p}}\nspec: {{stream: DC, {spec}}}"))[0] == code


def test_an_ordinary_document_compiles_in_microseconds() -> None:
    text = document(consumer("filterSubjects: [s.a], ackWait: 30s, maxDeliver: 10, deadLetter: {subject: dlq.a}"))
    (parsed,) = parse_text(Text("x.yaml", text.encode())).documents
    context, rounds = Context(), 500
    compile_document(parsed, context)
    best = min(_seconds(lambda: [compile_document(parsed, context) for _ in range(rounds)]) for _ in range(5))
    assert best / rounds < 200e-6, "40 µs are wanted; five times that is a mistake, not a slow machine"


def _seconds(work: object) -> float:
    assert callable(work)
    begin = time.process_time()
    work()
    return time.process_time() - begin
