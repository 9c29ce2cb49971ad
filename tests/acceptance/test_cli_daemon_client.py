"""The commands that talk to a running daemon, against the documented endpoints on a real socket."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from aiohttp import web

from reconciler.errors import Problem, UsageError
from reconciler.model.identity import Key
from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.status import board
from reconciler.observe.status.board import Board
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff, Reason
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.cluster.servers import free_ports
from tests.support.daemon.command import Command, Ended
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.values import build
from tests.support.values.contract import STATUS, conforms

ONE = Key("Consumer", "one", "S")
DECLARED = build.desired(build.stream("S"), build.consumer("S", "one"), build.consumer("S", "two"), revision="r1")


class Daemon:
    """The endpoints of a daemon, and what they were asked."""

    def __init__(self) -> None:
        self.board = Board(time.time_ns, board.Process(pid=7, host="box", version="1.2.3", owner="default"))
        self.board.connection(True, "nats://127.0.0.1:4222")
        self.board.looked(DECLARED, build.live(), ())
        self.board.manifests("r1")
        self.asked: list[tuple[str, str | None]] = []
        self.token = ""
        self.answer: web.Response | None = None
        self.limit = 10_000
        self.url = ""
        self.looks = 0

    def asked_twice_more(self) -> Callable[[], Awaitable[bool]]:
        """Whether the status was asked for twice from now on: the first answer has been dealt with by then."""
        enough = self.looks + 2

        async def asked() -> bool:
            return self.looks >= enough

        return asked

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Everything there is."""
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": "a token is needed"}, status=401)
        if self.answer is not None:
            return self.answer
        if request.method == "POST":
            self.asked.append((request.path, request.query.get("key")))
            return web.json_response({"accepted": request.path})
        self.looks += 1
        limit = min(int(request.query.get("limit", 500)), self.limit)
        try:
            document = self.board.document(StatusQuery(limit=limit, cursor=request.query.get("cursor", "")))
        except UsageError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.Response(body=orjson.dumps(document), content_type="application/json")


@asynccontextmanager
async def serving(daemon: Daemon, port: int = 0) -> AsyncIterator[Daemon]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", daemon.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    daemon.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield daemon
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with serving(Daemon()) as running:
        yield running


def drift(key: Key) -> Change:
    return Change(key=key, action=Action.UPDATE, cause=Cause.DRIFT, fields=(FieldDiff("ackWait", "1s", "2s"),))


@pytest.mark.parametrize(
    ("command", "path", "said"),
    [
        (("reconcile", str(ONE)), "/-/reconcile", "Consumer/S/one is looked at now"),
        (("suspend", str(ONE)), "/-/suspend", "Consumer/S/one is left alone until"),
        (("resume", str(ONE)), "/-/resume", "Consumer/S/one is taken up again"),
        (("procedure", "abort", str(ONE)), "/-/procedure/abort", "takes back what it can"),
        (("procedure", "retry", str(ONE)), "/-/procedure/retry", "begins again"),
    ],
)
async def test_an_order_is_given_and_told_in_one_line(
    offline: Command, daemon: Daemon, command: tuple[str, ...], path: str, said: str
) -> None:
    ended = await ran(offline, *command, "--daemon", daemon.url)
    assert daemon.asked == [(path, str(ONE))]
    assert said in ended.out
    assert len(ended.out.splitlines()) == 1
    ended = await ran(offline, *command, "--format", "json", RECONCILER_DAEMON=daemon.url)
    assert (ended.json["action"], ended.json["key"]) == (path.removeprefix("/-/"), str(ONE))


async def test_reconcile_without_a_key_is_about_everything(offline: Command, daemon: Daemon) -> None:
    assert (await ran(offline, "reconcile", "--daemon", daemon.url)).out.startswith("everything is looked at now")
    assert daemon.asked == [("/-/reconcile", None)]


async def test_a_key_in_another_domain_arrives_as_it_is(offline: Command, daemon: Daemon) -> None:
    key = "leaf:Consumer/A+B/c&d=e"
    await ran(offline, "suspend", key, "--daemon", daemon.url)
    assert daemon.asked == [("/-/suspend", key)]


