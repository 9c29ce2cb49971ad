"""What is refused of sources and their durables before any request, each with its code at the line that is to blame."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from reconciler.manifests.files.loader import Loader
from reconciler.model.identity import Key
from tests.support.values.manifests import codes, load, refused, warnings, written

HERE = "# here"
S = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>]}"
QUEUE = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>], retention: workqueue}"
OWN = "kind: Consumer\nmetadata: {name: c}\nspec: {stream: S, ackPolicy: flow_control, deliverSubject: d.a}"
MANAGED = "kind: Stream\nmetadata: {name: A}\nspec: {sources: [{name: S, consumer: {name: c, serverManaged: true}}]}"
READS_OWN = "kind: Stream\nmetadata: {name: A}\nspec: {sources: [{name: S, consumer: {name: c, deliverSubject: d.a}}]}"


def aggregate(*entry: str, kind: str = "sources", name: str = "A") -> str:
    """A stream with one source (or a mirror), its entry given line by line."""
    lines = "\n".join(f"      {line}" for line in entry)
    body = f"  sources:\n    -\n{lines}" if kind == "sources" else f"  mirror:\n{lines}"
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec:\n{body}"


def own(*lines: str, name: str = "c") -> str:
    """A consumer that a source can read, and what else is said of it."""
    said = "\n".join(f"  {line}" for line in ("stream: S", "ackPolicy: flow_control", "deliverSubject: d.a", *lines))
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec:\n{said}"


def managed(*lines: str) -> tuple[str, ...]:
    """The entry of a serverManaged source."""
    return ("name: S", *lines, "consumer: {name: c, serverManaged: true}")


def the_line(directory: Path) -> int:
    """Where the documents say that it is wrong."""
    text = (directory / "x.yaml").read_text().splitlines()
    (line,) = (number for number, line in enumerate(text, 1) if HERE in line)
    return line


OF_A_CONSUMER = {
    "a pull consumer": (["stream: S", f"ackPolicy: flow_control {HERE}"], "flow-control"),
    "ackWait": ([f"ackWait: 30s {HERE}"], "flow-control"),
    "backoff": ([f"backoff: [1s] {HERE}"], "flow-control"),
    "maxDeliver": ([f"maxDeliver: 5 {HERE}"], "flow-control"),
    "no bound of what is unacknowledged": ([f"maxAckPending: -1 {HERE}"], "flow-control"),
    "another heartbeat": ([f"idleHeartbeat: 5s {HERE}"], "flow-control"),
    "flowControl off": ([f"flowControl: false {HERE}"], "flow-control"),
    "deliverGroup": ([f"deliverGroup: g {HERE}"], "flow-control"),
    "headersOnly": ([f"headersOnly: true {HERE}"], "flow-control"),
    "memStorage": ([f"memStorage: true {HERE}"], "flow-control"),
    "inactiveThreshold": ([f"inactiveThreshold: 1h {HERE}"], "flow-control"),
    "not durable": ([f"durable: false {HERE}"], "flow-control"),
    "last_per_subject without a filter": ([f"deliverPolicy: last_per_subject {HERE}"], "filter-missing"),
    "our own subjects as filter": ([f"filterSubject: _detached.x {HERE}"], "reserved-subject"),
    "our own subjects among filters": (["filterSubjects:", "  - s.a", f"  - _reconciler.x {HERE}"], "reserved-subject"),
}


@pytest.mark.parametrize(("lines", "code"), OF_A_CONSUMER.values(), ids=OF_A_CONSUMER)
def test_a_consumer_that_a_source_reads_is_one_that_the_server_keeps_so(tmp_path: Path, lines: list[str], code: str) -> None:
    text = own(*lines) if "stream: S" not in lines else "kind: Consumer\nmetadata: {name: c}\nspec:\n  " + "\n  ".join(lines)
    found = {(problem.code, problem.line) for problem in refused(tmp_path, text)}
    assert (code, the_line(tmp_path)) in found, found


@pytest.mark.parametrize("subject", ["d.*", "d.>"])
def test_a_consumer_delivers_to_one_subject(tmp_path: Path, subject: str) -> None:
    text = own().replace("deliverSubject: d.a", f"deliverSubject: {subject} {HERE}")
    (problem,) = refused(tmp_path, text)
    assert problem.line == the_line(tmp_path)


OF_AN_ENTRY = {
    "both starts": (managed("optStartSeq: 5", f"optStartTime: 2026-01-01T00:00:00Z {HERE}"), "start-twice"),
    "behind an import": (
        ("name: S", "external: {api: other.API}", "consumer:", "  name: c", f"  serverManaged: true {HERE}"),
        "managed-import",
    ),
    "our own subjects": (managed(f"filterSubject: _detached.c {HERE}"), "reserved-subject"),
    "our own subjects in a transform": (
        managed("subjectTransforms:", f"  - src: _reconciler.from.x {HERE}", "    dest: t"),
        "reserved-subject",
    ),
    "our own subjects as a destination": (
        managed("subjectTransforms:", "  - src: s.a", f"    dest: _reconciler.t {HERE}"),
        "reserved-subject",
    ),
    "our own deliver subjects": (
        ("name: S", "consumer:", "  name: c", f"  deliverSubject: _reconciler.src.x {HERE}", "  unmanaged: true"),
        "reserved-subject",
    ),
    "the server's names": (("name: S", "consumer:", f"  name: JS_SRC_x {HERE}", "  serverManaged: true"), "reserved-name"),
    "the names of holds": (
        ("name: S", "consumer:", f"  name: _reconciler_hold_x {HERE}", "  serverManaged: true"),
        "reserved-name",
    ),
    "no name of a consumer": (("name: S", "consumer:", f"  name: a.b {HERE}", "  serverManaged: true"), "bad-name"),
    "two modes at once": (
        ("name: S", "consumer:", "  name: c", "  deliverSubject: d", f"  serverManaged: true {HERE}"),
        "source-mode",
    ),
    "managed and unmanaged": (
        ("name: S", "consumer:", "  name: c", "  unmanaged: true", f"  serverManaged: true {HERE}"),
        "source-mode",
    ),
    "no mode": (("name: S", f"consumer: {HERE}", "  name: c"), "source-mode"),
    "a filter beside an own consumer": (
        ("name: S", f"filterSubject: s.a {HERE}", "consumer: {name: c, deliverSubject: d.a}"),
        "start-or-filter-on-source",
    ),
    "a start beside an own consumer": (
        ("name: S", f"optStartSeq: 5 {HERE}", "consumer: {name: c, deliverSubject: d.a}"),
        "start-or-filter-on-source",
    ),
    "a moment to start beside an own consumer": (
        ("name: S", f"optStartTime: 2026-01-01T00:00:00Z {HERE}", "consumer: {name: c, deliverSubject: d.a}"),
        "start-or-filter-on-source",
    ),
}


@pytest.mark.parametrize("kind", ["sources", "mirror"])
@pytest.mark.parametrize(("entry", "code"), OF_AN_ENTRY.values(), ids=OF_AN_ENTRY)
def test_an_entry_says_one_thing(tmp_path: Path, kind: str, entry: tuple[str, ...], code: str) -> None:
    found = [(problem.code, problem.line) for problem in refused(tmp_path, aggregate(*entry, kind=kind))]
    assert found == [(code, the_line(tmp_path))]


def test_a_way_out_of_an_import_is_named(tmp_path: Path) -> None:
    entry, _ = OF_AN_ENTRY["behind an import"]
    (problem,) = refused(tmp_path, aggregate(*entry))
    assert "external: {domain" in problem.message
    assert "unmanaged: true" in problem.message


BETWEEN = {
    "a declared consumer of that name": (
        [S, OWN.replace("d.a", "d.b"), aggregate("name: S", "consumer:", f"  name: c {HERE}", "  serverManaged: true")],
        "duplicate-identity",
    ),
    "a tombstone of that name": (
        [
            S,
            "kind: Consumer\nmetadata: {name: c}\nspec: {stream: S, state: absent}",
            aggregate("name: S", "consumer:", f"  name: c {HERE}", "  serverManaged: true"),
        ],
        "removed-consumer",
    ),
    "a worker of that name": (
        [
            S,
            MANAGED.replace("name: c", "name: p-w"),
            f"kind: WorkerPool\nmetadata: {{name: p}}\nspec: {HERE}\n  stream: S\n  workers: [{{id: w, filterSubjects: [s.a]}}]",
        ],
        "duplicate-identity",
    ),
    "two entries of one durable": (
        [S, MANAGED, aggregate("name: S", "consumer:", f"  name: c {HERE}", "  serverManaged: true", name="B")],
        "shared-durable",
    ),
    "two readers of one consumer": (
        [S, OWN, READS_OWN, aggregate("name: S", "consumer:", f"  name: c {HERE}", "  deliverSubject: d.a", name="B")],
        "shared-durable",
    ),
    "two consumers of one deliver subject": (
        [S, OWN, own(name="d").replace("deliverSubject: d.a", f"deliverSubject: d.a {HERE}")],
        "shared-deliver-subject",
    ),
    "an entry and a consumer of one deliver subject": (
        [S, OWN, READS_OWN, own(name="d").replace("deliverSubject: d.a", f"deliverSubject: d.a {HERE}")],
        "shared-deliver-subject",
    ),
    "a deliver subject that a stream stores": (
        [
            S,
            "kind: Stream\nmetadata: {name: D}\nspec: {subjects: [d.>]}",
            own().replace("deliverSubject: d.a", f"deliverSubject: d.a {HERE}"),
        ],
        "deliver-subject-stored",
    ),
    "a stream that stores what is delivered to a managed entry": (
        [
            "kind: Stream\nmetadata: {name: S}",
            "kind: Stream\nmetadata: {name: D}\nspec: {subjects: ['*.src.>'], noAck: true}",
            aggregate("name: S", "consumer:", "  name: c", f"  serverManaged: true {HERE}"),
        ],
        "deliver-subject-stored",
    ),
    "a start in a work queue": ([QUEUE, aggregate(*managed(f"optStartSeq: 5 {HERE}"))], "workqueue-start"),
    "a moment to start in a work queue": (
        [QUEUE, aggregate(*managed(f"optStartTime: 2026-01-01T00:00:00Z {HERE}"))],
        "workqueue-start",
    ),
    "an own consumer that starts late in a work queue": (
        [QUEUE, own("deliverPolicy: by_start_sequence " + HERE, "optStartSeq: 5"), READS_OWN],
        "workqueue-start",
    ),
    "two readers of a work queue": (
        [QUEUE, MANAGED, aggregate(f"name: S {HERE}", "consumer: {name: d, serverManaged: true}", name="B")],
        "workqueue-overlap",
    ),
    "consumers that delete themselves": (
        [
            f"kind: Stream\nmetadata: {{name: S}}\nspec:\n  consumerLimits:\n    inactiveThreshold: 1h {HERE}",
            MANAGED,
        ],
        "self-deleting-source",
    ),
    "an own consumer that deletes itself": (
        [f"kind: Stream\nmetadata: {{name: S}}\nspec:\n  consumerLimits:\n    inactiveThreshold: 1h {HERE}", OWN, READS_OWN],
        "self-deleting-source",
    ),
    "what no transform matches": (
        [
            S,
            OWN,
            aggregate(
                "name: S", f"subjectTransforms: [{{src: s.a.>, dest: t.>}}] {HERE}", "consumer: {name: c, deliverSubject: d.a}"
            ),
        ],
        "transform-without-filter",
    ),
    "what the consumer never delivers": (
        [
            S,
            own("filterSubject: s.a.b"),
            aggregate(
                "name: S",
                "subjectTransforms:",
                "  - {src: s.a.>, dest: t.>}",
                f"  - {{src: s.b.>, dest: u.>}} {HERE}",
                "consumer: {name: c, deliverSubject: d.a}",
            ),
        ],
        "transform-without-filter",
    ),
    "a consumer that no source can read": (
        [
            S,
            "kind: Consumer\nmetadata: {name: c}\nspec: {stream: S, deliverSubject: d.a}",
            aggregate("name: S", "consumer:", f"  name: c {HERE}", "  deliverSubject: d.a"),
        ],
        "source-consumer",
    ),
    "a consumer that delivers elsewhere": (
        [S, OWN, aggregate("name: S", "consumer:", "  name: c", f"  deliverSubject: d.b {HERE}")],
        "source-consumer",
    ),
    "a circle": (
        [
            aggregate("name: B", "consumer: {name: c, serverManaged: true}"),
            aggregate(f"name: A {HERE}", "filterSubject: a.b", "consumer: {name: c, serverManaged: true}", name="B"),
        ],
        "sourcing-cycle",
    ),
}


@pytest.mark.parametrize(("documents", "code"), BETWEEN.values(), ids=BETWEEN)
def test_documents_must_fit_together(tmp_path: Path, documents: list[str], code: str) -> None:
    found = [(problem.code, problem.line) for problem in refused(tmp_path, *documents)]
    assert found == [(code, the_line(tmp_path))]


def test_our_own_subjects_are_no_subjects_of_a_stream(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, "kind: Stream\nmetadata: {name: A}\nspec: {subjects: [_reconciler.src.>]}")) == [
        "reserved-subject"
    ]
    again = "kind: Stream\nmetadata: {name: A}\nspec: {subjects: [a], republish: {dest: _detached.a}}"
    assert codes(refused(tmp_path, again)) == ["reserved-subject"]


@pytest.mark.parametrize("policy", ["new", "last"])
def test_a_source_that_leaves_out_what_is_stored_is_a_warning(tmp_path: Path, policy: str) -> None:
    loaded = load(tmp_path, S, own(f"deliverPolicy: {policy} {HERE}"), READS_OWN)
    assert [(problem.code, problem.line) for problem in loaded.warnings] == [("flow-control-start", the_line(tmp_path))]


def test_an_ephemeral_source_of_a_queue_is_a_warning(tmp_path: Path) -> None:
    loaded = load(tmp_path, QUEUE, aggregate(f"name: S {HERE}"))
    assert [(problem.code, problem.line) for problem in loaded.warnings] == [("ephemeral-source", the_line(tmp_path))]


def test_circles_that_own_consumers_cut_are_none(tmp_path: Path) -> None:
    documents = [
        aggregate("name: B", "consumer: {name: c, deliverSubject: d.b}"),
        aggregate("name: A", "consumer: {name: c, deliverSubject: d.a}", name="B"),
        OWN.replace("stream: S", "stream: B, filterSubject: b.>").replace("d.a", "d.b"),
        OWN.replace("stream: S", "stream: A, filterSubject: a.>"),
    ]
    assert load(tmp_path / "cut", *documents).desired.resources
    closed = [document.replace("b.>", "a.b") for document in documents]
    assert codes(refused(tmp_path / "closed", *closed)) == ["sourcing-cycle"]


DEFAULTS = """\
kind: Environment
metadata: {name: prod}
spec:
  defaults:
    Consumer: {ackWait: 10s, maxDeliver: 5, maxAckPending: -1, inactiveThreshold: 1h, memStorage: true, headersOnly: true,
               durable: false, flowControl: false, idleHeartbeat: 5s, backoff: [1s], deliverGroup: g, maxWaiting: 5}
