"""The manifests of a process that keeps running: what is noticed, how soon, and what never gets in force."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.engine.daemon import manifests as declared
from reconciler.engine.daemon.manifests import Manifests
from reconciler.errors import InvalidInput, Problem, ReconcilerError, UsageError
from reconciler.jetstream.clock import SystemClock
from reconciler.manifests.files.loader import Loaded, Loader
from reconciler.manifests.files.source import SourceTree, collect
from reconciler.model.desired import Desired
from tests.support.clock.fake import Fast
from tests.support.clock.until import until
from tests.support.values.manifests import written

BAD = "kind: Stream\nmetadata: {name: S}\nspec: {subjcts: [s.>]}"


def stream(number: int, name: str = "S") -> str:
    """A stream that says which revision it is of."""
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {{subjects: [{name}], description: r{number}}}"


def said(desired: Desired) -> set[str]:
    """The revisions that its documents carry."""
    return {declared.config["description"] for declared in desired.resources.values()}


@dataclass
class Watched:
    """Manifests and all that they told."""

    problems: list[tuple[Problem, ...]] = field(default_factory=list)
    loaded: list[Loaded] = field(default_factory=list)
    changes: int = 0
    clock: Fast = field(default_factory=lambda: Fast(1.0))
    manifests: Manifests = field(init=False)

    @classmethod
    def of(cls, *paths: Path, poll: float = 0.1, times: float = 1.0) -> Watched:
        """Manifests at these paths."""
        watched = cls(clock=Fast(times))
        watched.manifests = Manifests(
            [str(path) for path in paths],
            None,
            watched.clock,
            poll=poll,
            on_problems=watched.problems.append,
            on_loaded=watched.loaded.append,
        )
        return watched

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Loads, and watches until the end of the block."""
        await self.manifests.load()

        def changed() -> None:
            self.changes += 1

        task = asyncio.create_task(self.manifests.watch(changed))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def names(self) -> set[str]:
        """What is declared."""
        return {key.name for key in self.manifests.desired.resources}

    @property
    def codes(self) -> list[list[str]]:
        """The codes of all problems that were told."""
        return [[problem.code for problem in told] for told in self.problems]


async def becomes(what: Callable[[], bool]) -> float:
    """Waits until it is true; returns how long that took."""
    began = time.monotonic()

    async def asked() -> bool:
        return what()

    await until(asked)
    return time.monotonic() - began


def link(target: str, path: Path) -> None:
    """Moves a link in one step, as git-sync and the kubelet do."""
    path.with_name("..tmp").symlink_to(target)
    path.with_name("..tmp").rename(path)


def worktree(root: Path, number: int, files: int = 3) -> str:
    """A worktree whose name looks like a commit, and whose every document carries its number."""
    name = f"{number:07x}"
    for index in range(files):
        written(root / name, stream(number, f"S{index}"), name=f"{index}.yaml")
    return name


async def test_files_that_are_edited_added_and_deleted_are_noticed(tmp_path: Path) -> None:
    written(tmp_path, stream(1, "A"), name="a.yaml")
    watched = Watched.of(tmp_path)
    async with watched.watching():
        written(tmp_path, stream(2, "A"), name="a.yaml")
        await becomes(lambda: said(watched.manifests.desired) == {"r2"})
        written(tmp_path / "sub", stream(2, "B"), name="b.yaml")
        await becomes(lambda: watched.names == {"A", "B"})
        (tmp_path / "a.yaml").unlink()
        await becomes(lambda: watched.names == {"B"})
    assert (watched.changes, len(watched.loaded), watched.problems) == (3, 4, [])
    assert watched.loaded[-1].desired is watched.manifests.desired


async def test_bad_manifests_never_replace_good_ones_and_are_told_once(tmp_path: Path) -> None:
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path)
    async with watched.watching():
        good = watched.manifests.desired
        written(tmp_path, BAD)
        await becomes(lambda: watched.codes == [["unknown-field"]])
        assert [problem.code for problem in watched.manifests.problems] == ["unknown-field"]
        written(tmp_path, BAD)
        watched.manifests.hurry()
        await asyncio.sleep(1.0)
        assert watched.manifests.desired is good
        assert not await watched.manifests.load(full=True)
        assert watched.codes == [["unknown-field"]]
        written(tmp_path, stream(1))
        await becomes(lambda: watched.codes == [["unknown-field"], []])
        assert (watched.manifests.desired is good, watched.manifests.problems) == (True, ())
    assert (watched.changes, len(watched.loaded)) == (0, 1)


