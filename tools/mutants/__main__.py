"""Makes hand-made mistakes, one at a time, in a copy of the checkout, and tells which test notices each.

    python -m tools.mutants                  all of them
    python -m tools.mutants lease backoff    only of these subjects (or with such a text in the name)
    python -m tools.mutants --list           what there is
    python -m tools.mutants --whole          what its killers do not notice, all tests look for

The mutants are in the .toml files beside this one; CONTRIBUTING.md says how to add one.
Exit code 0: all were killed; 1: some were not; 2: the tool could not do its work, for example because a mutant's place is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tools.mutants.data import BadData, Mutant, load
from tools.mutants.trial import Fate, Verdict, prove_killers, try_one, try_wholly
from tools.mutants.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent.parent
_LIMIT, _WHOLE_LIMIT = 300.0, 3600.0
_INTERRUPTED, _IN_ERROR = 130, 2
_STOPPING = (signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[Verdict], None]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """What the command line says."""
    given = _parser().parse_args(arguments)
    try:
        mutants = _selected(load(root / "tools" / "mutants"), given.what)
        for mutant in mutants:
            _looked_at(mutant, root)
        if given.list:
            print("\n".join(map(str, mutants)))
            return 0
        tell: Tell = _silent if given.json else _told
        verdicts = asyncio.run(_stoppable(Run(mutants, root, given, tell).verdicts()))
    except BadData as error:
        print(f"mutants: {error}", file=sys.stderr)
        return _IN_ERROR
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("mutants: interrupted", file=sys.stderr)
        return _INTERRUPTED
    if given.json:
        print(json.dumps([_row(verdict) for verdict in verdicts], indent=2))
    print(summary(verdicts), file=sys.stderr if given.json else sys.stdout)
    return int(any(verdict.fate is not Fate.KILLED for verdict in verdicts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="*", metavar="WHAT", help="a subject, or a part of a name; all of them")
    parser.add_argument("--list", action="store_true", help="only tell which there are")
    parser.add_argument("--json", action="store_true", help="the verdicts as one JSON document")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at a time, each in a copy of its own")
    parser.add_argument("--limit", type=float, default=_LIMIT, metavar="SECONDS", help="that a mutant's killers may take")
    parser.add_argument("--whole", action="store_true", help="let all tests look for what its killers do not notice")
    return parser


def _selected(mutants: tuple[Mutant, ...], what: Sequence[str]) -> tuple[Mutant, ...]:
    subjects = {mutant.subject for mutant in mutants}

    def meant(mutant: Mutant, one: str) -> bool:
        return mutant.subject == one if one in subjects else one in mutant.name

    for one in what:
        if not any(meant(mutant, one) for mutant in mutants):
            msg = f"there is no mutant {one!r}, and no such subject (there are {', '.join(sorted(subjects))})"
            raise BadData(msg)
    return tuple(mutant for mutant in mutants if not what or any(meant(mutant, one) for one in what))


def _looked_at(mutant: Mutant, root: Path) -> None:
    """Raises BadData when it cannot be made: before anything else is tried, and for all that were asked for."""
    path = root / mutant.file
    if not path.is_file():
        msg = f"{mutant}: there is no file {mutant.file}"
        raise BadData(msg)
    mutant.made_in(path.read_text(encoding="utf-8"))


class Run:
    """One run of the tool: the killers pass first, then one mistake after the other."""

    def __init__(self, mutants: tuple[Mutant, ...], root: Path, given: argparse.Namespace, tell: Tell) -> None:
        self._mutants = mutants
        self._root = root
        self._given = given
        self._tell = tell
        self._verdicts: dict[Mutant, Verdict] = {}

    async def verdicts(self) -> list[Verdict]:
        """One for each, in the order of the data."""
        jobs = max(1, min(self._given.jobs, len(self._mutants)))
        with contextlib.ExitStack() as stack:
            workshops = [stack.enter_context(Workshop.of(self._root)) for _ in range(jobs)]
            _progress("their killers, while nothing is wrong")
            await prove_killers(self._mutants, workshops[0], _WHOLE_LIMIT, jobs)
            left = list(reversed(self._mutants))
            async with asyncio.TaskGroup() as group:
                for workshop in workshops:
                    group.create_task(self._work_off(left, workshop))
            if self._given.whole:
                await self._wholly(workshops[0])
        _progress("")
        return [self._verdicts[mutant] for mutant in self._mutants]

    async def _work_off(self, left: list[Mutant], workshop: Workshop) -> None:
        while left:
            mutant = left.pop()
            _progress(f"{len(self._verdicts)} of {len(self._mutants)} done, now {mutant}")
            verdict = await try_one(mutant, workshop, self._given.limit)
            self._verdicts[mutant] = verdict
            if verdict.fate is not Fate.SURVIVED or not self._given.whole:
                self._tell(verdict)

    async def _wholly(self, workshop: Workshop) -> None:
        for verdict in [one for one in self._verdicts.values() if one.fate is Fate.SURVIVED]:
            _progress(f"all tests, now {verdict.mutant}")
            found = await try_wholly(verdict, workshop, _WHOLE_LIMIT, self._given.jobs)
            self._verdicts[verdict.mutant] = found
            self._tell(found)


async def _stoppable(work: Awaitable[list[Verdict]]) -> list[Verdict]:
    """Being told to end is the same as Ctrl-C: what was begun is tidied away."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is one
    for sign in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(sign, task.cancel)
    return await work


def _told(verdict: Verdict) -> None:
    _progress("")
    print(verdict, flush=True)


def _silent(_verdict: Verdict) -> None:
    """The table comes at the end."""


def _progress(text: str) -> None:
    """One line that is always the last one, on a terminal only; empty: takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many came to which end."""
    count = Counter(verdict.fate for verdict in verdicts)
    late = f" ({count[Fate.TIMED_OUT]} timed out)" if count[Fate.TIMED_OUT] else ""
    in_error = count[Fate.ERROR] + count[Fate.TIMED_OUT]
    return f"{count[Fate.KILLED]} killed, {count[Fate.SURVIVED]} survived, {in_error} in error{late}"


def _row(verdict: Verdict) -> dict[str, object]:
    mutant = verdict.mutant
    return {
        "subject": mutant.subject,
        "name": mutant.name,
        "file": mutant.file,
        "place": mutant.place,
        "from": mutant.before,
        "to": mutant.after,
        "fate": verdict.fate.value,
        "by": verdict.by,
        "seconds": round(verdict.seconds, 1),
        "said": verdict.said,
    }


if __name__ == "__main__":
    sys.exit(main())
