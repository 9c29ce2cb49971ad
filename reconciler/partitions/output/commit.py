"""`--commit`: one commit of what was written, in the checkout that the output lies in. Nothing is pushed.

Before anything is written it is made sure that a commit can follow; hooks run as for anybody else; afterwards what was committed
is read back and compared with the index.

Invariant: only paths below the output are committed, and whatever else is staged stays staged.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import ReconcilerError, Refused
from reconciler.partitions.output.text import INDEX_NAME

ATTRIBUTES = ".gitattributes"
ATTRIBUTES_TEXT = b"* -text\n"
"""No line ending is ever rewritten: the index has the hash of every byte."""
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Checkout:
    """The git checkout around the output."""

    root: Path
    below: str
    """The output, relative to the root."""

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


def preflight(output: Path) -> Checkout:
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
    found = _in_the_way(checkout, output)
    if found:
        raise Refused(tuple(f"--commit: {reason}" for reason in found))
    return checkout


def _in_the_way(checkout: Checkout, output: Path) -> list[str]:
    found = []
    directory = Path(checkout.says("rev-parse", "--absolute-git-dir"))
    if checkout.git("symbolic-ref", "-q", "HEAD").returncode:
        found.append("HEAD is detached: switch to a branch")
    if checkout.git("var", "GIT_AUTHOR_IDENT").returncode or checkout.git("var", "GIT_COMMITTER_IDENT").returncode:
        found.append("git does not know who commits: set user.name and user.email")
    if (directory / "index.lock").exists():
        found.append(f"another git is at work ({directory / 'index.lock'} exists)")
    found += [f"an operation is not finished ({name})" for name in _UNFINISHED if (directory / name).exists()]
    ignored = checkout.git("check-ignore", "-q", "--no-index", f"{checkout.below}/{INDEX_NAME}").returncode == 0
    if ignored:
        found.append(f"git ignores {checkout.below}/{INDEX_NAME}: what is not committed cannot be rolled out")
    status = checkout.says("status", "--porcelain", "--", checkout.below)
    if status and output.exists():
        first = status.splitlines()[0].strip()
        found.append(f"{checkout.below} has changes that are not committed ({first}): commit or undo them first")
    return found


def commit(checkout: Checkout, message: str, hashes: Mapping[str, str]) -> str:
    """Commits what is below the output; the new commit's id. Raises ReconcilerError when git or a hook refuses."""
    _must(checkout, "add", "--all", "--", checkout.below)
    _must(checkout, "commit", "--quiet", "--only", "--message", message, "--", checkout.below)
    wrong = _differing(checkout, hashes)
    if wrong:
        named = ", ".join(wrong[:5])
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
