"""What a daemon knows between its passes.

Invariant: everything here can be lost at any moment; the next process finds it again in manifests, live state and markers,
but for what a person asked of this very process (suspensions, aborted procedures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from reconciler.engine.daemon.agenda import Agenda
from reconciler.engine.daemon.keeper import Keeper
from reconciler.engine.memory import Recollection
from reconciler.errors import Refused
from reconciler.jetstream.leading.fence import FenceNews
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, Patch
from reconciler.model.sourcing import durables_read
from reconciler.observe.status.board import Board
from reconciler.observe.telemetry import Telemetry
from reconciler.plan.change import Author, Change, Mass, Reason, Rules

AUTHORS = 10_000
"""Of how many edits the author is remembered until the edit itself has been looked at."""

DRY_RUN = "dry run"
"""Why nothing is written, for good."""


class ToldDrift(NamedTuple):
    """Which drift of a resource was told."""

    live: bytes | None = None
    """What was live; None: of itself nothing was told."""
    gone: frozenset[Key] = frozenset()
    """The durables that were deleted behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """How a daemon behaves."""

    dry_run: bool = False
    """Look and plan, write nothing, take no lease."""
    repair_drift: bool = True
    """False: what others changed is reported only."""
    interval: float = 60.0
    """Seconds between full passes, ±10 %."""
    concurrency: int = 32
    requests_per_second: float = 0.0
    """0: no limit."""
    concurrent_hints: int = 16
    """Passes over single keys that run side by side."""


