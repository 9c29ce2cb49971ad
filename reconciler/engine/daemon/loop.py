"""The daemon: triggers fill the queue, one loop works it off, and a stop is always orderly.

Invariants: nobody plans beside a plan for everything; a loss of NATS ends nothing; once stopping, the
request in flight is the last one.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from reconciler.engine.daemon.aftermath import Aftermath
from reconciler.engine.daemon.control import ConnectionLink, Control
from reconciler.engine.daemon.election import Candidate, stand, watch
from reconciler.engine.daemon.manifests import Manifests
from reconciler.engine.daemon.passes import Passes
from reconciler.engine.daemon.queue import Work
from reconciler.engine.daemon.requests import Requests
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.ports import Ports
from reconciler.engine.sources.watch import SourcesWatch
from reconciler.errors import Problem
from reconciler.jetstream.domains import DomainApis
from reconciler.model.desired import Desired, Expectation
from reconciler.model.identity import Key
from reconciler.observe.status.declared import Catalogue
from reconciler.plan.change import Author

_JITTER = 0.1
_BEAT = 1.0
_FIRST_LEASE = 0.5
"""Seconds that the first pass waits for the lease, so that a lone process begins as the leader."""
_SILENT_ONES = 4
"""Passes side by side over keys that did not answer when they were asked last."""
_LAST_WORK = 6.0
"""Seconds that work under way gets when the process is to end; what is left of ten is for giving back the lease."""
_LAST_WORDS = 2.5
"""Seconds that giving the lease back may take; after that it runs out by itself."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What a daemon runs on."""

    ports: Ports
    link: ConnectionLink
    lease: Candidate
    manifests: Manifests
    apis: DomainApis


