"""The images of the Dockerfile: what is in them, and that they run as an engine would run them. `make test-images` runs this."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reconciler import __version__
from tests.support.account.wire import Wire
from tests.support.daemon.process import Daemon, settled
from tests.support.images.building import ROOT, Buildah, Image
from tests.support.images.running import Container
from tests.support.partitions.files import Desk
from tests.support.partitions.files import desk as made
from tests.support.server.process import Server
from tests.support.skipped import lacking, needs

pytestmark = [pytest.mark.images, pytest.mark.timeout(3600), pytest.mark.xdist_group("images")]

COMPILERS = re.compile(
    r"^(gcc(?!-\d+-base$)|g\+\+|cpp|clang|llvm|rustc|golang|make|build-essential|binutils|openjdk|default-j|.*-dev)\b"
)
PROGRAMS = {"cc", "gcc", "g++", "c++", "cpp", "clang", "ld", "as", "make", "rustc", "go", "java", "javac"}
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: ORDERS}}\nspec: {{subjects: [orders.>], maxAge: {age}}}\n"
NOBODY = 65532
PLANNER = ("requirements-runtime.txt", "requirements-planner.txt", "requirements-spark.txt")
GLIBC = 36
"""Of bookworm, 2.36."""


@pytest.fixture(scope="module")
def buildah() -> Buildah:
    if os.geteuid() != 0:
        lacking("root", "builds and runs images: sudo make test-images")
    needs("buildah", "buildah", "mmdebstrap", "setpriv", "unshare", package="buildah mmdebstrap util-linux")
    return Buildah()


@pytest.fixture(scope="module")
def daemon_image(buildah: Buildah) -> Image:
    return buildah.build("daemon")


@pytest.fixture(scope="module")
def planner_image(buildah: Buildah) -> Image:
    return buildah.build("planner")


@pytest.fixture
def daemon_tree(daemon_image: Image) -> Iterator[Path]:
    with daemon_image.tree() as tree:
        yield tree


@pytest.fixture
def planner_tree(planner_image: Image) -> Iterator[Path]:
    with planner_image.tree() as tree:
        yield tree


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return made(tmp_path, capsys)


def ran(command: list[str], code: int = 0) -> str:
    """Run it; what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout or done.stderr


def programs(tree: Path) -> set[str]:
    """The names of everything on its PATH, Java's and any library of a JVM's included."""
    folders = [tree / each for each in ("usr/bin", "usr/local/bin", "bin", "sbin", "usr/sbin", "opt/reconciler/bin")]
    return {path.name for folder in folders if folder.exists() for path in folder.iterdir()}


def installed(tree: Path) -> dict[str, str]:
    """The Python distributions of its environment."""
    folder = next((tree / "opt/reconciler/lib").glob("python3.*/site-packages"))
    found = (re.fullmatch(r"(.+)-([^-]+)\.dist-info", path.name) for path in folder.iterdir())
    return {one[1].lower().replace("_", "-"): one[2] for one in found if one}


def locked(*names: str) -> dict[str, str]:
    """What lock files say for Python 3.11 on Linux; colour on Windows is none of it."""
    lines = [line for name in names for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    pins = [found for line in lines if (found := re.match(r"([a-z0-9.-]+)==([^\s;]+)(?: ; (.*?))?(?: \\)?$", line))]
    others = ("sys_platform == 'win32'", "python_full_version >= '3.12'")
    return {pin[1].replace(".", "-"): pin[2] for pin in pins if not any(other in (pin[3] or "") for other in others)}


def test_the_labels_say_what_it_is(daemon_image: Image, planner_image: Image) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for image, title in ((daemon_image, "reconciler"), (planner_image, "reconciler planner")):
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.config["Labels"].items()}
        assert (labels["title"], labels["version"], labels["licenses"]) == (title, __version__, project["license"])
        assert labels["base.name"].startswith("docker.io/library/python:3.11-slim")
        assert (image.config["User"], image.config["Entrypoint"]) == (f"{NOBODY}:{NOBODY}", ["reconciler"])
    assert daemon_image.config["Labels"]["org.opencontainers.image.description"] == project["description"]


def test_the_daemon_has_no_compiler_and_no_java(daemon_tree: Path, planner_tree: Path) -> None:
    status = (daemon_tree / "var/lib/dpkg/status").read_text(encoding="utf-8")
    packages = re.findall(r"^Package: (.*)$", status, re.MULTILINE)
    assert len(packages) > 50
    assert [name for name in packages if COMPILERS.match(name)] == []
    assert programs(daemon_tree) & PROGRAMS == set()
    assert list(daemon_tree.rglob("libjvm.so")) == []
    assert {"java", "git", "ssh"} <= programs(planner_tree), "the same look finds what is there"
    assert list(planner_tree.rglob("libjvm.so"))


