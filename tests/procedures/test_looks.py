"""A look that goes back behind what was written or seen is none, for a while; then it is what somebody else has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.marker import Marker
from reconciler.model.units import format_time
from reconciler.procedures.let_go import LetGo
from reconciler.procedures.looks import PATIENCE, Looking
from reconciler.procedures.machine import Ask, Do, Observation, Step, Wait
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    Copied,
    CreateConsumer,
    DeleteConsumer,
    Fact,
    LastCopied,
    PauseConsumer,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
)
from tests.support.values.build import NOW

C, S = Key("Consumer", "c", "S"), Key("Stream", "S")
LOOK = ConsumerInfo(C)
LATER = format_time(NOW + 100 * 10**9)


def _config(spec: str) -> dict[str, Any]:
    return {"name": "c", "metadata": {**Marker(owner="o", spec=spec).to_metadata(), "_nats.level": "5"}}


def _info(spec: str = "new", floor: int = 5, created: int = NOW, pause: str = "") -> dict[str, Any]:
    at = {"consumer_seq": 1, "stream_seq": floor}
    config = _config(spec) | ({"pause_until": pause} if pause else {})
    info = {"stream_name": "S", "name": "c", "config": config, "ts": format_time(NOW)}
    info |= {"created": format_time(created), "delivered": at, "ack_floor": at}
    return info | ({"paused": True} if pause else {})


@dataclass(frozen=True)
class Writing(LetGo):
    """Asks, writes what it is told to, and asks again."""

    write: Write = field(default=DeleteConsumer(C))

    def step(self, observation: Observation, memory: Any) -> Step:
        """The next thing to do."""
        if not observation.facts:
            return Ask((LOOK,), memory)
        return Ask((LOOK,), "looked again") if memory else Do(self.write, "write", "written")


def _after(write: Write, before: Mapping[Read, Fact], after: Mapping[Read, Fact], later: int = 0, failure: str = "") -> Step:
    """What is made of a look behind a write."""
    looking = Looking(Writing(C, write=write))
    written = looking.step(Observation(NOW, before), None)
    assert isinstance(written, Do)
    asked = looking.step(Observation(NOW, {}, failure), written.memory)
    assert isinstance(asked, Ask)
    first = looking.step(Observation(NOW, after), asked.memory)
    return looking.step(Observation(NOW + later, after), first.memory) if later and isinstance(first, Wait) else first


_OLD: dict[Read, Fact] = {LOOK: _info("old")}
_ASKED = [
    (UpdateConsumer(C, orjson.dumps(_config("new"))), _info("old"), _info("new")),
    (PauseConsumer(C, LATER), _info("old"), _info("old", pause=LATER)),
    (PauseConsumer(C, ""), _info("old", pause=LATER), _info("old")),
    (ResetConsumer(C, 9), _info("old"), _info("old", floor=8)),
    (ResetConsumer(C, 3), _info("old", pause=LATER), _info("old", floor=2, pause=LATER)),
    (DeleteConsumer(C), _info("old"), Absent()),
    (DeleteConsumer(C), _info("old"), _info("old", created=NOW + 1)),
    (CreateConsumer(C, orjson.dumps(_config("new"))), Absent(), _info("new")),
]


@pytest.mark.parametrize(("write", "behind", "done"), _ASKED)
def test_a_step_is_done_when_a_look_shows_it(write: Write, behind: Fact, done: Fact) -> None:
    pause = LATER if isinstance(write, PauseConsumer | ResetConsumer) else ""
    before: dict[Read, Fact] = {LOOK: _info("old", pause=pause)}
    assert isinstance(_after(write, before, {LOOK: behind}), Wait)
    assert isinstance(_after(write, before, {LOOK: done}), Ask)


@pytest.mark.parametrize(("write", "behind", "done"), _ASKED)
def test_after_a_while_it_is_what_somebody_else_has_done(write: Write, behind: Fact, done: Fact) -> None:
    assert done != behind
    assert isinstance(_after(write, _OLD, {LOOK: behind}, PATIENCE - 1), Wait)
    assert isinstance(_after(write, _OLD, {LOOK: behind}, PATIENCE), Ask)


def test_what_was_refused_is_not_waited_for() -> None:
    write = UpdateConsumer(C, orjson.dumps(_config("new")))
    assert isinstance(_after(write, _OLD, _OLD, failure="no"), Ask)


@pytest.mark.parametrize(
    "goes_back", [_info("old", floor=4), _info("old", created=NOW - 1), Absent()], ids=["floor", "created", "absent"]
)
def test_what_only_grows_does_not_fall(goes_back: Fact) -> None:
    nothing = UpdateConsumer(C, orjson.dumps(_config("old")))
    assert isinstance(_after(nothing, _OLD, _OLD), Ask)
    assert isinstance(_after(nothing, _OLD, {LOOK: goes_back}), Wait)


@dataclass(frozen=True)
class Twice(LetGo):
    """Looks at one thing, and then at another one as well, as long as it takes."""

    def step(self, observation: Observation, memory: Any) -> Step:
        """The next thing to do."""
        return (
            Wait(NOW, "seen", memory)
            if LAST in observation.facts
            else Ask((LOOK, LAST) if observation.facts else (LOOK,), memory)
        )


LAST = LastCopied(S, "x > >")


def test_a_look_at_something_else_does_not_begin_the_patience_anew() -> None:
    """What a stream has copied may be gone from it for good: somebody has taken it."""
    looking, memory, now = Looking(Twice(C)), None, NOW
    titles = []
    for copied in (20, *[0] * 9):
        looks: tuple[dict[Read, Fact], ...] = ({}, {LOOK: _info()}, {LOOK: _info(), LAST: Copied(copied)})
        for facts in looks:
            step = looking.step(Observation(now, facts), memory)
            assert isinstance(step, Ask | Wait)
            memory = step.memory
        titles.append(step.title if isinstance(step, Wait) else "")
        now += PATIENCE // 4
    assert titles == ["seen", *["a leader catches up"] * 4, *["seen"] * 5]


def test_a_stream_and_what_was_copied_do_not_go_back_either() -> None:
    read, copied = StreamInfo(S), LastCopied(S, "x > >")
    entries = [{"name": "A", "consumer": {"name": "c", "deliver_subject": "d"}}]
    config = {"name": "S", "sources": entries}
    shown = {"config": {"name": "S", "sources": [{"consumer": {"deliver_subject": "d", "name": "c"}, "name": "A"}]}}
    info = {**shown, "created": format_time(NOW), "state": {"last_seq": 5}}
    write = UpdateStream(S, orjson.dumps(config))
    before: dict[Read, Fact] = {LOOK: _info("old"), read: info, copied: Copied(5)}
    assert isinstance(_after(write, before, before), Ask)
    assert isinstance(_after(write, before, {**before, copied: Copied(4)}), Wait)
    assert isinstance(_after(write, before, {**before, read: {**info, "state": {"last_seq": 4}}}), Wait)
    assert isinstance(_after(write, before, {**before, read: {**info, "config": {"name": "S"}}}), Wait)
