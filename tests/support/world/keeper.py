"""A daemon for the model server: it looks, plans and acts until nothing is left to do, and is killed where a test says.

Invariant: between two passes it knows nothing but the manifests and what the server shows; who goes on after a kill is the
planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from reconciler.errors import ApiError, NoAnswer
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Server
from reconciler.model.sourcing import with_durables
from reconciler.plan.change import NO_MEMORY, Action, Change, Plan, Remembered, Rules
from reconciler.procedures.looks import Looking
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Procedure, Wait, kept
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Fact,
    PauseConsumer,
    Read,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
    changed_by,
)
from tests.support.values.build import desired
from tests.support.values.planned import plan as plan_of
from tests.support.world.driver import NO_CRASH, Crash
from tests.support.world.server import ModelServer
from tests.support.world.sources import SourceWorld

SYNC = Rules(policy="sync")
ROUNDS = 3
"""A daemon answers a plan's questions no more often than that."""
MAX_STEPS = 2000
MAX_PASSES = 20


class Killed(Exception):
    """The process is gone."""


def manifests(*declared: Declared) -> Desired:
    """What is declared, as a daemon has it."""
    return with_durables(desired(*declared), "default")


def live_of(server: ModelServer, facts: Mapping[Read, Fact] | None = None) -> Live:
    """The live state as a snapshot brings it."""
    streams: dict[Key, LiveStream] = {}
    consumers: dict[Key, dict[str, LiveConsumer]] = {}
    for name in server.streams:
        info = server.read(StreamInfo(Key("Stream", name)))
        if isinstance(info, Absent):
            continue  # its leader lags
        assert isinstance(info, dict)
        streams[Key("Stream", name)] = LiveStream.seen(orjson.loads(orjson.dumps(info)))
    for stream, name in server.consumers:
        info = server.read(ConsumerInfo(Key("Consumer", name, stream)))
        if isinstance(info, Absent):
            continue
        assert isinstance(info, dict)
        seen = LiveConsumer.seen(orjson.loads(orjson.dumps(info)))
        consumers.setdefault(Key("Stream", stream), {})[name] = seen
    version = Server(version="2.15.1" if server.level > 4 else "2.14.6", level=server.level)
    return Live(version, server.now, streams, consumers, facts=facts or {})


def planned(
    wanted: Desired,
    server: ModelServer,
    rules: Rules = SYNC,
    memory: Remembered = NO_MEMORY,
    scope: frozenset[Key] | None = None,
) -> Plan:
    """The plan, with its questions answered."""
    facts: dict[Read, Fact] = {}
    for _ in range(ROUNDS + 1):
        found = plan_of(wanted, live_of(server, facts), rules, memory, scope)
        if not found.questions:
            return found
        facts |= {question: _answer(server, question) for question in found.questions}
    msg = f"it asks again and again: {found.questions}"
    raise AssertionError(msg)


def _answer(server: ModelServer, question: Read) -> Fact:
    stream = getattr(question, "stream", None)
    return Absent() if stream and stream.stream_name not in server.streams else server.read(question)


