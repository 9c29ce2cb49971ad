"""When something is looked at, or tried, again: the only place that knows times. Everybody else says what has happened.

| what came of a change (`Result`) | tried again |
|---|---|
| it is in place | – |
| "not now" (no answer, no leader, no room …), or it has moved | after up to 0.5 s, doubling, at most 30 s |
| "no" | when the manifest or what is live changes, else after 5 min; a procedure on request |
| it waits for others, or for what became of a silent change | when something got where it should be, or that is known |
| a procedure there is no room for | when one has ended; first what was begun before |
| something else is wanted by now | at once |
| the right to write was lost, or nothing could be sent | with the next look at everything, a second later |
| others fight over it | every 5 s |

What does not answer a look is asked again a second later, and then less and less often, at most every half a minute or so.

Invariant: whoever notices a failure, it goes through the backoff of its key; being looked at earlier takes nobody off the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from reconciler.engine.apply.outcome import After, Later, No, Result
from reconciler.engine.daemon.backoff import Backoff
from reconciler.engine.daemon.fights import Fight, Fights
from reconciler.engine.daemon.queue import Work, WorkQueue
from reconciler.engine.daemon.trouble import AFTER_A_NO, Trouble
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.plan.change import Author, Cause, Change, FieldDiff
from reconciler.procedures.machine import Done

_LONGEST = 5.0
"""Seconds until everything is looked at again after a look that failed, however often it did."""
_GATHER = 0.2
"""Seconds in which the ends of many procedures become one look at their stream."""
_SILENT = 1.0
"""Seconds after which what did not answer is asked again, and after which a pass that was cut short is made up for."""
_SOON = 1.0
"""Seconds after which what somebody else works on is looked at."""


class Agenda:
    """What a process has before it; `after_a_no` are seconds until what was refused for good is tried again."""

    def __init__(self, monotonic: Callable[[], float], after_a_no: float = AFTER_A_NO) -> None:
        self._queue = WorkQueue(monotonic)
        self._trouble = Trouble(monotonic, after_a_no)
        self._looks = Backoff(monotonic)
        """Looks at everything that failed."""
        self._silences = Backoff(monotonic)
        """Looks at single keys that nobody answered."""
        self._flaps = Fights(monotonic)
        self._held: set[Key] = set()
        """Live keys that wait for others to get where they should be."""
        self._turns: dict[Key, bool] = {}
        """Live keys of procedures that wait for room; whether something of it was begun before."""

    @property
    def depth(self) -> int:
        """How many keys wait to be looked at, due or not, and whether everything does."""
        return self._queue.depth

    @property
    def due(self) -> bool:
        """Whether there is something to do at once."""
        return self._queue.due

    async def take(self) -> Work:
        """The next thing to do; to be given back with `done`."""
        work = await self._queue.take()
        if work.everything:
            self._queue.drop_due()
        return work

    def done(self, work: Work) -> None:
        """The work is over, whatever came of it."""
        self._queue.done(work)

    def everything(self, reason: str, *, afresh: bool = False) -> None:
        """Look at everything; `afresh`: what failed may be another thing by now."""
        if afresh:
            self._trouble.forget_all()
            self._silences.forget_all()
        self._queue.add_everything(reason)

    def look(self, keys: Iterable[Key]) -> None:
        """Something about these has to be seen."""
        self._queue.add(keys)

    def asked(self, key: Key) -> None:
        """A person wants it tried now."""
        self._trouble.forget(key)
        self._queue.add([key])

    def changed(self, key: Key) -> None:
        """Somebody else has changed it, or may have."""
        self._trouble.changed(key)
        self._queue.add([key], self._flaps.delay(key))

    def drifted(self, key: Key, fields: tuple[FieldDiff, ...], author: Author | None = None) -> Fight | None:
        """Notes what somebody else has set; the fight that it is part of, or None while there is none."""
        return self._flaps.noted(key, fields, author)

    def attributed(self, key: Key, author: Author) -> None:
        """It became known who made the last drift of this key."""
        self._flaps.attributed(key, author)

    def planned(self, changes: Collection[Change], settled: Iterable[Key] | None = None) -> None:
        """What is not as declared, after a look at everything, or at some keys of which these are settled."""
        for change in changes:
            self._trouble.seen(change)
        if settled is None:
            wanted = {change.key.live_key for change in changes}
            self._trouble.keep(wanted)
            self._turns = {key: begun for key, begun in self._turns.items() if key in wanted}
            self._looks.forget(EVERY_STREAM)
        for key in settled or ():
            self._trouble.forget(key)
            self._turns.pop(key, None)

    def ended(self, change: Change, result: Result) -> float:
        """How a try ended; seconds until the next one, infinite when something else has to happen first."""
        key = change.key.live_key
        match result:
            case Done():
                self._trouble.forget(key)
                self.arrived()
            case Later(after=After.OTHERS):
                self._held.add(key)
            case Later(after=After.A_TURN):
                self._turns[key] = change.continues
            case Later(after=After.NOTHING):
                self._queue.add([key])
            case Later(after=After.A_LOOK):
                # The full pass that follows may have met it as being worked on; and there may be thousands of them.
                self._queue.add_everything("a pass was cut short", _SILENT)
            case _:
                return self._failed(change, for_good=isinstance(result, No))
        return math.inf

    def procedure_ended(self, keys: Iterable[Key], result: Result, room: int = 1) -> None:
        """What a procedure owned has to be looked at, and as many others as there is room for have their turn."""
        self._queue.add(keys, _GATHER if isinstance(result, Done) else 0.0)
        for key in sorted(self._turns, key=lambda key: not self._turns[key])[:room]:
            del self._turns[key]
            self._queue.add([key])
        self.arrived()

    def arrived(self) -> None:
        """Something got where it should be: perhaps it was what others wait for."""
        if self._held:
            self._queue.add(self._held)
            self._held.clear()

    def silent(self, keys: Iterable[Key]) -> None:
        """These did not answer; the longer that lasts, the less often they are asked."""
        for key in keys:
            self._queue.add([key], _SILENT + self._silences.failed(key))

    def answered(self, keys: Iterable[Key]) -> None:
        """These did."""
        for key in keys:
            self._silences.forget(key)

    def is_silent(self, keys: Iterable[Key]) -> bool:
        """Whether any of these did not answer when it was asked last."""
        return any(map(self._silences.failures, keys))

    def domain_silent(self) -> None:
        """A whole domain did not answer."""
        self._queue.add_everything("a domain did not answer", _SILENT)

    def unseen(self) -> None:
        """Nothing could be looked at."""
        wait = min(_SILENT + self._looks.failed(EVERY_STREAM), _LONGEST)
        self._queue.add_everything("the last look failed", wait)

    def worked_on(self, key: Key) -> None:
        """Another pass is just writing to it."""
        self._queue.add([key], _SOON)

    def not_now(self, change: Change) -> str:
        """Why this change has to wait; empty when it may be tried. Its time stays on the agenda."""
        key = change.key.live_key
        pause = self._flaps.delay(key)
        if pause:
            self._queue.add([key], pause)
            return "is fought over"
        wait = self._trouble.due_in(change)
        if not wait:
            return ""
        self._put_back(change, wait)
        return "failed, and is tried again later" if wait < math.inf else "is failed"

    def failed_before(self, key: Key) -> bool:
        """Whether it has failed, and not worked since."""
        return self._trouble.knows(key)

    def counts(self) -> Mapping[str, int]:
        """How many keys of each kind wait after a failure."""
        return self._trouble.counts()

    def _failed(self, change: Change, *, for_good: bool) -> float:
        wait = self._trouble.failed(change, for_good=for_good)
        self._put_back(change, wait)
        return wait

    def _put_back(self, change: Change, wait: float) -> None:
        if wait == math.inf:
            return
        if change.cause is Cause.PRUNE:  # no look at one key removes anything
            self._queue.add_everything("something is still to be removed", wait)
        else:
            self._queue.add([change.key.live_key], wait)
