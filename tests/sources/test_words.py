"""What a person reads of a plan for sources: modes instead of generated subjects, steps in the order in which they are done."""

from __future__ import annotations

from typing import Any

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.marker import Marker
from reconciler.model.seen.live import Live
from reconciler.model.sourcing import DELIVERED, with_durables
from reconciler.plan.change import Change, Rules
from reconciler.plan.comparing.diff import fields
from reconciler.render.plan.text import change_lines
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

A = Key("Stream", "A")
S = stream("S", {"subjects": ["s.>"]})
RULES = Rules()
ALLOWED = Rules(allow=frozenset({("position-loss", "Stream/A")}))


def copying(**entry: Any) -> Declared:
    return stream("A", {"sources": [{"name": "S", **entry}]})


def managed(name: str = "c") -> dict[str, Any]:
    return {"consumer": {"name": name, "serverManaged": True}}


def wanted(*more: Declared) -> Desired:
    return with_durables(desired(S, *more), "default")


def there(*more: Declared) -> Live:
    found = [stream_info(marked(S), messages=50, last_seq=50)]
    return live(*found, *(stream_info(marked(one)) for one in more))


def change(declared: Desired, state: Live, rules: Rules = RULES) -> Change:
    return next(one for one in plan(declared, state, rules).changes if one.key == A)


def text(found: Change) -> list[str]:
    return [line.plain.strip() for line in change_lines(found)]


def test_a_managed_durable_is_shown_as_it_is_declared() -> None:
    shown = text(change(wanted(copying(**managed())), there(copying())))
    assert "sources: [{name: S}] → [{name: S, consumer: {name: c, serverManaged: true}}]" in shown
    assert DELIVERED not in "\n".join(shown)
    assert "no message is copied again" in shown


def test_a_generated_subject_is_shown_where_nothing_else_differs() -> None:
    one, other = ({"sources": [{"name": "S", "consumer": {"name": "c", "deliver_subject": DELIVERED + end}}]} for end in "ab")
    (found,) = fields(A, one, other, lambda *_: {})
    assert found.declared == [{"name": "S", "consumer": {"name": "c", "deliverSubject": DELIVERED + "a"}}]
    assert found.live == [{"name": "S", "consumer": {"name": "c", "deliverSubject": DELIVERED + "b"}}]


def test_a_new_durable_says_what_it_selects_and_that_nothing_is_at_stake() -> None:
    shown = text(change(wanted(copying(filterSubject="s.a", optStartSeq=3, **managed())), there()))
    assert "1. create c for s.a, from sequence 3 on" in shown
    assert "2. create A" in shown
    assert not [line for line in shown if "copied again" in line or "no return" in line]


def test_an_entry_goes_before_its_durable() -> None:
    before = wanted(copying(**managed()))
    durable = before.durables[Key("Consumer", "c", "S")].declared
    marker = Marker(owner="default", spec=durable.digest, source=str(A), key=durable.key.mark)
    kept = consumer_info("S", {**durable.config, "metadata": marker.to_metadata()})
    state = live(stream_info(marked(S)), stream_info(marked(before.streams[A])), kept)
    shown = text(change(wanted(stream("A", {"subjects": ["a.>"]})), state))
    assert shown.index("1. update A") < shown.index("2. delete c")


def test_what_was_allowed_to_come_again_is_said() -> None:
    own = {"ackPolicy": "flow_control", "deliverSubject": "d", "deliverPolicy": "last_per_subject", "filterSubjects": ["s.>"]}
    declared = wanted(copying(consumer={"name": "c", "deliverSubject": "d"}), consumer("S", "c", own))
    refused, allowed = (change(declared, there(copying()), rules) for rules in (RULES, ALLOWED))
    assert [reason.code for reason in refused.reasons] == ["position-loss"]
    shown = text(allowed)
    assert "50 messages will be copied again" in shown
    assert not [line for line in shown if "reset" in line or "paused" in line]


def test_a_long_entry_that_is_replaced_leaves_nothing_to_count() -> None:
    declared = wanted(copying(subjectTransforms=[{"src": "s.>", "dest": "copied.from.a.site.>"}], **managed()))
    state = there(copying(subjectTransforms=[{"src": "s.>", "dest": "copied.from.a.site.>"}]))
    shown = text(change(declared, state))
    before, now = shown[shown.index("sources:") + 1 :][:2]
    assert before.startswith("- {name: S")
    assert now.startswith("+ {name: S")
    assert not [line for line in shown if "kept" in line]