async def test_the_first_set_must_be_good(tmp_path: Path) -> None:
    written(tmp_path, BAD)
    watched = Watched.of(tmp_path)
    for _ in range(2):
        with pytest.raises(InvalidInput, match="unknown-field"):
            await watched.manifests.load()
    with pytest.raises(InvalidInput, match="unknown-field"):
        _ = watched.manifests.desired
    assert (watched.problems, watched.loaded) == ([], [])
    written(tmp_path, stream(1))
    assert await watched.manifests.load()
    assert said(watched.manifests.desired) == {"r1"}


def test_standard_input_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="standard input"):
        Watched.of(tmp_path, Path("-"))


async def test_a_rewrite_of_the_same_and_a_touch_change_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, stream(1), "kind: Consumer\nmetadata: {name: c}\nspec: {stream: T}")
    watched = Watched.of(tmp_path)
    assert await watched.manifests.load()
    before = watched.manifests.desired
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy)
    assert not await watched.manifests.load()
    os.utime(path, (1, 1))
    assert not await watched.manifests.load()
    assert not await watched.manifests.load(full=True)
    assert watched.manifests.desired is before
    assert (len(watched.loaded), watched.problems) == (1, [])
    assert [warning.code for warning in watched.manifests.warnings] == ["undeclared-stream"]


async def test_content_that_moves_without_its_time_is_found_by_a_full_look(tmp_path: Path) -> None:
    path = written(tmp_path, stream(1))
    os.utime(path, (1, 1))
    watched = Watched.of(tmp_path)
    await watched.manifests.load()
    with path.open("r+") as file:
        file.write(path.read_text().replace("r1", "r2"))
    os.utime(path, (1, 1))
    assert not await watched.manifests.load()
    assert await watched.manifests.load(full=True)
    assert said(watched.manifests.desired) == {"r2"}


@pytest.mark.parametrize(("poll", "most"), [(0.1, 1.0), (2.0, 3.0)])
async def test_a_git_sync_swap_is_followed_at_once(tmp_path: Path, poll: float, most: float) -> None:
    link(worktree(tmp_path, 1), tmp_path / "current")
    watched = Watched.of(tmp_path / "current", poll=poll)
    async with watched.watching():
        assert watched.manifests.desired.revision == "0000001"
        new = worktree(tmp_path, 2)
        await asyncio.sleep(0.3)
        link(new, tmp_path / "current")
        shutil.rmtree(tmp_path / "0000001")
        assert await becomes(lambda: watched.manifests.desired.revision == "0000002") < most
        assert said(watched.manifests.desired) == {"r2"}
    assert (watched.changes, watched.problems) == (1, [])


async def test_a_config_map_is_followed_at_once_through_its_data_link(tmp_path: Path) -> None:
    def generation(number: int) -> None:
        name = f"..2026_0{number}"
        written(tmp_path / name, stream(number, "A"), name="a.yaml")
        written(tmp_path / name, stream(number, "B"), name="b.yaml")
        link(name, tmp_path / "..data")

    generation(1)
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    watched = Watched.of(tmp_path)
    async with watched.watching():
        for number in (2, 3, 4):
            generation(number)
            shutil.rmtree(tmp_path / f"..2026_0{number - 1}")
            assert await becomes(lambda number=number: said(watched.manifests.desired) == {f"r{number}"}) < 1.0  # type: ignore[misc]
            assert watched.manifests.desired.revision == f"..2026_0{number}"
    assert ([said(loaded.desired) for loaded in watched.loaded], watched.problems) == ([{"r1"}, {"r2"}, {"r3"}, {"r4"}], [])


