"""The state of each resource, from all that is known of it, and since when it is in that state.

Several things can be true of a resource at once; what it is shown as is the first of

    Unknown > Progressing > Suspended > Blocked > Error > OutOfSync > Synced / Unmanaged

Invariant: only what is notable is stored; whatever else is declared is Synced. `since` moves only with the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.observe.status.declared import NOTHING, Catalogue
from reconciler.render.status.judged import SYNCED, Condition, Judgement


def moment(ns: int) -> str:
    """A time within a sentence: to the second."""
    return units.format_time(ns - ns % units.SECOND)


class Shown(NamedTuple):
    """One resource as the status shows it."""

    condition: Condition
    message: str
    since: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A procedure under way, or one that stopped before its end."""

    name: str
    step: str
    since: int
    touches: frozenset[Key] = frozenset()
    state: str = "running"
    """running, aborting; once it has stopped: aborted, failed or unfinished; journaled: seen on the server alone."""

    @property
    def message(self) -> str:
        """What it is and where it stands."""
        return f"{self.name}: {self.step}" if self.step else self.name


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last try failed, and when there is another one."""

    error: str
    retry_at: int | None

    @property
    def message(self) -> str:
        """For the user."""
        when = f"tried again at {moment(self.retry_at)}" if self.retry_at else "not tried again before something changes"
        return f"{self.error}; {when}"


@dataclass
class Standing:
    """Facts by key, and what they add up to. After changing facts, call `weigh` with their keys."""

    now: Callable[[], int]
    catalogue: Catalogue = field(default_factory=lambda: Catalogue(NOTHING))
    since: int = 0
    """When everything was looked at for the first time; 0: not yet."""
    found: dict[Key, Judgement] = field(default_factory=dict)
    """What the last look made of it; nothing for what is Synced."""
    trouble: dict[Key, Failure] = field(default_factory=dict)
    held: dict[Key, str] = field(default_factory=dict)
    """What it waits for."""
    running: dict[Key, Progress] = field(default_factory=dict)
    stopped: dict[Key, Progress] = field(default_factory=dict)
    touched: dict[Key, Key] = field(default_factory=dict)
    """Whose procedure owns a key."""
    suspended: dict[Key, int] = field(default_factory=dict)
    """Since when, by request."""
    _shown: dict[Key, Shown] = field(default_factory=dict)
    _synced: dict[Key, int] = field(default_factory=dict)
    """Since when, of what became Synced later than the rest."""

    @property
    def notable(self) -> Mapping[Key, Shown]:
        """Everything that is not simply Synced, or has something to say, declared or not."""
        return self._shown

    def shown(self, key: Key) -> Shown:
        """A declared or notable key."""
        return self._shown.get(key) or Shown(*SYNCED, self._synced.get(key, self.since))

    def declare(self, catalogue: Catalogue) -> None:
        """Other things are declared now; what is new came to be what it is found to be at this moment."""
        if self.since:
            self._synced = {key: since for key, since in self._synced.items() if key in catalogue}
            self._synced.update(dict.fromkeys((key for key in catalogue if key not in self.catalogue), self.now()))
        self.catalogue = catalogue

    def weigh(self, keys: Iterable[Key]) -> None:
        """Find out what these are now."""
        for key in keys:
            self._weigh(key)

    def forget(self, key: Key) -> None:
        """It is as declared: what failed and what was stopped is over."""
        self.trouble.pop(key, None)
        self.stopped.pop(key, None)
        self.held.pop(key, None)

    def begin(self, key: Key, running: Progress) -> None:
        """A procedure began, or took a step: it then owns what it touched before as well."""
        before = self.running.get(key)
        if before is not None:
            running = replace(running, since=before.since, touches=running.touches | before.touches, state=before.state)
        self.running[key] = running
        self.touched.update(dict.fromkeys(running.touches, key))
        self.forget(key)
        self.weigh((key, *running.touches))

    def end(self, key: Key, result: str, message: str) -> frozenset[Key]:
        """It ended; what it owned is given back, and returned."""
        running = self.running.pop(key, None)
        if running is None:
            return frozenset()
        for touched in running.touches:
            if self.touched.get(touched) == key:
                del self.touched[touched]
        state = "aborted" if running.state == "aborting" else result
        self.stopped[key] = replace(running, state=state, step=message or running.step, since=self.now())
        if state == "failed":
            self.trouble[key] = Failure(message, None)
        return running.touches

    def abort(self, key: Key) -> None:
        """What runs is being stopped, what has stopped stays so."""
        if key in self.running:
            self.running[key] = replace(self.running[key], state="aborting")
        elif key in self.stopped:
            self.stopped[key] = replace(self.stopped[key], state="aborted")
        self.weigh((key,))

    def progress(self) -> dict[Key, Progress]:
        """What runs, what stopped before its end, and what is half done and waits for a process that may write."""
        return {**dict(self._journaled()), **self.stopped, **self.running}

    def procedures(self) -> Iterator[dict[str, Any]]:
        """The same as the status shows it."""
        for key, running in sorted(self.progress().items(), key=lambda item: item[0].sort_key):
            yield {
                "key": str(key),
                "name": running.name,
                "step": running.step,
                "state": running.state,
                "message": running.message,
                "since": units.format_time(running.since),
                "touches": sorted(map(str, running.touches)),
            }

    def _journaled(self) -> Iterator[tuple[Key, Progress]]:
        for key, found in self.found.items():
            if found.condition is Condition.PROGRESSING:
                name, _, step = found.message.partition(": ")
                yield key, Progress(name, step, self.shown(key).since, state="journaled")

    def _weigh(self, key: Key) -> None:
        judgement = self._judgement(key)
        before = self._shown.pop(key, None)
        if judgement is None:
            self._synced.pop(key, None)
        elif judgement == SYNCED:
            if before is not None:
                self._synced[key] = self.now()
        else:
            same = before is not None and before.condition is judgement.condition
            self._shown[key] = Shown(*judgement, before.since if same and before else self.now())
            self._synced.pop(key, None)

    def _judgement(self, key: Key) -> Judgement | None:
        """None for what is neither declared nor has anything to be told about it."""
        found = self.found.get(key)
        if found is not None and found.condition is Condition.UNKNOWN:
            return found
        if (progress := self._progress(key)) is not None:
            return progress
        if found is not None and found.condition is Condition.PROGRESSING:
            return found
        if (held := self._held(key, found)) is not None:
            return held
        if found is not None and found.condition is Condition.BLOCKED:
            return found
        if key in self.trouble:
            return Judgement(Condition.ERROR, self.trouble[key].message)
        if found is not None and key in self.held:
            return Judgement(found.condition, "; ".join(filter(None, (found.message, self.held[key]))))
        return found or (SYNCED if key in self.catalogue else None)

    def _progress(self, key: Key) -> Judgement | None:
        if key in self.running:
            return Judgement(Condition.PROGRESSING, self.running[key].message)
        if (stopped := self.stopped.get(key)) is not None and stopped.state == "aborted":
            way_out = f"`reconciler procedure retry {key}` begins it again"
            return Judgement(Condition.BLOCKED, f"{stopped.name} was stopped by request; {way_out}")
        owner = self.touched.get(key)
        if owner is None or key not in self.catalogue:
            return None
        running = self.running[owner]
        return Judgement(Condition.PROGRESSING, f"part of {running.name} of {owner}: {running.step}")

    def _held(self, key: Key, found: Judgement | None) -> Judgement | None:
        """What somebody asked to be left alone."""
        if key in self.suspended:
            rest = f"; {found.message}" if found is not None and found.message else ""
            return Judgement(Condition.SUSPENDED, f"suspended by request since {moment(self.suspended[key])}{rest}")
        if found is not None and found.condition is Condition.SUSPENDED:
            return found
        return None
