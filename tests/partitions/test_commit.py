"""`--commit`: one commit of our paths alone, or a refusal before anything is written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.partitions.files import Desk


def git(desk: Desk, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(desk.root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The desk as a git checkout with one commit."""
    for name, value in {"HOME": str(desk.root.parent), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    git(desk, "init", "-q", "-b", "main")
    git(desk, "config", "user.name", "Somebody")
    git(desk, "config", "user.email", "somebody@example.org")
    git(desk, "add", "plan.yaml")
    git(desk, "commit", "-qm", "first")
    return desk


def test_a_commit_has_the_manifests_and_nothing_else(checkout: Desk) -> None:
    (checkout.root / "mine.txt").write_text("staged")
    git(checkout, "add", "mine.txt")
    report = checkout.report("--commit")
    assert report["commit"] == git(checkout, "rev-parse", "HEAD")
    names = git(checkout, "show", "--name-only", "--format=", "HEAD").splitlines()
    below = "manifests/processor"
    assert names == [
        f"{below}/{name}" for name in (".gitattributes", "_index.yaml", *(f"w-w-{letter}.yaml" for letter in "abcd"))
    ]
    assert git(checkout, "diff", "--cached", "--name-only") == "mine.txt"
    message = git(checkout, "log", "-1", "--format=%B")
    assert message.startswith(
        "Plan processor: 0 partitions moved (0.00% of the weight), 100 new\n\n100 partitions on 4 workers, load 1.000 to 1.000"
    )
    assert f"Plan-Id: {report['plan']}" in message
    assert git(checkout, "status", "--porcelain", "--", "manifests") == ""


def test_nothing_changed_is_no_commit(checkout: Desk) -> None:
    checkout("--commit")
    head = git(checkout, "rev-parse", "HEAD")
    assert checkout.report("--commit")["commit"] is None
    assert git(checkout, "rev-parse", "HEAD") == head


def test_the_next_commit_is_the_list_of_moves(checkout: Desk) -> None:
    checkout("--commit")
    checkout.partitions(101)
    checkout("--commit")
    changed = [
        line
        for line in git(checkout, "show", "--format=", "-U0").splitlines()
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert [line for line in changed if "dc." in line] == ['+    - "dc.tool25.chamber0"']


def detached(desk: Desk) -> None:
    git(desk, "checkout", "-q", "--detach")


def nameless(desk: Desk) -> None:
    git(desk, "config", "user.useConfigOnly", "true")
    git(desk, "config", "--unset", "user.email")


def locked(desk: Desk) -> None:
    (desk.root / ".git" / "index.lock").touch()


def merging(desk: Desk) -> None:
    (desk.root / ".git" / "MERGE_HEAD").write_text(git(desk, "rev-parse", "HEAD"))


def ignored(desk: Desk) -> None:
    (desk.root / ".gitignore").write_text("manifests/\n")


def dirty(desk: Desk) -> None:
    desk.output.mkdir(parents=True)
    (desk.output / "note.txt").write_text("not committed")


def nowhere(desk: Desk) -> None:
    (desk.root / ".git").rename(desk.root / "not-git")


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (detached, "HEAD is detached: switch to a branch"),
        (nameless, "git does not know who commits"),
        (locked, "another git is at work"),
        (merging, "an operation is not finished (MERGE_HEAD)"),
        (ignored, "git ignores manifests/processor/_index.yaml"),
        (dirty, "manifests/processor has changes that are not committed"),
        (nowhere, "is in no git checkout"),
    ],
)
def test_what_is_in_the_way_of_a_commit_is_said_before_anything_is_written(
    checkout: Desk, obstacle: Callable[[Desk], None], said: str
) -> None:
    obstacle(checkout)
    assert f"--commit: {said}" in checkout("--commit", code=3).err or said in checkout("--commit", code=3).err
    assert "_index.yaml" not in checkout.files()


def hook(desk: Desk, name: str, text: str) -> None:
    path = Path(desk.root / ".git" / "hooks" / name)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_hook_that_refuses_is_heard(checkout: Desk) -> None:
    hook(checkout, "pre-commit", "echo no commits on Fridays >&2; exit 1")
    err = checkout("--commit", code=1).err
    assert "git commit refused; the manifests are written, but not committed: no commits on Fridays" in err


def test_a_hook_that_rewrites_is_noticed(checkout: Desk) -> None:
    hook(checkout, "pre-commit", "echo '# signed' >> manifests/processor/w-w-a.yaml; git add manifests/processor/w-w-a.yaml")
    assert "the commit does not have what was planned: w-w-a.yaml" in checkout("--commit", code=1).err


def test_a_dry_run_cannot_be_committed(checkout: Desk) -> None:
    assert "--dry-run writes nothing" in checkout("--commit", "--dry-run", code=64).err
