"""`--commit`: one commit of our paths alone, or a refusal before anything is written."""

from __future__ import annotations

import hashlib
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


def windows(checkout: Desk, *, attributes: bool) -> Desk:
    """A clone whose git writes CRLF wherever nobody forbids it."""
    checkout("--commit")
    if not attributes:
        git(checkout, "rm", "-q", "manifests/processor/.gitattributes")
        git(checkout, "commit", "-qm", "without attributes")
    clone = checkout.root / "clone"
    subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", str(checkout.root), str(clone)], check=True)
    found = Desk(clone, checkout.capsys)
    git(found, "config", "user.name", "Somebody")
    git(found, "config", "user.email", "somebody@example.org")
    for table in ("partitions.csv", "workers.csv"):
        (clone / table).write_bytes((checkout.root / table).read_bytes())
    return found


def test_a_checkout_with_other_line_endings_leaves_the_manifests_alone(checkout: Desk) -> None:
    clone = windows(checkout, attributes=True)
    assert b"\r\n" in (clone.root / "plan.yaml").read_bytes()
    assert clone.report("--commit")["changed"] is False


def test_manifests_that_a_checkout_has_rewritten_are_refused_until_they_are_written_anew(checkout: Desk) -> None:
    clone = windows(checkout, attributes=False)
    assert b"\r\n" in (clone.output / "w-w-a.yaml").read_bytes()
    assert git(clone, "status", "--porcelain", "--", "manifests") == ""  # git sees nothing of it
    assert "edited: changed since they were written: w-w-a.yaml, w-w-b.yaml" in clone("--commit", code=3).err
    clone("--commit", "--force", "edited")
    assert clone.manifests() == checkout.manifests() | {".gitattributes": b"* -text\n"}
    assert git(clone, "show", "--name-only", "--format=", "HEAD") == "manifests/processor/.gitattributes"
    assert clone.report("--commit")["changed"] is False


def test_a_link_is_not_committed(checkout: Desk) -> None:
    (checkout.root / "elsewhere").mkdir()
    checkout.output.parent.mkdir()
    checkout.output.symlink_to(checkout.root / "elsewhere")
    assert "is a symbolic link: git would have the link" in checkout("--commit", code=3).err
    assert list((checkout.root / "elsewhere").iterdir()) == []


def test_what_somebody_planned_without_a_commit_gets_one(checkout: Desk) -> None:
    checkout()
    report = checkout.report("--commit")
    assert (report["changed"], report["commit"]) == (False, git(checkout, "rev-parse", "HEAD"))
    assert git(checkout, "log", "-1", "--format=%s") == "Plan processor: 0 partitions moved (0.00% of the weight), 100 new"


def by_hand(desk: Desk) -> None:
    (desk.output / "w-w-a.yaml").write_text("mine\n")


def deleted(desk: Desk) -> None:
    (desk.output / "w-w-a.yaml").unlink()


def beside(desk: Desk) -> None:
    (desk.output / "note.txt").write_text("mine\n")


def reindexed(desk: Desk) -> None:
    path = desk.output / "w-w-a.yaml"
    old = path.read_bytes()
    path.write_bytes(old.replace(b"dc.tool0.", b"dc.mine."))
    index = desk.output / "_index.yaml"
    old_hash, new_hash = (hashlib.sha256(data).hexdigest() for data in (old, path.read_bytes()))
    index.write_text(index.read_text().replace(old_hash, new_hash))


def broken(desk: Desk) -> None:
    (desk.output / "_index.yaml").write_text("kind: [")


@pytest.mark.parametrize("change", [by_hand, deleted, beside, reindexed, broken])
def test_what_a_planner_did_not_write_is_not_committed_for_it(checkout: Desk, change: Callable[[Desk], None]) -> None:
    checkout("--commit")
    checkout.partitions(101)
    checkout()
    change(checkout)
    head, files = git(checkout, "rev-parse", "HEAD"), checkout.files()
    assert "has changes that are not committed" in checkout("--commit", code=3).err
    assert (git(checkout, "rev-parse", "HEAD"), checkout.files()) == (head, files)


def test_files_that_were_pruned_are_part_of_what_waits(checkout: Desk) -> None:
    checkout.plan("gates: {maxMovedFraction: 1}")
    checkout("--commit")
    checkout.workers("w-a", "w-b", "w-c")
    checkout("--prune")
    assert checkout.report("--commit")["commit"]
    assert "w-w-d.yaml" in git(checkout, "show", "--stat", "HEAD")
    assert git(checkout, "status", "--porcelain", "--", "manifests") == ""
