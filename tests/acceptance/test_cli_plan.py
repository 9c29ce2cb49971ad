"""Plan, diff, apply and status on a real server, from outside."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.values.catalogues import write
from tests.support.values.contract import APPLIED, PLAN, STATUS, conforms

DEFAULT_SET = Path(__file__).parents[2] / "manifests"
QUESTION = "Only 'yes' goes on: "
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: {name}}}\nspec: {{subjects: [{name}.>], {more}}}\n"


def stream(name: str, more: str = "") -> str:
    return STREAM.format(name=name, more=more)


async def test_the_catalogue_applies_once_and_then_is_in_place(cli: Command, catalogue: Path, wire: Wire) -> None:
    plan = cli("plan", "-f", catalogue)
    assert plan.out.splitlines()[-1] == "Plan: 3 to create, 0 to update, 0 to delete"
    assert (await wire.call("STREAM.NAMES"))["total"] == 0
    applied = cli("apply", "-f", catalogue, "--yes")
    assert applied.out.splitlines()[-1] == "Apply: 3 applied"
    assert (await wire.consumer_info("PAYMENTS", "billing"))["config"]["ack_wait"] == 30 * 10**9
    async with wire.audit() as audit:
        again = cli("apply", "-f", catalogue, "--yes")
    assert audit.writes() == []
    assert again.out.splitlines()[-1] == "Plan: 0 to create, 0 to update, 0 to delete"


def test_plan_exit_codes(cli: Command, catalogue: Path) -> None:
    assert cli("plan", "-f", catalogue, "--detailed-exitcode", code=2).err == ""
    cli("plan", "-f", catalogue)
    cli("apply", "-f", catalogue, "--yes")
    cli("plan", "-f", catalogue, "--detailed-exitcode")


def test_plan_as_json_has_the_shape_of_the_contract(cli: Command, catalogue: Path) -> None:
    document = cli("plan", "-f", catalogue, "--format", "json").json
    conforms(document, PLAN)
    assert document["server"]["apiLevel"] >= 4
    assert document["summary"]["create"] == 3
    assert [change["key"] for change in document["changes"]][-1] == "Consumer/PAYMENTS/billing"


def test_diff_exit_codes_and_text(cli: Command, catalogue: Path) -> None:
    differs = cli("diff", "-f", catalogue, code=1)
    assert "+  maxAge: 30d" in differs.out
    cli("apply", "-f", catalogue, "--yes")
    same = cli("diff", "-f", catalogue)
    assert same.out == ""


def test_apply_as_json_adds_results(cli: Command, catalogue: Path) -> None:
    document = cli("apply", "-f", catalogue, "--yes", "--format", "json").json
    conforms(document, APPLIED)
    assert {change["result"] for change in document["changes"]} == {"applied"}


def test_manifests_from_stdin(cli: Command) -> None:
    cli("apply", "-f", "-", "--yes", stdin=stream("S"))
    assert "1 resource is as declared" in cli("plan", "-f", "-", stdin=stream("S")).out


async def test_a_saved_plan_is_applied_as_reviewed_or_refused(cli: Command, catalogue: Path, wire: Wire, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    cli("plan", "-f", catalogue, "--out", saved)
    assert json.loads(saved.read_bytes())["kind"] == "Plan"
    await wire.expect("STREAM.CREATE.PAYMENTS", {"name": "PAYMENTS", "subjects": ["platform.payments.>"]})
    stale = cli("apply", saved, "--yes", code=3)
    assert "error: " in stale.err
    await wire.expect("STREAM.DELETE.PAYMENTS")
    cli("apply", saved, "--yes")
    assert (await wire.call("STREAM.NAMES"))["total"] == 3  # the lease bucket is the third


def test_a_plan_file_that_is_none_is_invalid_input(cli: Command, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    cli("apply", saved, "--yes", code=4)
    saved.write_text("{}", encoding="utf-8")
    cli("apply", saved, "--yes", code=4)


@pytest.mark.parametrize(("kept", "code", "why"), [(True, 0, "data-loss: "), (False, 3, "Refused, nothing will be written: ")])
async def test_whether_pruning_is_possible_is_shown_where_the_note_says(
    cli: Command, wire: Wire, code: int, why: str, *, kept: bool
) -> None:
    cli("apply", "-f", "-", "--yes", stdin=f"{stream('KEEP')}---\n{stream('GO')}")
    await wire.publish("GO.a")
    fewer = stream("KEEP") if kept else "# nothing\n"
    (note,) = (line for line in cli("plan", "-f", "-", stdin=fewer, code=code).out.splitlines() if "no longer declared" in line)
    assert "Stream/GO" in note
    (shows, flag) = re.findall("`([^`]+)`", note)
    assert why in cli(*shows.split(), "-f", "-", stdin=fewer, code=code).out
    cli("apply", "-f", "-", "--yes", flag, stdin=fewer, code=3)
    assert "GO" in (await wire.expect("STREAM.NAMES"))["streams"]


@pytest.mark.parametrize("exported", ["yaml", "nack"])
async def test_what_a_manifest_prevents_it_prevents_as_long_as_it_is_there(cli: Command, wire: Wire, exported: str) -> None:
    """As docs/manifests.md and docs/nack.md say: the server knows nothing of it, so no export does."""
    kept = stream("KEPT").replace("{name: KEPT}", '{name: KEPT, annotations: {reconciler/prevent: "delete"}}')
    assert "reconciler/prevent" in kept
    cli("apply", "-f", "-", "--yes", stdin=f"{kept}---\n{stream('S')}")
    dropped = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: KEPT, annotations: {reconciler/prevent: delete}}\n"
    tombstone = f"{dropped}spec: {{state: absent}}\n---\n{stream('S')}"
    assert "prevented" in cli("apply", "-f", "-", "--yes", stdin=tombstone, code=3).err
    text = cli("export", "-o", exported).out
    assert "KEPT" in text
    assert "prevent" not in text
    cli("apply", "-f", "-", "--prune", "--yes", stdin=stream("S"))
    assert "KEPT" not in (await wire.expect("STREAM.NAMES"))["streams"]


def test_prune_deletes_what_is_no_longer_declared(cli: Command) -> None:
    both = f"{stream('KEEP')}---\n{stream('GO')}"
    cli("apply", "-f", "-", "--yes", stdin=both)
    left = cli("plan", "-f", "-", stdin=stream("KEEP"))
    assert "`plan --prune` shows whether `--prune` can delete them" in left.out
    pruned = cli("apply", "-f", "-", "--prune", "--yes", "--format", "json", stdin=stream("KEEP")).json
    assert [(change["key"], change["action"], change["cause"]) for change in pruned["changes"]] == [
        ("Stream/GO", "delete", "prune")
    ]


def test_target_limits_the_plan(cli: Command, catalogue: Path) -> None:
    document = cli("plan", "-f", catalogue, "--target", "Stream/PAYMENTS", "--format", "json").json
    assert [change["key"] for change in document["changes"]] == ["Stream/PAYMENTS"]


async def test_what_nobody_owns_is_blocked_until_adopted(cli: Command, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    blocked = cli("plan", "-f", "-", "--format", "json", stdin=stream("S")).json
    conforms(blocked, PLAN)
    assert blocked["changes"][0]["reasons"][0] == "not-owned"
    cli("plan", "-f", "-", "--detailed-exitcode", stdin=stream("S"), code=2)
    refused = cli("apply", "-f", "-", "--yes", stdin=stream("S"), code=3)
    assert "not-owned" in refused.err
    cli("apply", "-f", "-", "--yes", "--continue", stdin=stream("S"), code=3)
    cli("apply", "-f", "-", "--yes", "--adopt", stdin=stream("S"))


async def test_blocked_and_continue_is_partly_applied(cli: Command, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    both = f"{stream('S')}---\n{stream('T')}"
    async with wire.audit() as audit:
        assert "--continue" in cli("apply", "-f", "-", "--yes", stdin=both, code=3).err
    assert audit.writes() == []
    document = cli("apply", "-f", "-", "--yes", "--continue", "--format", "json", stdin=both, code=5).json
    conforms(document, APPLIED)
    assert {change["key"]: change["result"] for change in document["changes"]} == {"Stream/S": "skipped", "Stream/T": "applied"}


def test_what_the_server_refuses_is_a_failure(cli: Command) -> None:
    ended = cli("apply", "-f", "-", "--yes", "--format", "json", stdin=stream("S", "replicas: 3"), code=1)
    conforms(ended.json, APPLIED)
    (change,) = ended.json["changes"]
    assert change["result"] == "failed"
    assert "replicas" in change["error"]


def test_an_empty_directory_is_refused_once_something_is_owned(cli: Command, catalogue: Path, tmp_path: Path) -> None:
    cli("apply", "-f", catalogue, "--yes")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cli("plan", "-f", empty, "--format", "json", code=3).json["refused"][0] == "empty"
    refused = cli("apply", "-f", empty, "--prune", "--yes", code=3)
    assert "nothing is declared" in refused.err


async def test_drift_is_named_in_status_and_repaired(cli: Command, catalogue: Path, wire: Wire) -> None:
    cli("apply", "-f", catalogue, "--yes")
    config = (await wire.stream_info("PAYMENTS"))["config"]
    await wire.expect("STREAM.UPDATE.PAYMENTS", config | {"max_age": 3600 * 10**9})
    document = cli("status", "-f", catalogue, "--format", "json").json
    conforms(document, STATUS)
    assert document["summary"] == {**dict.fromkeys(document["summary"], 0), "Synced": 2, "OutOfSync": 1}
    (drifted,) = [entry for entry in document["resources"] if entry["state"] == "OutOfSync"]
    assert (drifted["key"], drifted["lastDrift"]["fields"]) == ("Stream/PAYMENTS", ["maxAge"])
    assert drifted["lastDrift"]["changes"] == [{"field": "maxAge", "declared": "30d", "live": "1h"}]
    plan = cli("plan", "-f", catalogue, "--format", "json").json
    assert plan["changes"][0]["cause"] == "drift"
    assert plan["changes"][0]["fields"] == [{"path": "maxAge", "from": "1h", "to": "30d"}]
    cli("apply", "-f", catalogue, "--yes")
    assert cli("status", "-f", catalogue).out.splitlines()[-1] == "Status: 3 Synced"


async def test_status_without_manifests_compares_with_what_was_last_applied(cli: Command, catalogue: Path, wire: Wire) -> None:
    cli("apply", "-f", catalogue, "--yes")
    assert cli("status").out.splitlines()[-1] == "Status: 3 Synced"
    config = (await wire.consumer_info("PAYMENTS", "billing"))["config"]
    request = {"stream_name": "PAYMENTS", "config": config | {"max_deliver": 3}, "action": "update"}
    await wire.expect("CONSUMER.CREATE.PAYMENTS.billing", request)
    document = cli("status", "--format", "json").json
    conforms(document, STATUS)
    states = {entry["key"]: entry["state"] for entry in document["resources"]}
    assert states == {"Stream/PAYMENTS": "Synced", "KeyValue/settings": "Synced", "Consumer/PAYMENTS/billing": "OutOfSync"}
    assert cli("--owner", "nobody", "status", "--format", "json").json["resources"] == []


def test_the_default_set_applies_once_and_then_is_in_place(cli: Command) -> None:
    flags = ("-f", str(DEFAULT_SET), "--env", "dev")
    cli("apply", *flags, "--yes")
    assert cli("plan", *flags, "--detailed-exitcode", "--format", "json").json["changes"] == []
    assert set(cli("status", *flags, "--format", "json").json["summary"]) >= {"Synced", "Unmanaged"}


def test_status_wait_returns_when_all_is_in_place_or_the_time_is_over(cli: Command, catalogue: Path) -> None:
    late = cli("status", "-f", catalogue, "--wait", "--timeout", "1s", code=1)
    assert "OutOfSync" in late.out
    cli("apply", "-f", catalogue, "--yes")
    assert "3 Synced" in cli("status", "-f", catalogue, "--wait").out


def test_warnings_go_to_stderr_and_never_change_the_exit_code(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "dangling.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Consumer\nmetadata: {name: c}\nspec: {stream: NOWHERE}\n", encoding="utf-8"
    )
    ended = cli("validate", "-f", tmp_path / "dangling.yaml")
    assert "warning: " in ended.err
    assert "NOWHERE" not in ended.out


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({"NO_COLOR": "1"}, False)],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_colour_off_a_terminal(cli: Command, catalogue: Path, environ: dict[str, str], coloured: bool) -> None:
    assert ("\x1b[" in cli("plan", "-f", catalogue, environ=environ).out) is coloured


def test_markdown_and_the_summary_of_a_workflow(cli: Command, catalogue: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    printed = cli("plan", "-f", catalogue, "--format", "markdown", environ=environ).out
    assert printed.startswith("### Plan: 3 to create")
    assert summary.read_text(encoding="utf-8").strip() == printed.strip()


def test_owner_comes_from_flag_environment_or_policy(cli: Command, catalogue: Path) -> None:
    def owner(*flags: str, **environ: str) -> str:
        return str(cli(*flags, "plan", "-f", catalogue, "--format", "json", environ=environ).json["owner"])

    assert owner() == "default"
    assert owner(RECONCILER_OWNER="by-env") == "by-env"
    assert owner("--owner", "by-flag", RECONCILER_OWNER="by-env") == "by-flag"
    policy = "apiVersion: reconciler/v1\nkind: Policy\nmetadata: {name: p}\nspec: {owner: by-policy}\n"
    (catalogue / "policy.yaml").write_text(policy, encoding="utf-8")
    assert owner() == "by-policy"
    environment = "apiVersion: reconciler/v1\nkind: Environment\nmetadata: {name: dev}\nspec: {}\n"
    (catalogue / "dev.yaml").write_text(environment, encoding="utf-8")
    assert owner(RECONCILER_ENV="dev") == "by-policy/dev"


@pytest.mark.parametrize(("answer", "code", "said"), [("yes", 0, "Apply: 3 applied"), ("y", 1, "nothing was written")])
def test_on_a_terminal_apply_asks(cli: Command, catalogue: Path, answer: str, code: int, said: str) -> None:
    ended, shown = _on_a_terminal(cli, ["apply", "-f", str(catalogue)], QUESTION, answer)
    assert ended == code
    assert said in shown


def test_a_plan_that_became_another_one_while_somebody_thought_is_refused(cli: Command, catalogue: Path) -> None:
    def meanwhile() -> None:
        cli("apply", "-f", str(catalogue), "--target", "Stream/PAYMENTS", "--yes")

    ended, shown = _on_a_terminal(cli, ["apply", "-f", str(catalogue)], QUESTION, "yes", meanwhile)
    assert ended == 3
    assert "has changed since the plan was shown" in shown


def test_ctrl_c_ends_with_130_and_gives_the_lease_back(cli: Command, catalogue: Path) -> None:
    ended, _ = _on_a_terminal(cli, ["apply", "-f", str(catalogue)], QUESTION, "\x03")
    assert ended == 130
    assert "nobody holds" in cli("lease", "show").out


def test_a_terminated_command_ends_like_an_interrupted_one(cli: Command, catalogue: Path) -> None:
    command = [sys.executable, "-m", "reconciler", "status", "-f", str(catalogue), "--watch"]
    with subprocess.Popen(command, env=cli.environ({}), cwd=cli.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"Writer: ")
        process.terminate()
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def _on_a_terminal(
    cli: Command, arguments: list[str], question: str, answer: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Run it on a pseudo-terminal, answer its question; the exit code and all that was shown."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "reconciler", *arguments]
    environ = cli.environ({"TERM": "xterm"})
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        cwd=cli.home,
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509 - the child only asks for the terminal
    )
    os.close(theirs)
    shown = ""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                shown += os.read(ours, 65536).decode()
            except OSError:  # the other end is closed
                break
        if question in shown:
            meanwhile()
            os.write(ours, answer.encode() if answer == "\x03" else f"{answer}\n".encode())
            question = "\0"
    code = process.wait(60)
    os.close(ours)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def _own_terminal() -> None:
    """So that Ctrl-C typed there reaches the child as a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


async def test_buckets_speak_the_words_of_their_manifests(cli: Command, wire: Wire, tmp_path: Path) -> None:
    def declared(**spec: object) -> Path:
        return write(tmp_path / "bucket.yaml", [{"kind": "KeyValue", "metadata": {"name": "b"}, "spec": {"history": 3, **spec}}])

    made = cli("plan", declared()).out
    assert "        history: 3\n" in made
    assert "subjects" not in made, "what makes a bucket of a stream"
    cli("apply", declared(), "--yes")
    assert "ttl: 0s → 1h" in cli("plan", declared(ttl="1h")).out
    config = (await wire.stream_info("KV_b"))["config"]
    await wire.expect("STREAM.UPDATE.KV_b", config | {"max_msgs_per_subject": 9, "max_age": 3600 * 10**9, "deny_delete": True})
    fields = cli("plan", declared(), "-o", "json").json["changes"][0]["fields"]
    assert {field["path"] for field in fields} == {"history", "ttl"}
    assert cli("plan", declared(ignore=["history", "ttl"]), "-o", "json").json["changes"] == []
    await wire.expect("STREAM.UPDATE.KV_b", config | {"discard": "old"})
    assert "discard: old → new" in cli("plan", declared()).out
