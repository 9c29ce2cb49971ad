"""The last good manifests of a process that keeps running: looked at again and again, replaced only by a whole, valid set.

Polled, because nothing tells reliably: a swapped link, a ConfigMap and a network volume each escape notification their own way.
A link that leads elsewhere now (git-sync, a ConfigMap's `..data`) is followed at once, because it is moved when all is there.
Any other change is taken up when two looks, half a second apart, see the same: somebody may be in the middle of copying.
What was read counts only if the tree has not moved meanwhile.

Invariant: a set with an error, or one that moved while it was looked at, never replaces a good one.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from reconciler.engine.ports import Clock
from reconciler.errors import InvalidInput, Problem, ReconcilerError, UsageError
from reconciler.manifests.files.loader import Loaded, Loader
from reconciler.manifests.files.source import STDIN, SourceFile, SourceTree, collect
from reconciler.model.desired import Desired
from reconciler.model.generation import Generation, following
from reconciler.model.identity import Key, owner_name

POLL = 2.0
SETTLE = 0.5
"""How long a changed tree must have rested."""
PRUNE_DELAY = 30.0
"""For so long a tree that is not swapped in one step must have been the same before anything is removed for not being in it."""
UNSETTLED = 30.0
"""Changing for longer than this is a problem of its own."""
_SHARE = 20
"""A look, or a reading of everything, is followed by this many times its own duration without one: 5 % of a core."""
_BIG = 0.5
_BIG_REST = 60.0
"""Reading everything takes longer than `_BIG`: not more often than this."""
_LONGEST_REST = 600.0
_AT_ONCE = -math.inf
"""Nothing has to be waited for after a swap of everything in one step."""
_TRIES = 5
"""Links that move faster than their manifests can be read are left until the next look."""


class Manifests:
    """What is declared now. `load` comes first; the callbacks and `changed` are called in the event loop.

    `on_problems` is told why the newest set is not in force, once for the same problems, and `()` when it is again.
    `on_loaded` is told each set that is in force from now on. As long as there was no good set, `load` raises instead.
    """

    def __init__(  # noqa: PLR0913 - one caller, which names them
        self,
        paths: Sequence[str],
        env: str | None,
        clock: Clock,
        *,
        poll: float = POLL,
        prune_delay: float = PRUNE_DELAY,
        owner: Callable[[str, str], str] = owner_name,
        on_problems: Callable[[tuple[Problem, ...]], None],
        on_loaded: Callable[[Loaded], None],
    ) -> None:
        if STDIN in paths:
            msg = "standard input cannot be looked at again: save it as a file, and give that with -f"
            raise UsageError(msg)
        self._reader = _Reader(paths, env, clock.monotonic, owner)
        self._clock = clock
        self._poll = poll
        self._prune_delay = prune_delay
        self._on_problems = on_problems
        self._on_loaded = on_loaded
        self._loaded: Loaded | None = None
        self._generations: Mapping[Key, Generation] = {}
        self._problems: tuple[Problem, ...] = ()
        self._hurried = asyncio.Event()

    @property
    def desired(self) -> Desired:
        """The last good set; raises InvalidInput as long as there is none."""
        return self._in_force().desired

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is odd about the last good set."""
        return self._in_force().warnings

    @property
    def generations(self) -> Mapping[Key, Generation]:
        """What was last loaded whole of each worker pool, and what it moved."""
        return self._generations

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the newest set is not in force; empty when it is."""
        return self._problems

    def prunes_wait(self) -> float:
        """For how many more seconds nothing may be removed for not being declared; 0: it may be now.

        Files that are just being copied, or are away for a moment, are not distinguished from files that somebody has removed
        but by time. A link that leads elsewhere is moved when all is there: after that nothing waits.
        """
        return max(0.0, self._reader.steady_from + self._prune_delay - self._clock.monotonic()) if self._prune_delay else 0.0

    async def load(self, *, full: bool = False) -> bool:
        """Looks now; true when the Desired is another one than before.

        Files that are being changed are waited for: half a second, or before there is any good set until they rest.
        With `full`, files are read even where name, size and time have not moved, as often as their number allows.
        Raises InvalidInput when nothing good was ever there.
        """
        before = self._loaded
        await self._look(full=full)
        waited = False
        while self._reader.moving and (self._loaded is None or not waited):
            await self._clock.sleep(self._reader.pause(self._poll))
            await self._look(full=full)
            waited = True
        desired = self._in_force().desired
        return before is None or desired is not before.desired

    async def watch(self, changed: Callable[[], None]) -> NoReturn:
        """Looks for ever, and says when the Desired has become another one."""
        while True:
            hurried = await self._pause()
            if await self._look(full=hurried):
                changed()

    def hurry(self) -> None:
        """Lets `watch` look at once, into all files."""
        self._hurried.set()

    async def _pause(self) -> bool:
        """Waits until the next look is due, or somebody is in a hurry: then true."""
        waiting = (
            asyncio.ensure_future(self._clock.sleep(self._reader.pause(self._poll))),
            asyncio.ensure_future(self._hurried.wait()),
        )
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        hurried = self._hurried.is_set()
        self._hurried.clear()
        return hurried

    async def _look(self, *, full: bool) -> bool:
        """Looks in a thread, then takes over and tells what was found, be it by a look whose caller was cancelled."""
        await asyncio.to_thread(self._reader.look, full=full)
        found = self._reader.found
        before, self._loaded = self._loaded, found.loaded
        told, self._problems = self._problems, found.problems
        self._generations = found.generations
        if found.loaded is None:
            return False
        if found.problems != told:
            self._on_problems(found.problems)
        if found.loaded is not before:
            self._on_loaded(found.loaded)
        return before is None or found.loaded.desired is not before.desired

    def _in_force(self) -> Loaded:
        if self._loaded is None:
            raise InvalidInput(self._problems)
        return self._loaded


class _Found(NamedTuple):
    loaded: Loaded | None
    problems: tuple[Problem, ...]
    generations: Mapping[Key, Generation]


class _View(NamedTuple):
    """A tree, and when it was looked at."""

    tree: SourceTree
    began: float
    ended: float


@dataclass(slots=True)
class _Moving:
    """A tree that differs from the one that was judged last."""

    tree: SourceTree
    since: float
    """When the first difference was seen."""
    seen: float
    """When this very tree was seen for the first time."""
    problems: tuple[Problem, ...] = ()
    """Set when it does not come to rest."""


class _Reader:
    """All that touches files; its looks run in threads, one at a time even when the task that waits for one is cancelled."""

    def __init__(
        self, paths: Sequence[str], env: str | None, monotonic: Callable[[], float], owner: Callable[[str, str], str]
    ) -> None:
        self.found = _Found(None, (), {})
        self.steady_from = math.inf
        """Since when the files, and what they say, have been the same."""
        self._paths = tuple(paths)
        self._plain = frozenset(map(os.path.abspath, paths))
        self._env = env
        self._monotonic = monotonic
        self._loader = Loader(owner)
        self._turn = threading.Lock()
        self._loaded: Loaded | None = None
        self._generations: Mapping[Key, Generation] = {}
        self._judged: SourceTree | None = None
        self._refused: tuple[Problem, ...] = ()
        self._moving: _Moving | None = None
        self._sizes: list[tuple[str, int]] | None = None
        self._look_seconds = 0.0
        self._full_from = 0.0

    @property
    def moving(self) -> bool:
        """Whether the next look may find at rest what this one did not."""
        moving = self._moving
        return moving is not None and not moving.problems

    def pause(self, poll: float) -> float:
        """Seconds until the next look."""
        return max(SETTLE, self._look_seconds) if self.moving else max(poll, self._look_seconds * _SHARE)

    def look(self, *, full: bool) -> None:
        """Sees what is there, and reads it when it is new and whole; what is in force then is `found`."""
        with self._turn:
            view = self._view()
            self._look_seconds = view.ended - view.began
            for _ in range(_TRIES):
                after = self._judge(view, full=full) if self._due(view, full=full) else None
                if after is None:
                    break
                view = after
            problems = self._moving.problems if self._moving else ()
            self.found = _Found(self._loaded, problems or self._refused, self._generations)

    def _view(self) -> _View:
        began = self._monotonic()
        try:
            tree = collect(self._paths)
        except OSError as error:  # a relative path, and the working directory is gone
            tree = SourceTree((), problems=(self._problem("unreadable", (error.strerror or str(error)).lower()),))
        sizes = [(file.path, file.signature[1]) for file in tree.files]
        if sizes != self._sizes:
            self._sizes, self.steady_from = sizes, self._steady_from(tree, began)
        return _View(tree, began, self._monotonic())

    def _steady_from(self, tree: SourceTree, seen: float) -> float:
        """Since when a tree has been the same that was seen for the first time then."""
        whole = tree.swapped if self._judged is None else self._swapped(tree)
        return _AT_ONCE if whole else seen

    def _due(self, view: _View, *, full: bool) -> bool:
        """Whether to read this tree now; notes that it differs from the one judged last."""
        if view.tree == self._judged:
            self._moving = None
            return full and view.began >= self._full_from
        before = self._moving
        if before is not None and before.tree == view.tree:
            rested = view.began - before.seen >= SETTLE
        else:
            self._moving = self._moved(before, view)
            rested = False
        return rested or self._swapped(view.tree)

    def _moved(self, before: _Moving | None, view: _View) -> _Moving:
        if before is None:
            return _Moving(view.tree, view.ended, view.ended)
        problems = before.problems
        if not problems and view.ended - before.since >= UNSETTLED:
            (path, *others) = sorted({file.path for file in {*before.tree.files} ^ {*view.tree.files}}) or self._paths
            more = f" and {len(others)} more" if others else ""
            message = f"{path}{more} changed again: nothing is loaded before all files have rested for {SETTLE:g} s"
            problems = (self._problem("unsettled", message, "warning"),)
        return _Moving(view.tree, before.since, view.ended, problems)

    def _swapped(self, tree: SourceTree) -> bool:
        """Whether nothing is new but what links lead to that lead elsewhere now; a link to nothing is no such link."""
        if self._judged is None or tree.problems:
            return False
        stayed = {*self._judged.roots} & {*tree.roots}
        moved = {*tree.roots} - stayed
        return bool(moved) and not moved & self._plain and _below(stayed, tree) == _below(stayed, self._judged)

    def _judge(self, view: _View, *, full: bool) -> _View | None:
        """Reads the tree, and takes what it says; if the tree has moved meanwhile, forgets that, and says what it is now."""
        full = full and view.began >= self._full_from
        loaded, problems = self._load(view.tree, full=full)
        if full:
            seconds = self._monotonic() - view.ended
            rest = max(seconds * _SHARE, _BIG_REST if seconds > _BIG else 0.0)
            self._full_from = view.ended + seconds + min(rest, _LONGEST_REST)
        if loaded is None or loaded is not self._loaded:
            after = self._view()
            if after.tree != view.tree:
                return after
        if loaded is not None and loaded is not self._loaded:  # also where no file has become longer or shorter
            self.steady_from = max(self.steady_from, self._steady_from(view.tree, view.began))
        self._judged, self._refused, self._moving = view.tree, problems, None
        if loaded is not None and (self._loaded is None or loaded.desired is not self._loaded.desired):
            # here, in the thread: comparing a million subjects takes a second
            self._generations = following(self._generations, loaded.desired, time.time_ns())
        self._loaded = loaded or self._loaded
        return None

    def _load(self, tree: SourceTree, *, full: bool) -> tuple[Loaded | None, tuple[Problem, ...]]:
        """The set, made of what was there before where that is the same; or all that is wrong."""
        try:
            loaded = self._loader.load_tree(tree, self._env, full=full)
        except InvalidInput as error:
            return None, error.problems
        except (ReconcilerError, OSError) as error:  # no process to parse in, or one was killed; a full look tries again
            return None, (self._problem("not-loaded", str(error)),)
        before = self._loaded
        if before is None or loaded.desired != before.desired:
            return loaded, ()
        return (before if loaded.warnings == before.warnings else replace(before, warnings=loaded.warnings)), ()

    def _problem(self, code: str, message: str, severity: str = "error") -> Problem:
        return Problem(self._paths[0], 1, 1, code, message, severity=severity)


def _below(roots: Collection[str], tree: SourceTree) -> list[SourceFile]:
    if not roots:
        return []
    starts = tuple(os.path.join(root, "") for root in roots)  # noqa: PTH118 - of the root directory, too
    return [file for file in tree.files if file.real in roots or file.real.startswith(starts)]