class Daemon:
    """One process that keeps JetStream as declared."""

    def __init__(self, state: DaemonState, neighbours: Neighbours) -> None:
        self._state = state
        self._near = neighbours
        self._clock = neighbours.ports.clock
        state.prunes_wait = neighbours.manifests.prunes_wait
        self.telemetry = state.telemetry
        self._passes = Passes(state, neighbours.ports, neighbours.manifests)
        self._aftermath = Aftermath(state)
        self._sources = SourcesWatch(state, neighbours.ports)
        self._led = asyncio.Event()
        self._stop = asyncio.Event()
        self._room = asyncio.Semaphore(state.options.concurrent_hints)
        self._patience = asyncio.Semaphore(_SILENT_ONES)
        self._at_work: dict[asyncio.Task[None], float] = {}
        """The passes under way, with when they began."""
        requests = Requests(state, neighbours.ports, neighbours.apis, neighbours.lease.holder_id)
        self.control = Control(state, neighbours.link, neighbours.manifests, self._clock, requests)

    async def run(self) -> None:
        """Works until `stop` is called; then ends what is under way, and gives the lease back."""
        self._near.link.on_state_change(self._connection_changed)
        if self._near.link.connected:
            self._connection_changed(connected=True)
        near = self._near
        looking = watch(near.lease, self._clock, self._held_by)
        endless = [self._work(), self._tick(), near.manifests.watch(lambda: None), looking, self._sources.watch()]
        if not self._state.options.dry_run:
            endless.append(stand(near.lease, self._clock, self._lead, self._in_its_place))
        tasks = [asyncio.create_task(one) for one in endless]
        stop = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # none of them ends but by a bug, which must end the process
        finally:
            await self._end([stop, *tasks])

    def stop(self) -> None:
        """To be called once: from now on nothing new is begun."""
        self._state.stopping = True
        self._stop.set()

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._state.stopping = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        last = asyncio.gather(self._state.keeper.stop_all(), *self._at_work, return_exceptions=True)
        await asyncio.wait({last}, timeout=_LAST_WORK)
        if not self._state.options.dry_run:
            await asyncio.wait({asyncio.ensure_future(self._near.lease.release())}, timeout=_LAST_WORDS)

    async def _work(self) -> None:
        """Hands out the work: passes over single keys side by side, and beside a full one."""
        agenda = self._state.agenda
        if self._in_its_place():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._led.wait(), _FIRST_LEASE)
        agenda.everything("start")
        while True:
            await self._near.link.wait_connected()
            work = await agenda.take()
            self._state.telemetry.dequeued(work.waited)
            self._state.telemetry.queued(agenda.depth)
            room = self._room
            if not work.everything:
                if agenda.is_silent(work.keys):
                    room = self._patience  # waited for in there: whoever is silent must not keep others waiting
                else:
                    await room.acquire()
            task = asyncio.create_task(self._one(work, room), name="full pass" if work.everything else "hint")
            self._at_work[task] = self._clock.monotonic()
            task.add_done_callback(self._at_work.pop)

    async def _one(self, work: Work, room: asyncio.Semaphore) -> None:
        if room is self._patience:
            await room.acquire()
        try:
            await self._passes.run_once(work)
        except Exception:
            log.exception("pass.crashed", keys=[str(key) for key in work.keys])
            if work.everything:
                self._state.board.unseen("the last pass crashed; the log says more")
            self._aftermath.unseen(work.keys)
        finally:
            if not work.everything:
                room.release()
            self._state.agenda.done(work)

    async def _tick(self) -> None:
        """The heartbeat, and the full pass that comes whatever happens."""
        due = self._next_pass()
        while True:
            await self._clock.sleep(_BEAT)
            self.control.beat()
            self._state.tell_counts()
            now = self._clock.monotonic()
            self._state.telemetry.unfinished_work(now - min(self._at_work.values(), default=now))
            if now >= due:
                self._state.agenda.everything("interval")
                due = self._next_pass()
            elif self._state.prunes_waiting and not self._state.prunes_wait():
                self._state.prunes_waiting = 0
                self._state.agenda.everything("the manifests have come to rest")

    def _next_pass(self) -> float:
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - so that several processes do not look at once
        return self._clock.monotonic() + self._state.options.interval * spread

    def hint(self, key: Key, author: Author | None) -> None:
        """Somebody else has changed this live key, or may have."""
        state = self._state
        if not state.speaks or not state.concerns(key):
            return  # a follower sees it on its next pass
        if author is not None:
            state.took_note(key, author)
        state.agenda.changed(key)
        state.telemetry.queued(state.agenda.depth)

    def hints_lost(self, why: str) -> None:
        """Something may have happened without a hint."""
        self._state.agenda.everything(why)

    def manifests_refused(self, problems: tuple[Problem, ...]) -> None:
        """The newest manifests are wrong; nothing when they are good again."""
        state = self._state
        state.board.manifests(state.desired.revision, problems)
        if problems:
            state.telemetry.manifests_refused(problems)
        else:
            self._tell_manifests()

    def manifests_loaded(self, desired: Desired) -> None:
        """There are other good manifests now."""
        state = self._state
        changed = state.declared is not desired
        state.declared = desired
        state.board.declared(desired)
        state.board.manifests(desired.revision)
        state.board.generations(self._near.manifests.generations)
        self._tell_manifests()
        state.telemetry.pools.declared(self._near.manifests.generations)
        if not changed:
            return
        if state.passed:
            state.board.unseen("the manifests have changed, and were not compared yet")
            state.telemetry.resources(state.board.counts())
        state.aborted = {k: d for k, d in state.aborted.items() if (found := state.resource(k)) and found.digest == d}
        state.keeper.stop_outdated(state.desired)
        state.agenda.everything("manifests", afresh=True)

    def _tell_manifests(self) -> None:
        desired = self._state.desired
        self._state.telemetry.manifests_loaded(desired.revision, Catalogue(desired).per_kind)

    def _in_its_place(self) -> bool:
        """Whether this is the server that the manifests expect, as far as they say which."""
        state = self._state
        if state.desired.expect == Expectation():
            return True
        return state.trusted and all(reason.code != "expectation" for reason in state.refused)

    def _lead(self, *, leading: bool, reason: str) -> None:
        state = self._state
        state.leading, state.why_not_leading = leading, "" if leading else reason
        state.term += leading
        state.leader = str(self._near.lease.holder) if leading else ""
        state.telemetry.leading(leading, reason)
        state.board.leadership(leading, state.leader, "" if leading else "not looked at yet")
        if leading:
            self._led.set()
            state.agenda.everything("became leader", afresh=True)
        else:
            for running in state.keeper.running():
                running.halt.stop()

    def _held_by(self, holder: str, *, unknown: str = "") -> None:
        state = self._state
        if state.leading:
            return
        state.board.leadership(leading=False, holder_text=holder, unknown=unknown)
        if unknown or holder in (state.leader, str(self._near.lease.holder)):
            return  # whoever led may well lead still; the lease is ours before the term begins
        state.leader = holder
        if holder:
            state.telemetry.follows(holder)

    def _connection_changed(self, connected: bool) -> None:  # noqa: FBT001 - a callback
        state = self._state
        state.connections += 1
        state.trusted = False
        state.telemetry.connected(connected, self._near.link.url)
        state.board.connection(connected, self._near.link.url)
        state.telemetry.resources(state.board.counts())
        if connected:
            state.agenda.everything("connected", afresh=True)
        else:
            state.board.unseen("the connection was lost")
