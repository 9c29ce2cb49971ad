"""What a source migration makes of what it reads: how far was copied, whose entry is whose, and when an old durable may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.marker import Journal, Marker
from reconciler.model.normal import canonical
from reconciler.model.sourcing import identity_of
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.machine import Do, Wait
from reconciler.procedures.pause import PATIENCE
from reconciler.procedures.requests import (
    ConsumerInfo,
    Copied,
    DeleteConsumer,
    Fact,
    LastCopied,
    PauseConsumer,
    Read,
    StreamInfo,
)
from reconciler.sources.migration.detach import settle
from reconciler.sources.migration.pairs import Slot, View
from reconciler.sources.migration.step import RESTS, Ground, SlotMemory
from tests.support.values.build import NOW
from tests.support.world.sources import PLAIN, A, S, durable, through

C = durable("c")


def _seen(**data: Any) -> ConsumerSeen:
    """A durable with such a journal."""
    journal = Journal("migrate-source", "attach", "x", orjson.dumps({"stream": "Stream/A", "start": 1, **data}).decode())
    metadata = Marker(owner="default", journal=journal, key=C.mark).to_metadata()
    return ConsumerSeen({"stream_name": "S", "name": "c", "config": {"durable_name": "c", "metadata": metadata}})


def _ground(entry: dict[str, Any], copied: int = -1, *, retention: str = "limits", memory: SlotMemory | None = None) -> Ground:
    """A stream with one entry, under whose identity so much was copied."""
    facts: dict[Read, Fact] = {StreamInfo(A): {"config": {"name": "A", "sources": [entry]}}}
    if copied >= 0:
        facts[LastCopied(A, identity_of(entry))] = Copied(copied)
    slot = Slot(origin=S, before=canonical(entry), after=canonical(entry), old=C, drop_old=True, retention=retention)
    return Ground(slot, View(A, facts, NOW), memory or SlotMemory())


@pytest.mark.parametrize(("silent", "rests"), [(0, False), (RESTS - 1, False), (RESTS, True)])
def test_what_was_queued_for_an_entry_is_waited_for(silent: int, rests: bool) -> None:
    ground = _ground(PLAIN, 5, memory=SlotMemory(copied=5, copied_since=NOW - silent))
    found = ground.rested(PLAIN, 0)
    assert found == 5 if rests else isinstance(found, Wait)


def test_more_that_arrives_begins_the_waiting_anew() -> None:
    found = _ground(PLAIN, 6, memory=SlotMemory(copied=5, copied_since=NOW - 9 * RESTS)).rested(PLAIN, 0)
    assert isinstance(found, Wait)
    assert (found.memory.copied, found.memory.copied_since) == (6, NOW)


def test_what_was_told_counts_where_the_messages_are_gone() -> None:
    ground = _ground(PLAIN, 0, memory=SlotMemory(copied=0, copied_since=NOW - RESTS))
    assert ground.rested(PLAIN, 9) == 9


def test_what_a_journal_says_of_an_entry_counts_for_entries_of_its_origin_that_nobody_else_is() -> None:
    ground = _ground(through("c"))
    others: tuple[Any, ...] = (
        through("c") | {"name": "T"},
        {"name": 5},
        7,
        None,
        [],
        {"name": "S", "consumer": 5},
        {"name": "S", "filter_subject": {}},
    )
    assert [ground.known(_seen(entry=one), "entry") for one in others] == [{}] * len(others)
    assert [ground.known(_seen(entry=one), "entry") for one in (PLAIN, through("c"))] == [PLAIN, through("c")]


@pytest.mark.parametrize(("copied", "last"), [(3, 5), (5, 5), (9, 9)])
def test_what_is_stored_counts_where_a_durable_was_not_told(copied: int, last: int) -> None:
    assert _ground(through("c"), copied)._taken_in(C, _seen(), 5) == last


def test_on_a_workqueue_a_durable_is_told_before_it_is_left() -> None:
    seen = ConsumerSeen({**_seen().info, "push_bound": True})
    step = _ground(through("c"), 9, retention="workqueue")._taken_in(C, seen, 5)
    assert isinstance(step, Do)
    assert step.write == PauseConsumer(C, "")


@pytest.mark.parametrize(("retention", "goes"), [("interest", False), ("limits", True), ("workqueue", True)])
def test_on_interest_a_durable_stays_until_the_new_reader_is_heard_of(retention: str, goes: bool) -> None:
    ground = _ground(PLAIN, retention=retention, memory=SlotMemory(flowing_from=NOW - 10 * PATIENCE))
    facts = {**ground.view.facts, ConsumerInfo(C): _seen().info}
    silent = replace(ground, view=replace(ground.view, facts=facts))
    step = settle(silent, PLAIN)
    assert (isinstance(step, Do) and step.write == DeleteConsumer(C)) if goes else isinstance(step, Wait)
    heard: dict[str, Any] = {"config": {"name": "A", "sources": [PLAIN]}, "sources": [{"name": "S", "active": 0}]}
    heard_of = replace(ground, view=replace(ground.view, facts={**facts, StreamInfo(A): heard}))
    step = settle(heard_of, PLAIN)
    assert isinstance(step, Do)
    assert step.write == DeleteConsumer(C)


def test_entries_of_two_origins_of_one_name_are_told_apart_by_their_domains() -> None:
    east, west = ({"name": "S", "external": {"api": f"$JS.{domain}.API"}} for domain in ("east", "west"))
    heard = [{**east, "active": -1}, {**west, "active": 0}]
    view = View(A, {StreamInfo(A): {"config": {"name": "A", "sources": [east, west]}, "sources": heard}}, NOW)
    assert (view.flows(east), view.flows(west)) == (False, True)
    for entry, domain in ((east, "east"), (west, "west")):
        assert view.entry(Slot(origin=Key("Stream", "S", "", domain), before=canonical(entry))) == entry
