"""What an image of the Dockerfile brings; where none is built, put together from what is here.

The interpreter, the installed packages, this checkout's `reconciler` and the system's programs; entry point and environment are
the Dockerfile's own words.
"""

from __future__ import annotations

import json
import shlex
import socket
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.chart import sandbox
from tests.support.chart.helm import ROOT

Json = dict[str, Any]
HOSTS = ("nats", "nats.nats.svc", "git.example.org")
"""What the values name, and the pod's own address answers for."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives")
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_START = "#!/opt/reconciler/bin/python\nimport sys\nfrom reconciler.cli.app import main\nsys.exit(main())\n"


@dataclass(frozen=True)
class Image:
    """What is run: of a stage of the Dockerfile, or of an image that was built from it."""

    entrypoint: list[str]
    environ: dict[str, str]
    tree: dict[str, str]
    """What it has, and where that is here; nothing of it may be written to."""
    links: dict[str, str]
    files: dict[str, str]
    """What it has of its own, and what the kubelet writes."""

    @classmethod
    def of(cls, name: str) -> Image:
        """The stage that becomes an image of this name (`…-planner:0.1.0`), with what it has from the stages it is made from."""
        stages = _stages()
        planner = name.partition(":")[0].endswith("-planner")
        entrypoint: list[str] = []
        environ = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"}
        for word, rest in stages["planner" if planner else "daemon"]:
            if word == "ENTRYPOINT":
                entrypoint = json.loads(rest)
            elif word == "ENV":
                for each in shlex.split(rest):
                    name, _, value = each.partition("=")
                    environ[name] = value.replace("${PATH}", "$PATH").replace("$PATH", environ["PATH"])
        assert entrypoint, name
        return cls(entrypoint, environ, _tree(), _links(), _files())

    @classmethod
    def at(cls, root: Path, config: Json) -> Image:
        """An image that was built and lies there as a tree that may be thrown away; its configuration as an engine has it."""
        (root / "etc" / "hosts").write_text(hosts(), encoding="utf-8")
        above = [path for path in root.iterdir() if path.name not in ("dev", "proc", "sys")]
        return cls(
            config["Entrypoint"],
            dict(each.split("=", 1) for each in config["Env"]),
            {f"/{path.name}": str(path) for path in above if path.is_dir() and not path.is_symlink()},
            {f"/{path.name}": str(path.readlink()) for path in above if path.is_symlink()},
            {},
        )


def hosts() -> str:
    """What the kubelet writes, and what a cluster's name service would answer."""
    names = "".join(f"{sandbox.ADDRESS} {name}\n" for name in (socket.gethostname(), *HOSTS))
    return f"127.0.0.1 localhost\n{names}"


def _tree() -> dict[str, str]:
    system = [path for path in (*_SYSTEM, sys.base_prefix) if Path(path).exists()]
    return {
        **{path: path for path in system if not any(path.startswith(f"{above}/") for above in system)},
        "/opt/reconciler/packages": sysconfig.get_path("purelib"),
        "/opt/reconciler/source/reconciler": str(ROOT / "reconciler"),
    }


def _links() -> dict[str, str]:
    return {"/opt/reconciler/bin/python": str(Path(sys.base_prefix) / "bin" / _PYTHON)}


def _files() -> dict[str, str]:
    return {
        "/opt/reconciler/pyvenv.cfg": f"home = {Path(sys.base_prefix) / 'bin'}\ninclude-system-site-packages = false\n",
        f"/opt/reconciler/lib/{_PYTHON}/site-packages/image.pth": "/opt/reconciler/source\n/opt/reconciler/packages\n",
        "/opt/reconciler/bin/reconciler": _START,
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nreconciler:x:65532:65532::/tmp:/usr/sbin/nologin\n",
        "/etc/group": "root:x:0:\nreconciler:x:65532:\n",
        "/etc/hosts": hosts(),
        "/etc/nsswitch.conf": "hosts: files\n",
    }


def _stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, after those of the stages below it."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    stages: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, called = rest.partition(" AS ")
            current = stages[called] = list(stages.get(base, ()))
        elif word and not word.startswith("#"):
            current.append((word, rest.strip()))
    return stages