ASKING = [("status",), ("graph",), ("reconcile",), ("suspend", str(ONE)), ("procedure", "list"), ("procedure", "abort", str(ONE))]


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
@pytest.mark.parametrize("as_flag", [True, False], ids=["flag", "variable"])
async def test_a_daemon_of_another_owner_than_was_said_is_left_alone(
    offline: Command, daemon: Daemon, command: tuple[str, ...], *, as_flag: bool
) -> None:
    async def asked(owner: str, code: int) -> Ended:
        said = ("--owner", owner) if as_flag else ()
        environ = {} if as_flag else {"RECONCILER_OWNER": owner}
        return await ran(offline, *said, *command, "--daemon", daemon.url, code=code, **environ)

    refused = await asked("nobody", 3)
    assert f"the daemon at {daemon.url} works for the owner 'default', not for 'nobody'" in refused.err
    assert (refused.out, daemon.asked) == ("", [])
    (way_out,) = re.findall("`--owner (.+?)`", refused.err)
    await asked(way_out, 0)


@pytest.mark.parametrize("owner", ["default", "default/dev"])
async def test_the_environment_is_part_of_the_owner_that_a_daemon_works_for(offline: Command, daemon: Daemon, owner: str) -> None:
    process = dataclasses.replace(daemon.board.process, owner="default/dev")
    daemon.board = Board(time.time_ns, process)
    for looked in (False, True):
        if looked:
            daemon.board.connection(True, "nats://127.0.0.1:4222")
            daemon.board.looked(dataclasses.replace(DECLARED, environment="dev"), build.live(), ())
        assert bool(daemon.board.not_ready()) is not looked
        await ran(offline, "--owner", owner, "suspend", str(ONE), "--daemon", daemon.url)
        for other in ("shop", "default/prod"):
            assert f"not for '{other}'" in (await ran(offline, "--owner", other, "status", "--daemon", daemon.url, code=3)).err
    assert daemon.asked == [("/-/suspend", str(ONE))] * 2


async def test_where_nobody_listens(offline: Command) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    for command in (("reconcile",), ("procedure", "list"), ("status",)):
        ended = await ran(offline, *command, "--daemon", url, code=6)
        assert f"no daemon at {url}: start one with `reconciler run`, or give --daemon URL" in ended.err


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (409, 3, "error: because of that"),
        (400, 64, "error: because of that"),
        (403, 6, "does not let us do that (because of that)"),
        (401, 6, "--http-token or RECONCILER_HTTP_TOKEN"),
        (404, 6, "is no reconciler daemon"),
        (500, 1, "answered 500: because of that"),
        (503, 6, "does not serve just now (503: because of that)"),
    ],
)
async def test_a_refusal_has_its_message_and_its_exit_code(
    offline: Command, daemon: Daemon, status: int, code: int, said: str
) -> None:
    daemon.answer = web.json_response({"error": "because of that"}, status=status)
    ended = await ran(offline, "suspend", "Stream/S", "--daemon", daemon.url, code=code)
    assert said in ended.err
    assert ended.out == ""


async def test_a_token_is_sent_and_never_shown(offline: Command, daemon: Daemon) -> None:
    daemon.token = "hunter2"
    await ran(offline, "reconcile", "--daemon", daemon.url, "--http-token", "hunter2")
    await ran(offline, "reconcile", RECONCILER_DAEMON=daemon.url, RECONCILER_HTTP_TOKEN="hunter2")
    assert len(daemon.asked) == 2
    refused = await ran(offline, "reconcile", "--daemon", daemon.url, "--http-token", "hunter3", code=6)
    assert "hunter" not in refused.err


@pytest.mark.parametrize("url", ["", "box", "ftp://box", "http://", "http://box:port", "nats://127.0.0.1:4222"])
async def test_a_url_that_is_none(offline: Command, url: str) -> None:
    ended = await ran(offline, "reconcile", f"--daemon={url}", code=64)
    assert "daemon" in ended.err