"""


def test_defaults_that_a_source_cannot_have_are_not_applied(tmp_path: Path) -> None:
    key = Key("Consumer", "c", "S")
    with_defaults = load(tmp_path / "with", S, OWN, READS_OWN, DEFAULTS, env="prod").desired.resources[key]
    assert with_defaults.wire == load(tmp_path / "without", S, OWN, READS_OWN).desired.resources[key].wire


VALID = """\
kind: Stream
metadata: {name: S}
spec: {subjects: [s.>], retention: interest}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: Q}
spec: {subjects: [q.>], retention: workqueue}
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: latest}
spec:
  stream: S
  ackPolicy: flow_control
  deliverSubject: to.latest
  deliverPolicy: last_per_subject
  filterSubjects: [s.state.>, s.other.>]
  replayPolicy: original
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: far}
spec: {stream: EV, domain: leaf, ackPolicy: flow_control, deliverSubject: to.far}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: EV}
spec: {domain: leaf, subjects: [ev.>]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: LIMITS}
spec: {subjects: [l.>]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: A}
spec:
  sources:
    - {name: LIMITS, filterSubject: l.a}
    - name: S
      subjectTransforms: [{src: s.state.>, dest: state.>}, {src: s.other.>, dest: other.>}]
      consumer: {name: latest, deliverSubject: to.latest}
    - {name: Q, filterSubject: q.a, consumer: {name: a, serverManaged: true}}
    - {name: Q, subjectTransforms: [{src: q.b.>, dest: t.>}], consumer: {name: b, serverManaged: true}}
    - {name: EV, external: {domain: leaf}, optStartSeq: 7, consumer: {name: near, serverManaged: true}}
    - {name: EV, external: {domain: leaf}, consumer: {name: far, deliverSubject: to.far}}
    - {name: ELSEWHERE, external: {domain: other}, consumer: {name: x, deliverSubject: to.x, unmanaged: true}}
    - name: ACCOUNT
      external: {api: other.API, deliver: other.deliver}
      consumer: {name: x, deliverSubject: to.y, unmanaged: true}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: M1}
