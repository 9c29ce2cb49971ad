"""A planner that is killed, wherever: the old plan or the new one is there, and the next run finishes what was begun."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.choice import some
from tests.support.partitions.killing import Killed, Planners, Refusing, calls_of_git, disarm, kill_within_git
from tests.support.partitions.rollout import WORKERS, Rows, Site

EVERY_DAY = 6
_LOCK = re.compile(r"another git is at work, or was killed at it: wait for it, or delete (\S+)")


@pytest.fixture
def planners(tmp_path: Path) -> Iterator[Planners]:
    with Planners(tmp_path / "home") as made:
        yield made


class Begun:
    """A checkout with a committed plan, and tables that ask for another one."""

    def __init__(self, tmp_path: Path, planners: Planners, *, planned: bool = True) -> None:
        self._planners, self._copies = planners, tmp_path
        self._site = Site(tmp_path / "work")
        self._site.tables(100)
        self._site.publish(tmp_path / "origin.git")
        if planned:
            planners.run(self._site.root)
            self._site.tables(90, WORKERS[:3])
        self.old = self._site.committed()
        self.new = Rows(2, 3, 90) if planned else Rows(1, 4, 100)
        self.commits = 3 if planned else 2

    def copy(self, name: object) -> Site:
        """The same again."""
        shutil.copytree(self._site.root, self._copies / f"{name}")
        return Site(self._copies / f"{name}")

    def assert_finished(self, site: Site) -> None:
        """The new plan is there and committed, once, and nothing else is."""
        assert (site.written(), site.committed(), beside(site)) == (self.new, self.new, [])
        assert site.git("status", "--porcelain", "manifests") == ""
        assert site.git("rev-list", "--count", "HEAD") == str(self.commits)


def beside(site: Site) -> list[str]:
    """What is beside the output."""
    return sorted(path.name for path in (site.root / "manifests").iterdir() if path.name not in ("processor", "pool.yaml"))


def on_disk(site: Site) -> Rows | None:
    return site.written() if (site.output / "_index.yaml").exists() else None


def chosen(moments: int, seed: int) -> list[int]:
    """All of them, or the first, the last and some more."""
    return sorted({1, moments, *some(range(1, moments + 1), EVERY_DAY, random.Random(seed))})


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("planned", [True, False], ids=["again", "first"])
def test_killed_before_any_change_it_makes(tmp_path: Path, planners: Planners, planned: bool) -> None:
    begun = Begun(tmp_path, planners, planned=planned)
    moments = planners.run(begun.copy("whole").root)
    assert moments > 20
    seen = set()
    for at in chosen(moments, planned):
        site = begun.copy(at)
        with pytest.raises(Killed):
            planners.run(site.root, at)
        assert site.committed() == begun.old  # the commit itself is git's, below
        assert on_disk(site) in (begun.old, begun.new)
        seen |= {on_disk(site), *beside(site)}
        planners.run(site.root)
        begun.assert_finished(site)
    assert seen == {begun.old, begun.new, ".processor.next"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_whenever_git_calls_somebody(tmp_path: Path, planners: Planners) -> None:
    begun = Begun(tmp_path, planners)
    counted = begun.copy("whole")
    kill_within_git(counted.root, 0)
    planners.run(counted.root)
    locks: set[str] = set()
    for at in chosen(calls_of_git(counted.root), 3):
        site = begun.copy(at)
        kill_within_git(site.root, at)
        with suppress(Killed):  # how often git reads a file again depends on its clock
            planners.run(site.root)
        disarm(site.root)
        assert {site.written(), site.committed()} <= {begun.old, begun.new}
        while True:
            try:
                planners.run(site.root)
                break
            except Refusing as refused:  # git's locks are named, for a person to delete: they may be another git's
                named = {*map(Path, _LOCK.findall(str(refused)))}
                assert named
                for lock in named:
                    lock.unlink()
                locks |= {lock.name for lock in named}
        begun.assert_finished(site)
    assert "index.lock" in locks


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_while_a_link_is_swapped(tmp_path: Path, planners: Planners) -> None:
    site = Site(tmp_path / "work")
    real = tmp_path / "real"
    real.mkdir()
    site.output.symlink_to(real / "first")
    (real / "first").mkdir()
    site.tables(100)
    planners.run(site.root, commit=False)
    site.tables(101)
    moments = planners.run(site.root, commit=False)
    assert moments > 20
    for number, at in enumerate(chosen(moments, 4)):
        old = site.written()
        site.tables(102 + number)
        with pytest.raises(Killed):
            planners.run(site.root, at, commit=False)
        new = Rows(old.generation + 1, 4, 102 + number)
        assert site.written() in (old, new)
        planners.run(site.root, commit=False)
        assert site.written() == new
        assert beside(site) == []
        assert len(list(real.iterdir())) == 1


def test_a_plan_that_was_not_committed_gets_its_commit_first(tmp_path: Path, planners: Planners) -> None:
    begun = Begun(tmp_path, planners)
    site = begun.copy("site")
    planners.run(site.root, commit=False)
    site.tables(80, WORKERS[:3])
    planners.run(site.root)
    titles = site.git("log", "--format=%s").splitlines()
    assert titles[0].startswith("Plan processor: 0 partitions moved")
    assert titles[1].startswith("Plan processor: 2")  # what was on the fourth worker
    assert site.committed() == Rows(3, 3, 80)
