"""What could not be done, and when it is worth another try.

Invariant: nothing is given up silently: each key in here is shown as `Error`, with what was said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reconciler.engine.daemon.backoff import Backoff
from reconciler.model.identity import Key
from reconciler.plan.change import Change

NEVER = float("inf")
AFTER_A_NO = 300.0
"""Seconds until what the server refused for good is tried again, though nothing has changed."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    config: bytes
    live_config: bytes
    until: float


class Trouble:
    """Keys that failed, by live key."""

    def __init__(self, monotonic: Callable[[], float], after_a_no: float = AFTER_A_NO) -> None:
        self._monotonic = monotonic
        self._after_a_no = after_a_no
        self._backoff = Backoff(monotonic)
        self._refused: dict[Key, _Refusal] = {}

    def failed(self, change: Change, *, for_good: bool) -> float:
        """Notes a failure; seconds until the next try, NEVER when only a change brings one."""
        key = change.key.live_key
        if for_good:
            wait = NEVER if change.machine is not None else self._after_a_no
            self._refused[key] = _Refusal(change.config, change.live_config, self._monotonic() + wait)
            return wait
        return self._backoff.failed(key)

    def due_in(self, change: Change) -> float:
        """Seconds for which this change is left alone; 0 when it may be tried."""
        if not self._refused and not self._backoff.troubled():
            return 0.0
        key = change.key.live_key
        if self.seen(change):
            return 0.0
        refusal = self._refused.get(key)
        return self._backoff.due_in(key) if refusal is None else max(0.0, refusal.until - self._monotonic())

    def seen(self, change: Change) -> bool:
        """Forgets a refusal that was about something else than this; true when there was one."""
        if not self._refused:
            return False
        key = change.key.live_key
        refusal = self._refused.get(key)
        if refusal is None or (refusal.config, refusal.live_config) == (change.config, change.live_config):
            return False
        del self._refused[key]
        return True

    def changed(self, key: Key) -> None:
        """Somebody has changed it: what the server has not answered before, and what was missing, is worth another try now."""
        self._backoff.forget(key)
        refusal = self._refused.get(key)
        if refusal is not None and not refusal.live_config:
            del self._refused[key]

    def forget(self, key: Key) -> None:
        """It worked, or somebody wants it tried now."""
        self._backoff.forget(key)
        self._refused.pop(key, None)

    def forget_all(self) -> None:
        """Everything may be different now."""
        self._backoff.forget_all()
        self._refused.clear()

    def keep(self, keys: Iterable[Key]) -> None:
        """Forgets all other keys: they are as they should be."""
        if troubled := self._keys():
            for key in troubled.difference(keys):
                self.forget(key)

    def _keys(self) -> set[Key]:
        return {key for key in (*self._backoff.troubled(), *self._refused) if isinstance(key, Key)}

    def knows(self, key: Key) -> bool:
        """Whether it has failed, and not worked since."""
        return key in self._keys()

    def counts(self) -> Mapping[str, int]:
        """How many keys of each kind wait."""
        return Counter(key.resource_key.kind for key in self._keys())
