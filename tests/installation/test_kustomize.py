"""The Kustomize base and its example: what Kubernetes says of them, what they start, and that they are the chart's daemon."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from reconciler import __version__
from tests.support.account.wire import Wire
from tests.support.chart.helm import CHART, ROOT, only, rendered
from tests.support.chart.volumes import projected
from tests.support.daemon.process import Daemon, settled
from tests.support.server.binaries import cache
from tests.support.server.process import Server
from tests.support.skipped import lacking

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "kustomize"
MODULE = "sigs.k8s.io/kustomize/kustomize/v5@v5.0.3"
"""Which the Go of Debian 12 builds."""
VERSIONS = ("1.29", "1.37")


def kustomize() -> list[str]:
    """The program: kustomize, kubectl, or what Go builds once; without any of them the test is skipped, in CI it fails."""
    built = cache() / "kustomize"
    for command in (["kustomize", "build"], ["kubectl", "kustomize"], [str(built / "kustomize"), "build"]):
        if shutil.which(command[0]):
            return command
    if not shutil.which("go"):
        lacking("Kustomize", "kubectl, kustomize or go is not installed: apt-get install golang-go")
    subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": str(built)}, check=True, capture_output=True)
    return [str(built / "kustomize"), "build"]


@pytest.fixture(scope="module")
def objects() -> list[Json]:
    """What the example comes to."""
    done = subprocess.run([*kustomize(), str(FOLDER / "example")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pod(objects: list[Json]) -> Json:
    """What the Deployment starts."""
    return dict(only(objects, "Deployment")["spec"]["template"]["spec"])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_example_is_what_kubernetes_accepts(objects: list[Json], version: str) -> None:
    assert sorted(one["kind"] for one in objects) == [
        "ConfigMap",
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ]
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)
        assert one["metadata"]["namespace"] == "messaging"
    wrong = only(objects, "Service") | {"specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="specs"):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_what_refers_to_something_finds_it(objects: list[Json]) -> None:
    deployment, started = only(objects, "Deployment"), pod(objects)
    (container,) = started["containers"]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        only(objects, "Service")["spec"]["selector"],
        only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        started["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    assert started["serviceAccountName"] == only(objects, "ServiceAccount")["metadata"]["name"]
    assert [port["targetPort"] for port in only(objects, "Service")["spec"]["ports"]] == [container["ports"][0]["name"]]
    volumes = {volume["name"]: volume for volume in started["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    manifests = only(objects, "ConfigMap", "-manifests")["metadata"]["name"]
    assert volumes["manifests"]["configMap"]["name"] == manifests == "reconciler-manifests", "no hash, no restart"
    settings = container["envFrom"][0]["configMapRef"]["name"]
    assert re.fullmatch(r"reconciler-[a-z0-9]{10}", settings), "a hash, so a restart"
    assert container["image"].endswith(f":{__version__}")


async def test_what_the_example_starts_is_ready_and_takes_up_other_manifests(
    objects: list[Json], server: Server, wire: Wire, tmp_path: Path
) -> None:
    (container,) = pod(objects)["containers"]
    settings = only(objects, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])["data"]
    environ = dict(settings) | {each["name"]: each["value"] for each in container["env"]}
    (credentials,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "nats")
    assert environ.pop("NATS_CREDS").startswith(f"{credentials}/")
    (mounted,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "manifests")
    assert environ["RECONCILER_FILE"] == mounted
    manifests = only(objects, "ConfigMap", "-manifests")["data"]
    projected(tmp_path / "manifests", {name: text.encode() for name, text in manifests.items()}, 0o644)
    environ |= {"NATS_URL": server.url, "RECONCILER_FILE": str(tmp_path / "manifests")}
    arguments = ["127.0.0.1:0" if each == ":8080" else each for each in container["args"]]
    with (tmp_path / "log").open("wb") as log:
        command = [str(Path(sys.executable).with_name("reconciler")), *arguments]
        process = await asyncio.create_subprocess_exec(*command, env=environ, cwd="/", stdout=log, stderr=log)
    daemon = Daemon(process, tmp_path / "log")
    try:
        await daemon.ready()
        await daemon.until(settled)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert (await daemon.get(container[probe]["httpGet"]["path"]))[0] == 200
        changed = {name: text.replace("7d", "8d").encode() for name, text in manifests.items()}
        projected(tmp_path / "manifests", changed, 0o644)
        await daemon.until(lambda _: len(daemon.lines("change.ended")) == 3)
        assert (await wire.stream_info("ORDERS"))["config"]["max_age"] == 8 * 86400 * 10**9
    finally:
        await daemon.kill()


def test_the_base_is_the_daemon_of_the_chart(objects: list[Json]) -> None:
    """What both say, they say alike: nobody finds out about a probe or a right by changing from the one to the other."""
    values = {"replicas": 2, "source": {"configMap": {"name": "reconciler-manifests"}}}
    chart = rendered(CHART / "ci" / "configmap-values.yaml", values, release="reconciler")
    theirs, ours = only(chart, "Deployment")["spec"], only(objects, "Deployment")["spec"]
    assert theirs["replicas"] == ours["replicas"]
    templates = [theirs["template"]["spec"], ours["template"]["spec"]]
    names = set(templates[0]) - {"containers", "volumes", "topologySpreadConstraints"}
    assert {name: templates[0][name] for name in names} == {name: templates[1].get(name) for name in names}
    containers = [template["containers"][0] for template in templates]
    for name in ("image", "args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "securityContext", "resources"):
        assert containers[0][name] == containers[1][name], name
    volumes, mounts = (templates[0]["volumes"], containers[0]["volumeMounts"])
    assert [one for one in volumes if one not in templates[1]["volumes"]] == []
    assert [one for one in mounts if one not in containers[1]["volumeMounts"]] == []
    for kind in ("Service", "PodDisruptionBudget"):
        specs = [only(each, kind)["spec"] | {"selector": {}} for each in (chart, objects)]
        assert specs[0] == specs[1]
