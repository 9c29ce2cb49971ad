"""Builds the Dockerfile's targets with buildah, which needs no engine: its instructions, its layers, its configuration.

What the Dockerfile begins with is pulled. Where no registry can be reached, packages of Debian stand in for it, which it says:
the same release of Debian, slim in the same way, with Debian's Python in the place of the other.

Invariant: everything lies in one folder of the cache, where neither a container is left nor a layer that no build needs any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.server.binaries import cache

ROOT = Path(__file__).parents[3]
BUILD_SECONDS = 3600
PULL_SECONDS = 120
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_SLIM = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
_PACKAGES = "ca-certificates,netbase,python3,python3-pip,python3-venv,tzdata"
_HOOKS = (
    'rm -r "$1"/usr/lib/python3*/EXTERNALLY-MANAGED "$1"/usr/share/man',
    'ln -s /usr/bin/python3 "$1"/usr/local/bin/python',
    f'cp {_CERTIFICATES} "$1"{_CERTIFICATES}',
    f"""printf '[global]\\ncert = {_CERTIFICATES}\\n' > "$1"/etc/pip.conf""",
)


def _name(stage: str) -> str:
    return f"localhost/reconciler-tests/{stage}:tested"


class Built:
    """An image that was built."""

    def __init__(self, buildah: Buildah, name: str) -> None:
        self._buildah = buildah
        self.name = name

    @cached_property
    def config(self) -> dict[str, Any]:
        """What an engine would run: User, Env, Entrypoint, Labels."""
        config: dict[str, Any] = json.loads(self._buildah("inspect", "--type", "image", self.name))["OCIv1"]["config"]
        return config

    @contextmanager
    def tree(self) -> Iterator[Path]:
        """Its files, as a container would have them; what becomes of them is lost."""
        container = self._buildah("from", "--pull-never", self.name)
        try:
            yield Path(self._buildah("mount", container))
        finally:
            self._buildah("rm", container)


@contextmanager
def buildah() -> Iterator[Buildah]:
    """The store, for one run at a time: whoever comes second waits, and what a run that was killed has left there goes."""
    folder = cache() / "images"
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = Buildah(folder)
        made("rm", "--all")
        yield made


class Buildah:
    """buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        stages = re.findall(r"^FROM (\S+) AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
        self.base, self._stages = stages[0][0], [name for _, name in stages]

    def __call__(self, *arguments: str | Path, seconds: float = BUILD_SECONDS) -> str:
        """Run it; what it printed."""
        store = ("--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "overlay")
        command = ["buildah", *map(str, (*store, *arguments))]
        environ = {**os.environ, "TMPDIR": str(self._folder / "tmp")}  # the caches of RUN --mount lie there
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environ, cwd=ROOT)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def build(self, *targets: str) -> list[Built]:
        """Build targets of the Dockerfile, and the stages before them."""
        self._begin()
        for stage in self._stages:  # with names of their own, their layers are kept
            self("build", "--isolation", "chroot", "--pull-never", "--layers", "--target", stage, "--tag", _name(stage), ROOT)
        self("rmi", "--prune")
        return [Built(self, _name(target)) for target in targets]

    def _begin(self) -> None:
        """Have what the Dockerfile begins with."""
        name = f"docker.io/library/{self.base}"
        marked = self._folder / "stands-in"
        if name not in self("images", "--format", "{{.Name}}:{{.Tag}}", "--noheading").splitlines():
            marked.unlink(missing_ok=True)
            try:
                self("pull", "--quiet", name, seconds=PULL_SECONDS)
            except (AssertionError, subprocess.TimeoutExpired):
                self._from_debian(name)
                marked.touch()
        if marked.exists():
            print(f"Debian's packages stand in for {self.base}: no registry could be reached", file=sys.__stderr__)

    def _from_debian(self, name: str) -> None:
        release = self.base.rpartition("-")[2]
        archive = self._folder / "tmp" / "base.tar"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", *_SLIM]
        command += [f"--customize-hook={hook}" for hook in _HOOKS]
        subprocess.run([*command, release, str(archive), "http://deb.debian.org/debian"], check=True, timeout=BUILD_SECONDS)
        container = self("from", "scratch")
        try:
            self("add", "--quiet", container, archive, "/")
            self("commit", "--quiet", container, name)
        finally:
            self("rm", container)
            archive.unlink()
