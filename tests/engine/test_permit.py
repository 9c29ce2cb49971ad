"""The right to write, as a pass has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.engine.writing.permit import Right, permits
from reconciler.errors import LeaseLost, Refused
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent
from tests.support.daemon.state import state_of
from tests.support.values.build import consumer, desired

A, B = consumer("S", "a"), consumer("S", "b")


def test_it_ends_with_the_term_it_began_in_and_with_the_process() -> None:
    state = state_of()
    state.declared = desired(A)
    right = Right(state, lambda: None)
    earlier = permits(right, state, state.term, state.desired)([A.key])
    earlier.check()
    state.term += 1  # another may have led in between
    with pytest.raises(LeaseLost, match="not held all the time"):
        earlier.check()
    now = permits(right, state, state.term, state.desired)([A.key])
    now.check()
    state.stopping = True
    with pytest.raises(LeaseLost, match="ending"):
        now.check()


def test_it_ends_when_something_else_is_wanted_of_its_keys_and_of_no_others() -> None:
    state = state_of()
    state.declared = desired(A, B)
    of = permits(Right(state, lambda: None), state, state.term, state.desired)
    of_a, of_gone = of([A.key]), of([Key("Consumer", "gone", "S")])
    for commit in (desired(A), desired(A, consumer("S", "b", {"maxDeliver": 5})), desired(B, A)):
        state.declared = commit
        of_a.check()
        of_gone.check()
    state.declared = desired(consumer("S", "a", {"maxDeliver": 5}), B, consumer("S", "gone"))
    for permit in (of_a, of_gone):
        with pytest.raises(Refused):
            permit.check()
    state.declared = desired(replace(A, intent=Intent(allow=frozenset({"data-loss"}))))
    with pytest.raises(Refused):
        of_a.check()
    state.declared = desired(A, B)
    state.suspended.add(A.key)
    with pytest.raises(Refused):
        of_a.check()
    of([B.key]).check()