async def test_swaps_in_a_row_with_the_old_worktree_gone_at_once_never_mix(tmp_path: Path) -> None:
    below = [tmp_path / "current" / part for part in ("0.yaml", "1.yaml", "2.yaml")]
    link(worktree(tmp_path, 0), tmp_path / "current")
    one, several = Watched.of(tmp_path / "current", poll=0.0), Watched.of(*below, poll=0.0)

    def swap_50_times() -> None:
        for number in range(1, 51):
            new = worktree(tmp_path, number)
            link(new, tmp_path / "current")
            shutil.rmtree(tmp_path / f"{number - 1:07x}")
            time.sleep(0.01 * (number % 5))

    async with one.watching(), several.watching():
        await asyncio.to_thread(swap_50_times)
        await becomes(lambda: one.manifests.desired.revision == several.manifests.desired.revision == f"{50:07x}")
        assert said(one.manifests.desired) == {"r50"}
    for watched in (one, several):
        assert [len(loaded.desired.resources) for loaded in watched.loaded] == [3] * len(watched.loaded)
        assert [said(loaded.desired) for loaded in watched.loaded] == [
            {f"r{int(loaded.desired.revision, 16)}"} for loaded in watched.loaded
        ]
        assert (len(watched.loaded) >= 3, watched.problems) == (True, [])


async def test_half_a_copy_is_never_in_force_however_much_in_a_hurry(tmp_path: Path) -> None:
    watched = Watched.of(tmp_path)

    async def copied(number: int) -> None:
        for index in range(30):
            written(tmp_path, stream(number, f"S{index}"), name=f"{index}.yaml")
            for _ in range(4):
                await asyncio.sleep(0.025)
                watched.manifests.hurry()

    copying = asyncio.create_task(copied(1))
    await asyncio.sleep(0)
    async with watched.watching():
        await copying
        await copied(2)
        await becomes(lambda: said(watched.manifests.desired) == {"r2"})
    assert [(len(loaded.desired.resources), said(loaded.desired)) for loaded in watched.loaded] == [(30, {"r1"}), (30, {"r2"})]
    assert watched.problems == []


async def test_a_link_that_becomes_a_directory_must_come_to_rest_like_any_other(tmp_path: Path) -> None:
    link(worktree(tmp_path, 1), tmp_path / "current")
    watched = Watched.of(tmp_path / "current")
    async with watched.watching():
        (tmp_path / "current").unlink()
        for index in range(6):
            written(tmp_path / "current", stream(2, f"S{index}"), name=f"{index}.yaml")
            await asyncio.sleep(0.2)
        await becomes(lambda: said(watched.manifests.desired) == {"r2"})
    assert [len(loaded.desired.resources) for loaded in watched.loaded] == [3, 6]


async def test_beside_a_link_that_moves_a_directory_must_come_to_rest_all_the_same(tmp_path: Path) -> None:
    link(worktree(tmp_path, 1), tmp_path / "current")
    written(tmp_path / "plain", stream(1, "P0"), name="0.yaml")
    watched = Watched.of(tmp_path / "current", tmp_path / "plain")
    async with watched.watching():
        new = worktree(tmp_path, 2)
        for index in range(6):
            written(tmp_path / "plain", stream(2, f"P{index}"), name=f"{index}.yaml")
            if index == 2:
                link(new, tmp_path / "current")
            await asyncio.sleep(0.2)
        await becomes(lambda: said(watched.manifests.desired) == {"r2"})
    assert [len(loaded.desired.resources) for loaded in watched.loaded] == [4, 9]


async def test_a_volume_that_vanishes_leaves_the_last_good_set(tmp_path: Path) -> None:
    link(worktree(tmp_path / "volume", 1), tmp_path / "volume" / "current")
    watched = Watched.of(tmp_path / "volume" / "current")
    async with watched.watching():
        good = watched.manifests.desired
        (tmp_path / "volume").rename(tmp_path / "away")
        await becomes(lambda: watched.codes == [["not-found"]])
        assert watched.manifests.desired is good
        (tmp_path / "away").rename(tmp_path / "volume")
        await becomes(lambda: watched.codes == [["not-found"], []])
        assert watched.manifests.desired is good
    assert watched.changes == 0