@pytest.mark.parametrize("body", ["hello", "[]", '{"kind": "Status"}', '{"kind": "Plan"}'])
async def test_what_is_no_daemon_is_told_apart(offline: Command, daemon: Daemon, body: str) -> None:
    daemon.answer = web.Response(text=body)
    ended = await ran(offline, "status", "--daemon", daemon.url, code=6)
    assert "is no reconciler daemon" in ended.err


async def test_procedures_are_listed(offline: Command, daemon: Daemon) -> None:
    assert (await ran(offline, "procedure", "list", "--daemon", daemon.url)).out == "no procedure is running\n"
    daemon.board.progressing(ONE, "filter-add", "reset to 17")
    listed = await ran(offline, "procedure", "list", "--daemon", daemon.url)
    assert "running" in listed.out
    assert "Consumer/S/one  filter-add: reset to 17" in listed.out
    ended = await ran(offline, "procedure", "list", "--daemon", daemon.url, "--format", "json")
    assert [(one["key"], one["state"]) for one in ended.json["procedures"]] == [("Consumer/S/one", "running")]


async def test_status_shows_what_the_daemon_knows(offline: Command, daemon: Daemon) -> None:
    about = daemon.board
    about.leadership(True, "box (pid 7)")
    about.drifted(ONE, ("ackWait",), Author("nats CLI", "app", ""))
    about.settled(ONE)
    about.failed(Key("Consumer", "two", "S"), "no answer within 5s", 30.0)
    about.progressing(Key("Stream", "S"), "move-subject", "shrink")
    about.manifests("r1", (Problem("a.yaml", 3, 1, "bad-value", "no such thing"),))
    about.audit("shed", 5000.0)
    about.full_plan(refused=(Reason("mass-change", "40 % would change"),), counts={"update": 2})
    shown = (await ran(offline, "status", "--daemon", daemon.url)).out
    for expected in (
        "Daemon: box (pid 7, version 1.2.3), started",
        "Owner: default\n",
        "Writer: box (pid 7)",
        "a.yaml:3:1: bad-value: no such thing",
        "Refused: mass-change: 40 % would change",
        "API audit: shed",
        "s ago: ackWait by nats CLI (user app), repaired",
        "no answer within 5s; tried again at 20",
        "Stream/S  move-subject: shrink, since",
    ):
        assert expected in shown
    assert shown.splitlines()[-1] == "Status: 1 Synced, 1 Progressing, 1 Error"


async def test_status_as_json_joins_all_pages(offline: Command, daemon: Daemon) -> None:
    daemon.limit = 1
    document = (await ran(offline, "status", "--daemon", daemon.url, "--format", "json")).json
    conforms(document, STATUS)
    assert [resource["key"] for resource in document["resources"]] == ["Stream/S", "Consumer/S/one", "Consumer/S/two"]
    assert document["cursor"] is None


async def test_status_wait_returns_when_the_daemon_is_done(offline: Command, daemon: Daemon) -> None:
    daemon.board.looked(DECLARED, build.live(), [drift(ONE)])
    late = await ran(offline, "status", "--daemon", daemon.url, "--wait", "--timeout", "1s", code=1)
    assert "OutOfSync" in late.out
    async with live(offline, "status", "--daemon", daemon.url, "--wait") as waiting:
        await until(daemon.asked_twice_more())
        assert waiting.returncode is None
        daemon.board.settled(ONE)
        await reads(waiting.stdout, "Status: 3 Synced")
        assert await waiting.wait() == 0


async def test_status_wait_is_not_content_with_manifests_that_are_wrong(offline: Command, daemon: Daemon) -> None:
    daemon.board.manifests("r1", (Problem("a.yaml", 3, 1, "bad-value", "no"),))
    await ran(offline, "status", "--daemon", daemon.url, "--wait", "--timeout", "1s", code=1)


