"""Runs an image as an engine does with `--read-only`: its entry point, environment and user, no rights, nothing to write to.

Invariant: nothing is left of it when the process has ended, since it lives in namespaces of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.images.building import Image

SCRIPT = Path(__file__).with_name("container.sh")


@dataclass(frozen=True)
class Container:
    """How an image is to be run."""

    image: Image
    tree: Path
    mounts: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    """Where in the container: the folder of this machine, and `ro` or `rw`."""
    environ: Mapping[str, str] = field(default_factory=dict)
    writable: Sequence[str] = ()
    """Empty folders that it may write to."""

    def command(self, *arguments: str, entrypoint: Sequence[str] | None = None) -> list[str]:
        """The command line that runs it; what it prints and how it ends is the container's."""
        config = self.image.config
        line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", str(SCRIPT), str(self.tree), config["User"]]
        line += [f"bind {source} {at} {how}" for at, (source, how) in self.mounts.items()]
        line += [f"tmpfs {at}" for at in self.writable]
        environ = [*config["Env"], *(f"{name}={value}" for name, value in self.environ.items())]
        line += ["--", "env", "--ignore-environment", *environ]
        return [*line, *(config["Entrypoint"] if entrypoint is None else entrypoint), *arguments]
