"""The board: the state of every resource of a running process, since when, and what there is to say about the process itself.

It is told facts as they happen and answers with the status document; `observe.status.standing` weighs the facts of one resource.
Keys may be live keys: a bucket's stream is that bucket here.

Invariants: pure (time is given to it) and sparse, so that a hundred thousand resources cost little while all is well.
Nothing is Synced before it was looked at, or while nobody can look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from reconciler.model import units
from reconciler.model.desired import Desired
from reconciler.model.identity import API_VERSION, KINDS, Key
from reconciler.model.seen.live import Live
from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.http.pages import Page
from reconciler.observe.http.renderings import Pieces, at_once
from reconciler.observe.status.declared import Catalogue
from reconciler.observe.status.drifts import Drifts
from reconciler.observe.status.standing import Failure, Progress, Shown, Standing, moment
from reconciler.observe.status.surroundings import Process, Surroundings
from reconciler.plan.change import Author, Change, FieldDiff
from reconciler.render.status.judged import SYNCED, Condition, is_paused, judged

__all__ = ["Board", "Process"]

Json = dict[str, Any]
_BIT = 1000
"""Resources that are judged at once."""
_PIECE = 100
"""Resources that are shown at once: a millisecond, about."""


class Board(Surroundings):
    """Told by the daemon, read by HTTP and metrics, all in one thread."""

    def __init__(self, now: Callable[[], int], process: Process) -> None:
        super().__init__(now, process)
        self._drifts = Drifts(now)
        self._standing = Standing(now)
        self._unseen = ""
        self._unseen_since = 0

    def declared(self, desired: Desired) -> None:
        """What is going to be looked at, before anybody could."""
        if not self._standing.since:
            self._standing.declare(Catalogue(desired))

    def looked(self, desired: Desired, live: Live, changes: Iterable[Change], scope: Collection[Key] | None = None) -> None:
        """What a plan found, of everything or of these keys; nothing else is judged by it.

        `changes` must be all that differ: those which the policy leaves undone are among them.
        """
        for _ in self.looking(desired, live, changes, scope):
            pass

    def looking(
        self, desired: Desired, live: Live, changes: Iterable[Change], scope: Collection[Key] | None = None
    ) -> Iterator[None]:
        """The same bit by bit: a hundred thousand that differ take seconds, and the thread has other things to do meanwhile."""
        by_key = {change.key: change for change in changes}
        if scope is None:
            self._unseen = ""
        keys = self._all_notable(desired, live, by_key) if scope is None else self._within(scope, live, by_key)
        for number, key in enumerate(keys, 1):
            self._judge(desired, live, key, by_key.get(key))
            self._standing.weigh((key,))
            if number % _BIT == 0:
                yield

    def unseen(self, why: str) -> None:
        """What was known may be wrong by now, until everything was looked at again."""
        if not self._unseen:
            self._unseen_since = self.now()
        self._unseen = why

    def failed(self, key: Key, error: str, retry_in: float | None = None) -> None:
        """The last try failed; `retry_in` seconds until the next, None when something has to change first."""
        retry_at = None if retry_in is None else self.now() + int(retry_in * units.SECOND)
        key = self._standing.catalogue.known_as(key)
        self._standing.trouble[key] = Failure(error, retry_at)
        self._standing.weigh((key,))

    def held(self, key: Key, reason: str) -> None:
        """It waits for something else to get where it should be."""
        key = self._standing.catalogue.known_as(key)
        self._standing.held[key] = reason
        self._standing.weigh((key,))

    def settled(self, key: Key) -> None:
        """Our write worked: it is as declared."""
        key = self._standing.catalogue.known_as(key)
        self._in_place(key)
        self._standing.weigh((key,))

    def progressing(self, key: Key, procedure: str, step: str, touches: Iterable[Key] = ()) -> None:
        """A procedure began, or took a step; it owns all it touches."""
        key = self._standing.catalogue.known_as(key)
        self._standing.begin(key, Progress(procedure, step, self.now(), self._known(touches) - {key}))

    def procedure_ended(self, key: Key, result: str, message: str = "") -> None:
        """It came to its end (`applied`), or it stopped: what is left to do is journaled, and looked at again."""
        key = self._standing.catalogue.known_as(key)
        touched = self._standing.end(key, result, message)
        if result == "applied":
            self._in_place(key)
        self._standing.weigh({key, *touched})

    def aborted(self, key: Key) -> None:
        """Somebody wants the procedure of this key stopped: it does not begin again by itself."""
        key = self._standing.catalogue.known_as(key)
        self._standing.abort(key)

    def retried(self, key: Key) -> None:
        """Somebody wants a stopped procedure, or what failed, to be tried again."""
        key = self._standing.catalogue.known_as(key)
        self._standing.forget(key)
        self._standing.weigh((key,))

    def suspended(self, key: Key) -> None:
        """Somebody wants it left alone."""
        key = self._standing.catalogue.known_as(key)
        self._standing.suspended.setdefault(key, self.now())
        self._standing.weigh((key,))

    def resumed(self, key: Key) -> None:
        """It is taken up again; the next look finds out what it is."""
        key = self._standing.catalogue.known_as(key)
        self._standing.suspended.pop(key, None)
        self._standing.weigh((key,))

    def drifted(self, key: Key, fields: Iterable[str], author: Author | None = None, differing: Iterable[FieldDiff] = ()) -> None:
        """Somebody changed these fields; none: somebody deleted it."""
        key = self._standing.catalogue.known_as(key)
        self._drifts.drifted(key, fields, author, differing)

    def durable_gone(self, key: Key, durable: Key, author: Author | None = None) -> None:
        """Somebody deleted the durable that this stream reads through."""
        self._drifts.durable_gone(self._standing.catalogue.known_as(key), durable, author)

    def attributed(self, key: Key, author: Author) -> bool:
        """The audit names the author of a drift that was noticed a moment ago; whether nobody knew him before."""
        key = self._standing.catalogue.known_as(key)
        return self._drifts.attributed(key, author)

    def fighting(self, key: Key, field: FieldDiff, times: int, author: Author | None = None) -> None:
        """Another client sets the same field to the same value again and again."""
        key = self._standing.catalogue.known_as(key)
        self._drifts.fought(key, field, times, author)

    def not_ready(self) -> str:
        """Why this process is not ready; empty when it is."""
        if not self.connected:
            return f"not connected to NATS since {moment(self.changed_connection)}"
        return "" if self._standing.since else "the first pass is not done"

    def shown(self, key: Key) -> Shown:
        """One resource as the status shows it."""
        shown = self._standing.shown(key)
        if not self._standing.since:
            return Shown(Condition.UNKNOWN, self._cloud(), self.started)
        cloud = self._cloud()
        if not cloud:
            return shown
        lost = self._unseen_since if self.connected else self.changed_connection
        since = shown.since if shown.condition is Condition.UNKNOWN else lost
        return Shown(Condition.UNKNOWN, f"{cloud}; before: {shown.condition}", since)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many resources there are by kind and state, the zeros among them."""
        catalogue, notable = self._standing.catalogue, self._standing.notable
        counts: Counter[tuple[str, str]] = Counter({(kind, condition.value): 0 for kind in KINDS for condition in Condition})
        clouded = Condition.UNKNOWN.value if self._cloud() else ""
        usual = clouded or Condition.SYNCED.value
        for kind, number in catalogue.per_kind.items():
            counts[kind, usual] += number
        for key, shown in notable.items():
            if key in catalogue:
                counts[key.kind, usual] -= 1
            counts[key.kind, clouded or shown.condition.value] += 1
        return counts

    def procedures(self) -> Iterator[tuple[str, float]]:
        """The procedures that are not over: how each stands, and for how many seconds it has gone on, or stood still."""
        for known in self._standing.progress().values():
            yield known.state, (self.now() - known.since) / units.SECOND

    def document(self, query: StatusQuery, events: Iterable[Json] = ()) -> Json:
        """The status document: everything but the resources is whole on each page; raises UsageError."""
        return at_once(self.documenting(query, events))

    def documenting(self, query: StatusQuery, events: Iterable[Json] = ()) -> Pieces[Json]:
        """The same in pieces: each resource as it was at some moment meanwhile."""
        page, cloud = Page.of(query), self._cloud()
        keys, cursor = page.cut(self._wanted(page))
        resources = []
        for number, key in enumerate(keys, 1):
            if key in self._standing.catalogue or key in self._standing.notable:  # else it has gone meanwhile
                resources.append(self._resource(key))
            if number % _PIECE == 0:
                yield
        if self._cloud() != cloud:  # what was said of the first is no longer true of any
            keys, cursor = page.cut(self._wanted(page))
            resources = [self._resource(key) for key in keys]
        summary = Counter({condition.value: 0 for condition in Condition})
        for (_, state), number in self.counts().items():
            summary[state] += number
        not_ready = self.not_ready()
        desired = self._standing.catalogue.desired
        return {
            "apiVersion": API_VERSION,
            "kind": "Status",
            "environment": desired.environment,
            "revision": desired.revision,
            **self.surroundings(),
            "ready": not not_ready,
            "notReady": not_ready,
            "summary": dict(summary),
            "resources": resources,
            "cursor": cursor,
            "sources": self.sources(),
            "pools": self.pools(),
            "procedures": list(self._standing.procedures()),
            "events": list(events),
        }

    def _known(self, keys: Iterable[Key]) -> frozenset[Key]:
        return frozenset(map(self._standing.catalogue.known_as, keys))

    def _all_notable(self, desired: Desired, live: Live, changes: Mapping[Key, Change]) -> set[Key]:
        """What a look at everything may have changed: all that is or was anything else than Synced."""
        standing = self._standing
        keys = {*changes, *standing.found, *standing.trouble, *standing.stopped, *standing.notable, *self._drifts.unrepaired()}
        if desired is not standing.catalogue.desired:
            standing.declare(Catalogue(desired))
        self.server = live.server
        standing.since = standing.since or self.now()
        return keys | standing.catalogue.special | set(standing.catalogue.unknown(live)) | set(_paused(live))

    def _within(self, scope: Collection[Key], live: Live, changes: Mapping[Key, Change]) -> set[Key]:
        """The keys of a scope; what is to be pruned and still there stays as it was found, since only full plans prune."""
        catalogue = self._standing.catalogue
        return {key for key in self._known(scope) if key in catalogue or key in changes or live.seen(key) is None}

    def _judge(self, desired: Desired, live: Live, key: Key, change: Change | None) -> None:
        judgement = SYNCED if change is None and key not in self._standing.catalogue else judged(desired, live, key, change)
        if judgement.condition is Condition.SYNCED:
            self._in_place(key)
        if judgement != SYNCED:
            self._standing.found[key] = judgement

    def _in_place(self, key: Key) -> None:
        self._standing.found.pop(key, None)
        self._standing.forget(key)
        self._drifts.repaired(key)

    def _cloud(self) -> str:
        """Why nothing can be said about anything."""
        if not self.connected:
            return f"not connected since {moment(self.changed_connection)}"
        if not self._standing.since:
            return "not looked at yet"
        return f"not looked at since {moment(self._unseen_since)}: {self._unseen}" if self._unseen else ""

    def _wanted(self, page: Page) -> Iterator[Key]:
        catalogue, notable, wanted = self._standing.catalogue, self._standing.notable, page.condition
        if self._cloud():
            return page.everything(catalogue, notable) if wanted in (None, Condition.UNKNOWN) else iter(())
        if wanted not in (None, Condition.SYNCED):
            return page.notable(catalogue, notable)
        everything = page.everything(catalogue, notable)
        return (key for key in everything if wanted is None or key not in notable or notable[key].condition is wanted)

    def _resource(self, key: Key) -> Json:
        shown, trouble = self.shown(key), self._standing.trouble.get(key)
        resource: Json = {
            "key": str(key),
            "state": shown.condition.value,
            "message": shown.message,
            "since": units.format_time(shown.since),
            "lastDrift": self._drifts.document(key),
        }
        if trouble is not None and trouble.retry_at is not None:
            resource["retryAt"] = units.format_time(trouble.retry_at)
        if (fight := self._drifts.fight(key)) is not None:
            resource["fight"] = fight
        return resource


def _paused(live: Live) -> Iterator[Key]:
    for stream, consumers in live.consumers.items():
        for name, consumer in consumers.items():
            if is_paused(consumer):
                yield Key("Consumer", name, stream.name, stream.domain)
