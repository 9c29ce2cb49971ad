"""The engine under attack: what is forgotten, what is bounded, and what nobody has held against everything yet."""

from __future__ import annotations

from dataclasses import replace

from reconciler.engine.apply.outcome import No
from reconciler.engine.daemon.due import divide
from reconciler.engine.daemon.fights import TIMES, Fight, Fights
from reconciler.engine.daemon.trouble import Trouble
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff
from reconciler.procedures.set_pause import SetPause
from tests.support.clock.fake import Clock
from tests.support.daemon.passes import DOCUMENTS, A, Bench
from tests.support.daemon.state import DRIFT, state_of
from tests.support.values.catalogues import write

GONE = Change(key=A, action=Action.PROCEDURE, cause=Cause.MISSING, config=b"ours", machine=SetPause(A, b"{}", ""))
NO = No("exists: somebody made it")
SOMEBODY = Author("a-script", "", "")


def test_what_was_missing_is_tried_again_when_somebody_has_touched_it() -> None:
    trouble = Trouble(Clock())
    trouble.failed(GONE, for_good=True)
    assert trouble.due_in(GONE) > 0
    trouble.changed(A)
    assert trouble.due_in(GONE) == 0


def test_a_no_is_forgotten_as_soon_as_something_else_was_seen_in_between() -> None:
    trouble = Trouble(Clock())
    trouble.failed(GONE, for_good=True)
    trouble.seen(replace(GONE, action=Action.BLOCKED, live_config=b"theirs"))
    assert trouble.due_in(GONE) == 0


def test_ever_new_drifts_are_remembered_up_to_a_bound_and_the_fight_of_today_is_still_seen() -> None:
    flaps = Fights(Clock())
    field = FieldDiff("maxDeliver", 99, 5)
    for number in range(12_000):
        flaps.noted(Key("Consumer", f"c{number}", "S"), (field,), SOMEBODY)
    noted = [flaps.noted(A, (field,), SOMEBODY) for _ in range(TIMES + 1)]
    assert noted[-1] == Fight(field, TIMES + 1, SOMEBODY)
    assert all(len(known) <= 10_000 for known in (flaps._seen, flaps._authors, flaps._last))


def test_what_another_pass_is_just_writing_to_is_looked_at_again() -> None:
    state = state_of()
    state.busy.add(A)
    assert divide(state, [DRIFT], [A]) == ([], {A: "is being worked on"})
    assert state.agenda.depth == 1


async def test_a_hint_acts_on_no_manifests_that_were_not_held_against_everything(bench: Bench) -> None:
    await bench.full()
    write(bench.path, [DOCUMENTS[0], *({**one, "spec": {**one["spec"], "maxDeliver": 7}} for one in DOCUMENTS[1:])])
    await bench.manifests.load(full=True)
    await bench.somebody.edit("S", "a", max_deliver=99)
    await bench.hint(A)
    assert (await bench.somebody.config("S", "a"))["max_deliver"] == 99
    await bench.full()
    assert (await bench.somebody.config("S", "a"))["max_deliver"] == 7
