"""From a plan table to a running daemon: a checkout whose job commits, a bare repository, and a sync that swaps a link."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.support.partitions.files import PLAN

POOL = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: DC}
spec: {subjects: [dc.>]}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: processor}
spec: {stream: DC}
"""
WORKERS = ("w-a", "w-b", "w-c", "w-d")
EVERY = 0.05
"""Seconds between two looks of the sync."""


class Rows(NamedTuple):
    """What a generation is: its number, and how many workers and subjects it has."""

    generation: int
    workers: int
    subjects: int


class Site:
    """The working checkout of a data engineer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "manifests" / "processor"
        (root / "manifests").mkdir(parents=True, exist_ok=True)
        (root / "manifests" / "pool.yaml").write_text(POOL, encoding="utf-8")
        (root / "plan.yaml").write_text(PLAN, encoding="utf-8")

    def tables(self, partitions: int, workers: Sequence[str] = WORKERS) -> None:
        """So many equal partitions on these workers."""
        lines = "".join(f"dc.tool{number // 4}.chamber{number % 4},1\n" for number in range(partitions))
        (self.root / "partitions.csv").write_text(f"subject,weight\n{lines}", encoding="utf-8")
        (self.root / "workers.csv").write_text("".join(f"{line}\n" for line in ("worker", *workers)), encoding="utf-8")

    def git(self, *arguments: str | Path) -> str:
        """Runs git there."""
        command = ["git", "-C", str(self.root), "-c", "user.name=me", "-c", "user.email=me@example.org", *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def publish(self, origin: Path) -> None:
        """Makes it a repository with a bare one to push to."""
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(origin)], check=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "me")
        self.git("config", "user.email", "me@example.org")
        self.git("remote", "add", "origin", origin)
        self.push("The pool")

    def push(self, message: str = "") -> None:
        """Pushes what is committed, after committing everything if there is something to say about it."""
        if message:
            self.git("add", "--all")
            self.git("commit", "-qm", message)
        self.git("push", "-q", "origin", "main")

    def written(self) -> Rows:
        """What stands in the output, which must be whole."""
        return _rows(lambda path: (self.output / path).read_bytes())

    def committed(self) -> Rows | None:
        """The same of the last commit; nothing where it has none."""
        if not self.git("ls-tree", "HEAD", "manifests/processor/"):
            return None
        command = ["git", "-C", str(self.root), "archive", "HEAD:manifests/processor"]
        with tarfile.open(fileobj=BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as archive:
            files = {member.name: found.read() for member in archive if (found := archive.extractfile(member)) is not None}
        return _rows(files.__getitem__)


def _rows(read: Callable[[str], bytes]) -> Rows:
    spec = yaml.safe_load(read("_index.yaml"))["spec"]
    subjects = 0
    for entry in spec["files"]:
        data = read(entry["path"])
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], entry["path"]
        subjects += len(yaml.safe_load(data)["spec"]["filterSubjects"])
    return Rows(spec["generation"], len(spec["files"]), subjects)


@asynccontextmanager
async def synced(origin: Path, directory: Path) -> AsyncIterator[Path]:
    """A link to a checkout of the newest commit, swapped as git-sync does it."""
    link = directory / "current"
    await asyncio.to_thread(_sync, origin, directory, link)
    task = asyncio.create_task(_endlessly(origin, directory, link))
    try:
        yield link
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _endlessly(origin: Path, directory: Path, link: Path) -> None:
    while True:
        await asyncio.sleep(EVERY)
        await asyncio.to_thread(_sync, origin, directory, link)


def _sync(origin: Path, directory: Path, link: Path) -> None:
    found = subprocess.run(["git", "-C", str(origin), "rev-parse", "main"], check=True, capture_output=True, text=True)
    directory.mkdir(exist_ok=True)
    checkout = directory / found.stdout.strip()
    if checkout.exists():
        return
    subprocess.run(["git", "clone", "-q", str(origin), str(checkout)], check=True)
    following = directory / "next"
    following.symlink_to(checkout.name)
    following.replace(link)
