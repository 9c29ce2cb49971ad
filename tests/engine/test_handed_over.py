"""Who takes subjects over is remembered until the giver is as declared: nothing else tells that what is pending is not lost."""

from __future__ import annotations

from dataclasses import replace

from reconciler.engine.memory import Recollection
from reconciler.plan.change import Action, Cause, Change, Rules
from reconciler.plan.scene import Scene
from tests.support.values.build import consumer, desired, live

GIVER, TAKER = consumer("S", "giver"), consumer("S", "taker")
OTHER = consumer("S", "giver", {"maxDeliver": 5})
GIVES = Change(key=GIVER.key, action=Action.UPDATE, cause=Cause.MANIFEST, needs=(TAKER.key,))


def _taken_by(recollection: Recollection, declared: object = GIVER) -> tuple[object, ...]:
    return Scene(desired(declared, TAKER), live(), Rules(), recollection.memory).taken_by(GIVER.key)  # type: ignore[arg-type]


def test_a_handover_is_remembered_for_what_was_declared_until_it_is_in_place() -> None:
    recollection = Recollection("default")
    recollection.planned([GIVES], desired(GIVER, TAKER))
    recollection.planned([replace(GIVES, needs=())], desired(GIVER, TAKER))  # the taker is in place by now
    assert _taken_by(recollection) == (TAKER.key,)
    assert _taken_by(recollection, OTHER) == ()
    recollection.in_place([GIVER.key])
    assert _taken_by(recollection) == ()


def test_what_is_blocked_hands_nothing_over() -> None:
    recollection = Recollection("default")
    recollection.planned([replace(GIVES, action=Action.BLOCKED)], desired(GIVER, TAKER))
    assert _taken_by(recollection) == ()
