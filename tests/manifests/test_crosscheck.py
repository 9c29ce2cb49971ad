"""What only shows when documents are looked at together."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reconciler.errors import Problem
from reconciler.manifests.crosscheck import Declarations, crosscheck
from reconciler.manifests.crosscheck.collisions import collisions
from reconciler.model.desired import Declared
from reconciler.model.identity import Key, Location
from tests.support.values.manifests import codes, load, refused, warnings


def stream(name: str, spec: str = "") -> str:
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {{{spec}}}"


def consumer(name: str, spec: str = "", of: str = "S") -> str:
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {{stream: {of}{', ' if spec else ''}{spec}}}"


def pool(name: str, spec: str = "", of: str = "S") -> str:
    return f"kind: WorkerPool\nmetadata: {{name: {name}}}\nspec: {{stream: {of}{', ' if spec else ''}{spec}}}"


def only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, problems
    return problems[0]


S = stream("S", "subjects: [s.>]")
QUEUE = stream("S", "subjects: [s.>], retention: workqueue")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (stream("A", "subjects: [a.>]"), stream("B", "subjects: [b, a.x]")),
        (stream("A", "subjects: [a.*.x]"), stream("B", "subjects: [a.b.*]")),
        (stream("A"), stream("B", "subjects: [A]")),
        (stream("A", "subjects: [$KV.b.x]"), "kind: KeyValue\nmetadata: {name: b}"),
    ],
)
def test_two_streams_cannot_store_one_subject(tmp_path: Path, one: str, two: str) -> None:
    problem = only(refused(tmp_path, one, two))
    assert problem.code == "subject-overlap"
    assert "of Stream/A" in problem.message or "of KeyValue/b" in problem.message
    assert f"{tmp_path}/x.yaml:" in problem.message
    assert problem.field.startswith("spec.subjects[")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (stream("A", "subjects: [a.>]"), stream("B", "subjects: [a.x], domain: leaf")),
        (stream("A", "subjects: [a.>]"), stream("B", "subjects: [a.x], state: absent")),
        (stream("A", "subjects: [a.>]"), stream("B", "state: unmanaged")),
        (stream("A", "subjects: [B]"), stream("B", "mirror: {name: A}")),
        (stream("A", "subjects: [B]"), stream("B", "sources: [{name: A}]")),
        (stream("A", "subjects: [a.*]"), stream("B", "subjects: [a.x.y]")),
    ],
)
def test_streams_that_do_not_meet_pass(tmp_path: Path, one: str, two: str) -> None:
    assert load(tmp_path, one, two).desired.resources


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (S, S),
        (consumer("c"), consumer("c")),
        ("kind: KeyValue\nmetadata: {name: x}", stream("KV_x", "subjects: [z]")),
        ("kind: ObjectStore\nmetadata: {name: x}", stream("OBJ_x", "subjects: [z]")),
        (pool("p"), pool("p")),
        (stream("A"), stream("A", "state: absent")),
    ],
)
def test_an_identity_is_declared_once_and_both_places_are_named(tmp_path: Path, one: str, two: str) -> None:
    problem = only(refused(tmp_path, one, two))
    assert (problem.code, problem.field) == ("duplicate-identity", "metadata.name")
    assert f"{tmp_path}/x.yaml:1" in problem.message


def test_one_name_on_two_streams_or_domains_is_two_identities(tmp_path: Path) -> None:
    documents = [S, stream("T"), stream("S", "domain: leaf"), consumer("c"), consumer("c", of="T"), consumer("c", "domain: leaf")]
    assert len(load(tmp_path, *documents).desired.resources) == 6


@pytest.mark.parametrize(
    "documents",
    [
        [stream("A", "sources: [{name: B}]"), stream("B", "sources: [{name: A}]")],
        [
            stream("A", "mirror: {name: B}"),
            stream("B", "sources: [{name: C}]"),
            stream("C", "sources: [{name: A}, {name: S}]"),
            S,
        ],
        [stream("A", "sources: [{name: B, filterSubject: a.>}]"), stream("B", "sources: [{name: A, filterSubject: a.b}]")],
        [
            stream("A", "domain: hub, sources: [{name: A, external: {domain: leaf}}]"),
            stream("A", "domain: leaf, sources: [{name: A, external: {domain: hub}}]"),
        ],
    ],
)
def test_messages_must_not_go_round(tmp_path: Path, documents: list[str]) -> None:
    assert codes(refused(tmp_path, *documents)) == ["sourcing-cycle"]


@pytest.mark.parametrize(
    "documents",
    [
        [stream("A", "sources: [{name: B}, {name: C}]"), stream("B", "sources: [{name: C}]"), stream("C")],
        [stream("A", "sources: [{name: B, filterSubject: a.>}]"), stream("B", "sources: [{name: A, filterSubject: b.>}]")],
        [stream("A", "sources: [{name: A, external: {domain: leaf}}]"), stream("A", "domain: leaf")],
    ],
)
def test_diamonds_disjoint_filters_and_other_domains_are_no_cycles(tmp_path: Path, documents: list[str]) -> None:
    assert load(tmp_path, *documents).desired.resources


FLOW = "ackPolicy: flow_control, deliverSubject: d.a"
ENTRY = "{name: S, consumer: {name: c, deliverSubject: d.a}}"
OTHER_ENTRY = ENTRY.replace("name: S", "name: T")
TRANSFORMED = ENTRY[:-1] + ", subjectTransforms: [{src: s.a.>, dest: t.>}]}"


def test_a_source_reads_through_a_declared_consumer(tmp_path: Path) -> None:
    assert not load(tmp_path, S, consumer("c", FLOW), stream("A", f"sources: [{ENTRY}]")).warnings


@pytest.mark.parametrize(
    ("documents", "code"),
    [
        ([S, consumer("c"), stream("A", f"sources: [{ENTRY}]")], "source-consumer"),
        (
            [S, consumer("c", "ackPolicy: flow_control, deliverSubject: d.b"), stream("A", f"sources: [{ENTRY}]")],
            "source-consumer",
        ),
        ([S, consumer("c", "state: absent"), stream("A", f"sources: [{ENTRY}]")], "removed-consumer"),
        ([stream("S", "state: absent"), stream("A", "sources: [{name: S}]")], "removed-stream"),
        (
            [
                S,
                consumer("c", FLOW),
                stream("A", f"sources: [{ENTRY}]"),
                stream("B", "sources: [" + ENTRY.replace("d.a", "d.b") + "]"),
            ],
            "shared-durable",
        ),
        (
            [S, stream("T"), consumer("c", FLOW), consumer("c", FLOW, of="T"), stream("A", f"sources: [{ENTRY}, {OTHER_ENTRY}]")],
            "shared-deliver-subject",
        ),
        ([S, stream("D", "subjects: [d.>]"), consumer("c", FLOW), stream("A", f"sources: [{ENTRY}]")], "deliver-subject-stored"),
        ([S, consumer("c", FLOW), stream("A", f"subjects: [d.a], sources: [{ENTRY}]")], "deliver-subject-stored"),
        (
            [S, consumer("c"), stream("A", "sources: [{name: S, consumer: {name: c, serverManaged: true}}]")],
            "duplicate-identity",
        ),
        (
            [QUEUE, stream("A", "sources: [{name: S, optStartSeq: 5, consumer: {name: c, serverManaged: true}}]")],
            "workqueue-start",
        ),
        (
            [S, consumer("c", FLOW), stream("A", f"sources: [{TRANSFORMED}]")],
            "transform-without-filter",
        ),
    ],
)
def test_a_source_and_its_consumer_must_fit(tmp_path: Path, documents: list[str], code: str) -> None:
    assert code in codes(refused(tmp_path, *documents))


def test_transforms_that_match_what_the_consumer_delivers_pass(tmp_path: Path) -> None:
    documents = [S, consumer("c", FLOW + ", filterSubject: s.a.b"), stream("A", f"sources: [{TRANSFORMED}]")]
    assert load(tmp_path, *documents).desired.resources


def test_two_leaves_with_the_same_names_are_two_consumers(tmp_path: Path) -> None:
    entries = "{name: S, external: {domain: l1}, consumer: {name: c, deliverSubject: d.1, unmanaged: true}}, "
    entries += "{name: S, external: {domain: l2}, consumer: {name: c, deliverSubject: d.2, unmanaged: true}}"
    assert not load(tmp_path, stream("A", f"sources: [{entries}]")).warnings
    assert "shared-deliver-subject" in codes(refused(tmp_path, stream("A", f"sources: [{entries.replace('d.2', 'd.1')}]")))


def test_a_durable_that_is_declared_in_another_domain_is_named(tmp_path: Path) -> None:
    far = stream("A", "sources: [" + ENTRY.replace("name: S,", "name: S, external: {domain: leaf},") + "]")
    near = consumer("c", "ackPolicy: flow_control, deliverSubject: d.near")
    (warned,) = load(tmp_path, S, stream("S", "domain: leaf, subjects: [far.>]"), far, near).warnings
    assert warned.code == "undeclared-consumer"
    assert "is Consumer/S/c (" in warned.message
    assert warned.message.endswith("in the wrong domain?")


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([consumer("c"), consumer("d")], ["undeclared-stream"]),
        ([stream("A", "sources: [{name: S}]")], ["undeclared-stream"]),
        ([stream("A", "sources: [{name: S, external: {domain: leaf}}]")], []),
        ([S, stream("A", f"sources: [{ENTRY}]")], ["undeclared-consumer"]),
        ([S, stream("A", "sources: [" + ENTRY.replace("}}", ", unmanaged: true}}") + "]")], []),
        ([pool("p")], ["undeclared-stream"]),
        ([QUEUE, stream("A", "sources: [{name: S}]")], ["ephemeral-source"]),
        ([S, stream("A", "sources: [{name: S, filterSubject: x.y}]")], ["filter-outside-stream"]),
        (["kind: WorkerAssignment\nmetadata: {name: a}\nspec: {pool: p, worker: w, filterSubjects: [s.a]}"], ["undeclared-pool"]),
        ([S, pool("p", "consumer: {inactiveThreshold: 1h}")], ["self-deleting-worker"]),
        ([S, pool("p", "limits: {maxSubjects: 2}, workers: [{id: w, filterSubjects: [s.a, s.b]}]")], ["nearly-full"]),
        ([S, consumer("c", "ackPolicy: flow_control, deliverSubject: d.a, deliverPolicy: new")], ["flow-control-start"]),
    ],
)
def test_what_may_be_right_elsewhere_is_a_warning(tmp_path: Path, documents: list[str], expected: list[str]) -> None:
    assert warnings(load(tmp_path, *documents)) == expected


@pytest.mark.parametrize(
    ("documents", "code"),
    [
        ([S, consumer("c", "filterSubject: x.y")], "filter-outside-stream"),
        ([S, consumer("c", "filterSubjects: [s.a, t]")], "filter-outside-stream"),
        ([S, consumer("c", "deliverSubject: s.x")], "deliver-subject-cycle"),
        ([stream("S", "state: absent"), consumer("c")], "removed-stream"),
        ([stream("S", "consumerLimits: {maxAckPending: 50}"), consumer("c", "maxAckPending: 100")], "consumer-limits"),
        ([stream("S", "consumerLimits: {inactiveThreshold: 1m}"), consumer("c", "inactiveThreshold: 2m")], "consumer-limits"),
        ([stream("S", "replicas: 1"), consumer("c", "replicas: 3")], "too-many-replicas"),
        ([stream("S", "maxConsumers: 1"), consumer("c"), consumer("d")], "too-many-consumers"),
        ([QUEUE, consumer("c", "ackPolicy: none")], "workqueue-ack"),
        ([QUEUE, consumer("c", "deliverPolicy: new")], "workqueue-start"),
        ([QUEUE, consumer("c"), consumer("d", "filterSubject: s.a")], "workqueue-overlap"),
        ([QUEUE, consumer("c", "filterSubject: s.*"), consumer("d", "filterSubjects: [s.x.y, s.a]")], "workqueue-overlap"),
        (
            [
                QUEUE,
                consumer("c", "filterSubject: s.a"),
                stream("A", "sources: [{name: S, consumer: {name: x, serverManaged: true}}]"),
            ],
            "workqueue-overlap",
        ),
        ([QUEUE, consumer("c"), pool("p", "workers: [{id: w, filterSubjects: [s.a]}]")], "workqueue-overlap"),
    ],
)
def test_a_consumer_must_fit_its_stream(tmp_path: Path, documents: list[str], code: str) -> None:
    assert codes(refused(tmp_path, *documents)) == [code]


@pytest.mark.parametrize(
    "documents",
    [
        [stream("S", "sources: [{name: T}]"), stream("T"), consumer("c", "filterSubject: anything")],
        [
            stream("S", "subjects: [s.*], subjectTransform: {src: s.*, dest: 't.{{wildcard(1)}}'}"),
            consumer("c", "filterSubject: t.x"),
        ],
        [stream("S", "state: unmanaged"), consumer("c", "filterSubject: anything, replicas: 3")],
        [QUEUE, consumer("c", "filterSubject: s.a"), consumer("d", "filterSubject: s.b")],
        [QUEUE, consumer("c"), consumer("d", "state: absent")],
        [S, consumer("c"), consumer("d")],
    ],
)
def test_consumers_that_fit_pass(tmp_path: Path, documents: list[str]) -> None:
    assert load(tmp_path, *documents).desired.resources


def test_more_than_a_thousand_consumers_want_a_limit_that_says_so(tmp_path: Path) -> None:
    many = [consumer(f"c{number}") for number in range(1001)]
    assert warnings(load(tmp_path / "unset", S, *many)) == ["max-consumers-unset"]
    assert warnings(load(tmp_path / "set", stream("S", "subjects: [s.>], maxConsumers: 2000"), *many)) == []


ASSIGNMENT = "kind: WorkerAssignment\nmetadata: {name: a}\nspec: {pool: p, worker: w0, filterSubjects: [s.x]}"
W0, W1 = "{id: w0, filterSubjects: [s.a, s.b]}", "{id: w1, filterSubjects: [s.b]}"


@pytest.mark.parametrize(
    ("documents", "code"),
    [
        ([S, pool("p", f"workers: [{W0}, {W1}]")], "subject-in-two-workers"),
        ([S, pool("p", "workers: [{id: w0, filterSubjects: [s.*]}, {id: w1, filterSubjects: [s.b]}]")], "subject-in-two-workers"),
        ([S, pool("p", "limits: {maxSubjects: 1}, workers: [{id: w, filterSubjects: [s.a, s.b]}]")], "too-many-subjects"),
        ([S, pool("p", f"workers: [{W0}]"), pool("q", f"workers: [{W1}]")], "pool-overlap"),
        ([S, pool("p", f"overlap: allowed, workers: [{W0}]"), pool("q", f"workers: [{W1}]")], "pool-overlap"),
        (
            [QUEUE, pool("p", f"overlap: allowed, workers: [{W0}]"), pool("q", f"overlap: allowed, workers: [{W1}]")],
            "workqueue-overlap",
        ),
        ([S, pool("p", "workers: [{id: w0, filterSubjects: [x.y]}]")], "filter-outside-stream"),
        ([S, consumer("p-w0"), pool("p", f"workers: [{W0}]")], "duplicate-identity"),
        (
            [S, pool("p", f"workers: [{W0}]"), pool("q", "consumerPrefix: p, workers: [{id: w0, filterSubjects: [s.x]}]")],
            "duplicate-identity",
        ),
        ([stream("S", "state: absent"), pool("p")], "removed-stream"),
        (
            [S, pool("p", f"workers: [{W0}]"), ASSIGNMENT],
            "duplicate-worker",
        ),
    ],
)
def test_a_subject_has_one_worker_and_a_worker_one_place(tmp_path: Path, documents: list[str], code: str) -> None:
    assert codes(refused(tmp_path, *documents)) == [code]


def test_a_worker_over_the_cap_is_told_how_many_are_needed(tmp_path: Path) -> None:
    workers = "limits: {maxSubjects: 2}, workers: [{id: w, filterSubjects: [s.a, s.b, s.c, s.d, s.e]}]"
    assert "need 3 workers" in only(refused(tmp_path, S, pool("p", workers))).message
    sharded = load(tmp_path / "sharded", S, pool("p", f"shardOverCap: true, {workers}")).desired.pools["p"]
    assert sharded.consumer_names(sharded.workers["w"]) == ["p-w-s0", "p-w-s1", "p-w-s2"]


@pytest.mark.parametrize(
    "documents",
    [
        [S, pool("p", f"overlap: allowed, workers: [{W0}]"), pool("q", f"overlap: allowed, workers: [{W1}]")],
        [S, pool("p", "workers: [{id: w0, filterSubjects: []}, {id: w1, filterSubjects: []}]")],
        [S, consumer("c"), pool("p", f"workers: [{W0}]")],
        [QUEUE, pool("p", "workers: [{id: w0, filterSubjects: [s.a]}, {id: w1, filterSubjects: [s.b]}]")],
    ],
)
def test_pools_that_fit_pass(tmp_path: Path, documents: list[str]) -> None:
    assert load(tmp_path, *documents).desired.pools


def test_collisions_are_found_whatever_comes_first() -> None:
    claims = {"a": ["x.1", "y.*"], "b": ["x.*"], "c": ["y.2", "z"]}
    for order in (["a", "b", "c"], ["c", "b", "a"]):
        found = {frozenset((hit.owner, hit.other)) for hit in collisions((owner, claims[owner]) for owner in order)}
        assert found == {frozenset("ab"), frozenset("ac")}


def test_a_hundred_thousand_consumers_are_checked_in_seconds() -> None:
    queue = Declared(
        Key("Stream", "Q"), b'{"name":"Q","subjects":["q.>"],"retention":"workqueue","max_consumers":200000}', "", Location("q")
    )
    consumers = [
        Declared(
            Key("Consumer", f"c{n}", "Q"), b'{"ack_policy":"explicit","filter_subject":"q.%d"}' % n, "", Location("q", n + 1)
        )
        for n in range(100_000)
    ]
    begin = time.process_time()
    assert not list(crosscheck(Declarations.of([queue, *consumers], [], {})))
    assert time.process_time() - begin < 10