@pytest.mark.parametrize("dangling", [False, True])
async def test_a_link_that_is_away_or_leads_nowhere_for_a_moment_is_no_problem(tmp_path: Path, dangling: bool) -> None:
    link(worktree(tmp_path, 1), tmp_path / "current")
    watched = Watched.of(tmp_path / "current")
    async with watched.watching():
        (tmp_path / "current").unlink()
        if dangling:
            link("nowhere", tmp_path / "current")
        watched.manifests.hurry()
        await asyncio.sleep(0.2)
        link(worktree(tmp_path, 2), tmp_path / "current")
        await becomes(lambda: said(watched.manifests.desired) == {"r2"})
    assert watched.problems == []


@pytest.mark.parametrize("back", [False, True])
async def test_a_directory_that_never_rests_is_told_until_it_does(tmp_path: Path, back: bool) -> None:
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path, poll=2.0, times=10.0)
    resting = False

    async def never_resting() -> None:
        number = 2
        while not resting:
            written(tmp_path, stream(number, "Z"), name="z.yaml")
            number += 1
            await asyncio.sleep(0.01)
        if back:
            (tmp_path / "z.yaml").unlink()

    async with watched.watching():
        good = watched.manifests.desired
        busy = asyncio.create_task(never_resting())
        assert await becomes(lambda: watched.codes == [["unsettled"]]) > 2.5
        (problem,) = watched.manifests.problems
        assert (problem.severity, f"{tmp_path}/z.yaml changed" in problem.message) == ("warning", True)
        assert watched.manifests.desired is good
        resting = True
        await busy
        await becomes(lambda: watched.codes == [["unsettled"], []])
        assert watched.names == ({"S"} if back else {"S", "Z"})
        assert (watched.manifests.desired is good) is back


async def test_a_start_in_a_directory_that_never_rests_ends_with_what_is_wrong(tmp_path: Path) -> None:
    async def never_resting() -> None:
        for number in range(10**6):
            written(tmp_path, stream(number))
            await asyncio.sleep(0.01)

    busy = asyncio.create_task(never_resting())
    with pytest.raises(InvalidInput, match="unsettled"):
        await Watched.of(tmp_path, times=20.0).manifests.load()
    busy.cancel()


async def test_whoever_is_in_a_hurry_does_not_wait_for_the_next_poll(tmp_path: Path) -> None:
    path = written(tmp_path, stream(1))
    watched = Watched.of(tmp_path, poll=3600.0)
    async with watched.watching():
        written(tmp_path, stream(2))
        watched.manifests.hurry()
        assert await becomes(lambda: said(watched.manifests.desired) == {"r2"}) < 2.0
        before = path.stat()
        with path.open("r+") as file:
            file.write(path.read_text().replace("r2", "r3"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        watched.manifests.hurry()
        assert await becomes(lambda: said(watched.manifests.desired) == {"r3"}) < 1.0


async def test_files_that_a_swap_takes_away_while_they_are_read_are_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps: Iterator[int] = iter(())

    class Unlucky(Loader):
        def load_tree(self, tree: SourceTree, env: str | None = None, *, full: bool = False) -> Loaded:
            if number := next(swaps, None):
                link(worktree(tmp_path, number), tmp_path / "current")
                shutil.rmtree(tmp_path / f"{number - 1:07x}")
            return super().load_tree(tree, env, full=full)

    monkeypatch.setattr(declared, "Loader", Unlucky)
    link(worktree(tmp_path, 1), tmp_path / "current")
    watched = Watched.of(tmp_path / "current")
    await watched.manifests.load()
    swaps, sleeps = iter((3, 4)), watched.clock.sleeps
    link(worktree(tmp_path, 2), tmp_path / "current")
    assert await watched.manifests.load()
    assert ([said(loaded.desired) for loaded in watched.loaded], watched.problems) == ([{"r1"}, {"r4"}], [])
    assert watched.clock.sleeps == sleeps


async def test_what_changes_while_it_is_read_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Overtaken(Loader):
        def load_tree(self, tree: SourceTree, env: str | None = None, *, full: bool = False) -> Loaded:
            loaded = super().load_tree(tree, env, full=full)
            if said(loaded.desired) == {"r2"}:
                written(tmp_path, stream(1))
            return loaded

    monkeypatch.setattr(declared, "Loader", Overtaken)
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path)
    await watched.manifests.load()
    before = watched.manifests.desired
    written(tmp_path, stream(2))
    assert not await watched.manifests.load()
    assert not await watched.manifests.load()
    assert ([said(loaded.desired) for loaded in watched.loaded], watched.manifests.desired is before) == ([{"r1"}], True)


async def test_a_parser_that_is_killed_leaves_the_last_good_set_until_a_full_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = False

    class Killed(Loader):
        def load_tree(self, tree: SourceTree, env: str | None = None, *, full: bool = False) -> Loaded:
            if failing:
                msg = "a process was killed"
                raise ReconcilerError(msg)
            return super().load_tree(tree, env, full=full)

    monkeypatch.setattr(declared, "Loader", Killed)
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path)
    await watched.manifests.load()
    failing = True
    written(tmp_path, stream(2))
    assert not await watched.manifests.load()
    assert (watched.codes, said(watched.manifests.desired)) == ([["not-loaded"]], {"r1"})
    failing = False
    assert not await watched.manifests.load()
    assert await watched.manifests.load(full=True)
    assert (watched.codes, said(watched.manifests.desired)) == ([["not-loaded"], []], {"r2"})


