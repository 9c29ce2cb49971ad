"""`reconciler permissions`: enough, and least, on a server that grants exactly those."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import AccessDenied
from reconciler.model.subjects import covers
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.cluster.servers import free_ports
from tests.support.daemon.command import Command
from tests.support.server.process import Server

Run = tuple[int, dict[str, Any]]
Scenario = Callable[["World", str], list[Run]]

CONSUMER = """\
apiVersion: reconciler/v1
kind: Consumer
metadata: {{name: c, annotations: {{{notes}}}}}
spec: {{stream: S, {more}}}
---
"""
BASE = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {{name: S}}
spec: {{subjects: [s.>], maxAge: {age}}}
---
apiVersion: reconciler/v1
kind: KeyValue
metadata: {{name: settings}}
spec: {{ttl: {age}}}
---
"""


def manifests(*, age: str = "1d", consumer: str = "filterSubjects: [s.a, s.b]", notes: str = "") -> str:
    return BASE.format(age=age) + (CONSUMER.format(notes=notes, more=consumer) if consumer else "")


class World:
    """A server with one user for each grant that is left out, and one (`all`) with every grant."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self._folder = folder

    def call(self, user: str, *arguments: str, text: str) -> Run:
        """The command in this process, as that user; its exit code and the JSON it printed."""
        path = self._folder / "manifests.yaml"
        path.write_text(text, encoding="utf-8")
        login = ["-s", self.server.url, "--user", user, "--password", "pw"]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            command = [*login, *arguments, "-f", str(path), "--format", "json"]
            code = run(command, Terminal({}))
        return code, json.loads(out.getvalue() or "{}") | {"stderr": err.getvalue()}

    def admin(self, work: Callable[[Wire], Awaitable[object]]) -> None:
        """Do something with all rights."""

        async def connected() -> None:
            async with await Wire.connect(self.server.url, user="admin", password="pw") as wire:
                await work(wire)

        asyncio.run(connected())

    def clear(self) -> None:
        """Nothing is left of what happened before."""

        async def delete(wire: Wire) -> None:
            for name in (await wire.expect("STREAM.NAMES"))["streams"] or ():
                await wire.expect(f"STREAM.DELETE.{name}")

        self.admin(delete)


def reading(world: World, user: str) -> list[Run]:
    """A plan that has to look at everything: foreign consumers, and unread messages of a filter that goes."""

    async def prepare(wire: Wire) -> None:
        await wire.expect("CONSUMER.CREATE.KV_settings.other", consumer("KV_settings", "other"))
        await wire.publish("s.b")

    world.call("admin", "apply", "--yes", text=manifests())
    world.admin(prepare)
    return [world.call(user, "plan", text=manifests(consumer="filterSubjects: [s.a]"))]


def applying(world: World, user: str) -> list[Run]:
    """From nothing to declared, and from there to something else."""

    async def prepare(wire: Wire) -> None:
        await wire.expect("CONSUMER.CREATE.KV_settings.other", consumer("KV_settings", "other"))
        await wire.publish("s.b")

    created = world.call(user, "apply", "--yes", text=manifests())
    if created[0]:
        return [created]
    world.admin(prepare)
    more = "filterSubjects: [s.a, s.b], maxDeliver: 7"
    updated = world.call(user, "apply", "--yes", text=manifests(age="2d", consumer=more))
    fewer = world.call(user, "plan", text=manifests(age="2d", consumer="filterSubjects: [s.a]"))
    return [created, updated, fewer]


def pruning(world: World, user: str) -> list[Run]:
    """What `apply` does, and then deletes of what is no longer declared: a consumer, and a stream with a consumer."""
    runs = applying(world, user)
    if len(runs) < 3:
        return runs

    async def prepare(wire: Wire) -> None:
        await wire.expect("CONSUMER.DELETE.KV_settings.other")
        await wire.expect("STREAM.PURGE.S")
        await wire.expect("STREAM.CREATE.FOREIGN", {"name": "FOREIGN"})
        await wire.expect("CONSUMER.CREATE.FOREIGN.other", consumer("FOREIGN", "other"))

    world.admin(prepare)
    without_consumer = world.call(user, "apply", "--yes", "--prune", text=manifests(age="2d", consumer=""))
    stream_alone = manifests(age="2d", consumer="").split("---")[0]
    without_bucket = world.call(user, "apply", "--yes", "--prune", text=stream_alone)
    return [*runs, without_consumer, without_bucket]


def stepping(world: World, user: str) -> list[Run]:
    """What `apply` does, then a filter added above stored messages, then an immutable field changed."""
    allowed = 'reconciler/allow: "recreate"'
    created = world.call(user, "apply", "--yes", text=manifests(consumer="filterSubjects: [s.a]", notes=allowed))
    if created[0]:
        return [created]

    async def work(wire: Wire) -> None:
        await wire.expect("CONSUMER.CREATE.KV_settings.other", consumer("KV_settings", "other"))
        await wire.publish("s.b", 3)
        await wire.publish("s.a", 2)
        await acknowledge(wire, 2)

    world.admin(work)
    added = world.call(user, "apply", "--yes", text=manifests(notes=allowed))
    more = "filterSubjects: [s.a, s.b], replayPolicy: original"
    remade = world.call(user, "apply", "--yes", text=manifests(consumer=more, notes=allowed))
    lower = world.call(user, "apply", "--yes", text=manifests(age="2d", consumer=more, notes=allowed))
    return [created, added, remade, lower]


async def acknowledge(wire: Wire, count: int) -> None:
    """What a worker of c does."""
    for _ in range(count):
        inbox = wire.client.new_inbox()
        pulled = await wire.client.subscribe(inbox)
        await wire.client.publish(wire.subject("CONSUMER.MSG.NEXT.S.c"), b"1", reply=inbox)
        await (await pulled.next_msg(5)).ack_sync(5)


def consumer(stream: str, name: str) -> dict[str, Any]:
    return {"stream_name": stream, "config": {"name": name, "durable_name": name, "ack_policy": "explicit"}}


def essence(runs: list[Run]) -> list[object]:
    """What a run is judged by: exit codes, and what was planned and how it ended."""
    judged: list[object] = []
    for code, document in runs:
        changes = [
            {name: change.get(name) for name in ("key", "action", "result", "reasons")} for change in document.get("changes", ())
        ]
        judged += [code, changes, document.get("notes")]
    return judged


@pytest.fixture
def granted(offline: Command) -> Callable[[str, str], dict[str, Any]]:
    """What `permissions` prints for a mode."""

    def ask(mode: str, text: str) -> dict[str, Any]:
        document: dict[str, Any] = offline("permissions", "-f", "-", "--mode", mode, "--format", "json", stdin=text).json
        return document

    return ask


def users(grants: list[dict[str, Any]]) -> Iterator[str]:
    yield '{user: admin, password: "pw"}'
    for name, left_out in [("all", None), *((f"without-{number}", number) for number in range(len(grants)))]:
        sides: dict[str, list[str]] = {"publish": [], "subscribe": []}
        for number, grant in enumerate(grants):
            if number != left_out:
                sides[grant["operation"]].append(grant["subject"])
        permissions = ", ".join(f"{side}: {{allow: {json.dumps(found)}}}" for side, found in sides.items() if found)
        denied = "" if sides["subscribe"] else ', subscribe: {deny: [">"]}'
        yield f'{{user: {name}, password: "pw", permissions: {{{permissions}{denied}}}}}'


@pytest.mark.parametrize(
    ("mode", "scenario"),
    [("read", reading), ("apply", applying), ("sync", pruning), ("procedures", stepping)],
    ids=["read", "apply", "sync", "procedures"],
)
@pytest.mark.slow
def test_the_grants_are_enough_and_none_can_be_left_out(
    mode: str, scenario: Scenario, granted: Callable[[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    notes = 'reconciler/allow: "recreate"' if mode == "procedures" else ""
    grants = granted(mode, manifests(notes=notes))["grants"]
    config = f"accounts {{ A {{ jetstream: enabled, users: [{', '.join(users(grants))}] }} }}"
    with Server(tmp_path / "server", config=config) as server:
        world = World(server, tmp_path)
        wanted = essence(scenario(world, "admin"))
        world.clear()
        enough = scenario(world, "all")
        assert essence(enough) == wanted, enough
        spare = []
        for number, grant in enumerate(grants):
            if grant["reread"] or grant["proof"]:
                continue
            world.clear()
            if essence(scenario(world, f"without-{number}")) == wanted:
                spare.append(grant)
        assert spare == []


def test_a_consumer_of_a_stream_that_is_not_declared_is_made_anew_with_the_grants(offline: Command, tmp_path: Path) -> None:
    before, after = (
        CONSUMER.format(notes='reconciler/allow: "recreate"', more=f"replayPolicy: {policy}")
        for policy in ("instant", "original")
    )
    conf = offline("permissions", "-f", "-", "--mode", "procedures", stdin=after).out
    config = f'accounts {{ A {{ jetstream: enabled, users: [{{user: admin}}, {{user: u, password: "pw",\n{conf}}}] }} }}'
    with Server(tmp_path / "server", config=config + "\nno_auth_user: admin") as server:
        stream = BASE.format(age="1d").split("---")[0]
        cli = Command(offline.home, server.url)
        cli("--owner", "another", "apply", "-f", "-", "--yes", stdin=stream)
        login = {"NATS_USER": "u", "NATS_PASSWORD": "pw"}
        cli("apply", "-f", "-", "--yes", stdin=before, environ=login)
        cli("apply", "-f", "-", "--yes", stdin=after, environ=login)
        cli("plan", "-f", "-", "--detailed-exitcode", stdin=after, environ=login)


@pytest.mark.parametrize("denied", ["CONSUMER.PAUSE.S.c", "CONSUMER.RESET.S.c"])
def test_a_procedure_whose_request_is_denied_ends_as_everything_that_is_denied(denied: str, tmp_path: Path) -> None:
    publish = f'{{allow: ["$JS.>", "$KV.>", "$SYS.>"], deny: ["$JS.API.{denied}"]}}'
    login = f'{{user: all, password: "pw", permissions: {{publish: {publish}, subscribe: ["_INBOX.>"]}}}}'
    with Server(tmp_path / "server", config=f"authorization {{ users: [{next(users([]))}, {login}] }}") as server:
        world = World(server, tmp_path)
        text = manifests(consumer="filterSubjects: [s.a]")
        assert world.call("admin", "apply", "--yes", text=text)[0] == 0

        async def prepare(wire: Wire) -> None:
            await wire.publish("s.b", 3)
            await wire.publish("s.a", 1)
            await acknowledge(wire, 1)

        world.admin(prepare)
        code, document = world.call("all", "apply", "--yes", text=manifests())
        assert code == 6, document
        (change,) = document["changes"]
        assert change["result"] == "failed"
        assert f'permission denied: publish "$JS.API.{denied}"' in change["error"]
        assert world.call("admin", "plan", text=text)[1]["changes"] == []


REACHED = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: Q}
spec: {subjects: [q.>], retention: workqueue}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: A}
spec: {sources: [{name: Q, consumer: {name: copier, serverManaged: true}}]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: OLD}
spec: {state: absent}
---
"""