@dataclass(kw_only=True)
class DaemonState:
    """Shared by the passes, the triggers and HTTP of one daemon."""

    options: DaemonOptions
    rules_of: Callable[[Desired], Rules]
    telemetry: Telemetry
    board: Board
    agenda: Agenda
    keeper: Keeper
    recollection: Recollection
    declared: Desired | None = None
    """The last good manifests."""
    judged: Desired | None = None
    """The manifests that were last held against everything: hints act on no others."""
    live: Live | None = None
    leading: bool = False
    leader: str = ""
    """Who holds the lease, as text; empty: nobody, as far as we know."""
    term: int = 0
    """How often this process has become the leader."""
    silent: bool = False
    """A command, which tells its own way."""
    stopping: bool = False
    deadline: float = math.inf
    """Monotonic; nothing is begun after it."""
    connections: int = 0
    """How often the connection has come or gone."""
    why_not_leading: str = ""
    """What was last said about the lease."""
    trusted: bool = False
    """Everything was looked at on the current connection: it leads to the server that the manifests expect."""
    passed: bool = False
    """A first full pass is over."""
    last_error: str = ""
    """Why the last look at everything failed."""
    refused: tuple[Reason, ...] = ()
    """Why nothing is written until a full pass finds otherwise."""
    stopped: Collection[Mass] = ()
    """Of what the last full plan wanted too much: none of it is done, all the rest is."""
    prunes_wait: Callable[[], float] = lambda: 0.0
    """Seconds for which nothing is removed for not being declared: the manifests have just changed."""
    prunes_waiting: int = 0
    """How many removals that holds up."""
    open: dict[Key, Change] = field(default_factory=dict)
    """What is not as declared, as far as the last plans know, by live key."""
    noted: dict[Key, ToldDrift] = field(default_factory=dict)
    """Drifts that were told already, by live key."""
    authors: dict[Key, Author] = field(default_factory=dict)
    unlearned: set[Key] = field(default_factory=set)
    """Streams that we wrote to, or to their consumers, since they were last learned."""
    busy: set[Key] = field(default_factory=set)
    """Live keys that a pass is just writing to."""
    suspended: set[Key] = field(default_factory=set)
    """Resource keys that were suspended by request."""
    aborted: dict[Key, str] = field(default_factory=dict)
    """Live keys whose procedure was aborted by request, with the digest it worked towards."""
    _patches: list[Patch] | None = None
    _effective: tuple[Desired, frozenset[Key], Desired] | None = None
    _sourced: tuple[Desired, frozenset[Key]] | None = None

    @property
    def desired(self) -> Desired:
        """The manifests, with what was suspended by request."""
        declared = self.declared
        if declared is None:
            msg = "there are no manifests yet"
            raise RuntimeError(msg)
        suspended = frozenset(self.suspended)
        if not suspended:
            return declared
        if self._effective is None or self._effective[0] is not declared or self._effective[1] != suspended:
            self._effective = (declared, suspended, _with_suspended(declared, suspended))
        return self._effective[2]

    @property
    def rules(self) -> Rules:
        """How plans are made; raises Refused when the manifests have come to belong to somebody else."""
        rules, owner = self.rules_of(self.desired), self.board.process.owner
        if rules.owner != owner:
            reason = f"owner: the manifests belong to {rules.owner!r} now, but this process writes for {owner!r}; restart it"
            raise Refused((reason,))
        return rules

    @property
    def policy(self) -> str:
        """What this process may do, as it was asked for."""
        return self.rules_of(self.desired).policy

    @property
    def seen(self) -> Live:
        """What is live, as far as it is known."""
        if self.live is None:
            msg = "nothing was looked at yet"
            raise RuntimeError(msg)
        return self.live

    @property
    def may_write(self) -> bool:
        """Whether this process changes anything at all just now."""
        return self.leading and self.trusted and not (self.options.dry_run or self.stopping or self.refused)

    @property
    def why_read_only(self) -> str:
        """Why nothing is written just now; empty when changes are made."""
        if self.options.dry_run:
            return DRY_RUN
        if not self.leading:
            return f"{self.leader} leads" if self.leader else self.why_not_leading or "the lease was not taken yet"
        return "" if self.trusted else "not everything was looked at on this connection yet"

    @property
    def speaks(self) -> bool:
        """Whether it is up to this process to tell what happens: of several, only one counts and reports a drift."""
        return not self.silent and (self.leading or self.options.dry_run)

    def resource(self, key: Key) -> Declared | None:
        """What is declared under this live key."""
        return self.declared.under(key) if self.declared is not None else None

    def concerns(self, key: Key) -> bool:
        """Whether a change of this live key matters to us."""
        if self.declared is None:
            return False
        declared = self.resource(key) is not None or (key.is_stream and key in self.declared.consumers)
        return declared or key in self._read_through(self.declared)

    def _read_through(self, declared: Desired) -> frozenset[Key]:
        """The durables of sources, and the streams they are on, whether those are declared or not."""
        if self._sourced is None or self._sourced[0] is not declared:
            durables = durables_read(declared)
            self._sourced = (declared, frozenset((*durables, *(key.stream_key for key in durables))))
        return self._sourced[1]

    def patch(self, patch: Patch) -> None:
        """Takes in what a few reads, or the answer to a write, have shown."""
        if self.live is not None:
            self.live = self.live.patched(patch)
        if self._patches is not None:
            self._patches.append(patch)

    def wrote(self, key: Key, patch: Patch) -> None:
        """Takes in the answer to a write of ours."""
        self.patch(patch)
        self.unlearned.add(key.stream_key)

    def learn(self) -> None:
        """Remembers what we wrote: should it be gone when it is looked at next, somebody else has removed it."""
        if self.live is not None and self.unlearned:
            self.recollection.learn_keys(self.live, self.unlearned)
            self.unlearned.clear()

    def begin_snapshot(self) -> None:
        """From now on patches are newer than what the snapshot will show."""
        self._patches = []

    def end_snapshot(self, live: Live | None) -> None:
        """Takes in a snapshot, and once more what was learned while it was made."""
        patches, self._patches = self._patches or [], None
        if live is None:
            return
        self.learn()
        for patch in patches:
            live = live.patched(patch)
        self.live = live

    def tell_counts(self) -> None:
        """How many resources are in which state; told once a second, however many passes there are."""
        self.telemetry.resources(self.board.counts())
        self.telemetry.in_backoff(self.agenda.counts())
        self.telemetry.procedures(self.board.procedures())

    def audited(self, state: str, rate: float) -> None:
        """Whether we hear who changes what."""
        self.telemetry.audit(state, rate)
        self.board.audit(state, rate)

    def fenced(self, news: FenceNews) -> None:
        """How this term stands to the one before."""
        self.telemetry.fence(news)
        self.board.fence(news)

    def took_note(self, key: Key, author: Author) -> None:
        """Somebody else wrote to this live key."""
        self.authors.pop(key, None)
        self.authors[key] = author
        if len(self.authors) > AUTHORS:
            del self.authors[next(iter(self.authors))]


def _with_suspended(declared: Desired, keys: Collection[Key]) -> Desired:
    suspend = partial(replace, suspend=True)
    found = {key: resource for key in keys if (resource := declared.resources.get(key))}
    changed = {key: replace(resource, intent=suspend(resource.intent)) for key, resource in found.items()}
    return replace(declared, resources={**declared.resources, **changed})
