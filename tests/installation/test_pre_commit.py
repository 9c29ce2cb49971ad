"""The pre-commit hook, run by pre-commit as a team uses it: from a repository, at a revision, configured as documented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.installing import ROOT, checkout, pip_environ
from tests.support.pages.following import files

HOOKS = ROOT / ".pre-commit-hooks.yaml"
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: ORDERS}\nspec: {subjects: [orders.>], maxAge: 7d}\n"
_SECONDS = 900


def pre_commit(*arguments: str, cwd: Path = ROOT, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """pre-commit as somebody calls it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home or cwd), "PRE_COMMIT_COLOR": "never", **pip_environ()}
    command = [sys.executable, "-m", "pre_commit", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=_SECONDS)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """All files of a folder, committed."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_hooks_are_what_pre_commit_accepts(tmp_path: Path) -> None:
    said = pre_commit("validate-manifest", str(HOOKS), home=tmp_path)
    assert said.returncode == 0, said.stdout
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(HOOKS.read_text(encoding="utf-8").replace("language: python", "language: klingon"), encoding="utf-8")
    assert pre_commit("validate-manifest", str(wrong), home=tmp_path).returncode == 1


def test_the_hook_checks_a_directory_unless_told_otherwise() -> None:
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert (hook["entry"], hook["args"], hook["pass_filenames"]) == ("reconciler validate", ["-f", "manifests"], False)


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS)
@pytest.mark.thorough(also="tests/installation/test_pre_commit.py::test_the_hooks_are_what_pre_commit_accepts")
def test_pre_commit_checks_what_is_committed(tmp_path: Path) -> None:
    ours = repository(checkout(tmp_path / "ours"))
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    config = yaml.safe_load(files(page)[".pre-commit-config.yaml"])
    assert config["repos"][0]["hooks"][0]["id"] == "reconciler-validate"
    config["repos"][0] |= {"repo": str(ours), "rev": git(ours, "rev-parse", "HEAD")}
    team = tmp_path / "team"
    (team / "shop").mkdir(parents=True)
    (team / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (team / "shop" / "orders.yaml").write_text(STREAM, encoding="utf-8")
    (team / "README.md").write_text("A shop.\n", encoding="utf-8")
    repository(team)

    def committed(*names: str) -> tuple[int, str]:
        git(team, "add", "--all")
        done = pre_commit("run", "--files", *names, cwd=team, home=tmp_path)
        return done.returncode, done.stdout + done.stderr

    good = committed("shop/orders.yaml")
    assert good[0] == 0, good[1]
    assert "Passed" in good[1]
    assert "Skipped" in committed("README.md")[1]
    (team / "shop" / "orders.yaml").write_text(STREAM.replace("maxAge", "maxAgge"), encoding="utf-8")
    bad = committed("shop/orders.yaml")
    assert bad[0] == 1
    assert 'shop/orders.yaml:4:30: unknown-field: unknown field "maxAgge"; did you mean maxAge?' in bad[1]
