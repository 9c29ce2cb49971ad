"""The command line without a server: help, usage, validation, settings."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.cli.commands import COMMANDS, LazyGroup
from reconciler.cli.saying.exitcodes import MEANINGS, ExitCode
from reconciler.cli.saying.terminal import Terminal
from tests.support.daemon.command import Command

BAD = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: S}\nspec: {subjcts: [a]}\n"


def test_help_names_every_command(offline: Command) -> None:
    listed = offline("--help").out
    for name in COMMANDS:
        assert re.search(rf"^\W*{name}\b", listed, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"], Terminal({})) == 0
    assert f"Usage: reconciler {name}" in capsys.readouterr().out


def test_no_command_shows_help_and_is_a_usage_error(offline: Command) -> None:
    assert "Usage: reconciler" in offline(code=64).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("plan", "--bogus"),
        ("plan",),
        ("plan", "-f"),
        ("plan", "-f", "x", "--policy", "sometimes"),
        ("plan", "-f", "x", "--prune", "--policy", "upsert-only"),
        ("plan", "-f", "x", "--allow", "everything"),
        ("plan", "-f", "x", "--target", "Stream"),
        ("plan", "-f", "x", "--max-change-percent", "many"),
        ("plan", "-f", "x", "--format", "yaml"),
        ("apply", "-f", "x"),
        ("apply", "plan.json"),
        ("apply", "-f", "x", "plan.json", "--yes"),
        ("apply", "--prune", "plan.json", "--yes"),
        ("apply", "-f", "x", "--yes", "--timeout", "soon"),
        ("permissions", "-f", "x"),
        ("explain", "Stream.maxAgee"),
        ("completion", "tcsh"),
        ("--context", "nowhere", "lease", "show"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_64_and_one_sentence(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(list(arguments), Terminal({})) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: " in err


def test_apply_without_yes_says_what_to_do(offline: Command, catalogue: Path) -> None:
    assert "--yes" in offline("apply", "-f", catalogue, code=64).err


def test_prune_names_the_policy_it_contradicts(offline: Command, catalogue: Path) -> None:
    assert "create-only" in offline("plan", "-f", catalogue, "--prune", "--policy", "create-only", code=64).err
    assert "create-only" in offline("plan", "-f", catalogue, "--prune", code=64, environ={"RECONCILER_POLICY": "create-only"}).err


def test_a_misspelled_command_is_guessed(offline: Command) -> None:
    assert "'validate'" in offline("valdate", code=64).err


def test_validate_accepts_the_catalogue(offline: Command, catalogue: Path) -> None:
    assert offline("validate", "-f", catalogue).out == "3 resources declared, all valid\n"


def test_validate_reports_file_line_column_and_code(offline: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD, encoding="utf-8")
    ended = offline("validate", "-f", tmp_path / "bad.yaml", code=4)
    assert re.match(rf"{re.escape(str(tmp_path))}/bad\.yaml:4:\d+: [a-z-]+: .*subjcts", ended.out)


def test_validate_as_json(offline: Command, catalogue: Path) -> None:
    assert offline("validate", "-f", catalogue, "--format", "json").json["valid"] is True
    document = offline("validate", "-f", "-", "--format", "json", stdin=BAD, code=4).json
    assert (document["kind"], document["valid"], document["problems"][0]["line"]) == ("Validation", False, 4)


@pytest.mark.parametrize("environ", [{}, {"GITHUB_ACTIONS": "true"}], ids=["asked for", "in a workflow"])
def test_validate_annotates_lines_for_github(offline: Command, environ: dict[str, str]) -> None:
    how = () if environ else ("--format", "github")
    ended = offline("validate", "-f", "-", *how, stdin=BAD, code=4, environ=environ)
    assert re.match(r"::error file=<stdin>,line=4,col=\d+,title=[a-z-]+::", ended.out)


def test_a_missing_path_is_invalid_input(offline: Command) -> None:
    ended = offline("plan", "-f", "nowhere", code=4)
    assert "nowhere:1:1: not-found" in ended.err


def test_several_files_and_stdin_together(offline: Command, catalogue: Path) -> None:
    more = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: MORE}\nspec: {subjects: [more]}\n"
    ended = offline("validate", "-f", catalogue, "-f", "-", stdin=more)
    assert ended.out.startswith("4 resources")


def test_files_may_come_from_the_environment(offline: Command, catalogue: Path) -> None:
    assert offline("validate", environ={"RECONCILER_FILE": str(catalogue)}).out.startswith("3 resources")


def test_version_is_quick(offline: Command) -> None:
    assert min(_cpu_seconds(offline) for _ in range(3)) < 0.5


def _cpu_seconds(offline: Command) -> float:
    """Of the command alone, however busy the machine is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    offline("version")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_version_as_json(offline: Command) -> None:
    document = offline("version", "--format", "json").json
    assert (document["apiVersion"], document["kind"]) == ("reconciler/v1", "Version")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", document["version"])


def test_print_config_names_origins_and_hides_secrets(offline: Command) -> None:
    environ = {"NATS_USER": "ann", "NATS_PASSWORD": "hush", "RECONCILER_POLICY": "sync"}
    out = offline("-s", "nats://joe:geheim@example.org", "--owner", "team", "--print-config", environ=environ).out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["server"].endswith("nats://***@example.org  (flag)")
    assert lines["user"].endswith("ann  (env NATS_USER)")
    assert lines["password"].endswith("***  (env NATS_PASSWORD)")
    assert lines["timeout"].endswith("5s  (default)")
    assert lines["owner"].endswith("team  (flag)")
    assert lines["policy"].endswith("sync  (env RECONCILER_POLICY)")
    assert "hush" not in out
    assert "geheim" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(offline: Command, shell: str) -> None:
    assert "_RECONCILER_COMPLETE" in offline("completion", shell).out


def test_completion_completes_commands(offline: Command) -> None:
    words = {"COMP_WORDS": "reconciler ver", "COMP_CWORD": "1", "_RECONCILER_COMPLETE": "complete_bash"}
    assert offline(environ=words).out.split() == ["version"]


def test_explain(offline: Command) -> None:
    assert "How long an acknowledgement may take" in offline("explain", "Consumer.ackWait").out
    assert offline("explain", "Stream.maxAge", "--format", "json").json["kind"] == "Explanation"


def test_a_reader_that_goes_away_is_met_quietly(offline: Command) -> None:
    script = f"{sys.executable} -m reconciler explain Stream | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=offline.environ({}))
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_every_exit_code_has_a_meaning_and_they_are_those_of_the_contract() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert sorted(ExitCode) == [0, 1, 2, 3, 4, 5, 6, 64, 130]


def test_json_is_the_only_thing_on_stdout(offline: Command, catalogue: Path) -> None:
    document = json.loads(offline("permissions", "-f", catalogue, "--mode", "read", "--format", "json").out)
    assert document["kind"] == "Permissions"


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    group = LazyGroup(name="reconciler")
    for name, said in COMMANDS.items():
        command = group.get_command(None, name)
        own = " ".join((command.help or "").split("\n\n")[0].split())
        assert own == said, name


def test_help_loads_no_command() -> None:
    script = (
        "import sys; from reconciler.cli.app import run_here\n"
        "sys.argv = ['reconciler', '--help']\n"
        "run_here()\n"
        "heavy = 'nats', 'aiohttp', 'reconciler.engine', 'reconciler.cli.commands.run'\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "Make JetStream as declared" in shown
    assert shown.splitlines()[-1] == "[]"