async def test_status_wait_waits_for_a_daemon_that_is_only_starting(offline: Command) -> None:
    port = free_ports(1)[0]
    async with live(offline, "status", "--daemon", f"http://127.0.0.1:{port}", "--wait") as waiting:
        assert "no daemon at" in await reads(waiting.stderr, "trying again")
        async with serving(Daemon(), port):
            await reads(waiting.stdout, "Status: 3 Synced")
            assert await waiting.wait() == 0


async def test_status_watch_prints_what_changes(offline: Command, daemon: Daemon) -> None:
    async with live(offline, "status", "--daemon", daemon.url, "--watch") as watching:
        await reads(watching.stdout, "Status: 3 Synced")
        await until(daemon.asked_twice_more())
        daemon.board.looked(DECLARED, build.live(), [drift(ONE)])
        assert "OutOfSync" in await reads(watching.stdout, "Consumer/S/one")  # nothing was printed in between
        await reads(watching.stdout, "Status: 2 Synced, 1 OutOfSync")
        watching.send_signal(signal.SIGTERM)
        assert await watching.wait() == 130


async def test_status_watch_survives_a_restart_of_the_daemon(offline: Command) -> None:
    daemon, port = Daemon(), free_ports(1)[0]
    async with AsyncExitStack() as first, AsyncExitStack() as both:
        await first.enter_async_context(serving(daemon, port))
        watching = await both.enter_async_context(live(offline, "status", "--daemon", daemon.url, "--watch"))
        await reads(watching.stdout, "Status: 3 Synced")
        await first.aclose()
        await reads(watching.stderr, "trying again")
        daemon.board.looked(DECLARED, build.live(), [drift(ONE)])
        await both.enter_async_context(serving(daemon, port))
        await reads(watching.stdout, "Status: 2 Synced, 1 OutOfSync")


async def test_status_watch_of_a_daemon_that_never_was_there_ends_at_once(offline: Command) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert "no daemon at" in (await ran(offline, "status", "--daemon", url, "--watch", code=6)).err


async def test_a_daemon_has_manifests_of_its_own(offline: Command, daemon: Daemon, catalogue: Path) -> None:
    ended = await ran(offline, "status", "--daemon", daemon.url, "-f", catalogue, code=64)
    assert "either --daemon or -f" in ended.err
    shown = await ran(offline, "status", "--daemon", daemon.url, RECONCILER_FILE=str(catalogue))
    assert "Daemon: " in shown.out


async def test_manifests_on_the_command_line_count_more_than_a_daemon_in_the_environment(
    cli: Command, daemon: Daemon, catalogue: Path
) -> None:
    shown = await ran(cli, "status", "-f", catalogue, RECONCILER_DAEMON=daemon.url)
    assert "Daemon: " not in shown.out
    assert "Stream/PAYMENTS" in shown.out


async def test_status_watch_on_nats_survives_a_lost_connection(cli: Command, server: Server, catalogue: Path) -> None:
    await ran(cli, "apply", "-f", catalogue, "--yes")
    async with live(cli, "status", "-f", str(catalogue), "--watch", NATS_TIMEOUT="1s") as watching:
        await reads(watching.stdout, "Status: 3 Synced")
        server.kill()
        await reads(watching.stderr, "trying again")
        server.start()
        async with await Wire.connect(server.url) as wire:
            await wire.expect("CONSUMER.DELETE.PAYMENTS.billing", {})
        await reads(watching.stdout, "Status: 2 Synced, 1 OutOfSync")
        watching.send_signal(signal.SIGTERM)
        assert await watching.wait() == 130


@asynccontextmanager
async def live(cli: Command, *arguments: str, **environ: str) -> AsyncIterator[Process]:
    """Run the command, its output readable while it goes on; it is gone when the block is left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reconciler",
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
        env=cli.environ(environ),
        cwd=cli.home,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def reads(stream: asyncio.StreamReader | None, text: str) -> str:
    """Waits for a line with this text in it."""
    assert stream is not None
    async with asyncio.timeout(30):
        async for line in stream:
            if text in line.decode():
                return line.decode()
    pytest.fail(f"it ended without saying {text!r}")
