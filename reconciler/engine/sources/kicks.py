"""When a source that does not attach is kicked, and when that is given up.

Invariant: only entries whose durable is declared by us and there, only by the one that may write, and never what a procedure or a
pass is working on.
"""

from __future__ import annotations

import orjson

from reconciler.engine.apply.procedures import Halt, Supervisor
from reconciler.engine.daemon.keeper import Running, digests_of
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.ports import Ports
from reconciler.engine.sources.looks import WatchedSource
from reconciler.engine.writing.permit import permits
from reconciler.errors import Refused
from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.model.normal import normal_source
from reconciler.model.units import SECOND
from reconciler.plan.change import Action, Cause, Change
from reconciler.plan.scene import Scene
from reconciler.sources.graph.topology import Mode
from reconciler.sources.health import SourceState
from reconciler.sources.kick import KickSource
from reconciler.sources.symptoms import StallCause

AFTER = (8, 30, 120)
"""Seconds of a stall after which it is kicked for the first, the second and the last time."""
_GIVEN_UP_AFTER = 30
"""Seconds after the last kick."""
_HELPS = frozenset({StallCause.NOT_BOUND, StallCause.UNKNOWN})
_OURS = frozenset({Mode.MANAGED, Mode.USER_MANAGED})


class Kicks:
    """Counts the kicks of each stall."""

    def __init__(self, state: DaemonState, ports: Ports) -> None:
        self._state = state
        self._ports = ports
        self._tried: dict[tuple[Key, str], int] = {}

    def consider(self, source: WatchedSource, at: int) -> None:
        """After each look at a source."""
        health, state = source.history.health, self._state
        if health is None or health.state is SourceState.FLOWING:
            self._tried.pop(source.name, None)
            return
        declared, durable = state.resource(source.entrance.aggregate), source.entrance.durable
        if declared is None or durable is None or not self._may(source, declared, durable):
            return
        tried, stalled = self._tried.get(source.name, 0), (at - health.stalled_since) / SECOND
        if tried < len(AFTER) and stalled >= AFTER[tried]:
            self._tried[source.name] = tried + 1
            self._kick(source, declared, durable, tried + 1)
        elif tried == len(AFTER) and stalled >= AFTER[-1] + _GIVEN_UP_AFTER:
            self._tried[source.name] = tried + 1
            state.telemetry.sources.given_up(declared.key, source.entrance, len(AFTER))

    def forget(self, known: set[tuple[Key, str]]) -> None:
        """Only these are there."""
        self._tried = {name: tried for name, tried in self._tried.items() if name in known}

    def _may(self, source: WatchedSource, declared: Declared, durable: Key) -> bool:
        state, entrance, health = self._state, source.entrance, source.history.health
        if health is None or health.state is not SourceState.STALLED or health.cause not in _HELPS:
            return False
        if entrance.mirror or entrance.mode not in _OURS or not state.may_write or not state.options.repair_drift:
            return False
        if declared.intent.suspend or declared.key in state.suspended or not _as_declared(source, declared):
            return False
        keys = (entrance.aggregate, durable)
        return state.keeper.room > 0 and state.busy.isdisjoint(keys) and not state.keeper.owns_any(keys)

    def _kick(self, source: WatchedSource, declared: Declared, durable: Key, number: int) -> None:
        state, entrance = self._state, source.entrance
        try:
            rules = state.rules
        except Refused:
            return
        desired = state.desired
        state.telemetry.sources.kicked(declared.key, entrance, number, len(AFTER))
        machine = KickSource(declared.key, orjson.dumps(entrance.entry), durable)
        change = Change(key=declared.key, action=Action.PROCEDURE, cause=Cause.DRIFT, machine=machine, touches=machine.touches)
        scene = Scene(desired, state.seen, rules, state.recollection.memory)
        keys = set(change.members)
        running = Running(change, Halt(abortable=False), digests_of(desired, keys))
        permit_of = permits(self._ports.lease, state, state.term, desired)
        state.keeper.begin(running, Supervisor(self._ports, scene.normal, permit_of))


def _as_declared(source: WatchedSource, declared: Declared) -> bool:
    """Whether the live entry is one that is wanted: another one is no matter of kicking."""
    wanted = (normal_source(entry) for entry in declared.config.get("sources") or ())
    return normal_source(source.entrance.entry) in wanted
