"""Every page of the documentation does what it shows: its manifests are valid, its commands run and say what is printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.server.process import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS = 60
EXAMPLE_ADDRESSES = ("127.0.0.1:14222", "127.0.0.1:14223", "127.0.0.1:17422")
"""Of the servers in examples/leaf."""
LONG = {"leaf.md", "sourcing.md"}
"""Pages with real migrations and outages."""
INSTALLING = {"gitops.md", "installation.md", "operating.md"}
"""Pages that tests/installation follows, because they need more than a shell."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")
_EXIT = re.compile(r"\(exit (\d+)\)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


class Command(NamedTuple):
    """A line after `$ `, what it has to print (line by line, others between them are fine) and its exit code."""

    line: str
    printed: tuple[str, ...]
    code: int


def steps(page: str) -> Iterator[Command | tuple[str, str]]:
    """Files to write and commands to run, in the order of the page."""
    for language, body in _FENCE.findall(page):
        file = _FILE.match(body)
        if language in ("yaml", "python") and file:
            yield file[1], body
        elif language == "console":
            for block in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, *printed = block.strip().split("\n")
                codes = [int(found[1]) for text in printed if (found := _EXIT.fullmatch(text))]
                kept = tuple(text.strip() for text in printed if text.strip() and not _EXIT.fullmatch(text))
                yield Command(line, kept, codes[0] if codes else 0)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pages_with_steps() -> list[Any]:
    found = [page for page in PAGES if page.name not in INSTALLING and any(steps(page.read_text(encoding="utf-8")))]
    return [pytest.param(page, marks=pytest.mark.slow, id=page.name) if page.name in LONG else page for page in found]


@pytest.mark.parametrize("page", pages_with_steps(), ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(page: Path, server: Server, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for directory in ("manifests", "examples"):
        shutil.copytree(ROOT / directory, here / directory)
    http = f"127.0.0.1:{free_port()}"
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environ = {"PATH": path, "HOME": str(tmp_path), "NATS_URL": server.url, "COLUMNS": "160", "LC_ALL": "C.UTF-8"}
    text = page.read_text(encoding="utf-8")
    if "127.0.0.1:8080" in text:
        environ |= {"RECONCILER_HTTP": http, "RECONCILER_DAEMON": f"http://{http}"}
    addresses = {"127.0.0.1:8080": http} | {address: f"127.0.0.1:{free_port()}" for address in EXAMPLE_ADDRESSES}
    for config in here.rglob("*.conf"):
        config.write_text(replaced(config.read_text(encoding="utf-8"), addresses), encoding="utf-8")
    try:
        follow(replaced(text, addresses), here, environ)
    finally:
        for pid in here.glob("*.pid"):  # what a page has started and, because it failed, not ended
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGKILL)


def replaced(text: str, addresses: Mapping[str, str]) -> str:
    """With other addresses."""
    for address, other in addresses.items():
        text = text.replace(address, other)
    return text


def follow(page: str, here: Path, environ: dict[str, str]) -> None:
    """Writes the files and runs the commands of a page."""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_shell_examples_are_run() -> None:
    """A `sh` block would not be: either it can run, then it is `console`, or it is prose."""
    unrun = {
        page.name: [
            language for language, _ in _FENCE.findall(page.read_text(encoding="utf-8")) if language in ("sh", "bash", "shell")
        ]
        for page in PAGES
        if page.parent.name == "docs" and page.name not in INSTALLING
    }
    assert {name: found for name, found in unrun.items() if found} == {}


def test_the_generated_pages_are_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"], check=True, timeout=SECONDS)


def test_every_reason_code_is_explained() -> None:
    rooms = [path.read_text(encoding="utf-8") for path in (ROOT / "reconciler" / "plan").glob("*.py")]
    codes = {code for text in rooms for code in re.findall(r'Reason\(\s*"([a-z-]+)"', text)} | {"data-loss"}
    page = (ROOT / "docs" / "reconciling.md").read_text(encoding="utf-8")
    assert {code for code in codes if f"`{code}`" not in page} == set()
    assert len(codes) > 20


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_picture_of_the_rooms_is_the_contract(page: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    picture = " > ".join(" | ".join(f"{room.strip()}" for room in layer.split("|")) for layer in layers)
    assert picture in (ROOT / page).read_text(encoding="utf-8").replace("`", "")
