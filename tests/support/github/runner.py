"""Runs the jobs of a workflow as GitHub's runner does: expressions filled in, shell steps in bash, composite actions inside.

What it cannot do, it refuses: an expression, an action or a key that it does not know is an error, never left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.installing import ROOT, pip_environ

SECONDS = 600
Json = dict[str, Any]

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_COMPARED = re.compile(r"([\w.-]+)\s*==\s*'([^']*)'")
_NAME = re.compile(r"[\w-]+(\.[\w-]+)+")
_STEP_KEYS = {"id", "name", "uses", "with", "shell", "env", "run"}


@dataclass(frozen=True)
class Ended:
    """How a job ended: its exit code, its log, its summary, the outputs of its steps."""

    code: int
    log: str
    summary: str
    outputs: Json

    def output(self, step: str) -> Mapping[str, str]:
        """The outputs of a step."""
        outputs: dict[str, str] = self.outputs[step]["outputs"]
        return outputs


@dataclass
class Runner:
    """A machine that runs jobs."""

    temp: Path
    workspace: Path
    github: Json
    """What `github.…` and GITHUB_… variables say."""
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    checkout: Callable[[Path], None] = lambda _: None
    """What actions/checkout does."""
    action: str = ""
    """The name by which a workflow uses the action of this repository."""

    def job(self, workflow: Json, name: str) -> Ended | None:
        """Run a job; None if its condition leaves it out."""
        job = workflow["jobs"][name]
        contexts = {"github": self.github, "vars": dict(self.variables), "secrets": dict(self.secrets), "steps": {}}
        condition = _COMPARED.fullmatch(job["if"])
        assert condition, job["if"]
        if _looked_up(condition[1], contexts) != condition[2]:
            return None
        self.temp.mkdir(exist_ok=True)
        ended = _Steps(self, contexts, {}).run(job["steps"])
        assert sorted(path.name for path in self.temp.iterdir() if path.suffix == ".creds") == []
        return ended

    def environ(self) -> dict[str, str]:
        """The variables of every step."""
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | pip_environ()
        names = {f"GITHUB_{name.upper()}": str(value) for name, value in self.github.items() if isinstance(value, str)}
        fixed = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_WORKSPACE": str(self.workspace), "RUNNER_TEMP": str(self.temp)}
        return inherited | names | fixed | {"HOME": str(self.temp / "home")}


class _Steps:
    """The steps of a job or of a composite action."""

    def __init__(self, runner: Runner, contexts: Json, environ: Mapping[str, str]) -> None:
        self._runner = runner
        self._contexts = contexts
        self._environ = dict(environ)
        self._log: list[str] = []
        self._summary = ""

    def run(self, steps: list[Json]) -> Ended:
        """One after the other, until one fails."""
        code = 0
        for step in steps:
            assert set(step) <= _STEP_KEYS, step
            outputs: Mapping[str, str] = {}
            code, outputs = self._used(step) if "uses" in step else self._shell(step)
            self._contexts["steps"][step.get("id", "")] = {"outputs": dict(outputs)}
            if code:
                break
        return Ended(code, "".join(self._log), self._summary, self._contexts["steps"])

    def _used(self, step: Json) -> tuple[int, Mapping[str, str]]:
        name, _, ref = step["uses"].partition("@")
        given = {key: self._filled(str(value)) for key, value in step.get("with", {}).items()}
        assert ref, f"{name} is used without saying which version"
        if name == "actions/checkout":
            self._runner.checkout(self._runner.workspace)
            return 0, {}
        if name == "actions/setup-python":
            assert given["python-version"] == "3.11"
            return 0, {"python-path": sys.executable}
        assert name == self._runner.action, f"nobody knows what {name} does"
        return self._composite(given)

    def _composite(self, given: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        assert action["runs"]["using"] == "composite"
        assert set(given) <= set(action["inputs"])
        inputs = {name: given.get(name, self._filled(declared.get("default", ""))) for name, declared in action["inputs"].items()}
        contexts = {"github": {**self._contexts["github"], "action_path": str(ROOT)}, "inputs": inputs, "steps": {}}
        steps = _Steps(self._runner, contexts, {"GITHUB_ACTION_PATH": str(ROOT)})
        ended = steps.run(action["runs"]["steps"])
        self._log.append(ended.log)
        self._summary += ended.summary
        return ended.code, {name: steps._filled(output["value"]) for name, output in action["outputs"].items()}

    def _shell(self, step: Json) -> tuple[int, Mapping[str, str]]:
        assert step.get("shell", "bash") == "bash"
        files = self._runner.temp / "files"
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir(parents=True)
        script, output, summary = files / "step.sh", files / "output", files / "summary"
        script.write_text(self._filled(step["run"]), encoding="utf-8")
        for empty in (output, summary):
            empty.touch()
        environ = {
            **self._runner.environ(),
            **self._environ,
            **{name: self._filled(str(value)) for name, value in step.get("env", {}).items()},
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self._runner.workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self._log.append(done.stdout)
        self._summary += summary.read_text(encoding="utf-8")
        lines = output.read_text(encoding="utf-8").splitlines()
        return done.returncode, dict(line.split("=", 1) for line in lines)

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: str(_looked_up(found[1], self._contexts)), text)


def _looked_up(name: str, contexts: Json) -> object:
    """The value of `a.b.c`; what is not there is empty, as GitHub has it, but the first part has to be known."""
    assert _NAME.fullmatch(name), f"this runner does not evaluate {name!r}"
    first, *rest = name.split(".")
    value: object = contexts[first]
    for part in rest:
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value
