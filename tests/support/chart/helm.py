"""The real `helm`, and what it makes of the chart.

Invariant: what is rendered is read as YAML 1.1, as Kubernetes reads it, and no line of it is lost on the way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "reconciler"
CASES = tuple(sorted((CHART / "ci").glob("*-values.yaml")))
"""Every way to install it that is tried."""
HELM = Path(sysconfig.get_path("scripts")) / "helm"
NOWHERE = "/proc/nowhere"
"""It needs no files of its own, and whoever runs the tests may have some."""
RELEASE, NAMESPACE = "shop", "streams"
SMALLEST: Json = {
    "owner": "shop",
    "nats": {"url": "nats://nats:4222"},
    "source": {"type": "configMap", "configMap": {"name": "jetstream"}},
}
"""What has to be said at least."""


def named(path: Path) -> str:
    """A case, as tests are called after it."""
    return path.name.removesuffix("-values.yaml")


def helm(*arguments: str | Path, stdin: str = "", environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, whatever that is."""
    home = dict.fromkeys(("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"), NOWHERE)
    command = [str(HELM), *map(str, arguments)]
    environ = {"PATH": os.environ["PATH"], "HOME": NOWHERE, **home, **(environ or {})}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environ)


def rendered(*values: Path | Json, release: str = RELEASE, chart: Path = CHART) -> list[Json]:
    """The objects of a release with these values, later ones over earlier ones."""
    done = _template(values, release, chart)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def refusal(*values: Path | Json) -> str:
    """Why helm does not take these values."""
    done = _template(values, RELEASE, CHART)
    assert done.returncode != 0, done.stdout
    return done.stderr


def only(objects: list[Json], kind: str, ending: str = "") -> Json:
    """The one object of that kind, or the one whose name ends like this."""
    (found,) = (one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(ending))
    return found


def pod_templates(objects: list[Json]) -> dict[str, Json]:
    """Every pod that comes of these objects, by kind and name of what it comes of."""
    found = {}
    for one in objects:
        match one["kind"]:
            case "Deployment":
                pod = one["spec"]["template"]
            case "CronJob":
                pod = one["spec"]["jobTemplate"]["spec"]["template"]
            case "Pod":
                pod = one
            case _:
                continue
        found[f"{one['kind']}/{one['metadata']['name']}"] = pod
    return found


def containers(pod: Json) -> list[Json]:
    """All containers of a pod, in the order in which they start."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def _template(values: tuple[Path | Json, ...], release: str, chart: Path) -> subprocess.CompletedProcess[str]:
    arguments: list[str | Path] = ["template", release, chart, "--namespace", NAMESPACE]
    together: Json = {}
    for each in values:
        together = _over(together, yaml.safe_load(each.read_text(encoding="utf-8")) if isinstance(each, Path) else each)
    return helm(*arguments, "--values", "-", stdin=json.dumps(together))


def _over(below: Json, above: Json) -> Json:
    """As helm lays values over others."""
    made = dict(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(made.get(name), dict)
        made[name] = _over(made[name], value) if both else value
    return made
