"""The GitHub action: a pull request is planned, its comment renewed, and its merge applied, in the workflow of the documentation.

Its steps run as GitHub runs them, on a checkout of a bare repository, against a server that grants each user only what it needs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.account.credentials import Operator
from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.github.comments import Comments, comments
from tests.support.github.runner import Ended, Runner
from tests.support.installing import ROOT
from tests.support.pages.following import files
from tests.support.server.process import Server

ACTION = "jetstream-reconciler/reconciler"
TOKEN = "the-token-of-the-job"
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: {name}}}\nspec: {{subjects: [{name}.>]}}\n"
PAGE = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
WORKFLOW = files(PAGE)[".github/workflows/jetstream.yml"]


class Team:
    """A repository on a server of its own, a NATS with a user who reads and one who applies, and the machine that runs jobs."""

    def __init__(self, folder: Path, server: Server, operator: Operator, pages: Comments) -> None:
        self.server = server
        self.comments = pages
        self.origin, self.desk = folder / "origin.git", folder / "desk"
        self._folder = folder
        # YAML 1.1 reads `on` as true
        self.workflow: dict[Any, Any] = yaml.safe_load(WORKFLOW)
        self._begin()
        needed = folder / "needed.yaml"
        needed.write_text("---\n".join(STREAM.format(name=name) for name in ("ORDERS", "PAYMENTS")), encoding="utf-8")
        self.secrets = {}
        for secret, mode in (("NATS_READ_CREDS", "read"), ("NATS_CREDS", "apply")):
            said = Command(folder)("--owner", "shop", "permissions", "-f", needed, "--mode", mode, "--format", "json").json
            granted = {"pub": said["permissions"]["publish"], "sub": said["permissions"]["subscribe"]}
            self.secrets[secret] = operator.user(**granted).credentials
        self.admin = folder / "admin.creds"
        self.admin.write_text(operator.user().credentials, encoding="utf-8")

    def _begin(self) -> None:
        """The repository with one manifest."""
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(self.origin)], check=True)
        subprocess.run(["git", "clone", "-q", str(self.origin), str(self.desk)], check=True, capture_output=True)
        self.git("config", "user.name", "Somebody")
        self.git("config", "user.email", "somebody@example.org")
        self.write("orders.yaml", STREAM.format(name="ORDERS"))

    def git(self, *arguments: str) -> str:
        """Git, at somebody's desk."""
        done = subprocess.run(["git", "-C", str(self.desk), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, name: str, text: str, branch: str = "main") -> None:
        """Write, commit and push."""
        path = self.desk / "shop" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.git("add", "shop")
        self.git("commit", "-q", "-m", name)
        self.git("push", "-q", "origin", f"HEAD:{branch}")

    def event(self, name: str, branch: str, **how: Any) -> dict[str, Ended | None]:
        """All jobs of the workflow, as this event starts them."""
        payload = self._folder / "event.json"
        payload.write_text(
            json.dumps({"pull_request": {"number": how.get("number", 7)}} if name == "pull_request" else {}), encoding="utf-8"
        )
        workspace = self._folder / f"workspace-{len(list(self._folder.glob('workspace-*')))}"
        runner = Runner(
            temp=self._folder / "runner",
            workspace=workspace,
            github={
                "event_name": name,
                "event_path": str(payload),
                "repository": "shop/jetstream",
                "api_url": self.comments.url,
                "token": how.get("token", TOKEN),
            },
            variables={"NATS_URL": self.server.url},
            secrets=how.get("secrets", self.secrets),
            checkout=lambda into: self._checkout(branch, into),
            action=ACTION,
        )
        how.get("before", installed)(runner)
        workflow = how.get("workflow", self.workflow)
        return {job: runner.job(workflow, job) for job in workflow["jobs"]}

    def pull_request(self, branch: str, **how: Any) -> Ended:
        """What becomes of a push to the branch of a pull request."""
        ended = self.event("pull_request", branch, **how)
        assert ended["apply"] is None
        assert ended["plan"]
        return ended["plan"]

    def merge(self, branch: str, **how: Any) -> Ended:
        """What becomes of the merge."""
        self.git("push", "-q", "origin", f"origin/{branch}:main")
        ended = self.event("push", "main", **how)
        assert ended["plan"] is None
        assert ended["apply"]
        return ended["apply"]

    def streams(self) -> list[str]:
        """What is on the server, besides the lease."""

        async def listed() -> list[str]:
            async with await Wire.connect(self.server.url, user_credentials=str(self.admin)) as wire:
                found = (await wire.expect("STREAM.NAMES"))["streams"] or ()
                return sorted(name for name in found if not name.startswith("KV_"))

        return asyncio.run(listed())

    def _checkout(self, branch: str, into: Path) -> None:
        subprocess.run(["git", "clone", "-q", "-b", branch, str(self.origin), str(into)], check=True, capture_output=True)


def installed(runner: Runner) -> None:
    """What the action's own installing would make: here, what is being tested."""
    there = runner.temp / f"reconciler{str(ROOT).replace('/', '-')}"
    there.parent.mkdir(exist_ok=True)
    if not there.exists():
        there.symlink_to(sys.prefix)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    operator = Operator()
    with Server(tmp_path / "nats", config=operator.config) as server, comments(TOKEN) as pages:
        yield Team(tmp_path, server, operator, pages)


def checked(schema: str, path: Path) -> subprocess.CompletedProcess[str]:
    """What GitHub's schema says of a file."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_action_and_the_workflow_are_what_github_accepts(tmp_path: Path) -> None:
    workflow = tmp_path / "workflow.yml"
    workflow.write_text(WORKFLOW, encoding="utf-8")
    for schema, path in (("github-actions", ROOT / "action.yml"), ("github-workflows", workflow)):
        said = checked(schema, path)
        assert said.returncode == 0, said.stdout
    workflow.write_text(WORKFLOW.replace("runs-on:", "run-on:"), encoding="utf-8")
    assert checked("github-workflows", workflow).returncode == 1


def test_no_input_reaches_a_shell_except_as_a_variable() -> None:
    """An expression inside a script would run what somebody writes into a pull request."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 2
    assert not [script for script in scripts if "${{" in script]


def test_a_pull_request_is_planned_and_its_merge_applied(team: Team) -> None:
    team.write("payments.yaml", STREAM.format(name="PAYMENTS"), "payments")
    planned = team.pull_request("payments")
    assert planned.code == 0, planned.log
    (comment,) = team.comments.of[7].values()
    assert "### Plan: 2 to create" in comment
    assert "Stream/PAYMENTS" in comment
    assert "### Plan: 2 to create" in planned.summary
    assert "+ Stream/PAYMENTS  create" in planned.log, "the log is for people"
    assert team.streams() == []
    applied = team.merge("payments")
    assert applied.code == 0, applied.log
    assert "Apply: 2 applied" in applied.log
    assert team.streams() == ["ORDERS", "PAYMENTS"]
    assert [secret for secret in team.secrets.values() if secret.splitlines()[1] in planned.log + applied.log] == []


def test_a_later_push_renews_the_comment_and_finds_it_among_many(team: Team) -> None:
    others = [team.comments.add(7, f"Looks good to me ({number})") for number in range(150)]
    team.pull_request("main")
    assert len(team.comments.of[7]) == len(others) + 1
    alike = team.comments.add(8, team.comments.of[7][others[-1] + 1].replace("1 to create", "0 to create"))
    team.pull_request("main", number=8)
    assert len(team.comments.of[8]) == 2, "what somebody else could change is left alone"
    assert "0 to create" in team.comments.of[8][alike]
    team.write("payments.yaml", STREAM.format(name="PAYMENTS"), "payments")
    team.pull_request("payments")
    assert len(team.comments.of[7]) == len(others) + 1
    assert [text for text in team.comments.of[7].values() if "2 to create" in text]
    assert not [text for text in team.comments.of[7].values() if "1 to create" in text]


def test_the_outputs_say_whether_anything_differs(team: Team) -> None:
    step = team.workflow["jobs"]["plan"]["steps"][-1]
    step["id"] = "ours"
    before = team.pull_request("main").output("ours")
    assert (before["changes"], before["exit-code"]) == ("true", "2")
    assert before["fingerprint"].startswith("sha256:")
    assert json.loads(Path(before["plan"]).read_text(encoding="utf-8"))["fingerprint"] == before["fingerprint"]
    team.event("push", "main")
    after = team.pull_request("main").output("ours")
    assert (after["changes"], after["exit-code"]) == ("false", "0")
    assert after["fingerprint"] != before["fingerprint"]
    (comment,) = team.comments.of[7].values()
    assert "1 unchanged" in comment


def test_a_mistake_fails_the_job_and_stands_in_the_comment(team: Team) -> None:
    team.write("orders.yaml", STREAM.format(name="ORDERS").replace("subjects", "subject"), "typo")
    planned = team.pull_request("typo")
    assert planned.code == 4
    assert "::error file=shop/orders.yaml,line=4,col=8,title=unknown-field::" in planned.log, "GitHub marks the line"
    (comment,) = team.comments.of[7].values()
    assert "No plan: reconciler ended with exit code 4" in comment
    assert 'shop/orders.yaml:4:8: unknown-field: unknown field "subject"; did you mean subjects?' in comment
    team.write("orders.yaml", STREAM.format(name="ORDERS"), "typo")
    assert team.pull_request("typo").code == 0
    (comment,) = team.comments.of[7].values()
    assert "1 to create" in comment, "the same comment says when it is mended"


def test_what_the_guard_refuses_fails_with_3_and_shows_the_plan(team: Team) -> None:
    team.write("more.yaml", "---\n".join(STREAM.format(name=f"S{number}") for number in range(19)))
    team.secrets["NATS_READ_CREDS"] = team.secrets["NATS_CREDS"] = team.admin.read_text(encoding="utf-8")
    assert team.merge("main").code == 0
    team.git("rm", "-q", "shop/more.yaml")
    team.git("commit", "-qm", "nearly nothing is left")
    team.git("push", "-q", "origin", "HEAD:less")
    team.workflow["jobs"]["plan"]["steps"][-1]["with"]["args"] = "--policy sync"
    planned = team.pull_request("less")
    assert planned.code == 3, planned.log
    (comment,) = team.comments.of[7].values()
    assert "Refused, nothing will be written" in comment
    team.workflow["jobs"]["apply"]["steps"][-1]["with"]["args"] = "--policy sync"
    assert team.merge("less").code == 3
    assert len(team.streams()) == 20


def test_a_comment_that_may_not_be_written_is_a_warning(team: Team) -> None:
    planned = team.pull_request("main", token="of-a-fork")
    assert planned.code == 0
    assert "::warning::the plan is in the log and in the summary, but not on the pull request: GitHub answered 403" in planned.log
    assert "pull-requests: write" in planned.log
    assert "### Plan: 1 to create" in planned.summary
    assert team.comments.of == {}


def test_a_pull_request_without_secrets_says_that_nats_refuses(team: Team) -> None:
    planned = team.pull_request("main", secrets={})
    assert planned.code == 6
    (comment,) = team.comments.of[7].values()
    assert "exit code 6" in comment
    assert "refused the login" in comment


@pytest.mark.thorough(also="tests/installation/test_action.py::test_a_pull_request_is_planned_and_its_merge_applied")
def test_a_command_that_is_none_is_refused(team: Team) -> None:
    team.workflow["jobs"]["plan"]["steps"][-1]["with"]["command"] = "destroy"
    planned = team.pull_request("main")
    assert planned.code == 64
    assert "command is 'destroy'; it is plan or apply" in planned.log


@pytest.mark.thorough(also="tests/installation/test_action.py::test_a_pull_request_is_planned_and_its_merge_applied")
def test_a_plan_for_another_environment_is_another_comment(team: Team) -> None:
    team.pull_request("main")
    team.workflow["jobs"]["plan"]["steps"][-1]["with"]["owner"] = "shop-of-others"
    team.pull_request("main")
    assert len(team.comments.of[7]) == 2


@pytest.mark.thorough(also="tests/installation/test_action.py::test_a_pull_request_is_planned_and_its_merge_applied")
def test_no_comment_is_written_where_none_is_wanted(team: Team) -> None:
    team.workflow["jobs"]["plan"]["steps"][-1]["with"]["comment"] = False
    assert team.pull_request("main").code == 0
    assert team.comments.requests == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.thorough(also="tests/installation/test_action.py::test_a_pull_request_is_planned_and_its_merge_applied")
def test_the_action_installs_itself_from_its_lock_files(team: Team) -> None:
    planned = team.pull_request("main", before=lambda _: None)
    assert planned.code == 0, planned.log
    assert "### Plan: 1 to create" in planned.summary
