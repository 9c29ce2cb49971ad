"""Builds the Dockerfile's targets with buildah, which needs no engine: its instructions, its layers, its configuration.

What the Dockerfile begins with is pulled. Where no registry can be reached, packages of Debian stand in for it, which it says:
the same release of Debian, slim in the same way, with Debian's Python in the place of the other.

Invariant: everything lies in one folder of the cache, and no container is left there.
"""

from __future__ import annotations

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


class Image:
    """A built image."""

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
        """Its files, as a container would have them."""
        container = self._buildah("from", "--pull-never", self.name)
        try:
            yield Path(self._buildah("mount", container))
        finally:
            self._buildah("rm", container)


class Buildah:
    """buildah with a store of its own."""

    def __init__(self) -> None:
        self._folder = cache() / "images"
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "tmp").mkdir(exist_ok=True)
        self.base = re.findall(r"^FROM (\S+) AS base$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)[0]

    def __call__(self, *arguments: str | Path, seconds: float = BUILD_SECONDS) -> str:
        """Run it; what it printed."""
        store = ("--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "overlay")
        command = ["buildah", *map(str, (*store, *arguments))]
        environ = {**os.environ, "TMPDIR": str(self._folder / "tmp")}  # the caches of RUN --mount lie there
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environ, cwd=ROOT)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def build(self, target: str) -> Image:
        """Build a target."""
        self._begin()
        name = f"localhost/{target}:tested"
        self("build", "--isolation", "chroot", "--pull-never", "--layers", "--target", target, "--tag", name, ROOT)
        return Image(self, name)

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
