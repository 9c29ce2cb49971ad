"""The images of the Dockerfile: what is in them, and that they run as an engine would run them. `make test-images` runs this."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler import __version__
from tests.support.account.wire import Wire
from tests.support.chart.factory import factory
from tests.support.chart.helm import ROOT, SMALLEST, containers, pod_templates, rendered
from tests.support.chart.image import Image
from tests.support.chart.node import container, ran
from tests.support.chart.volumes import Volumes
from tests.support.clock.until import until
from tests.support.daemon.process import settled
from tests.support.images.building import Built, buildah
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
def built() -> Iterator[list[Built]]:
    """The daemon's and the planner's."""
    if os.geteuid() != 0:
        lacking("root", "builds and runs images: sudo make test-images")
    needs("buildah", "buildah", "mmdebstrap", "unshare", "ip", package="buildah mmdebstrap util-linux iproute2")
    with buildah() as made:
        yield made.build("daemon", "planner")


@pytest.fixture
def daemon_tree(built: list[Built]) -> Iterator[Path]:
    with built[0].tree() as tree:
        yield tree


@pytest.fixture
def planner_tree(built: list[Built]) -> Iterator[Path]:
    with built[1].tree() as tree:
        yield tree


@pytest.fixture
def daemon_image(built: list[Built], daemon_tree: Path) -> Image:
    return Image.at(daemon_tree, built[0].config)


@pytest.fixture
def planner_image(built: list[Built], planner_tree: Path) -> Image:
    return Image.at(planner_tree, built[1].config)


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


def test_the_labels_say_what_it_is(built: list[Built]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for image, title in zip(built, ("reconciler", "reconciler planner"), strict=True):
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.config["Labels"].items()}
        assert (labels["title"], labels["version"], labels["licenses"]) == (title, __version__, project["license"])
        assert labels["base.name"].startswith("docker.io/library/python:3.11-slim")
        assert (image.config["User"], image.config["Entrypoint"]) == (f"{NOBODY}:{NOBODY}", ["reconciler"])
    assert built[0].config["Labels"]["org.opencontainers.image.description"] == project["description"]


def test_the_daemon_has_no_compiler_and_no_java(daemon_tree: Path, planner_tree: Path) -> None:
    status = (daemon_tree / "var/lib/dpkg/status").read_text(encoding="utf-8")
    packages = re.findall(r"^Package: (.*)$", status, re.MULTILINE)
    assert len(packages) > 50
    assert [name for name in packages if COMPILERS.match(name)] == []
    assert programs(daemon_tree) & PROGRAMS == set()
    assert {"reconciler", "python"} <= programs(daemon_tree), "the command, and what the health check of Compose is run by"
    assert [path for name in ("libjvm.so", "cc1", "collect2") for path in daemon_tree.rglob(name)] == []
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
    done = subprocess.run([*command, "--require-hashes", "--requirement", str(lock)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_root_owns_what_is_run(daemon_tree: Path) -> None:
    owners = {path.lstat().st_uid for path in (daemon_tree / "opt/reconciler").rglob("*")}
    assert owners == {0}


def size(tree: Path) -> float:
    """What all files come to, in GB."""
    return sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()) / 1e9


def test_they_are_no_larger_than_the_page_says(daemon_tree: Path, planner_tree: Path) -> None:
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    said = [float(number) for number in re.findall(r"^\| `ghcr\.io/.*\| ([\d.]+) GB \|$", page, re.MULTILINE)]
    assert len(said) == 2
    for stated, tree in zip(said, (daemon_tree, planner_tree), strict=True):
        assert 0.7 * stated < size(tree) <= stated


async def test_the_daemon_runs_as_nobody_in_a_tree_that_is_read_only(
    daemon_image: Image, server: Server, wire: Wire, tmp_path: Path
) -> None:
    """What the chart starts, of the very image: ready, and it takes up what is declared next."""
    pod = pod_templates(rendered(SMALLEST))["Deployment/shop-reconciler"]
    volumes = Volumes(pod, tmp_path / "pod", {})
    volumes.publish("manifests", {"orders.yaml": STREAM.format(age="1h")})
    how: dict[str, Any] = {"image": daemon_image, "relays": {4222: server.port}}
    shell = "id -u; id -g; grep CapBnd /proc/self/status; touch /x /opt/reconciler/x /etc/x /manifests/x"
    code, said = await ran(pod, "reconciler", volumes, **how, command=["sh", "-c", shell], args=[])
    assert code != 0
    assert said.startswith(f"{NOBODY}\n{NOBODY}\nCapBnd:\t0000000000000000\n"), said
    assert said.count("Read-only file system") == 4, said
    assert f"reconciler {__version__}" in (await ran(pod, "reconciler", volumes, **how, args=["version"]))[1]
    assert "Plan: 1 to create" in (await ran(pod, "reconciler", volumes, **how, args=["plan"]))[1]
    async with container(pod, "reconciler", volumes, **how) as daemon:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            await daemon.until_probed(probe)
        await daemon.until(settled)
        assert (await wire.stream_info("ORDERS"))["config"]["max_age"] == 3600 * 10**9
        volumes.publish("manifests", {"orders.yaml": STREAM.format(age="2h")})
        await until(lambda: lives(wire, 2))
        assert await daemon.stop(15) == 0


async def lives(wire: Wire, hours: int) -> bool:
    """Whether the messages of ORDERS live that long."""
    return bool((await wire.stream_info("ORDERS"))["config"]["max_age"] == hours * 3600 * 10**9)


async def test_the_planner_goes_from_a_table_to_a_commit_with_either_engine(planner_image: Image, tmp_path: Path) -> None:
    """What the chart's CronJob starts, of the very image: cloned, planned and pushed as nobody, in a tree that is read-only."""
    with factory(tmp_path, planner_image) as made:
        volumes = made.pod()
        code, said = await made.step("plan", volumes, command=["sh", "-c", f"id -u; getent passwd {NOBODY}; touch /x"], args=[])
        assert code != 0
        assert said.startswith(f"{NOBODY}\nreconciler:x:{NOBODY}:{NOBODY}::/tmp:"), said
        assert "Read-only file system" in said
        await made.run()
        assert made.log()[0] == "The planner: Plan processor: 0 partitions moved (0.00% of the weight), 100 new"
        made.table(100, 5)
        volumes = made.pod()
        (arguments,) = (each["args"] for each in containers(made.job["template"]) if each["name"] == "plan")
        for name in ("clone", "plan", "push"):
            instead = {"args": [*arguments, "--engine", "spark"]} if name == "plan" else {}
            code, said = await made.step(name, volumes, **instead)
            assert code == 0, (name, said)
        assert "20 partitions moved" in made.log()[0]
        assert len(made.log()) == 3
