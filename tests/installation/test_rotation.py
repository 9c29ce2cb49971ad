"""Credentials are rotated under a running daemon, in the order of the page on operating and in the other one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # it ships no types

from tests.support.account.credentials import Identity
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server

STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: ORDERS}\nspec: {subjects: [orders.>]}\n"


class Accounts:
    """A server, and the users who may log in to it."""

    def __init__(self, folder: Path, *users: Identity) -> None:
        self.server = Server(folder / "server", config=self._block(users))

    def admit(self, *users: Identity) -> None:
        """From now on these and no others; the connections of others are closed."""
        text = self.server.config.read_text(encoding="utf-8")
        head, found, _ = text.partition("authorization")
        assert found
        self.server.config.write_text(head + self._block(users), encoding="utf-8")
        os.kill(self.server.pid, signal.SIGHUP)

    def _block(self, users: tuple[Identity, ...]) -> str:
        return f"authorization {{ users: [{', '.join(f'{{ nkey: {user.public} }}' for user in users)}] }}"


def replace(file: Path, user: Identity) -> None:
    """The seed of another user in the place of what is there."""
    new = file.with_suffix(".new")
    new.write_text(f"{user.seed}\n", encoding="utf-8")
    new.rename(file)


async def back(running: Daemon, reconnects: int) -> None:
    """Waits until it is connected once more, and everything is in place."""
    await running.until(settled)
    assert await running.metric("reconciler_nats_reconnects_total") == reconnects


async def test_a_new_login_is_taken_without_a_restart_whichever_order_it_is_done_in(tmp_path: Path) -> None:
    first, second, third = (Identity(nkeys.PREFIX_BYTE_USER) for _ in range(3))
    manifests, file = tmp_path / "manifests", tmp_path / "user.nk"
    manifests.mkdir()
    (manifests / "orders.yaml").write_text(STREAM, encoding="utf-8")
    replace(file, first)
    accounts = Accounts(tmp_path, first)
    with accounts.server as server:
        cli = Command(tmp_path, server.url)
        async with daemon(cli, tmp_path / "log", "-f", manifests, NATS_NKEY=str(file)) as running:
            await running.until(settled)
            accounts.admit(first, second)
            replace(file, second)
            assert (await running.status())["connected"]
            accounts.admit(second)  # the old one is revoked when the new one is there
            await running.until(lambda _: bool(running.lines("nats.disconnected") or running.lines("nats.connected")[1:]))
            await back(running, 1)
            accounts.admit(third)  # and the other way round: revoked first
            await running.until(lambda document: not document["connected"])
            assert (await running.get("/livez"))[0] == 200
            assert (await running.get("/readyz"))[0] == 503
            replace(file, third)
            await back(running, 2)
            assert running.pid
