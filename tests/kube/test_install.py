"""The chart on a real Kubernetes API server: installed, upgraded, rolled back, removed, where pods have to be restricted.

There is no kubelet: what the pods do is the matter of tests/chart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart.helm import CASES, CHART, SMALLEST, helm, named, only, pod_templates, rendered
from tests.support.kube.cluster import Cluster, NotLikeThat, cluster

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

Json = dict[str, Any]
RELEASE = "shop"
CHANGED: Json = {
    "replicas": 4,
    "run": {"interval": "3m", "maxChangePercent": 20},
    "podAnnotations": {"example.org/changed": "yes"},
    "resources": {"limits": {"memory": "2Gi"}},
    "image": {"tag": "9.9.9", "digest": ""},
}
cases = pytest.mark.parametrize("case", CASES, ids=named)


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One API server for all of them; each has a namespace of its own."""
    with cluster(tmp_path_factory.mktemp("kubernetes") / "cluster") as made:
        yield made


class Release:
    """A release in a namespace of its own."""

    def __init__(self, kubernetes: Cluster, name: str) -> None:
        self.kubernetes, self.namespace = kubernetes, kubernetes.namespace(name)

    def helm(self, *arguments: str | Path) -> str:
        """Helm there; it must neither fail nor warn."""
        done = self.tried(*arguments)
        assert done[0] == 0, done
        assert done[2] == "", "a warning, such as that pods would be refused"
        return done[1]

    def tried(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Helm there, whatever comes of it."""
        done = helm(*arguments, "--namespace", self.namespace, "--kubeconfig", self.kubernetes.kubeconfig)
        return done.returncode, done.stdout, done.stderr

    def live(self) -> dict[str, Json]:
        """The objects of the release as the API server has them, without what it counts and dates."""
        found = {}
        for one in self.declared():
            live = self.kubernetes.call("GET", self.kubernetes.path_of(one, self.namespace))
            found[f"{one['kind']}/{one['metadata']['name']}"] = {
                "labels": live["metadata"].get("labels"),
                **{name: value for name, value in live.items() if name not in {"metadata", "status"}},
            }
        return found

    def declared(self) -> list[Json]:
        """What helm says that it has put there."""
        return [one for one in yaml.safe_load_all(self.helm("get", "manifest", RELEASE)) if one]


@cases
def test_installed_upgraded_rolled_back_and_removed(kubernetes: Cluster, case: Path, tmp_path: Path) -> None:
    release = Release(kubernetes, f"install-{named(case)}")
    notes = release.helm("install", RELEASE, CHART, "--values", case)
    assert notes.count("\n     kubectl") + notes.count("\n     helm") == 3, notes
    first = release.live()
    assert len(first) >= 2

    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump(CHANGED), encoding="utf-8")
    release.helm("upgrade", RELEASE, CHART, "--values", case, "--values", changed)
    second = release.live()
    deployments = [next(one for name, one in each.items() if name.startswith("Deployment/")) for each in (first, second)]
    assert deployments[0]["spec"]["selector"] == deployments[1]["spec"]["selector"]
    assert deployments[1]["spec"]["replicas"] == 4
    assert deployments[1]["spec"]["template"] != deployments[0]["spec"]["template"]

    release.helm("rollback", RELEASE, "1")
    assert release.live() == first
    release.helm("uninstall", RELEASE)
    assert kubernetes.everything(release.namespace) == []


@cases
def test_the_api_server_takes_every_pod_and_applying_again_changes_nothing(kubernetes: Cluster, case: Path) -> None:
    namespace = kubernetes.namespace(f"apply-{named(case)}")
    objects = rendered(case)
    for one in objects:
        path = kubernetes.path_of(one, namespace)
        one["metadata"]["namespace"] = namespace
        if one["kind"] == "Pod":
            continue  # of `helm test`, tried below
        versions = set()
        for _ in range(2):
            live, warnings = kubernetes.answer("PATCH", f"{path}?fieldManager=tests", one, "application/apply-patch+yaml")
            assert warnings == []
            versions.add(live["metadata"]["resourceVersion"])
        assert len(versions) == 1, path
    for account in ("default", "shared"):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        kubernetes.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    for name, pod in pod_templates(objects).items():
        kubernetes.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", as_pod(pod)), name


def as_pod(template: Json) -> Json:
    """A pod as a controller would make it of a template."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "tried-"}, "spec": template["spec"]}


def test_helm_test_leaves_nothing_behind(kubernetes: Cluster) -> None:
    """The pod succeeds because this test says so: there is no kubelet. That it does is the matter of tests/chart."""
    release = Release(kubernetes, "helm-test")
    release.helm("install", RELEASE, CHART, "--values", CHART / "ci" / "inline-values.yaml")
    path = f"/api/v1/namespaces/{release.namespace}/pods/shop-reconciler-plan"
    with ThreadPoolExecutor(1) as other:
        tested = other.submit(release.helm, "test", RELEASE)
        while not tested.done():
            with suppress(NotLikeThat):
                status = {"status": {"phase": "Succeeded"}}
                kubernetes.call("PATCH", f"{path}/status", status, "application/merge-patch+json")
            time.sleep(0.05)
        assert "Phase:          Succeeded" in tested.result()
    release.helm("uninstall", RELEASE)
    assert kubernetes.everything(release.namespace) == []


def test_a_pod_that_is_not_restricted_is_warned_of_and_refused(kubernetes: Cluster, tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    release = Release(kubernetes, "unrestricted")
    deployment = only(rendered(SMALLEST), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["securityContext"]["allowPrivilegeEscalation"] = True
    deployment["metadata"]["name"] = "loose"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**SMALLEST, "extraObjects": [deployment]}), encoding="utf-8")
    code, _, warned = release.tried("install", RELEASE, CHART, "--values", values)
    assert code == 0, warned
    assert "would violate PodSecurity" in warned
    assert "allowPrivilegeEscalation" in warned
    with pytest.raises(NotLikeThat, match="violates PodSecurity"):
        kubernetes.call("POST", f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All", as_pod(deployment["spec"]["template"]))


def test_a_field_that_the_operator_does_not_know_is_refused(kubernetes: Cluster) -> None:
    """Its definitions are there, so its objects are checked as well."""
    namespace = kubernetes.namespace("operator")
    monitor = only(rendered(CHART / "ci" / "service-monitor-values.yaml"), "ServiceMonitor")
    path = f"{kubernetes.path_of(monitor, namespace).rpartition('/')[0]}?fieldValidation=Strict"
    kubernetes.call("POST", path, monitor)
    monitor["metadata"]["name"] = "other"
    monitor["spec"]["endpoints"][0]["intervall"] = "1s"
    with pytest.raises(NotLikeThat, match="intervall"):
        kubernetes.call("POST", path, monitor)
