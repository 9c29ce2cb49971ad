"""Where incidents happen: a server, a checkout of manifests, the daemons that follow its commits, and whoever scrapes them.

What is committed is deployed at once, as git-sync would do it; what is only written is not.

Invariant: when its block is left, nothing of it runs any more.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.account.meddling import Somebody
from tests.support.account.wire import Json
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.pages.following import follow, replaced
from tests.support.server.leaves import Link
from tests.support.server.process import Server

ORDERS = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: ORDERS}
spec:
  subjects: [orders.>]
  maxAge: 7d
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: billing}
spec:
  stream: ORDERS
  filterSubjects: [orders.paid]
  ackWait: 10m
  maxAckPending: 100
"""
"""What is declared before anything happens."""
INTERVAL = "1s"
"""The shortest: the alerts allow for three of them."""
JOB = "reconciler"
DEPLOYED = "deployed/current"
Scraped = Callable[[str, str], None]
"""Told the job and the URL of each daemon that is there."""


def nobody(_job: str, _url: str) -> None:
    """Does not scrape."""


@dataclass
class Stage:
    """What an incident finds; what it adds is ended with it."""

    here: Path
    server: Server
    somebody: Somebody
    scraped: Scraped = nobody
    daemons: list[Daemon] = field(default_factory=list)
    link: Link | None = None
    """A line that can be cut."""
    other: Callable[[], Awaitable[None]] | None = None
    """Lets somebody else go."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def manifests(self) -> Path:
        """The checkout."""
        return self.here / "manifests"

    def deploy(self) -> None:
        """Makes the newest commit what the daemons see, unless it is already."""
        commit = (self.manifests / ".git" / "refs" / "heads" / "main").read_text(encoding="ascii").strip()
        checkout = self.here / "deployed" / commit
        if not checkout.exists():
            self.git("worktree", "add", "--detach", str(checkout), commit)
            following = checkout.with_name("next")
            following.symlink_to(checkout.name)
            following.replace(self.here / DEPLOYED)

    @property
    def daemon(self) -> Daemon:
        """The first one."""
        return self.daemons[0]

    def git(self, *arguments: str) -> None:
        """In the checkout."""
        subprocess.run(["git", "-C", str(self.manifests), *arguments], check=True, capture_output=True, env=_environ(self.here))

    def commit(self, text: str, name: str = "orders.yaml") -> None:
        """A file is other than before."""
        (self.manifests / name).parent.mkdir(parents=True, exist_ok=True)
        (self.manifests / name).write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "-qm", f"Change {name}")
        self.deploy()

    async def start(self, *arguments: str, server: Server | None = None, like: Callable[[Json], bool] = settled) -> Daemon:
        """One more daemon."""
        cli = Command(self.here, (server or self.server).url)
        log = self.here / ("daemon.log" if not self.daemons else f"daemon-{len(self.daemons)}.log")
        options = ("-f", DEPLOYED, "--interval", INTERVAL, "--audit", "on", *arguments)
        running = await self.stack.enter_async_context(daemon(cli, log, *options, ready=False))
        await running.listening()
        self.scraped(JOB, running.url)
        self.daemons.append(running)
        await running.until(like)
        return running

    async def follow(self, text: str) -> None:
        """Does what a page, or a part of it, says."""
        addresses = {"http://127.0.0.1:8080": self.daemon.url}
        await asyncio.to_thread(
            follow, replaced(text, addresses), self.here, _environ(self.here, self.server.url, self.daemon.url)
        )


@asynccontextmanager
async def stage(directory: Path, config: str = "", scraped: Scraped = nobody) -> AsyncIterator[Stage]:
    """A server, and a checkout of `ORDERS` that nobody follows yet."""
    here = directory / "here"
    (here / "manifests").mkdir(parents=True)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(Server(directory / "server", config=config))
        somebody = await stack.enter_async_context(await Somebody.arrive(server.url))
        found = Stage(here, server, somebody, scraped, stack=stack)
        found.git("init", "-q", "-b", "main")
        found.commit(ORDERS)
        deploying = asyncio.create_task(_deploying(found))
        try:
            yield found
        finally:
            deploying.cancel()
            await asyncio.wait({deploying})


async def _deploying(found: Stage) -> None:
    while True:
        await asyncio.sleep(0.2)
        await asyncio.to_thread(found.deploy)


def _environ(here: Path, nats: str = "", http: str = "") -> dict[str, str]:
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _ME.items()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    plain = {"PATH": path, "HOME": str(here), "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
    return names | plain | ({"NATS_URL": nats} if nats else {}) | ({"RECONCILER_DAEMON": http} if http else {})


_ME = {"NAME": "me", "EMAIL": "me@example.org"}
