"""A whole pass on a real server: what is declared comes into being, and then there is nothing left to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.engine.apply.outcome import Verdict, Word
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan, follows
from reconciler.engine.apply.saved import load_saved, replan, save
from reconciler.engine.planning import make_plan
from reconciler.errors import InvalidInput, Refused
from reconciler.model.desired import Expectation
from reconciler.model.kinds.common import Intent, State
from reconciler.plan.change import Action, Cause, Change, Rules
from reconciler.render.plan.json import plan_document
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Engine, Start
from tests.support.server.process import Server
from tests.support.values.build import consumer, desired, stream

ORDERS = stream("ORDERS", {"subjects": ["orders.>"]})
COPY = stream("COPY", {"sources": [{"name": "ORDERS"}]})
BILLING = consumer("ORDERS", "billing", {"filterSubjects": ["orders.paid"], "ackWait": "45s"})
MAIL = consumer("COPY", "mail")
ALL = (MAIL, BILLING, COPY, ORDERS)


async def test_everything_declared_is_created_and_then_nothing_is_left(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    applied = await engine.apply(*ALL)
    assert (applied.verdict, [o.word for o in applied.outcomes]) == (Verdict.IN_PLACE, [Word.APPLIED] * 4)
    assert applied.remaining is not None
    assert applied.remaining.changes == ()
    again = await engine.apply(*ALL)
    assert (again.verdict, again.outcomes) == (Verdict.IN_PLACE, ())
    assert again.plan.summary["unchanged"] == 4


async def test_the_second_apply_writes_nothing(engine: Engine, wire: Wire) -> None:
    await engine.apply(*ALL)
    async with wire.audit() as audit:
        await engine.apply(*ALL)
    assert audit.writes("reconciler") == []


async def test_drift_is_repaired(engine: Engine, wire: Wire) -> None:
    await engine.apply(ORDERS, BILLING)
    config = (await wire.consumer_info("ORDERS", "billing"))["config"]
    changed = {"stream_name": "ORDERS", "config": {**config, "ack_wait": 7 * 10**9}, "action": "update"}
    await wire.expect("CONSUMER.CREATE.ORDERS.billing", changed)
    applied = await engine.apply(ORDERS, BILLING)
    assert [str(o.change.key) for o in applied.outcomes] == ["Consumer/ORDERS/billing"]
    assert (await wire.consumer_info("ORDERS", "billing"))["config"]["ack_wait"] == 45 * 10**9


async def test_a_blocked_change_refuses_before_the_first_write(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    other = stream("OTHER", {"subjects": ["other.>"]})
    async with wire.audit() as audit:
        applied = await engine.apply(ORDERS, other)
    assert (applied.verdict, applied.outcomes, audit.writes("reconciler")) == (Verdict.REFUSED, (), [])
    assert "Stream/ORDERS" in applied.refused[0].message


async def test_continue_does_what_can_be_done_beside_a_blocked_change(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    applied = await engine.apply(ORDERS, stream("OTHER", {"subjects": ["other.>"]}), continue_=True)
    assert applied.verdict is Verdict.PARTLY
    assert {str(o.change.key): o.word for o in applied.outcomes} == {
        "Stream/ORDERS": Word.SKIPPED,
        "Stream/OTHER": Word.APPLIED,
    }


async def test_with_everything_blocked_even_continue_refuses(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    applied = await engine.apply(ORDERS, continue_=True)
    assert applied.verdict is Verdict.REFUSED


async def test_adopting_marks_and_then_leaves_alone(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    applied = await engine.apply(ORDERS, rules=Rules(adopt=True))
    assert [o.change.action for o in applied.outcomes] == [Action.ADOPT]
    assert (await wire.stream_info("ORDERS"))["config"]["metadata"]["reconciler.owner"] == "default"
    assert (await engine.plan(ORDERS)).plan.changes == ()


async def test_a_tombstone_removes_an_empty_stream_with_its_consumers(engine: Engine, wire: Wire) -> None:
    await engine.apply(ORDERS, BILLING)
    gone = [replace(one, intent=Intent(state=State.ABSENT)) for one in (ORDERS, BILLING)]
    applied = await engine.apply(*gone, rules=Rules(max_change_percent=100))
    assert applied.verdict is Verdict.IN_PLACE
    assert (await wire.expect("STREAM.LIST"))["total"] == 0


async def test_manifests_never_reach_a_server_they_do_not_expect(engine: Engine) -> None:
    manifests = replace(desired(ORDERS), environment="prod", expect=Expectation(cluster="prod-eu"))
    with pytest.raises(Refused, match="wrong cluster: environment prod expects 'prod-eu'"):
        await make_plan(manifests, Rules(), engine.ports.reader)


async def test_a_saved_plan_is_applied_as_it_was_reviewed(engine: Engine) -> None:
    planned = await engine.plan(*ALL, allow=frozenset({("data-loss", "Stream/ORDERS")}))
    saved = load_saved(save(planned, plan_document(planned.plan)), "plan.json")
    again = await replan(saved, engine.ports.reader)
    assert again.plan == planned.plan
    applied = await apply_plan(again, engine.ports, ApplyOptions(timeout=20.0))
    assert applied.verdict is Verdict.IN_PLACE


async def test_a_saved_plan_is_refused_when_something_moved(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(*ALL)
    saved = load_saved(save(planned, plan_document(planned.plan)), "plan.json")
    await wire.expect("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    with pytest.raises(Refused, match="stale"):
        await replan(saved, engine.ports.reader)


def test_a_later_pass_removes_only_what_was_to_be_removed() -> None:
    shown = Change(key=ORDERS.key, action=Action.UPDATE, cause=Cause.DRIFT)
    removals = Action.UPDATE, Action.RECREATE, Action.DELETE
    later = {action: follows(replace(shown, action=action), {ORDERS.key: shown}) for action in removals}
    assert later == {Action.UPDATE: True, Action.RECREATE: False, Action.DELETE: False}
    reviewed = {ORDERS.key: replace(shown, action=Action.DELETE)}
    assert follows(replace(shown, action=Action.DELETE), reviewed)
    assert not follows(replace(shown, key=COPY.key, action=Action.DELETE), reviewed)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"apiVersion": "reconciler/v1", "kind": "Plan", "fingerprint": ""}', b"[]"])
def test_what_is_no_plan_file_is_invalid_input(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        load_saved(data, "plan.json")


async def test_a_change_of_many_requests_is_carried_out_and_leaves_nothing_to_do(engine: Engine, wire: Wire) -> None:
    await engine.apply(ORDERS, consumer("ORDERS", "billing", {"filterSubjects": ["orders.paid"]}))
    await wire.publish("orders.sent", 3)
    wider = consumer("ORDERS", "billing", {"filterSubjects": ["orders.paid", "orders.sent"]})
    applied = await engine.apply(ORDERS, wider)
    assert [(str(o.change.key), o.change.action, o.why) for o in applied.outcomes] == [
        ("Consumer/ORDERS/billing", Action.PROCEDURE, "")
    ]
    assert applied.verdict is Verdict.IN_PLACE
    assert (await wire.consumer_info("ORDERS", "billing"))["num_pending"] == 3
    assert engine.watcher.steps
    assert (await engine.plan(ORDERS, wider)).plan.changes == ()
