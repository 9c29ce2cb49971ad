"""The pages on installing and operating do what they show; what needs a machine of its own is named, with the test that does it.

There is no release on the package index yet. So pip is offered the wheel of this checkout, as if there were (PIP_FIND_LINKS):
what a page says is followed to the letter, what the index would answer is not shown.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cluster.servers import free_ports
from tests.support.installing import ROOT, checkout, pip_environ, wheel
from tests.support.pages.following import follow, replaced, typed
from tests.support.server.process import Server

DOCS = ROOT / "docs"
HERE = Path(__file__).parent
IMAGES, SYSTEMD, COMPOSE = "test_images.py", "test_systemd.py", "test_compose.py"
KUBERNETES, PRE_COMMIT = "../kube/test_pages.py", "test_pre_commit.py"
ELSEWHERE = {
    "docker build": f"{IMAGES}::test_the_daemon_has_no_compiler_and_no_java",
    "docker run": f"{IMAGES}::test_the_daemon_runs_as_nobody_in_a_tree_that_is_read_only",
    "kubectl": f"{KUBERNETES}::test_what_the_page_types_is_taken_by_kubernetes",
    "helm": f"{KUBERNETES}::test_what_the_page_types_is_taken_by_kubernetes",
    "python3 -m venv /opt": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "/opt/reconciler/bin/pip": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "/opt/reconciler/bin/reconciler": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "install": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "git clone": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "printf": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "systemctl": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "journalctl": f"{SYSTEMD}::test_the_unit_runs_under_systemd",
    "docker compose": f"{COMPOSE}::test_what_compose_starts_is_ready",
    "pre-commit": f"{PRE_COMMIT}::test_pre_commit_checks_what_is_committed",
}
"""What the lines of `sh` blocks begin with, and the test in which the same is done."""


def environ(home: Path, server: Server, programs: Path) -> dict[str, str]:
    """A shell of somebody who has installed it there."""
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "NATS_URL": server.url,
        "COLUMNS": "160",
        "LC_ALL": "C.UTF-8",
    }


def stands_for(line: str) -> str:
    """The test for a line; the longest beginning counts."""
    return ELSEWHERE[max((beginning for beginning in ELSEWHERE if line.startswith(beginning)), key=len, default=line)]


@pytest.mark.parametrize("page", ["installation.md", "operating.md", "gitops.md"])
def test_what_is_not_run_here_is_run_in_a_test_of_its_own(page: str) -> None:
    for line in typed((DOCS / page).read_text(encoding="utf-8")):
        file, _, name = stands_for(line).partition("::")
        assert f"def {name}(" in (HERE / file).read_text(encoding="utf-8"), line


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.thorough(also="tests/test_packaging.py::test_the_wheel_has_the_new_name_the_licence_and_the_extras")
def test_the_page_on_installing_does_what_it_shows(server: Server, tmp_path: Path) -> None:
    here = checkout(tmp_path / "here")
    release = wheel(tmp_path / "release").parent
    offered = f"{os.environ.get('PIP_FIND_LINKS', '')} {release}"
    text = (DOCS / "installation.md").read_text(encoding="utf-8")
    assert "Nothing has been released yet" in text
    follow(text, here, environ(tmp_path, server, tmp_path / "reconciler" / "bin") | pip_environ() | {"PIP_FIND_LINKS": offered})


def test_the_page_on_operating_does_what_it_shows(server: Server, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    addresses = {f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in zip((8080, 8081), free_ports(2), strict=True)}
    try:
        follow(
            replaced(text, addresses),
            here,
            environ(tmp_path, server, Path(sys.executable).parent) | {"RECONCILER_HTTP": addresses["127.0.0.1:8080"]},
        )
    finally:
        for pid in here.glob("*.pid"):  # what the page has started and, because it failed, not ended
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGKILL)


def test_the_first_screen_of_the_readme_leads_to_the_page() -> None:
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert re.search(r"\]\(docs/installation\.md\)", first)