async def test_a_working_directory_that_is_gone_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = written(tmp_path / "here", stream(1)).parent
    monkeypatch.chdir(here)
    watched = Watched.of(Path("x.yaml"))
    await watched.manifests.load()
    shutil.rmtree(here)
    assert not await watched.manifests.load()
    assert (watched.codes, said(watched.manifests.desired)) == ([["unreadable"]], {"r1"})


async def test_looks_that_take_long_are_made_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path, poll=0.01)
    looks: list[float] = []

    def slow(paths: tuple[str, ...]) -> SourceTree:
        looks.append(time.monotonic())
        time.sleep(0.05)
        return collect(paths)

    monkeypatch.setattr(declared, "collect", slow)
    async with watched.watching():
        looks.clear()
        await asyncio.sleep(2.5)
    assert len(looks) <= 2


async def test_everything_is_read_once_a_minute_at_most_when_that_takes_long(tmp_path: Path) -> None:
    class Ticking(SystemClock):
        time = 0.0

        def monotonic(self) -> float:
            self.time += 1.0
            return self.time

    path = written(tmp_path, stream(1))
    os.utime(path, (1, 1))
    watched, clock = Watched(), Ticking()
    manifests = Manifests([str(tmp_path)], None, clock, on_problems=watched.problems.append, on_loaded=watched.loaded.append)
    await manifests.load()
    read_at = clock.time
    assert not await manifests.load(full=True)
    with path.open("r+") as file:
        file.write(path.read_text().replace("r1", "r2"))
    os.utime(path, (1, 1))
    while not await manifests.load(full=True):
        assert clock.time < read_at + 100
    assert clock.time > read_at + 60


async def test_looks_never_overlap_and_one_that_was_cancelled_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = []
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Loader):
        def load_tree(self, tree: SourceTree, env: str | None = None, *, full: bool = False) -> Loaded:
            running.append(1)
            assert len(running) == 1
            loop.call_soon_threadsafe(started.set)
            time.sleep(0.3)
            running.pop()
            return super().load_tree(tree, env, full=full)

    monkeypatch.setattr(declared, "Loader", Slow)
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path)
    await watched.manifests.load()
    written(tmp_path, stream(2))
    started.clear()
    cancelled = asyncio.create_task(watched.manifests.load())
    await started.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    results = await asyncio.gather(watched.manifests.load(full=True), watched.manifests.load(full=True))
    assert (*results, said(watched.manifests.desired)) == (True, True, {"r2"})
    assert len(watched.loaded) == 2


async def test_watching_ends_at_once_when_it_is_cancelled_and_leaves_nothing_behind(tmp_path: Path) -> None:
    written(tmp_path, stream(1))
    watched = Watched.of(tmp_path, poll=3600.0)
    async with watched.watching():
        await asyncio.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 1.0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
