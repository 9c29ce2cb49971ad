"""A Kubernetes API server, its etcd, and the definitions of the Prometheus operator, from their Go modules.

Built once (some minutes) and kept per user, as old versions of nats-server are; modules are checked against the `go.sum` here.
Invariant: a program in the cache is complete, and was built from exactly what `go.mod` and `go.sum` say now.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.server.binaries import cache

HERE = Path(__file__).parent
PACKAGES = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
DEFINITIONS = ("servicemonitors", "podmonitors", "prometheusrules")


def kubernetes_version() -> str:
    """What `go.mod` asks for, such as v1.34.1."""
    words = (HERE / "apiserver" / "go.mod").read_text(encoding="utf-8").split()
    return words[words.index("k8s.io/kubernetes") + 1]


def program(name: str) -> Path:
    """The path of `kube-apiserver` or `etcd`, built when it is not there yet."""
    module = HERE / "apiserver"
    stated = b"".join((module / file).read_bytes() for file in ("go.mod", "go.sum"))
    folder = cache() / "kube" / f"{kubernetes_version()}-{hashlib.sha256(stated).hexdigest()[:12]}"
    built = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it there
        if not built.exists():
            _build(module, PACKAGES[name], built)
    return built


def definitions() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the operator that the chart makes objects of."""
    done = _go(HERE / "operator", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
    folder = Path(json.loads(done)["Dir"]) / "example" / "prometheus-operator-crd"
    return [yaml.safe_load((folder / f"monitoring.coreos.com_{name}.yaml").read_bytes()) for name in DEFINITIONS]


def _build(module: Path, package: str, target: Path) -> None:
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())])
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        _go(module, "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", str(made), package)
        made.replace(target)


def _go(module: Path, *arguments: str) -> str:
    found = shutil.which("go")
    if found is None:
        msg = "needs Go 1.24 or newer on PATH, to build a Kubernetes API server (Debian: apt-get install golang-go)"
        raise LookupError(msg)
    done = subprocess.run(
        [found, *arguments],
        cwd=module,
        env=os.environ | {"GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.nice(19),
    )
    if done.returncode != 0:
        msg = f"go {' '.join(arguments)} in {module.name}:\n{done.stderr[-4000:]}"
        raise RuntimeError(msg)
    return done.stdout
