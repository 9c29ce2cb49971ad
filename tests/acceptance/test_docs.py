"""Every page of the documentation does what it shows: its manifests are valid, its commands run and say what is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.servers import free_ports
from tests.support.pages.following import FENCE, follow, replaced, steps
from tests.support.server.process import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNBOOKS = ROOT / "docs" / "runbooks"
"""Each is followed in the incident that it is for, by tests/alerts."""
SECONDS = 60
EXAMPLE_ADDRESSES = ("127.0.0.1:14222", "127.0.0.1:14223", "127.0.0.1:17422")
"""Of the servers in examples/leaf."""
LONG = {"leaf.md", "sourcing.md"}
"""Pages with real migrations and outages."""
INSTALLING = {"gitops.md", "installation.md", "operating.md"}
"""Pages that tests/installation follows, because they need more than a shell."""
ELSEWHERE = INSTALLING | {"partitions-cluster.md"}
"""And one that tests/partitions/spark follows, where there is Spark."""

_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def pages_with_steps() -> list[Any]:
    apart = [page for page in PAGES if page.parent == RUNBOOKS or page.name in ELSEWHERE]
    found = [page for page in PAGES if page not in apart and any(steps(page.read_text(encoding="utf-8")))]
    return [pytest.param(page, marks=pytest.mark.slow, id=page.name) if page.name in LONG else page for page in found]


@pytest.mark.parametrize("page", pages_with_steps(), ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(page: Path, server: Server, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for directory in ("manifests", "examples"):
        shutil.copytree(ROOT / directory, here / directory)
    http = f"127.0.0.1:{free_ports(1)[0]}"
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environ = {"PATH": path, "HOME": str(tmp_path), "NATS_URL": server.url, "COLUMNS": "160", "LC_ALL": "C.UTF-8"}
    text = page.read_text(encoding="utf-8")
    if "127.0.0.1:8080" in text:
        environ |= {"RECONCILER_HTTP": http, "RECONCILER_DAEMON": f"http://{http}"}
    addresses = {"127.0.0.1:8080": http} | {address: f"127.0.0.1:{free_ports(1)[0]}" for address in EXAMPLE_ADDRESSES}
    for config in here.rglob("*.conf"):
        config.write_text(replaced(config.read_text(encoding="utf-8"), addresses), encoding="utf-8")
    follow(replaced(text, addresses), here, environ)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_shell_examples_are_run() -> None:
    """A `sh` block would not be: either it can run, then it is `console`, or it is prose."""
    unrun = {
        page.name: [
            language for language, _ in FENCE.findall(page.read_text(encoding="utf-8")) if language in ("sh", "bash", "shell")
        ]
        for page in PAGES
        if page.is_relative_to(ROOT / "docs") and page.name not in INSTALLING
    }
    assert {name: found for name, found in unrun.items() if found} == {}


def test_the_generated_pages_are_up_to_date() -> None:
    subprocess.run([sys.executable, "-m", "tools.generate_docs", "--check"], cwd=ROOT, check=True, timeout=SECONDS)


def test_every_reason_code_is_explained() -> None:
    rooms = (ROOT / "reconciler" / room for room in ("plan", "sources"))
    texts = [path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")]
    codes = {code for text in texts for code in re.findall(r'Reason\(\s*"([a-z-]+)"', text)} | {"data-loss"}
    page = (ROOT / "docs" / "reconciling.md").read_text(encoding="utf-8")
    assert {code for code in codes if f"`{code}`" not in page} == set()
    assert len(codes) > 20


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_picture_of_the_rooms_is_the_contract(page: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    picture = " > ".join(" | ".join(f"{room.strip()}" for room in layer.split("|")) for layer in layers)
    assert picture in (ROOT / page).read_text(encoding="utf-8").replace("`", "")


def test_the_map_names_what_is_there() -> None:
    """Each row of the rooms counts from that room; everything else from the package, or from what is named before it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        room = re.match(r"\| `(\w+)` \|", line)
        bases = [ROOT / "reconciler", ROOT / "reconciler" / room[1]] if room else [ROOT / "reconciler"]
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", line):
            found = [base / name for base in bases if (base / name).exists()]
            assert found, f"{name} in: {line}"
            bases.append(found[0] if name.endswith("/") else found[0].parent)