def test_they_have_what_the_lock_files_name_and_nothing_else(daemon_tree: Path, planner_tree: Path) -> None:
    ours = {"jetstream-reconciler": __version__}
    assert installed(daemon_tree) == locked("requirements-runtime.txt") | ours
    assert installed(planner_tree) == locked(*PLANNER) | ours


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_nothing_has_to_be_compiled_for_either_processor(processor: str, tmp_path: Path) -> None:
    """Everything has a wheel for it, but for what is Python alone: nkeys, and Spark with its jars."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (*PLANNER, "requirements-build.txt")]
    entries = {entry for text in texts for entry in re.findall(r"^[a-z0-9].*(?:\n    .*)*", text, re.MULTILINE)}
    wanted = sorted(entry for entry in entries if not entry.startswith(("nkeys==", "pyspark==")))
    assert len(entries) - len(wanted) == 2
    lock = tmp_path / "lock.txt"
    lock.write_text("\n".join(wanted), encoding="utf-8")
    platforms = [f"manylinux2014_{processor}", *(f"manylinux_2_{minor}_{processor}" for minor in range(17, GLIBC + 1))]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--ignore-installed",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command += [f"--platform={platform}" for platform in platforms] + ["--python-version=3.11", "--implementation=cp"]
    command += [f"--abi={abi}" for abi in ("cp311", "abi3", "none")] + [f"--target={tmp_path / 'nowhere'}"]
    ran([*command, "--require-hashes", "--requirement", str(lock)])


def test_only_root_owns_what_is_run(daemon_tree: Path) -> None:
    owners = {path.lstat().st_uid for path in (daemon_tree / "opt/reconciler").rglob("*")}
    assert owners == {0}


@asynccontextmanager
async def running(container: Container, log: Path, *arguments: str) -> AsyncIterator[Daemon]:
    """The daemon of an image, once it is ready."""
    with log.open("wb") as sink:
        command = container.command("run", "--http", "127.0.0.1:0", *arguments)
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink)
    started = Daemon(process, log)
    try:
        await started.ready()
        yield started
    finally:
        await started.kill()
        assert "Traceback" not in started.log(), started.log()


def owner_of_child(pid: int) -> int:
    """Who runs the first process of the namespace that `unshare` has forked."""
    child = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]
    return Path(f"/proc/{child}").stat().st_uid


def declare(manifests: Path, age: str) -> None:
    """A manifest, in one step."""
    manifests.mkdir(exist_ok=True)
    (manifests / "new").write_text(STREAM.format(age=age), encoding="utf-8")
    (manifests / "new").rename(manifests / "orders.yaml")


async def test_the_daemon_runs_as_nobody_in_a_tree_that_is_read_only(
    daemon_image: Image, daemon_tree: Path, server: Server, wire: Wire, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    declare(manifests, "1h")
    environ = {"NATS_URL": server.url, "RECONCILER_OWNER": "shop", "RECONCILER_FILE": "/manifests"}
    container = Container(daemon_image, daemon_tree, {"/manifests": (manifests, "ro")}, environ)
    shell = ["sh", "-c", "id -u; id -g; grep CapBnd /proc/self/status; touch /x /opt/reconciler/x /manifests/x 2>&1"]
    said = ran(container.command(entrypoint=shell), code=1)
    assert said.startswith(f"{NOBODY}\n{NOBODY}\nCapBnd:\t0000000000000000\n"), said
    assert said.count("Read-only file system") == 3, said
    assert f"reconciler {__version__}" in ran(container.command("version"))
    assert "Plan: 1 to create" in ran(container.command("plan"))
    async with running(container, tmp_path / "log") as daemon:
        await daemon.until(settled)
        assert (await wire.stream_info("ORDERS"))["config"]["max_age"] == 3600 * 10**9
        assert owner_of_child(daemon.pid) == NOBODY
        declare(manifests, "2h")
        await daemon.until(lambda _: len(daemon.lines("change.ended")) == 2)
        assert (await wire.stream_info("ORDERS"))["config"]["max_age"] == 7200 * 10**9


def test_the_planner_plans_and_commits_as_nobody_in_a_tree_that_is_read_only(
    planner_image: Image, planner_tree: Path, desk: Desk
) -> None:
    git = ["git", "-c", f"safe.directory={desk.root}", "-C", str(desk.root)]
    ran([*git, "init", "-q", "-b", "main"])
    for path in (desk.root, *desk.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    who = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    mounts = {"/checkout": (desk.root, "rw")}
    container = Container(planner_image, planner_tree, mounts, who, writable=["/tmp"])  # noqa: S108 - in the container
    assert "reconciler:x:65532:65532" in ran(container.command(entrypoint=["getent", "passwd", str(NOBODY)]))
    plan = ["partitions", "plan", "--config", "/checkout/plan.yaml", "--commit", "--format", "json", "--engine"]
    assert json.loads(ran(container.command(*plan, "local")))["commit"]
    assert json.loads(ran(container.command(*plan, "spark")))["commit"] is None, "the same plan, so nothing to commit"
    desk.partitions(101)
    assert json.loads(ran(container.command(*plan, "spark")))["commit"] == ran([*git, "rev-parse", "HEAD"]).strip()
