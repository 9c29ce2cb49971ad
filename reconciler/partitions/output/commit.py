"""`--commit`: one commit of what was written, in the checkout that the output lies in. Nothing is pushed.

Before anything is written it is made sure that a commit can follow; hooks run as for anybody else; afterwards what was committed
is read back and compared with the index. A tree that an earlier run has written whole, and then did not commit, is no obstacle:
it gets its commit first.

Invariant: only paths below the output are committed, and whatever else is staged stays staged.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.errors import InvalidInput, ReconcilerError, Refused
from reconciler.partitions.output.index import edited, read_index
from reconciler.partitions.output.previous import read_report
from reconciler.partitions.output.text import INDEX_NAME

ATTRIBUTES = ".gitattributes"
ATTRIBUTES_TEXT = b"* -text\n"
"""No line ending is ever rewritten: the index has the hash of every byte."""
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")
_SECONDS = 600
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Waiting:
    """A plan that was written, but not committed."""

    report: Mapping[str, Any]
    hashes: Mapping[str, str]
    """Of the files of its index."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """The git checkout around the output."""

    root: Path
    below: str
    """The output, relative to the root."""
    waiting: Waiting | None = None

    def git(self, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Runs git there; its output is bytes, because names are."""
        environ = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}
        return subprocess.run(  # noqa: S603 - arguments are ours
            ["git", "-C", str(self.root), *arguments],  # noqa: S607 - the git of whoever calls us
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            check=False,
            env=environ,
            timeout=_SECONDS,
        )

    def says(self, *arguments: str) -> str:
        """What git says, or nothing when it fails."""
        done = self.git(*arguments)
        return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def preflight(output: Path, pool: str) -> Checkout:
    """The checkout, fit for a commit; raises Refused with everything that is in the way."""
    parent = output
    while not parent.is_dir():
        parent = parent.parent
    here = Checkout(parent, "")
    try:
        root = here.says("rev-parse", "--show-toplevel")
    except FileNotFoundError as error:
        raise Refused(("--commit needs git on PATH",)) from error
    if not root:
        raise Refused((f"--commit: {output} is in no git checkout",))
    below = os.path.relpath(os.path.realpath(output), os.path.realpath(root))
    checkout = Checkout(Path(root), below)
    found = list(_in_the_way(checkout))
    if output.is_symlink():
        found.append(f"{output} is a symbolic link: git would have the link, not the files it leads to; commit those yourself")
    changes = _changes(checkout)
    if changes:
        checkout = replace(checkout, waiting=_waiting(output, pool, changes))
        if checkout.waiting is None:
            named = ", ".join([*changes][:_SHOWN]) + (f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")
            found.append(f"{below} has changes that are not committed ({named}): commit or undo them first")
    if found:
        raise Refused(tuple(f"--commit: {reason}" for reason in found))
    return checkout


def _in_the_way(checkout: Checkout) -> Iterator[str]:
    directory = Path(checkout.says("rev-parse", "--absolute-git-dir"))
    branch = checkout.says("symbolic-ref", "-q", "HEAD")
    if not branch:
        yield "HEAD is detached: switch to a branch"
    if checkout.git("var", "GIT_AUTHOR_IDENT").returncode or checkout.git("var", "GIT_COMMITTER_IDENT").returncode:
        yield "git does not know who commits: set user.name and user.email"
    for name in ("index.lock", "HEAD.lock", *([f"{branch}.lock"] if branch else ())):
        lock = checkout.root / checkout.says("rev-parse", "--git-path", name)
        if lock.exists():
            yield f"another git is at work, or was killed at it: wait for it, or delete {lock}"
    yield from (f"an operation is not finished ({name})" for name in _UNFINISHED if (directory / name).exists())
    if checkout.git("check-ignore", "-q", "--no-index", f"{checkout.below}/{INDEX_NAME}").returncode == 0:
        yield f"git ignores {checkout.below}/{INDEX_NAME}: what is not committed cannot be rolled out"


def _changes(checkout: Checkout) -> dict[str, str]:
    """What below the output is not as the last commit has it: the letters of `git status`, by path below the output."""
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", checkout.below)
    lines = checkout.git(*status).stdout.decode(errors="surrogateescape").split("\0")
    return {os.path.relpath(line[3:], checkout.below): line[:2] for line in lines if line}


def _waiting(output: Path, pool: str, changes: Mapping[str, str]) -> Waiting | None:
    """The plan that stands there, if all that has changed is what a planner wrote, every byte of it."""
    try:
        index = read_index(output, pool)
    except InvalidInput:
        return None
    ours = {*index.files, INDEX_NAME, ATTRIBUTES}
    pruned = {path for path, letters in changes.items() if "D" in letters and Path(path).match("w-*.yaml")}
    report = read_report(output, index)
    whole = report and changes.keys() <= ours | pruned and not edited(output, index)
    return Waiting(report, index.files) if whole else None


def commit(checkout: Checkout, message: str, hashes: Mapping[str, str]) -> str:
    """Commits what is below the output; the new commit's id. Raises ReconcilerError when git or a hook refuses."""
    _must(checkout, "add", "--all", "--", checkout.below)
    _must(checkout, "commit", "--quiet", "--only", "--message", message, "--", checkout.below)
    wrong = _differing(checkout, hashes)
    if wrong:
        named = ", ".join(wrong[:_SHOWN])
        msg = f"the commit does not have what was planned: {named} (a hook or an attribute rewrote it); do not roll it out"
        raise ReconcilerError(msg)
    return checkout.says("rev-parse", "HEAD")


def _must(checkout: Checkout, *arguments: str) -> None:
    done = checkout.git(*arguments)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        msg = f"git {arguments[0]} refused; the manifests are written, but not committed: {said}"
        raise ReconcilerError(msg)


def _differing(checkout: Checkout, hashes: Mapping[str, str]) -> list[str]:
    """The files whose committed bytes are not those of the index."""
    names = sorted(hashes)
    asked = "".join(f"HEAD:{checkout.below}/{name}\n" for name in names).encode()
    output = checkout.git("cat-file", "--batch", data=asked).stdout
    wrong, at = [], 0
    for name in names:
        head, _, _ = output[at:].partition(b"\n")
        at += len(head) + 1
        if head.endswith(b" missing"):
            wrong.append(name)
            continue
        size = int(head.rsplit(b" ", 1)[1])
        if hashlib.sha256(output[at : at + size]).hexdigest() != hashes[name]:
            wrong.append(name)
        at += size + 1
    return wrong