def of_the_denied(subject: str, operation: str = "publish") -> tuple[list[str], list[str]]:
    """What somebody asks `permissions` who is denied this: as the command is printed, and all modes that are named beside it."""
    said = str(AccessDenied(operation, subject))
    (command,) = re.findall("`reconciler ([^`]+)`", said)
    return command.split(), re.findall("`--mode ([a-z]+)`", said)


@pytest.mark.parametrize(
    ("subject", "mode", "beside"),
    [
        ("$JS.API.INFO", "read", ["procedures", "daemon"]),
        ("$JS.API.STREAM.LIST", "read", ["procedures", "daemon"]),
        ("$JS.API.CONSUMER.LIST.S", "read", ["procedures", "daemon"]),
        ("$JS.API.STREAM.MSG.GET.S", "read", ["procedures", "daemon"]),
        ("$JS.API.STREAM.CREATE.S", "apply", ["procedures", "daemon"]),
        ("$JS.API.STREAM.UPDATE.KV_settings", "apply", ["procedures", "daemon"]),
        ("$JS.API.CONSUMER.CREATE.S.c", "apply", ["procedures", "daemon"]),
        ("$JS.API.STREAM.DELETE.OLD", "apply", ["procedures", "daemon", "sync"]),
        ("$JS.API.STREAM.MSG.GET.KV_reconciler-default", "apply", ["procedures", "daemon"]),
        ("$KV.reconciler-default.writer", "apply", ["procedures", "daemon"]),
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", "apply", ["procedures", "daemon"]),
        ("$JS.API.STREAM.INFO.S", "procedures", ["read", "daemon"]),
        ("$JS.API.CONSUMER.INFO.S.c", "procedures", ["read", "daemon"]),
        ("$JS.API.CONSUMER.PAUSE.S.c", "procedures", ["daemon"]),
        ("$JS.API.CONSUMER.RESET.S.c", "procedures", ["daemon"]),
        ("$JS.API.STREAM.PURGE.Q", "procedures", ["daemon"]),
        ("$JS.API.CONSUMER.DELETE.S.c", "procedures", ["daemon", "sync"]),
        ("$JS.API.CONSUMER.CREATE.S._reconciler_hold_c", "procedures", ["daemon"]),
        ("$JS.API.CONSUMER.DELETE.Q.copier", "procedures", ["daemon", "sync"]),
    ],
)
def test_what_is_denied_is_in_what_the_error_says_to_print(
    subject: str, mode: str, beside: list[str], offline: Command, tmp_path: Path
) -> None:
    command, others = of_the_denied(subject)
    assert (command, others) == (["permissions", "-f", "PATH", "--mode", mode], beside)
    path = tmp_path / "manifests.yaml"
    path.write_text(REACHED + manifests(notes='reconciler/allow: "recreate"'), encoding="utf-8")
    modes = [mode, *others]
    if "read" in others:
        modes.remove("read")  # of a plan: only where a stream copies
    for one in modes:
        as_said = [str(path) if word == "PATH" else one if word == mode else word for word in command]
        allowed = offline(*as_said, "--format", "json").json["permissions"]["publish"]["allow"]
        assert any(covers(granted, subject) for granted in allowed), (one, allowed)


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.GONE", "$JS.API.CONSUMER.DELETE.S.gone"])
def test_what_is_denied_to_who_prunes_is_printed_with_the_mode_beside(subject: str, offline: Command) -> None:
    command, others = of_the_denied(subject)
    as_said = ["-" if word == "PATH" else word for word in command]
    without = offline(*as_said, "--format", "json", stdin=manifests()).json["permissions"]["publish"]["allow"]
    assert not any(covers(granted, subject) for granted in without)
    with_it = offline(*as_said, "--mode", others[-1], "--format", "json", stdin=manifests()).json
    assert any(covers(granted, subject) for granted in with_it["permissions"]["publish"]["allow"])