spec: {mirror: {name: S, filterSubject: s.x, optStartTime: '2026-01-01T00:00:00Z', consumer: {name: m1, serverManaged: true}}}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: M2}
spec: {mirror: {name: EV, external: {domain: leaf}, consumer: {name: m2, deliverSubject: to.m2, unmanaged: true}}}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: M3}
spec: {mirror: {name: LIMITS}}
"""


def test_every_mode_of_sources_and_mirrors_passes(tmp_path: Path) -> None:
    loaded = load(tmp_path, textwrap.dedent(VALID))
    assert warnings(loaded) == []
    kept = {str(key): durable for key, durable in loaded.desired.durables.items()}
    assert sorted(kept) == ["Consumer/Q/a", "Consumer/Q/b", "Consumer/S/m1", "leaf:Consumer/EV/near"]
    assert {str(durable.aggregate) for durable in kept.values()} == {"Stream/A", "Stream/M1"}
    assert kept["Consumer/Q/b"].declared.config["filter_subjects"] == ["q.b.>"]
    near = kept["leaf:Consumer/EV/near"].declared.config
    assert (near["deliver_policy"], near["opt_start_seq"]) == ("by_start_sequence", 7)
    assert kept["Consumer/S/m1"].declared.config["deliver_policy"] == "by_start_time"


def test_durables_are_spelled_out_for_the_owner_of_the_manifests(tmp_path: Path) -> None:
    written(
        tmp_path,
        S,
        MANAGED,
        "kind: Policy\nmetadata: {name: p}\nspec: {owner: team}",
        "kind: Environment\nmetadata: {name: prod}",
    )
    asked: list[tuple[str, str]] = []

    def owner(declared: str, environment: str) -> str:
        asked.append((declared, environment))
        return "somebody"

    key = Key("Stream", "A")
    delivered = {
        Loader().load([str(tmp_path)], "prod").desired.resources[key].config["sources"][0]["consumer"]["deliver_subject"],
        Loader(lambda *_: "team/prod")
        .load([str(tmp_path)], "prod")
        .desired.resources[key]
        .config["sources"][0]["consumer"]["deliver_subject"],
    }
    loader = Loader(owner)
    first = loader.load([str(tmp_path)], "prod").desired
    assert len(delivered) == 1
    assert asked == [("team", "prod")]
    assert first.resources[key].config["sources"][0]["consumer"]["deliver_subject"] not in delivered
    assert loader.load([str(tmp_path)], "prod", full=True).desired is first
