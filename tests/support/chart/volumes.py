"""The volumes of one pod, as the kubelet and git-sync fill them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Secrets = Mapping[str, Mapping[str, bytes]]


class Volumes:
    """Folders of this machine, by the names of a pod's volumes."""

    def __init__(self, pod: Json, folder: Path, secrets: Secrets, given: Mapping[str, Path] | None = None) -> None:
        """`given` are folders that are there already."""
        self.folder, self.secrets = folder, secrets
        self.at = dict(given or {})
        group = pod["spec"]["securityContext"]["fsGroup"]
        folder.mkdir(parents=True)
        for volume in pod["spec"]["volumes"]:
            path = self.at.setdefault(volume["name"], folder / volume["name"])
            path.mkdir(exist_ok=True)
            if "emptyDir" in volume:
                os.chown(path, 0, group)
                path.chmod(0o2777)
            elif "secret" in volume:
                self._secret(volume["secret"], path, group)

    def publish(self, name: str, texts: Mapping[str, str]) -> None:
        """New content of a ConfigMap."""
        projected(self.at[name], {key: text.encode() for key, text in texts.items()}, 0o644)

    def sync(self, name: str, origin: Path) -> str:
        """What git-sync does about a new commit: a worktree beside the others, and a link that is swapped; the commit."""
        root = self.at[name]
        found = subprocess.run(["git", "-C", str(origin), "rev-parse", "main"], check=True, capture_output=True, text=True)
        commit = found.stdout.strip()
        checkout = root / ".worktrees" / commit
        if not checkout.exists():
            subprocess.run(["git", "clone", "-q", str(origin), str(checkout)], check=True)
            following = root / "next"
            following.symlink_to(Path(".worktrees") / commit)
            following.replace(root / "current")
        return commit

    def _secret(self, source: Json, path: Path, group: int) -> None:
        content = self.secrets[source["secretName"]]
        items = source.get("items", [{"key": key, "path": key} for key in content])
        projected(path, {item["path"]: content[item["key"]] for item in items}, source["defaultMode"], group)


def projected(path: Path, files: Mapping[str, bytes], mode: int, group: int = 0) -> None:
    """What the kubelet does about a ConfigMap or Secret: a folder of its own, and a link that is swapped."""
    made = path / f"..{hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]}"
    for name, data in files.items():
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
        if group:
            os.chown(file, 0, group)
    following = path / "..data_tmp"
    following.symlink_to(made.name)
    following.replace(path / "..data")
    for first in {name.partition("/")[0] for name in files}:
        link = path / first
        if not link.is_symlink():
            link.symlink_to(Path("..data") / first)
