"""What tests install from: this checkout, its wheel, pip with what it has fetched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pip_environ() -> dict[str, str]:
    """The variables of pip; its cache is the user's, wherever HOME points."""
    found = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_", "REQUESTS_CA_"))}
    said = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True).stdout
    return found | {"PIP_CACHE_DIR": said.strip()}


def wheel(into: Path) -> Path:
    """The wheel of this checkout, as a release has it: there is none on the package index yet."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (path,) = into.glob("*.whl")
    return path


def checkout(into: Path) -> Path:
    """A copy of what git knows of this checkout, and of what it does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_bytes((ROOT / name).read_bytes())
            (into / name).chmod((ROOT / name).stat().st_mode)
    return into
