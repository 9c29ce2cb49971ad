"""`reconciler partitions plan`, killed at the n-th moment of its writing (`armed`), or when git calls a filter or a hook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

_ROOT = Path(__file__).parents[3]
_FORCED = tuple(word for gate in ("maxMovedFraction", "maxWorkersRemovedFraction") for word in ("--force", gate))
_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change", "reference-transaction")


class Killed(Exception):
    """The run did not live to its end."""


class Refusing(Exception):
    """The run ended with another code than 0; the text is what it said."""


class Planners:
    """Runs of the command, one after the other, each in a process of its own."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.partitions.armed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_environ(home),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()

    def run(self, site: Path, at: int = 0, *, commit: bool = True) -> int:
        """The number of moments it had; raises Killed, or Refusing."""
        assert self._process.stdin
        assert self._process.stderr
        self._process.stdin.write(f"{at} {' '.join(_arguments(site, commit=commit))}\n")
        self._process.stdin.flush()
        said: list[str] = []
        moments = 0
        for line in self._process.stderr:
            word, *numbers = line.split() or [""]
            if word == "moments":
                moments = int(numbers[0])
            elif word == "ended":
                _judge(int(numbers[0]), "".join(said))
                return moments
            else:
                said.append(line)
        raise AssertionError("".join(said))


def run_as_users_do(site: Path, home: Path, at: int = 0) -> None:
    """A run from the shell; raises Killed, or Refusing."""
    arming = home / "arming"
    arming.mkdir(parents=True, exist_ok=True)
    text = f"from tests.support.partitions.armed import armed\narmed({at})\n"
    (arming / "sitecustomize.py").write_text(text, encoding="utf-8")
    environ = _environ(home)
    done = subprocess.run(
        [sys.executable, "-m", "reconciler", *_arguments(site, commit=True)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        start_new_session=True,
        env=environ | {"PYTHONPATH": os.pathsep.join((str(arming), environ["PYTHONPATH"]))},
    )
    _judge(done.returncode, done.stderr)


def _arguments(site: Path, *, commit: bool) -> list[str]:
    return ["partitions", "plan", "-c", str(site / "plan.yaml"), *_FORCED, *(["--commit"] if commit else [])]


def _judge(code: int, said: str) -> None:
    if code == -9:
        raise Killed
    if code:
        raise Refusing(said)


def _environ(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    inherited = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    fixed = {"HOME": str(home), "PYTHONPATH": str(_ROOT), "COLUMNS": "999", "GIT_CONFIG_NOSYSTEM": "1"}
    return inherited | fixed | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}


def kill_within_git(site: Path, at: int) -> None:
    """Arms a checkout: everything dies when git calls a filter or a hook for the n-th time."""
    git = site / ".git"
    count, moment = git / "moments", git / "moment"
    count.write_text("")
    moment.write_text(f'#!/bin/sh\necho >> {count}\n[ "$(wc -l < {count})" -eq {at} ] && kill -9 0\nexec "$@"\n')
    moment.chmod(0o755)
    (git / "info").mkdir(exist_ok=True)
    (git / "info" / "attributes").write_text("*.yaml filter=moment\n")
    (git / "config").write_text(f'{(git / "config").read_text()}[filter "moment"]\n\tclean = {moment} cat\n')
    (git / "hooks").mkdir(exist_ok=True)
    for name in _HOOKS:
        (git / "hooks" / name).write_text(f"#!/bin/sh\nexec {moment} true\n")
        (git / "hooks" / name).chmod(0o755)


def calls_of_git(site: Path) -> int:
    """How often it has called a filter or a hook since."""
    return (site / ".git" / "moments").read_text().count("\n")


def disarm(site: Path) -> None:
    """As it was."""
    for name in _HOOKS:
        (site / ".git" / "hooks" / name).unlink()
    (site / ".git" / "info" / "attributes").unlink()
