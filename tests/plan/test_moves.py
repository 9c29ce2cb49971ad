"""Subjects that move between streams: what is refused because something would be dropped on the way."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.plan.change import Action, Plan, Rules
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

OLD = stream("OLD", {"subjects": ["a", "b"]})


def _codes(result: Plan) -> dict[str, list[str]]:
    return {str(change.key): [reason.code for reason in change.reasons] for change in result.changes}


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_new_interest_stream_takes_no_live_subject_before_it_has_readers(retention: str) -> None:
    less, new = stream("OLD", {"subjects": ["a"]}), stream("NEW", {"subjects": ["b"], "retention": retention})
    result = plan(desired(less, new), live(stream_info(marked(OLD))), Rules())
    if retention == "limits":
        assert [change.action for change in result.changes] == [Action.PROCEDURE]
    else:
        assert _codes(result) == {"Stream/NEW": ["interest-gap"], "Stream/OLD": ["depends-on"]}


@pytest.mark.parametrize("limits", [{}, {"consumerLimits": {"maxAckPending": 9}}])
def test_an_interest_stream_grows_apart_from_what_its_new_readers_wait_for(limits: dict[str, Any]) -> None:
    before = stream("JOBS", {"subjects": ["j.a"], "retention": "interest"})
    after = stream("JOBS", {"subjects": ["j.a", "j.b"], "retention": "interest", **limits})
    reader = consumer("JOBS", "new", {"filterSubjects": ["j.b"], "maxAckPending": 5})
    other = consumer("JOBS", "old", {"filterSubjects": ["j.a"], "maxAckPending": 5})
    state = live(stream_info(marked(before)), consumer_info("JOBS", marked(other)))
    result = plan(desired(after, reader, other), state, Rules())
    if limits:
        assert _codes(result)["Stream/JOBS"] == ["interest-gap"]
    else:
        assert [str(change.key) for change in result.changes] == ["Consumer/JOBS/new", "Stream/JOBS"]
