"""What a plan makes of durables of sources without looking at a migration: levels, losses, removals and scopes."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.marker import Marker, with_mark
from reconciler.model.residue import Residue
from reconciler.model.seen.live import Live
from reconciler.model.sourcing import with_durables
from reconciler.plan.bounds.scope import touched_by
from reconciler.plan.change import Action, Change, Rules
from reconciler.plan.permissions import AccountNames, PermissionMode, permissions
from reconciler.render.plan.text import change_lines
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

RULES = Rules()
SYNC = Rules(policy="sync")
C, A = Key("Consumer", "c", "S"), Key("Stream", "A")
ENTRY: dict[str, Any] = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
ALLOWED = Rules(allow=frozenset({("data-loss", "Stream/A")}))


def origin(retention: str = "limits") -> Declared:
    return stream("S", {"subjects": ["s.>"], "retention": retention})


def managed(*declared: Declared) -> Desired:
    return with_durables(desired(*declared), "default")


def change_of(key: Key, wanted: Desired, state: Live, rules: Rules = RULES) -> Change | None:
    found = {change.key: change for change in plan(wanted, state, rules).changes}
    return found.get(key)


def durable_info(wanted: Desired, name: str = "c", source: str = "Stream/A") -> dict[str, Any]:
    """The durable as we would have left it."""
    durable = wanted.durables[C].declared
    marker = Marker(owner="default", spec=durable.digest, source=source)
    metadata = with_mark({}, marker, f"Consumer/S/{name}")
    return consumer_info("S", {**durable.config, "name": name, "durable_name": name, "metadata": metadata})


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize(
    ("spec", "path"),
    [({"sources": [ENTRY]}, "sources[].consumer"), ({"mirror": ENTRY}, "mirror.consumer")],
    ids=["source", "mirror"],
)
def test_a_durable_entry_is_blocked_below_its_level_and_so_is_its_durable(level: int, spec: dict[str, Any], path: str) -> None:
    wanted = managed(origin(), stream("A", spec))
    found = plan(wanted, live(level=level), RULES)
    (change,) = [change for change in found.changes if change.key == A]
    assert (change.action, change.wanted) == (Action.BLOCKED, Action.CREATE)
    (reason,) = change.reasons
    assert reason.code == "level"
    assert path in reason.message
    assert "ephemeral" in reason.message
    assert C not in {change.key for change in found.changes}
    later = change_of(
        A, wanted, live(stream_info(marked(origin())), stream_info(marked(stream("A", {"subjects": ["a"]}))), level=level)
    )
    assert later is not None
    assert "level" in {reason.code for reason in later.reasons}


def test_a_declared_consumer_for_a_source_is_blocked_below_its_level() -> None:
    own = consumer("S", "c", {"ackPolicy": "flow_control", "deliverSubject": "d"})
    change = change_of(C, desired(origin(), own), live(level=3))
    assert change is not None
    assert [reason.code for reason in change.reasons] == ["level"]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "live only"])
@pytest.mark.parametrize("there", [True, False], ids=["updated", "created"])
def test_an_ephemeral_source_of_a_queue_would_lose_below_its_level(retention: str, *, declared: bool, there: bool) -> None:
    queue = origin(retention)
    wanted = desired(*([queue] if declared else []), stream("A", {"subjects": ["a"], "sources": [{"name": "S"}]}))
    infos = [] if declared else [stream_info(queue.config)]
    if there:
        infos.append(stream_info(marked(stream("A", {"subjects": ["a"]}))))
    change = change_of(A, wanted, live(*infos, level=3))
    assert change is not None
    assert [reason.code for reason in change.reasons] == ["data-loss"]
    assert f"retention {retention}" in change.reasons[0].message
    action = Action.UPDATE if there else Action.CREATE
    for state, rules in ((live(*infos, level=3), ALLOWED), (live(*infos, level=4), RULES)):
        passed = change_of(A, wanted, state, rules)
        assert passed is not None
        assert passed.action is action


def test_an_ephemeral_source_that_is_there_already_is_left_alone() -> None:
    copy = stream("A", {"sources": [{"name": "S"}]})
    state = live(stream_info(marked(origin("interest"))), stream_info(marked(copy)), level=3)
    assert change_of(A, desired(origin("interest"), copy), state) is None
    wider = stream("A", {"sources": [{"name": "S"}], "maxAge": "1d"})
    change = change_of(A, desired(origin("interest"), wider), state)
    assert change is not None
    assert change.action is Action.UPDATE


def test_a_source_of_a_stream_with_limits_loses_nothing() -> None:
    change = change_of(A, desired(origin(), stream("A", {"sources": [{"name": "S"}]})), live(level=3))
    assert change is not None
    assert change.action is Action.CREATE


def test_a_durable_of_a_declared_source_is_never_undeclared() -> None:
    copy = stream("A", {"sources": [ENTRY]})
    wanted = managed(origin(), copy)
    aggregate = stream_info(marked(wanted.resources[A]))
    state = live(stream_info(marked(origin())), aggregate, durable_info(wanted))
    assert plan(wanted, state, SYNC).changes == ()


def test_a_durable_goes_with_a_change_of_its_stream_as_long_as_there_is_one() -> None:
    wanted = managed(origin(), stream("A", {"sources": [ENTRY]}))
    left = durable_info(wanted, name="old")
    without = desired(origin(), stream("A", {"subjects": ["a"]}))
    there = live(stream_info(marked(origin())), stream_info(marked(without.resources[A])), left)
    assert change_of(Key("Consumer", "old", "S"), without, there, SYNC) is None
    with_it = change_of(A, without, there, SYNC)
    assert with_it is not None
    assert with_it.touches == (Key("Consumer", "old", "S"),)
    alone = change_of(Key("Consumer", "old", "S"), desired(origin()), there, SYNC)
    assert alone is not None
    assert (alone.action, alone.needs) == (Action.DELETE, (A,))


@pytest.mark.parametrize(("copied", "codes"), [(["s.>"], []), (["s.a"], ["position-loss"])])
def test_an_entry_that_leaves_something_out_does_not_stand_for_all_of_its_origin(copied: list[str], codes: list[str]) -> None:
    wanted = desired(origin(), stream("A", {"sources": [{"name": "S"}]}))
    transforms = [{"src": one, "dest": one} for one in (*copied, "_reconciler.from.1")]
    live_entry = {"name": "S", "opt_start_seq": 9, "subject_transforms": transforms}
    marker = Marker(owner="default", spec=wanted.resources[A].digest, residue=(Residue("sources", live_entry, {"name": "S"}),))
    aggregate = {**wanted.resources[A].config, "sources": [live_entry], "metadata": with_mark({}, marker, A.mark)}
    state = live(stream_info(marked(origin()), messages=9, last_seq=9), stream_info(aggregate, messages=9, last_seq=9))
    change = change_of(A, wanted, state)
    assert [reason.code for reason in change.reasons] == codes if change else not codes
    if change:
        shown = "\n".join(line.plain for line in change_lines(change))
        assert "sources" in shown, "the field that blocks"
        assert "_reconciler.from" not in shown


@pytest.mark.parametrize(
    ("journal", "code"),
    [("nonsense", "damaged-mark"), ('{"name": "of-tomorrow", "step": "x", "target": "", "data": "{}"}', "procedure")],
)
def test_a_durable_whose_journal_nobody_understands_is_left_as_it_is(journal: str, code: str) -> None:
    wanted = managed(origin(), stream("A", {"sources": [ENTRY]}))
    durable = durable_info(wanted)
    durable["config"]["metadata"]["reconciler.procedure"] = journal
    aggregate = wanted.resources[A]
    change = change_of(A, wanted, live(stream_info(marked(origin())), stream_info(marked(aggregate)), durable))
    assert change is not None
    assert [reason.code for reason in change.reasons] == [code]


def test_a_durable_whose_mark_makes_no_sense_is_not_removed_for_what_it_says() -> None:
    wanted = managed(origin(), stream("A", {"sources": [ENTRY]}))
    state = live(stream_info(marked(origin())), durable_info(wanted, source="nonsense"))
    change = change_of(C, desired(origin()), state, SYNC)
    assert change is not None
    assert [reason.code for reason in change.reasons] == ["damaged-mark"]


def test_a_durable_that_nothing_can_read_any_more_is_an_ordinary_undeclared_consumer() -> None:
    wanted = managed(origin(), stream("A", {"sources": [ENTRY]}))
    state = live(stream_info(marked(origin())), durable_info(wanted))
    change = change_of(C, desired(origin()), state, SYNC)
    assert change is not None
    assert change.action is Action.DELETE
    assert change_of(C, desired(origin()), state) is None


def test_a_durable_belongs_to_the_stream_that_reads_it_and_to_its_own() -> None:
    wanted = managed(origin(), stream("A", {"sources": [ENTRY]}))
    assert touched_by([C], wanted) == {Key("Stream", "S"), A}
    assert touched_by([Key("Consumer", "other", "S")], wanted) == {Key("Stream", "S")}


def subjects(wanted: Desired, *modes: PermissionMode) -> set[str]:
    return {grant.subject for grant in permissions(wanted, frozenset(modes), AccountNames(lease_bucket="b")).publish}


def test_a_durable_is_permitted_where_it_lives_to_whoever_keeps_it() -> None:
    far = {"name": "EV", "external": {"domain": "leaf"}, "consumer": {"name": "c", "serverManaged": True}}
    wanted = managed(origin("workqueue"), stream("A", {"sources": [ENTRY, far]}))
    read = subjects(wanted, PermissionMode.READ)
    assert {"$JS.leaf.API.INFO", "$JS.leaf.API.STREAM.LIST", "$JS.leaf.API.CONSUMER.LIST.EV", "$JS.API.CONSUMER.LIST.S"} <= read
    assert {"$JS.API.STREAM.MSG.GET.A", "$JS.API.STREAM.MSG.GET.S", "$JS.leaf.API.STREAM.MSG.GET.EV"} <= read
    applied = subjects(wanted, PermissionMode.APPLY) - read
    assert {"$JS.leaf.API.CONSUMER.CREATE.EV.c", "$JS.API.CONSUMER.CREATE.S.c", "$JS.API.CONSUMER.INFO.S.c"} <= applied
    assert not [subject for subject in applied if "PURGE" in subject or "RESET" in subject]
    procedures = subjects(wanted, PermissionMode.PROCEDURES)
    for request in ("INFO", "PAUSE", "RESET", "DELETE", "CREATE"):
        assert {f"$JS.API.CONSUMER.{request}.S.c", f"$JS.leaf.API.CONSUMER.{request}.EV.c"} <= procedures
    assert {"$JS.API.STREAM.INFO.S", "$JS.leaf.API.STREAM.INFO.EV"} <= procedures
    assert [subject for subject in procedures if "PURGE" in subject] == ["$JS.API.STREAM.PURGE.S"]


def test_a_durable_of_somebody_else_is_only_read() -> None:
    own = {"name": "S", "consumer": {"name": "theirs", "deliverSubject": "d", "unmanaged": True}}
    found = subjects(desired(stream("A", {"sources": [own]})), PermissionMode.DAEMON)
    assert {"$JS.API.CONSUMER.LIST.S", "$JS.API.CONSUMER.INFO.S.theirs", "$JS.API.STREAM.INFO.S"} <= found
    assert not [subject for subject in found if "theirs" in subject and "INFO" not in subject]
