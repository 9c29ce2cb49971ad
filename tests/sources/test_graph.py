"""The graph of sources and mirrors, read off manifests, off a server, and off what a daemon tells."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.files.loader import Loader
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM, Live
from reconciler.model.seen.wanted import Wanted
from reconciler.render.status.sources import source_row
from reconciler.sources.graph.live import live_topology, needed
from reconciler.sources.graph.topology import Edge, Mode, Topology, arranged
from reconciler.sources.graph.views import declared_topology, told_topology
from reconciler.sources.health import SourceHealth, SourceState
from reconciler.sources.look import Entrance
from reconciler.sources.symptoms import StallCause
from tests.support.values import build
from tests.support.values.manifests import load
from tests.support.values.topologies import edge, key, many, topology

STREAM = "kind: Stream\nmetadata: {name: %s}\nspec: %s"
CONSUMER = """
kind: Consumer
metadata: {name: %s}
spec: {stream: %s, ackPolicy: flow_control, maxAckPending: 100, deliverSubject: %s, filterSubjects: [s.a], domain: "%s"}
"""


def declared(directory: Path, *documents: str) -> Topology:
    return declared_topology(load(directory, *documents).desired)


def only(found: Topology) -> Edge:
    (one,) = found.edges
    return one


def test_each_mode_is_told_from_the_manifest(tmp_path: Path) -> None:
    sources = """
      sources:
        - {name: E, filterSubject: "e.>"}
        - {name: M, filterSubject: "m.>", consumer: {name: m, serverManaged: true}}
        - {name: S, consumer: {name: u, deliverSubject: dlv.u}}
        - {name: X, external: {domain: leaf}, consumer: {name: x, deliverSubject: dlv.x, unmanaged: true}}
    """
    streams = [STREAM % (name, f'{{subjects: ["{name.lower()}.>"]}}') for name in "EMS"]
    found = declared(
        tmp_path, *streams, CONSUMER % ("u", "S", "dlv.u", ""), f"kind: Stream\nmetadata: {{name: A}}\nspec:{sources}"
    )
    assert {one.origin.name: (one.mode, one.durable, one.filters) for one in found.edges} == {
        "E": (Mode.EPHEMERAL, "", ("e.>",)),
        "M": (Mode.MANAGED, "m", ("m.>",)),
        "S": (Mode.USER_MANAGED, "u", ("s.a",)),
        "X": (Mode.UNMANAGED, "x", ()),
    }
    assert found.readers == ()
    assert {node.key.name: node.note for node in found.nodes if node.note} == {"X": "not declared"}
    assert {one.state for one in found.edges} == {""}


def test_the_graph_of_the_examples() -> None:
    examples = Loader().load([str(Path(__file__).parents[2] / "manifests")], "dev").desired
    found = declared_topology(examples).sourcing()
    assert [(one.origin.name, one.aggregate.name, one.mirror) for one in found.edges] == [
        ("BILLING", "AUDIT", False),
        ("EDGE_ALARMS", "FLEET", False),
        ("EDGE_USAGE", "FLEET", False),
        ("PAYMENTS", "AUDIT", False),
        ("PAYMENTS", "PAYMENTS_MIRROR", True),
    ]
    assert "notification_relay_reconcile_failed" in {reader.key.name for reader in found.readers}
    assert len(declared_topology(examples).nodes) > len(found.nodes)


def test_the_order_of_what_comes_in_makes_no_difference() -> None:
    whole = many(60)
    nodes, edges = list(whole.nodes), list(whole.edges)
    random.Random(5).shuffle(nodes)
    random.Random(6).shuffle(edges)
    assert arranged(nodes, edges, (), "hub", lambda _: "") == whole


def test_what_is_connected_with_a_stream_is_found_in_both_directions_and_round_cycles() -> None:
    whole = topology(
        edge(key("A"), key("B")), edge(key("B"), key("C")), edge(key("C"), key("A")), edge(key("B"), key("D", "leaf")),
        edge(key("X"), key("Y")), edge(key("A", "leaf"), key("Z", "leaf")), alone=(key("ALONE"),), home="hub",
    )  # fmt: skip
    assert {node.key.name for node in whole.around("D").nodes} == {"A", "B", "C", "D"}
    assert {str(node.key) for node in whole.around("A").nodes} == {
        "Stream/A", "Stream/B", "Stream/C", "leaf:Stream/D", "leaf:Stream/A", "leaf:Stream/Z",
    }  # fmt: skip
    assert {str(node.key) for node in whole.around("leaf:A").nodes} == {"leaf:Stream/A", "leaf:Stream/Z"}
    assert {node.key.name for node in whole.around("hub:A").nodes} == {"A", "B", "C", "D"}
    assert [node.key.name for node in whole.around("ALONE").nodes] == ["ALONE"]
    assert whole.around("NOWHERE").nodes == ()
    assert "ALONE" not in {node.key.name for node in whole.sourcing().nodes}


def test_the_domain_that_is_connected_to_is_one_whoever_names_it() -> None:
    found = arranged([], [edge(key("A", "hub"), key("B")), edge(key("A"), key("C"))], [], "hub", lambda _: "not declared")
    assert [str(node.key) for node in found.nodes] == ["Stream/A", "Stream/B", "Stream/C"]


def source(name: str, api: str = "", consumer: str = "", **more: Any) -> dict[str, Any]:
    external = {"external": {"api": api, "deliver": ""}} if api else {}
    through = {"consumer": {"name": consumer, "deliver_subject": f"dlv.{consumer}"}} if consumer else {}
    return {"name": name, **external, **through, **more}


def aggregate(entry: dict[str, Any], told: dict[str, Any] | None, name: str = "A") -> dict[str, Any]:
    config = {"name": name, "sources": [entry]}
    shown = {key: entry[key] for key in ("name", "external", "filter_subject", "subject_transforms") if key in entry}
    return {**build.stream_info(config), "sources": [{**shown, "lag": 0, **told}] if told is not None else []}


def durable(name: str = "c", metadata: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "flow_control", "deliver_subject": f"dlv.{name}"}
    return build.consumer_info("S", {**config, "metadata": metadata or {}}, **{"push_bound": True, **more})


HEARD = {"active": 10**9}
OURS = {"reconciler.owner": "default", "reconciler.source": "Stream/A"}
S = build.stream_info({"name": "S", "subjects": ["s.>"]})


def seen(*infos: dict[str, Any], **more: Any) -> Live:
    return build.live(*infos, **more)


@pytest.mark.parametrize(
    ("infos", "mode", "state", "cause"),
    [
        ((S, aggregate(source("S"), HEARD)), Mode.EPHEMERAL, "Flowing", ""),
        ((S, aggregate(source("S"), {"active": -1})), Mode.EPHEMERAL, "Stalled", "unknown-cause"),
        ((aggregate(source("S"), {"active": -1}),), Mode.EPHEMERAL, "Stalled", "stream-missing"),
        ((S, durable(metadata=OURS), aggregate(source("S", consumer="c"), HEARD)), Mode.MANAGED, "Flowing", ""),
        ((S, durable(), aggregate(source("S", consumer="c"), HEARD)), Mode.UNMANAGED, "Flowing", ""),
        (
            (S, durable(metadata={"reconciler.owner": "x"}, paused=True), aggregate(source("S", consumer="c"), HEARD)),
            Mode.USER_MANAGED,
            "Paused",
            "",
        ),
        ((S, durable(push_bound=False), aggregate(source("S", consumer="c"), HEARD)), Mode.UNMANAGED, "Stalled", "not-bound"),
        ((S, aggregate(source("S", consumer="c"), {"active": -1})), Mode.USER_MANAGED, "Stalled", "consumer-missing"),
        ((aggregate(source("S", consumer="c"), {"active": -1}),), Mode.USER_MANAGED, "Stalled", "stream-missing"),
        (
            (S, durable(metadata=OURS), aggregate(source("S", filter_subject="_detached.c"), {"active": -1})),
            Mode.MANAGED,
            "Stalled",
            "detached",
        ),
    ],
)
def test_how_a_live_entry_reads_and_fares(infos: tuple[dict[str, Any], ...], mode: Mode, state: str, cause: str) -> None:
    one = only(live_topology(seen(*infos), {""}))
    assert (one.mode, one.state, one.cause) == (mode, state, cause)


def test_a_durable_that_is_gone_but_delivers_where_only_we_do_is_a_managed_one() -> None:
    entry = {"name": "S", "consumer": {"name": "c", "deliver_subject": "_reconciler.src.0123"}}
    one = only(live_topology(seen(S, aggregate(entry, {"active": -1})), {""}))
    assert (one.mode, one.cause) == (Mode.MANAGED, "consumer-missing")


def test_what_did_not_answer_is_not_missing() -> None:
    entry = source("S", "$JS.leaf.API", "c")
    away = {Key("Stream", EVERY_STREAM, "", "leaf"): "nobody answers"}
    found = live_topology(seen(aggregate(entry, {"active": -1}), unknown=away), {"", "leaf"})
    assert (only(found).state, only(found).cause) == ("Waiting", "domain")
    assert [node.note for node in found.nodes if node.key.name == "S"] == ["not seen: nobody answers"]
    unasked = live_topology(seen(aggregate(entry, HEARD)), {""})
    assert only(unasked).state == "Flowing"
    assert [node.note for node in unasked.nodes if node.key.name == "S"] == ["not looked at"]


def test_what_is_behind_an_import_has_a_place_of_its_own() -> None:
    found = live_topology(seen(aggregate(source("S", "acme.api"), HEARD), S), {""})
    assert [str(node.key) for node in found.nodes] == ["Stream/A", "Stream/S", "import acme.api:Stream/S"]
    assert only(found).state == "Flowing"


def test_what_else_has_to_be_looked_at() -> None:
    live = seen(S, aggregate(source("S", "$JS.leaf.API", "c"), HEARD), aggregate(source("S", consumer="d"), HEARD, "B"))
    wanted = needed(live, Wanted())
    assert wanted.domains == {"", "leaf"}
    assert wanted.streams == {key("S", "leaf"), key("S")}
    assert needed(live, wanted) == wanted


def test_ordinary_consumers_are_those_through_which_no_entry_reads() -> None:
    pull = build.consumer_info("S", {"name": "p", "durable_name": "p", "ack_policy": "explicit", "filter_subject": "s.1"})
    made = build.consumer_info("S", {"name": "x", "sourcing": True})
    found = live_topology(seen(S, durable(), pull, made, aggregate(source("S", consumer="c"), HEARD)), {""})
    assert [(reader.key.name, reader.filters, reader.push) for reader in found.readers] == [("p", ("s.1",), False)]
    assert found.without_readers().readers == ()


def test_a_transform_that_only_makes_an_entry_a_new_one_is_not_shown() -> None:
    moved: dict[str, Any] = {
        "subject_transforms": [{"src": "s.a", "dest": "t.a"}, {"src": "_reconciler.from.1", "dest": "_reconciler.from.1"}]
    }
    assert only(live_topology(seen(S, aggregate(source("S", **moved), HEARD)), {""})).transforms == (("s.a", "t.a"),)


@pytest.mark.parametrize("api", ["", "$JS.leaf.API", "acme.api", "acme:a/b"])
def test_the_rows_of_a_status_document_are_understood(api: str) -> None:
    live = live_topology(seen(aggregate(source("S", api, "c"), HEARD)), {""})
    shown = only(live)
    origin = None if "acme" in api else shown.origin
    entrance = Entrance(aggregate=key("A"), entry=source("S", api, "c"), mode=Mode.UNMANAGED, origin=origin)
    health = SourceHealth(state=SourceState.STALLED, cause=StallCause.NOT_BOUND, message="nobody listens")
    told = only(told_topology([source_row(entrance, health)]))
    assert (told.origin, told.aggregate, told.mode, told.durable) == (shown.origin, key("A"), Mode.UNMANAGED, "c")
    assert (told.state, told.cause, told.message) == ("Stalled", "not-bound", "nobody listens")