@dataclass
class Keeper:
    """Brings the model server to what is declared, while somebody publishes."""

    world: SourceWorld
    rules: Rules = SYNC
    crash: Crash = NO_CRASH
    busy: int = 60
    """Somebody publishes before so many steps."""
    steps: int = 0
    trail: list[str] = field(default_factory=list)
    """What each step was called; one that only asked has no name."""
    writes: list[Write] = field(default_factory=list)
    ends: list[Abort | str] = field(default_factory=list)
    """What did not come to a good end."""
    final: bool = False
    """The point of no return was passed."""
    refuse: int = -1
    """The write that is refused,"""
    obstinate: bool = False
    """and for ever."""
    refused: list[Write] = field(default_factory=list)
    hook: Callable[[int], None] = lambda _: None
    """Called before every step."""
    memory: Remembered = NO_MEMORY
    """What it had seen before."""
    written_at: list[int] = field(default_factory=list)
    """The step of each write."""

    @property
    def server(self) -> ModelServer:
        """What it works on."""
        return self.world.server

    def bring(self, wanted: Desired) -> Plan:
        """Pass after pass until there is nothing more to do, or nothing that can be done; the last plan."""
        for _ in range(MAX_PASSES):
            found = planned(wanted, self.server, self.rules, self.memory)
            if not [change for change in found.changes if change.action is not Action.BLOCKED]:
                return found
            try:
                self.apply(found)
            except Killed:
                self._away()
        msg = f"no end after {MAX_PASSES} passes: {[str(change.key) for change in found.changes]}, {self.ends}"
        raise AssertionError(msg)

    def attempt(self, wanted: Desired) -> Plan:
        """One pass; what it had planned."""
        found = planned(wanted, self.server, self.rules, self.memory)
        self.apply(found)
        return found

    def apply(self, plan: Plan) -> None:
        """Everything that may be done, one after the other; after a failure nothing more."""
        assert not plan.refused, plan.refused
        for change in plan.changes:
            if change.action is Action.BLOCKED:
                continue
            good = self.run(change.machine) if change.machine else all(map(self._send_one, _requests(change)))
            if not good:
                return

    def run(self, machine: Procedure) -> bool:
        """One procedure; whether it came to a good end."""
        looking, memory = Looking(machine), None
        facts: dict[Read, Fact] = {}
        failure = ""
        for _ in range(MAX_STEPS):
            since = self.server.now
            self._step()
            step = looking.step(Observation(self.server.now, facts, failure), memory)
            known, facts, failure = facts, {}, ""
            self.trail[-1] = getattr(step, "title", "")
            if isinstance(step, Done):
                return True
            if isinstance(step, Abort):
                self.ends.append(step)
                return False
            memory = step.memory
            if isinstance(step, Ask):
                facts = {read: self.server.read(read) for read in step.reads}
            elif isinstance(step, Wait):
                assert step.until > since, "waiting for the past"
                self.server.now = max(self.server.now, step.until)
            elif isinstance(step, Do):
                assert self._may_be_touched(machine, step.write), f"{machine} does not say that it touches {step.write}"
                self.final = self.final or step.final
                try:
                    failure = self._send(step.write)
                    facts = {} if failure else kept(known, step)
                except NoAnswer:
                    memory = None  # look again, as after a crash
                    self.server.now += 10**9
        msg = f"no end after {MAX_STEPS} steps: {self.writes[-6:]}"
        raise AssertionError(msg)

    @staticmethod
    def _may_be_touched(machine: Procedure, write: Write) -> bool:
        changed = getattr(write, "consumer", None)
        return changed is None or changed == machine.key or changed in machine.touches

    def _send_one(self, write: Write) -> bool:
        self._step()
        try:
            failure = self._send(write)
        except NoAnswer as unheard:
            failure = str(unheard)
            self.server.now += 10**9
        if failure:
            self.ends.append(failure)
        return not failure

    def _send(self, write: Write) -> str:
        number = len(self.writes)
        self.writes.append(write)
        self.written_at.append(self.steps - 1)
        failure = ""
        if number != self.crash.write or self.crash.executed:
            self.server.now += 10**6
            try:
                self._refuse(number, write)
                self.server.write(write)
            except ApiError as refused:
                failure = str(refused)
        if number == self.crash.write:
            raise Killed
        return failure

    def _refuse(self, number: int, write: Write) -> None:
        again = self.obstinate and any(_alike(write, one) for one in self.refused)
        if number == self.refuse or again:
            self.refused.append(write)
            raise ApiError(500, 10000, "refused by the test")

    def moments(self) -> list[Crash]:
        """Kills at every write (sent, or just not), and before every step, but one for many of the same waiting."""
        writes = [Crash(write=number, executed=done) for number in range(len(self.writes)) for done in (False, True)]
        steps, before = [], ""
        for number, title in enumerate(self.trail):
            if title and title != before:
                steps += [Crash(step=number), Crash(step=number + 1)]
                before = title
        return [*writes, *steps]

    def _step(self) -> None:
        number, self.steps = self.steps, self.steps + 1
        self.trail.append("")
        if number == self.crash.step:
            raise Killed
        if number < self.busy:
            self.world.publish()
        self.server.sourcing.pass_time()
        self.hook(number)

    def _away(self) -> None:
        """Nobody comes back before the silence is over; the world goes on."""
        left = self.crash.silence
        while left > 0:
            self.world.publish(1)
            self.server.advance(min(left, 10 * 10**9) / 10**9)
            left -= 10 * 10**9


def _alike(one: Write, other: Write) -> bool:
    """The same request, apart from the moment at which a pause shall end."""
    if (type(one), changed_by(one)) != (type(other), changed_by(other)):
        return False
    if isinstance(one, PauseConsumer) and isinstance(other, PauseConsumer):
        return bool(one.until) == bool(other.until)
    return one == other or isinstance(one, CreateConsumer)


def _requests(change: Change) -> list[Write]:
    key, config = change.key, change.config
    consumer = key.kind == "Consumer"
    delete: Write = DeleteConsumer(key) if consumer else DeleteStream(key)
    create: Write = CreateConsumer(key, config) if consumer else CreateStream(key, config)
    if change.action is Action.DELETE:
        return [delete]
    if change.action is Action.RECREATE:
        return [delete, create]
    if change.action is Action.CREATE:
        return [create]
    return [UpdateConsumer(key, config) if consumer else UpdateStream(key, config)]
