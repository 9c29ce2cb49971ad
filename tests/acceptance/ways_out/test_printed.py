"""Commands that are printed beside what is no `Reason`: each is copied from there, run as it stands, and helps.

Which manifests are meant a command knows from RECONCILER_FILE, and which daemon from RECONCILER_DAEMON, as a shell has them set.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.account.guarded import Guarded, consumer, gone, stream
from tests.support.account.lease import hold
from tests.support.account.meddling import watched
from tests.support.account.ways import commands_in, handled
from tests.support.account.wire import Wire
from tests.support.daemon.command import Command, Ended
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values import catalogues
from tests.support.values.manifests import written

LATER = "2099-01-01T00:00:00Z"


def run(cli: Command, printed: str, code: int = 0, **environ: str | Path) -> Ended:
    """The one command in what was printed."""
    (arguments,) = commands_in(printed)
    return cli(*arguments, code=code, environ={name: str(value) for name, value in environ.items()})


def refused(cli: Command, *arguments: str | Path, code: int) -> str:
    """The error of a command."""
    ended = cli(*arguments, code=code)
    assert ended.err.startswith("error: ")
    return ended.err


def test_without_a_terminal_a_plan_shows_what_would_be_written(cli: Command, catalogue: Path) -> None:
    said = refused(cli, "apply", "-f", catalogue, code=64)
    assert "Plan: 3 to create" in run(cli, said, RECONCILER_FILE=catalogue).out
    assert said.rstrip().endswith("then give --yes")
    cli("apply", "-f", catalogue, "--yes")


async def test_without_a_terminal_the_lease_can_be_looked_at(cli: Command, server: Server) -> None:
    connection, _ = await hold(server)
    async with connection:
        assert "elsewhere (pid 4711" in run(cli, refused(cli, "lease", "release", code=64)).out


async def test_without_a_terminal_the_status_shows_what_would_be_given_up(cli: Command, catalogue: Path) -> None:
    cli("apply", "-f", catalogue, "--yes")
    assert "Stream/PAYMENTS" in run(cli, refused(cli, "disown", "Stream/PAYMENTS", code=64)).out


def test_resources_of_another_owner_are_shown_to_who_says_its_name(cli: Command, catalogue: Path) -> None:
    cli("--owner", "them", "apply", "-f", catalogue, "--yes")
    assert "Status: 3 Synced" in run(cli, cli("status").out + cli("status").err).out


async def test_what_differs_is_said_with_the_manifests(cli: Command, catalogue: Path, wire: Wire) -> None:
    cli("apply", "-f", catalogue, "--yes")
    config = (await wire.stream_info("PAYMENTS"))["config"]
    await wire.expect("STREAM.UPDATE.PAYMENTS", config | {"max_bytes": 10**6})
    (said,) = (line for line in cli("status").out.splitlines() if "Stream/PAYMENTS" in line)
    (arguments,) = re.findall("`(status -f)`", said)
    assert "maxBytes" in cli(*arguments.split(), catalogue).out


async def test_what_somebody_paused_is_resumed(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"), consumer("S"))
    await wire.publish("S.a", 2)
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
    run(guarded.cli, guarded.cli("status", "-f", guarded.directory / "x.yaml").out)
    assert await handled(wire, "S") == [0, 1]


async def test_what_was_suspended_is_taken_up_again(cli: Command, server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, [catalogues.stream("S", "S.>")]) as place:
        said = cli("suspend", "Stream/S", "--daemon", place.daemon.url).out
        await place.somebody.edit("S", max_msgs=7)
        await place.daemon.looked()
        assert (await place.somebody.config("S"))["max_msgs"] == 7
        run(cli, said)
        await place.somebody.until_like({"max_msgs": -1}, "S")


async def test_what_a_daemon_looked_at_is_in_its_status(cli: Command, server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, [catalogues.stream("S", "S.>")]) as place:
        assert "Stream/S" in run(cli, cli("reconcile", "--daemon", place.daemon.url).out).out


async def test_a_daemon_that_is_not_there_is_started(cli: Command, catalogue: Path, tmp_path: Path) -> None:
    (arguments,) = commands_in(refused(cli, "status", "--daemon", "http://127.0.0.1:1", code=6))
    assert arguments == ["run"]
    async with daemon(cli, tmp_path / "log", RECONCILER_FILE=str(catalogue)) as running:
        await running.until(settled)
        assert "Status: 3 Synced" in cli("status", "--daemon", running.url).out


def test_all_problems_are_in_the_json(offline: Command, tmp_path: Path) -> None:
    many = written(tmp_path, *(stream(f"S{number}", nope=1) for number in range(1001)))
    ended = offline("plan", "-f", many, code=4)
    (line,) = (line for line in ended.err.splitlines() if "not shown" in line)
    (more,) = re.findall(r"and (\d+) more problem", line)
    assert len(run(offline, line, code=4, RECONCILER_FILE=many).json["problems"]) == 1000 + int(more)


def test_a_saved_plan_that_is_none_is_written_anew(cli: Command, catalogue: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text("{}", encoding="utf-8")
    (printed,) = re.findall(r"write a new one with `(plan --out)`", cli("apply", saved, "--yes", code=4).err)
    cli(*printed.split(), saved, "-f", catalogue)
    assert "Apply: 3 applied" in cli("apply", saved, "--yes").out


@pytest.mark.parametrize("command", ["apply", "plan", "validate"])
def test_a_saved_plan_that_is_given_like_manifests(cli: Command, catalogue: Path, tmp_path: Path, command: str) -> None:
    saved = tmp_path / "saved-plan.json"
    cli("plan", catalogue, "--out", saved)
    ended = cli(command, "-f", saved, *(["--yes"] if command == "apply" else []), code=4)
    first, *rest = (ended.out + ended.err).splitlines()
    assert "plan-file: this is a saved plan" in first
    assert [line for line in rest if "saved-plan" in line] == []
    ((*arguments, file),) = commands_in(first)
    assert file == "FILE"
    assert "Apply: 3 applied" in cli(*arguments, saved, "--yes").out


def test_a_plan_that_was_printed_and_is_given_like_manifests(cli: Command, catalogue: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.json"
    printed.write_text(cli("plan", catalogue, "-o", "json").out, encoding="utf-8")
    said = cli("apply", "-f", printed, "--yes", code=4).err
    assert len([line for line in said.splitlines() if "plan-file: this is a plan that was printed" in line]) == 1
    ((*out, file),) = (each.split() for each in re.findall("`(plan --out [^`]+)`", said))
    assert file == "FILE"
    cli(*out, printed, catalogue)
    ((*arguments, _),) = commands_in(said)
    assert "Apply: 3 applied" in cli(*arguments, printed, "--yes").out


def test_a_usage_error_names_the_help(offline: Command) -> None:
    said = offline("consumer", "reset", "S", "c", "--sequence", "1", code=64).err
    assert "--seq" in run(offline, said).out


def test_the_rest_is_applied_although_something_is_blocked(cli: Command, tmp_path: Path) -> None:
    file = written(tmp_path, stream("S"), "kind: Stream\nmetadata: {name: THEIRS}\nspec: {state: unmanaged}")
    said = cli("apply", "-f", file, "--yes", code=3).err
    (flag,) = re.findall(r"With (--\w+) the changes", said)
    assert "1 applied" in cli("apply", "-f", file, "--yes", flag, code=5).out


@pytest.mark.parametrize(("command", "mode"), [("plan", "read"), ("status", "read"), ("apply", "procedures")])
def test_what_a_user_may_not_is_granted(command: str, mode: str, offline: Command, catalogue: Path, tmp_path: Path) -> None:
    """As it stands for who looks, and with the mode beside it for who applies."""

    def users(permissions: str) -> str:
        return f"authorization {{ users: [{{ user: us, password: pw, {permissions} }}] }}"

    few = 'permissions: { publish: ["$JS.API.INFO"], subscribe: ["_INBOX.>"] }'
    doing: tuple[str | Path, ...] = (command, "-f", catalogue, *(["--yes"] if command == "apply" else []))
    with Server(tmp_path / "server", config=users(few)) as server:
        cli = Command(offline.home, server.url.replace("//", "//us:pw@"))
        said = cli(*doing, code=6).err
        (printed,) = commands_in(said)
        assert printed[-1] == mode or f"to {command}: `--mode {mode}`" in said
        permissions = cli(*printed[:2], catalogue, "--mode", mode).out
        assert printed[2] == "PATH"
        server.reload(users(permissions))
        cli(*doing)


async def test_what_is_unused_is_deleted(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"))
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c", "durable_name": "c"}})
    said = guarded.cli("unused", "--for", "0s").out
    (state, flag) = re.findall("`([^`]+)`", said)
    assert state == "state: absent"
    guarded.apply(gone("Consumer", "c", stream="S"), flags=[flag])
    assert (await wire.expect("CONSUMER.NAMES.S"))["consumers"] in ([], None)


def test_what_an_export_says_it_was_made_with(cli: Command, catalogue: Path) -> None:
    cli("apply", "-f", catalogue, "--yes")
    exported = cli("export").out
    (export, schema) = commands_in(exported.splitlines()[0])
    assert cli(*export).out == exported
    assert cli(*schema).json["$schema"]
