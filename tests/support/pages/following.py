"""What a page of the documentation shows, done: its files are written, its commands run, and what is printed is compared.

A page says `$ command` in a `console` block, and below it lines that have to be printed in that order, others between them being
fine; `(exit 4)` is the exit code, 0 without. A block of one of `FILES` that begins with `# file: NAME` is that file. What stands
in a `sh` block needs more than a shell, and is typed by a test of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SECONDS = 300
"""The longest that a command of a page may take where others keep the machine busy."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = ("yaml", "python", "properties")
_FILE = re.compile(r"# file: (\S+)\n")
_EXIT = re.compile(r"\(exit (\d+)\)")


class Command(NamedTuple):
    """A line after `$ `, what it has to print (line by line, others between them are fine) and its exit code."""

    line: str
    printed: tuple[str, ...]
    code: int


def steps(page: str) -> Iterator[Command | tuple[str, str]]:
    """Files to write and commands to run, in the order of the page."""
    for language, body in FENCE.findall(page):
        file = _FILE.match(body)
        if language in FILES and file:
            yield file[1], body
        elif language == "console":
            for block in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, *printed = block.strip().split("\n")
                codes = [int(found[1]) for text in printed if (found := _EXIT.fullmatch(text))]
                kept = tuple(text.strip() for text in printed if text.strip() and not _EXIT.fullmatch(text))
                yield Command(line, kept, codes[0] if codes else 0)


def section(page: str, title: str) -> str:
    """What stands below a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def files(page: str) -> dict[str, str]:
    """The files that a page shows."""
    return dict(step for step in steps(page) if not isinstance(step, Command))


def typed(page: str) -> list[str]:
    """The lines of the `sh` blocks; a line that ends in a backslash goes on."""
    blocks = [body.replace("\\\n", "") for language, body in FENCE.findall(page) if language == "sh"]
    return [line.strip() for body in blocks for line in body.splitlines()]


def replaced(text: str, addresses: Mapping[str, str]) -> str:
    """With other addresses."""
    for address, other in addresses.items():
        text = text.replace(address, other)
    return text


def follow(page: str, here: Path, environ: dict[str, str]) -> None:
    """Writes the files and runs the commands of a page; ends what it has started (`*.pid`) and, because it failed, not ended."""
    try:
        _follow(page, here, environ)
    finally:
        for pid in here.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGKILL)


def _follow(page: str, here: Path, environ: dict[str, str]) -> None:
    for step in steps(page):
        if not isinstance(step, Command):
            (here / step[0]).write_text(step[1], encoding="utf-8")
            continue
        ended = subprocess.run(
            ["bash", "-c", step.line], cwd=here, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        said = ended.stdout + ended.stderr
        assert ended.returncode == step.code, f"$ {step.line}\n{said}"
        lines = iter(said.splitlines())
        for expected in step.printed:
            assert any(expected in line for line in lines), f"$ {step.line}\nmissing: {expected}\n{said}"