def test_who_may_not_hear_answers_is_granted_that_with_every_mode(offline: Command) -> None:
    command, others = of_the_denied("_INBOX.x.*", "subscribe")
    for mode in (command[-1], *others):
        document = offline("permissions", "-f", "-", "--mode", mode, "--format", "json", stdin=manifests()).json
        assert any(covers(granted, "_INBOX.x.*") for granted in document["permissions"]["subscribe"]["allow"])


def test_the_text_is_configuration_that_a_server_takes(offline: Command, tmp_path: Path) -> None:
    conf = offline("permissions", "-f", "-", "--mode", "apply", stdin=manifests()).out
    config = f'accounts {{ A {{ jetstream: enabled, users: [{{user: u, password: "pw",\n{conf}}}] }} }}'
    with Server(tmp_path / "server", config=config) as server:
        cli = Command(offline.home, server.url)
        cli("apply", "-f", "-", "--yes", stdin=manifests(), environ={"NATS_USER": "u", "NATS_PASSWORD": "pw"})


def test_other_domains_and_inboxes(offline: Command) -> None:
    leaf = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: S}\nspec: {subjects: [s], domain: leaf}\n"
    flags = ("--inbox-prefix", "_INBOX_ann", "--js-api-prefix", "other.API")
    document = offline(*flags, "permissions", "-f", "-", "--mode", "apply", "--format", "json", stdin=leaf).json
    publish = document["permissions"]["publish"]["allow"]
    assert "$JS.leaf.API.STREAM.CREATE.S" in publish
    assert "other.API.STREAM.INFO.KV_reconciler-default" in publish
    assert "other.API.$KV.reconciler-default.writer" in publish
    assert document["permissions"]["subscribe"]["allow"] == ["_INBOX_ann.>"]


