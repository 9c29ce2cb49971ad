"""Export without a server: whatever is live plans to nothing or is noted, and what is not for people never appears."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.export.documents import Exported, Format, export
from reconciler.manifests.reference.schema import schema
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key, Location
from reconciler.model.marker import DEAD_LETTER, Marker
from reconciler.model.residue import Residue
from reconciler.model.seen.live import Live
from reconciler.model.sourcing import with_durables
from reconciler.plan.change import Action, Rules
from tests.support.values import build
from tests.support.values.planned import plan

S = 10**9
VALIDATOR = jsonschema.Draft7Validator(schema())

_durations = st.sampled_from([0, 100 * 10**6, S, 60 * S, 120 * S, 3600 * S, 30 * 86400 * S, 1_234_567_890_123])
_numbers = st.sampled_from([-1, 0, 1, 5, 64, 64_000_000, 64 * 2**20])
_flags = st.booleans()
_subjects = st.sampled_from(["a.>", "b.*.c", "c", "d.e.f", "$KV.x.>"])
_texts = st.sampled_from(["", "plain", "a: b", "50%", "ä – ✓", "true", "0755"])
_times = st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.12+02:00"])
_metadata = st.dictionaries(st.sampled_from(["team", "true", "_nats.level", "_nats.other", "x.y"]), _texts, max_size=3)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_transforms = st.lists(
    st.fixed_dictionaries({"src": st.sampled_from(["a.*", "b.>"]), "dest": st.sampled_from(["", "z.{{wildcard(1)}}", "q.>"])}),
    max_size=2,
)
_sources = st.fixed_dictionaries(
    {"name": st.sampled_from(["UP", "KV_up", "DOWN"])},
    optional={
        "opt_start_seq": st.sampled_from([0, 7]),
        "opt_start_time": _times,
        "filter_subject": st.sampled_from(["", "a.b"]),
        "subject_transforms": _transforms,
        "external": st.sampled_from([{"api": "$JS.leaf.API", "deliver": ""}, {"api": "$JS.x.API", "deliver": "y"}]),
        "consumer": st.just({"name": "d", "deliver_subject": "d.in"}),
    },
)
_streams = _some(
    description=_texts,
    subjects=st.lists(_subjects, max_size=3, unique=True),
    retention=st.sampled_from(["limits", "interest", "workqueue"]),
    storage=st.sampled_from(["file", "memory"]),
    num_replicas=st.sampled_from([1, 3]),
    max_age=_durations,
    max_msgs=_numbers,
    max_bytes=_numbers,
    max_msgs_per_subject=_numbers,
    max_msg_size=_numbers,
    max_consumers=_numbers,
    discard=st.sampled_from(["old", "new"]),
    discard_new_per_subject=_flags,
    duplicate_window=_durations,
    no_ack=_flags,
    compression=st.sampled_from(["none", "s2"]),
    first_seq=st.sampled_from([0, 1, 99]),
    placement=_some(cluster=st.sampled_from(["", "c"]), tags=st.lists(st.sampled_from(["x", "y"]), max_size=2)),
    mirror=_sources,
    sources=st.lists(_sources, max_size=2),
    subject_transform=st.just({"src": "a.*", "dest": "z.{{wildcard(1)}}"}),
    republish=st.sampled_from([{"src": ">", "dest": "r.>"}, {"src": "a.>", "dest": "r.>", "headers_only": True}]),
    consumer_limits=_some(inactive_threshold=_durations, max_ack_pending=st.sampled_from([0, 20])),
    allow_direct=_flags,
    mirror_direct=_flags,
    allow_rollup_hdrs=_flags,
    deny_delete=_flags,
    deny_purge=_flags,
    sealed=_flags,
    allow_msg_ttl=_flags,
    subject_delete_marker_ttl=_durations,
    allow_msg_counter=_flags,
    allow_atomic=_flags,
    allow_msg_schedules=_flags,
    persist_mode=st.sampled_from(["default", "async"]),
    allow_batched=_flags,
    metadata=_metadata,
    a_field_of_the_future=st.just(5),
)
_consumers = _some(
    description=_texts,
    ack_policy=st.sampled_from(["none", "all", "explicit", "flow_control"]),
    deliver_policy=st.sampled_from(["all", "last", "new", "last_per_subject"]),
    ack_wait=_durations,
    max_deliver=st.sampled_from([-1, 1, 5]),
    backoff=st.lists(st.sampled_from([S, 5 * S]), max_size=2),
    filter_subject=st.sampled_from(["", "a.b"]),
    filter_subjects=st.lists(_subjects, max_size=2, unique=True),
    replay_policy=st.sampled_from(["instant", "original"]),
    rate_limit_bps=st.sampled_from([0, 1000]),
    sample_freq=st.sampled_from(["", "50", "50%"]),
    max_waiting=st.sampled_from([512, 7]),
    max_ack_pending=st.sampled_from([-1, 1000, 20]),
    headers_only=_flags,
    max_batch=st.sampled_from([0, 5]),
    max_expires=_durations,
    max_bytes=st.sampled_from([0, 2**20]),
    inactive_threshold=_durations,
    num_replicas=st.sampled_from([0, 1]),
    mem_storage=_flags,
    deliver_subject=st.sampled_from(["", "push.to"]),
    deliver_group=st.sampled_from(["", "g"]),
    flow_control=_flags,
    idle_heartbeat=st.sampled_from([0, 5 * S]),
    priority_groups=st.lists(st.just("g"), max_size=1),
    priority_policy=st.sampled_from(["none", "overflow", "pinned_client"]),
    priority_timeout=_durations,
    metadata=_metadata,
)


def _desired(exported: Exported) -> Desired:
    compiled = [compile_document(Document(document, Location("export")), Context()).declares for document in exported.documents]
    return Desired({entry.key: entry for entry in compiled if isinstance(entry, Declared)})


def _differing(exported: Exported, live: Live) -> set[str]:
    changes = plan(_desired(exported), live, Rules(adopt=True)).changes
    return {str(change.key) for change in changes if change.fields or change.action is not Action.ADOPT}


def _noted(exported: Exported) -> set[str]:
    return {note.split(": ")[0] for note in exported.notes}


@given(config=_streams, name=st.sampled_from(["S", "KV_x", "OBJ_x"]), level=st.sampled_from([4, 5]))
def test_no_stream_differs_from_its_document_in_silence(config: dict[str, Any], name: str, level: int) -> None:
    live = build.live(build.stream_info({"name": name, **config}), level=level)
    exported = export(live)
    assert len(exported.documents) == 1
    unsaid = {note.removeprefix("Stream/") for note in _noted(exported)}
    assert {key.partition("/")[2] for key in _differing(exported, live)} <= {name.partition("_")[2] or name for name in unsaid}


@given(config=_consumers, limits=st.sampled_from([{}, {"max_ack_pending": 20, "inactive_threshold": 60 * S}]))
def test_no_consumer_differs_from_its_document_in_silence(config: dict[str, Any], limits: dict[str, Any]) -> None:
    stream = build.stream_info({"name": "S", "subjects": ["s"], "consumer_limits": limits})
    live = build.live(stream, build.consumer_info("S", {"name": "c", "durable_name": "c", **config}))
    exported = export(live)
    assert _differing(exported, live) <= _noted(exported)


@given(config=_streams)
def test_what_can_be_declared_is_what_the_schema_describes(config: dict[str, Any]) -> None:
    exported = export(build.live(build.stream_info({"name": "S", **config})))
    if not exported.notes:
        assert [error.message for document in exported.documents for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize("fmt", ["yaml", "nack"])
def test_the_order_of_what_is_seen_makes_no_difference(fmt: Format) -> None:
    infos = [build.stream_info({"name": name, "metadata": {"b": "1", "a": "2"}}) for name in ("B", "A", "KV_b")]
    infos += [build.consumer_info("A", {"name": name, "durable_name": name, "ack_policy": "explicit"}) for name in ("d", "c")]
    assert export(build.live(*infos), fmt=fmt) == export(build.live(*reversed(infos)), fmt=fmt)


@pytest.mark.parametrize("name", ["_reconciler-dlq", "KV_reconciler-leases", "KV_default-claims-processor"])
def test_what_is_kept_for_the_reconciler_itself_never_appears(name: str) -> None:
    assert export(build.live(build.stream_info({"name": name}))).documents == ()


def test_the_consumers_that_the_server_makes_never_appear() -> None:
    consumer = {"name": "JS_SRC_x", "durable_name": "JS_SRC_x", "metadata": {"_nats.src.stream": "x"}}
    live = build.live(build.stream_info({"name": "A"}), build.consumer_info("A", consumer))
    exported = export(live)
    assert [document["kind"] for document in exported.documents] == ["Stream"]
    assert exported.notes == ()


def test_consumers_that_are_not_durable_are_left_out_with_a_note() -> None:
    live = build.live(build.stream_info({"name": "A"}), build.consumer_info("A", {"name": "eph", "inactive_threshold": 5 * S}))
    exported = export(live)
    assert [document["kind"] for document in exported.documents] == ["Stream"]
    assert _noted(exported) == {"Consumer/A/eph"}


def test_residue_shows_what_was_declared_and_the_plan_stays_empty() -> None:
    marker = Marker(
        owner="default",
        spec="x",
        residue=(Residue("opt_start_seq", 50, None), Residue("deliver_policy", "by_start_sequence", None)),
    )
    config = {
        "name": "c",
        "durable_name": "c",
        "ack_policy": "explicit",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 50,
        "metadata": marker.to_metadata(),
    }
    live = build.live(build.stream_info({"name": "A"}), build.consumer_info("A", config))
    exported = export(live)
    assert exported.documents[1]["spec"] == {"stream": "A"}
    assert all(not change.fields for change in plan(_desired(exported), live, Rules(adopt=True)).changes)


def test_dead_letters_and_markers_are_told_apart_in_metadata() -> None:
    metadata = {DEAD_LETTER: "dlq.a", "team": "x", **Marker(owner="default", spec="y").to_metadata(), "_nats.level": "1"}
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "metadata": metadata}
    exported = export(build.live(build.stream_info({"name": "A"}), build.consumer_info("A", config)))
    assert exported.documents[1]["spec"] == {"stream": "A", "metadata": {"team": "x"}, "deadLetter": {"subject": "dlq.a"}}
    assert exported.notes == ()


def test_metadata_in_the_server_s_name_space_is_noted() -> None:
    exported = export(build.live(build.stream_info({"name": "A", "metadata": {"_nats.mine": "x"}})))
    assert exported.documents[0]["spec"] == {}
    assert exported.notes == ("Stream/A: metadata _nats.mine is in the server's own name space: left out",)


def test_limits_of_the_stream_are_no_fields_of_its_consumers() -> None:
    limits = {"max_ack_pending": 20, "inactive_threshold": 60 * S}
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * S} | limits
    exported = export(build.live(build.stream_info({"name": "A", "consumer_limits": limits}), build.consumer_info("A", config)))
    assert exported.documents[1]["spec"] == {"stream": "A"}


@pytest.mark.parametrize("policy", ["none", "all", "explicit"])
def test_the_ack_policy_is_said_unless_it_is_explicit(policy: str) -> None:
    config = {"name": "c", "durable_name": "c", "ack_policy": policy}
    exported = export(build.live(build.stream_info({"name": "A"}), build.consumer_info("A", config)))
    assert exported.documents[1]["spec"].get("ackPolicy", "explicit") == policy


def test_a_pause_is_exported_only_when_it_was_declared() -> None:
    until = "2030-01-01T00:00:00Z"
    config: dict[str, Any] = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "pause_until": until}
    by_hand = export(build.live(build.stream_info({"name": "A"}), build.consumer_info("A", config)))
    assert "pauseUntil" not in by_hand.documents[1]["spec"]
    assert _noted(by_hand) == {"Consumer/A/c"}
    config["metadata"] = Marker(owner="default", spec="y", pause_until=until).to_metadata()
    declared = export(build.live(build.stream_info({"name": "A"}), build.consumer_info("A", config)))
    assert declared.documents[1]["spec"]["pauseUntil"] == until


def test_silence_is_noted() -> None:
    live = build.live(unknown={Key("Stream", "LOST"): "its leader did not answer"})
    assert export(live).notes == ("Stream/LOST: not exported, or not completely: its leader did not answer",)


def test_nack_names_are_objects_kubernetes_takes_and_never_two_the_same() -> None:
    live = build.live(*(build.stream_info({"name": name}) for name in ("A_b", "a-b", "Ä", "KV_x")))
    names = [document["metadata"]["name"] for document in export(live, fmt="nack").documents]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and name[0].isalnum() and name[-1].isalnum() for name in names)


SOURCE = build.stream("S", {"subjects": ["s.>", "t"]})
ENTRIES: dict[str, dict[str, Any]] = {
    "everything": {"name": "S"},
    "a filter": {"name": "S", "filterSubject": "s.a"},
    "a start": {"name": "S", "filterSubject": "s.a", "optStartSeq": 7},
    "a moment": {"name": "S", "optStartTime": "2026-01-31T12:00:00Z"},
    "transforms": {"name": "S", "subjectTransforms": [{"src": "s.a", "dest": "t.a"}, {"src": "s.b", "dest": ""}]},
}
MANAGED = {"name": "c", "serverManaged": True}


def _managed(spec: dict[str, Any]) -> Desired:
    return with_durables(build.desired(SOURCE, build.stream("A", spec)), "default")


def _kept(desired: Desired, key: Key) -> dict[str, Any]:
    """INFO of a durable as we would have left it."""
    durable = desired.durables[key]
    marker = Marker(owner="default", spec=durable.declared.digest, source=str(durable.aggregate))
    return build.consumer_info(key.stream, {**durable.declared.config, "metadata": marker.to_metadata()})


def _with_residue(declared: Declared, live: dict[str, Any], *rows: Residue) -> dict[str, Any]:
    """INFO of a stream that a migration has left with something else than is declared."""
    marker = Marker(owner="default", spec=declared.digest, residue=rows)
    return build.stream_info({**declared.config, **live, "metadata": marker.to_metadata()})


def _plans_to_nothing(live: Live) -> Exported:
    exported = export(live)
    assert exported.notes == ()
    desired = with_durables(_desired(exported), "default")
    assert plan(desired, live, Rules(policy="sync")).changes == ()
    return exported


@pytest.mark.parametrize("kind", ["sources", "mirror"])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_durable_that_we_keep_is_part_of_its_entry(entry: dict[str, Any], kind: str) -> None:
    said = {**entry, "consumer": MANAGED}
    desired = _managed({kind: [said] if kind == "sources" else said})
    infos = [build.stream_info(build.marked(declared)) for declared in desired.streams.values()]
    exported = _plans_to_nothing(build.live(*infos, _kept(desired, Key("Consumer", "c", "S"))))
    assert [document["kind"] for document in exported.documents] == ["Stream", "Stream"]
    written = exported.documents[0]["spec"][kind]
    assert (written[0] if kind == "sources" else written) == said
    assert "_reconciler" not in str(exported.documents)


def test_a_consumer_of_a_source_that_somebody_declared_stays_one() -> None:
    own = build.consumer("S", "c", {"ackPolicy": "flow_control", "deliverSubject": "d"})
    aggregate = build.stream("A", {"sources": [{"name": "S", "consumer": {"name": "c", "deliverSubject": "d"}}]})
    infos = [build.stream_info(build.marked(declared)) for declared in (SOURCE, aggregate)]
    exported = _plans_to_nothing(build.live(*infos, build.consumer_info("S", build.marked(own))))
    assert [document["kind"] for document in exported.documents] == ["Stream", "Stream", "Consumer"]


def test_what_a_migration_left_in_an_entry_is_undone() -> None:
    aggregate = build.stream("A", {"sources": [{"name": "S"}, {"name": "T"}]})
    unused = "_reconciler.from.0"
    left = {"name": "S", "opt_start_seq": 9, "subject_transforms": [{"src": one, "dest": one} for one in ("s.>", "t", unused)]}
    info = _with_residue(aggregate, {"sources": [left, {"name": "T"}]}, Residue("sources", left, {"name": "S"}))
    exported = _plans_to_nothing(build.live(build.stream_info(build.marked(SOURCE)), info))
    assert exported.documents[0]["spec"] == {"sources": [{"name": "S"}, {"name": "T"}]}


def test_what_was_left_in_an_entry_with_a_durable_is_undone() -> None:
    desired = _managed({"sources": [{"name": "S", "consumer": MANAGED}]})
    declared = desired.resources[Key("Stream", "A")]
    (attached,) = declared.config["sources"]
    left = {**attached, "subject_transforms": [{"src": "s.>", "dest": "s.>"}]}
    info = _with_residue(declared, {"sources": [left]}, Residue("sources", left, attached))
    live = build.live(build.stream_info(build.marked(SOURCE)), info, _kept(desired, Key("Consumer", "c", "S")))
    assert _plans_to_nothing(live).documents[0]["spec"] == {"sources": [{"name": "S", "consumer": MANAGED}]}


def test_a_placeholder_is_left_out_and_said() -> None:
    desired = _managed({"sources": [{"name": "S", "consumer": MANAGED}, {"name": "T"}]})
    declared = desired.resources[Key("Stream", "A")]
    info = build.stream_info({**declared.config, "sources": [{"name": "S", "filter_subject": "_detached.c"}, {"name": "T"}]})
    exported = export(build.live(build.stream_info(SOURCE.config), info, _kept(desired, Key("Consumer", "c", "S"))))
    assert [document["kind"] for document in exported.documents] == ["Stream", "Stream"]
    assert exported.documents[0]["spec"] == {"sources": [{"name": "T"}]}
    (note,) = exported.notes
    assert note.startswith("Stream/A: S is detached while c is migrated")


def test_a_durable_that_was_not_seen_or_is_left_over_is_said() -> None:
    spec = {"sources": [{"name": "EV", "external": {"domain": "leaf"}, "consumer": MANAGED}]}
    desired = with_durables(build.desired(build.stream("A", spec)), "default")
    exported = export(build.live(build.stream_info(desired.resources[Key("Stream", "A")].config)))
    assert exported.documents[0]["spec"] == spec
    assert [note for note in exported.notes if "leaf:Consumer/EV/c" in note]
    left = _kept(_managed({"sources": [{"name": "S", "consumer": MANAGED}]}), Key("Consumer", "c", "S"))
    exported = export(build.live(build.stream_info(SOURCE.config), build.stream_info({"name": "A", "subjects": ["a"]}), left))
    assert [document["kind"] for document in exported.documents] == ["Stream", "Stream"]
    assert exported.notes == ("Consumer/S/c: left out: it is kept for Stream/A, which does not read through it",)


def test_a_durable_that_was_changed_is_said() -> None:
    desired = _managed({"sources": [{"name": "S", "consumer": MANAGED}]})
    info = _kept(desired, Key("Consumer", "c", "S"))
    info["config"]["filter_subjects"] = ["s.a", "s.b"]
    infos = [build.stream_info(build.marked(declared)) for declared in desired.streams.values()]
    (note,) = export(build.live(*infos, info)).notes
    assert note == "Stream/A: Consumer/S/c, which is kept for it, is not as it would be made: filter_subjects"


def test_the_servers_own_durables_never_appear() -> None:
    own = {"name": "JS_SRC_x", "durable_name": "JS_SRC_x", "ack_policy": "flow_control", "deliver_subject": "$JS.S.x"}
    infos = [build.stream_info(SOURCE.config), build.consumer_info("S", {**own, "sourcing": True})]
    assert [document["kind"] for document in export(build.live(*infos)).documents] == ["Stream"]