def test_modes_add_up(offline: Command) -> None:
    def subjects(*modes: str) -> set[str]:
        flags = [flag for mode in modes for flag in ("--mode", mode)]
        document = offline("permissions", "-f", "-", *flags, "--format", "json", stdin=manifests()).json
        return {grant["subject"] for grant in document["grants"]}

    assert subjects("read") < subjects("apply") < subjects("procedures") < subjects("daemon")
    assert "$JS.API.STREAM.DELETE.*" not in subjects("daemon")
    assert "$JS.API.STREAM.DELETE.*" in subjects("daemon", "sync")


COPY = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {{name: S}}
spec: {{subjects: [s.>], retention: {retention}}}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {{name: A}}
spec: {{sources: [{{name: S{consumer}}}]}}
"""
KEPT = ", consumer: {name: c, serverManaged: true}"


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_the_grants_are_enough_for_a_source_that_gets_a_durable(retention: str, offline: Command, tmp_path: Path) -> None:
    managed = COPY.format(retention=retention, consumer=KEPT)
    conf = offline("permissions", "-f", "-", "--mode", "procedures", stdin=managed).out
    config = f'accounts {{ A {{ jetstream: enabled, users: [{{user: u, password: "pw",\n{conf}}}] }} }}'
    with Server(tmp_path / "server", config=config) as server:
        cli = Command(offline.home, server.url)
        login = {"NATS_USER": "u", "NATS_PASSWORD": "pw"}
        cli("apply", "-f", "-", "--yes", stdin=COPY.format(retention=retention, consumer=""), environ=login)
        cli("apply", "-f", "-", "--yes", stdin=managed, environ=login)
        cli("plan", "-f", "-", "--detailed-exitcode", stdin=managed, environ=login)


FOREIGN = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: S}}\nspec: {{subjects: [s]{more}}}\n"


def _first_start(server: Server, folder: Path, text: str) -> None:
    """With every grant, beside a stream of somebody else with a consumer that nobody may look at: nobody waits."""

    async def prepare(wire: Wire) -> None:
        await wire.expect("STREAM.CREATE.FOREIGN", {"name": "FOREIGN"})
        await wire.expect("CONSUMER.CREATE.FOREIGN.other", consumer("FOREIGN", "other"))

    world = World(server, folder)
    world.admin(prepare)
    began = time.monotonic()
    code, document = world.call("all", "apply", "--yes", text=text)
    assert (code, time.monotonic() - began < 3.0) == (0, True), document
    assert not {"late", "waiting"} & set(document["stderr"].split())


def test_the_first_start_with_these_grants_takes_nothing_foreign_for_a_leader(
    granted: Callable[[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    text = FOREIGN.format(more="")
    found = users(granted("daemon", text)["grants"])
    config = f"authorization {{ users: [{next(found)}, {next(found)}] }}"
    with Server(tmp_path / "server", config=config) as server:
        _first_start(server, tmp_path, text)


def test_nor_does_it_wait_where_all_is_declared_in_another_domain(
    granted: Callable[[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    """Nothing may be read in its own."""
    text = FOREIGN.format(more=", domain: leaf")
    found = users(granted("daemon", text)["grants"])
    (port,) = free_ports(1)
    config = f'leafnodes {{ listen: "127.0.0.1:{port}" }}\nauthorization {{ users: [{next(found)}, {next(found)}] }}'
    remote = f'leafnodes {{ remotes: [{{ url: "nats-leaf://admin:pw@127.0.0.1:{port}" }}], reconnect: "1s" }}'
    with (
        Server(tmp_path / "hub", jetstream="domain: hub", config=config) as hub,
        Server(tmp_path / "leaf", jetstream="domain: leaf", config=remote),
    ):

        async def joined() -> None:
            async with await Wire.connect(hub.url, user="admin", password="pw") as wire:

                async def answering() -> bool:
                    try:
                        await wire.client.request("$JS.leaf.API.INFO", b"", timeout=0.5)
                    except Exception:  # noqa: BLE001 - nobody there yet, in one way or another
                        return False
                    return True

                await until(answering)

        asyncio.run(joined())
        _first_start(hub, tmp_path, text)
