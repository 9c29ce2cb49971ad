"""What helm makes of the chart, for every way to install it that is tried."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from reconciler import __version__
from tests.support.chart.helm import CASES, CHART, SMALLEST, containers, helm, named, only, pod_templates, rendered

Json = dict[str, Any]
OLDEST, NEWEST = "1.29", "1.37"
OURS = {"apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1", "v1"}
OPERATOR = "monitoring.coreos.com/v1"


@functools.cache
def of(case: Path) -> list[Json]:
    """Helm is a process: what is only read is rendered once."""
    return rendered(case)


pytestmark = pytest.mark.xdist_group("what helm renders")  # in one process, where it is rendered once
cases = pytest.mark.parametrize("case", CASES, ids=named)


@cases
def test_lint_has_nothing_to_say(case: Path) -> None:
    done = helm("lint", "--strict", CHART, "--values", case)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_ten_ways_at_least() -> None:
    assert len(CASES) >= 10


@cases
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_object_and_every_field(case: Path, version: str) -> None:
    for one in of(case):
        assert one["apiVersion"] in OURS | {OPERATOR}
        if one["apiVersion"] != OPERATOR:  # those are tried on the API server, with the CRDs of the operator
            kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    made = only(rendered(SMALLEST), "Deployment")
    made["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProb"):
        kubernetes_validate.validate(made, NEWEST, strict=True)


@cases
def test_every_object_has_a_name_and_labels_of_its_own(case: Path) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in of(case)]
    assert len(set(names)) == len(names)
    for one in of(case):
        if not one["metadata"]["name"].endswith(("-more", "-text")):  # whatever somebody adds
            wanted = {"name", "instance", "version", "part-of", "managed-by"}
            assert {f"app.kubernetes.io/{label}" for label in wanted} | {"helm.sh/chart"} <= one["metadata"]["labels"].keys()


@cases
def test_every_pod_is_restricted(case: Path) -> None:
    """Kubernetes' own profile of that name, and what goes beyond it."""
    pods = pod_templates(of(case))
    assert pods
    for pod in pods.values():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "a Service called nats would set variables of ours"
        assert (
            spec["securityContext"] | {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
            == (spec["securityContext"])
        )
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in containers(pod):
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
            assert context.get("runAsUser", 1) != 0
            assert container["imagePullPolicy"]
            mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
            assert mounted <= {volume["name"] for volume in spec["volumes"]}


@cases
def test_no_secret_is_a_value(case: Path) -> None:
    """Secrets are named, and mounted: what is not public never stands in a manifest, nor in what a process inherits."""
    for one in of(case):
        assert one["kind"] != "Secret"
    for pod in pod_templates(of(case)).values():
        for container in containers(pod):
            by_reference = {each["name"] for each in container.get("env", ()) if "valueFrom" in each}
            assert by_reference <= {"RECONCILER_HTTP_TOKEN"}
            assert not {"NATS_PASSWORD", "NATS_TOKEN", "NATS_SEED"} & {each["name"] for each in container.get("env", ())}


@cases
def test_what_selects_pods_selects_exactly_those_of_the_daemon(case: Path) -> None:
    objects = of(case)
    deployment = only(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    others = [pod["metadata"]["labels"] for name, pod in pod_templates(objects).items() if not name.startswith("Deployment/")]
    selectors = {
        "Deployment": deployment["spec"]["selector"]["matchLabels"],
        "Service": only(objects, "Service")["spec"]["selector"],
    }
    for one in objects:
        if one["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
            selectors[one["kind"]] = one["spec"]["selector"]["matchLabels"]
    for selector in selectors.values():
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= other.items() for other in others)


@cases
def test_monitors_find_the_port_by_its_name(case: Path) -> None:
    objects = of(case)
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    service = only(objects, "Service")
    named_ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= named_ports
    for one in objects:
        if "Monitor" in one["kind"]:
            (relabeling,) = next(iter(one["spec"].get("endpoints") or one["spec"]["podMetricsEndpoints"]))["relabelings"]
            assert (relabeling["targetLabel"], relabeling["replacement"]) == ("job", one["metadata"]["name"])
        if one["kind"] == "ServiceMonitor":
            assert one["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            assert {endpoint["port"] for endpoint in one["spec"]["endpoints"]} <= {
                port["name"] for port in service["spec"]["ports"]
            }
        if one["kind"] == "PodMonitor":
            assert {endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]} <= named_ports


@cases
def test_what_never_may_change_does_not(case: Path) -> None:
    """Selectors are immutable: an upgrade of chart, application or settings must not touch them."""
    before = only(of(case), "Deployment")
    more: Json = {
        "replicas": 5,
        "podLabels": {"more": "yes"},
        "image": {"tag": "9.9.9"},
        "run": {"interval": "2m"},
        "environment": "test",
    }
    after = only(rendered(case, more), "Deployment")
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert not {"app.kubernetes.io/version", "helm.sh/chart"} & after["spec"]["selector"]["matchLabels"].keys()


def test_other_manifests_restart_nothing_and_other_settings_do() -> None:
    def template(*more: Json) -> Json:
        case = CHART / "ci" / "inline-values.yaml"
        found: Json = only(rendered(case, *more), "Deployment")["spec"]["template"]
        return found

    assert template({"source": {"configMap": {"manifests": {"orders.yaml": "other: text"}}}}) == template()
    for more in (
        {"run": {"policy": "sync"}},
        {"owner": "other"},
        {"nats": {"url": "nats://other:4222"}},
        {"run": {"dryRun": True}},
    ):
        assert template(more) != template()


@pytest.mark.parametrize(("case", "patience"), [("existing-volume", "1m"), ("inline", "30s")])
def test_how_long_a_new_leader_waits_at_the_fence_is_a_setting(case: str, patience: str) -> None:
    (container,) = only(of(CHART / "ci" / f"{case}-values.yaml"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "RECONCILER_FENCE", "value": patience} in container["env"]


def test_who_runs_alone_may_be_taken_away() -> None:
    kinds = [one["kind"] for one in rendered(SMALLEST, {"replicas": 1})]
    assert "PodDisruptionBudget" not in kinds
    assert only(rendered(SMALLEST), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert only(rendered(SMALLEST), "Deployment")["spec"]["replicas"] == 2


def test_nothing_may_ask_kubernetes_for_anything() -> None:
    for case in CASES:
        assert not [one["kind"] for one in of(case) if "Role" in one["kind"]]


def test_the_chart_is_of_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__
    named = {each["name"]: each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    pods = pod_templates(rendered(CHART / "ci" / "planner-ssh-values.yaml")).values()
    assert {container["image"] for pod in pods for container in containers(pod)} == set(named.values())
    assert named["reconciler"].endswith(f"/reconciler:{__version__}")
    assert named["reconciler-planner"].endswith(f"/reconciler-planner:{__version__}")


def test_where_the_platform_chooses_users_none_is_named() -> None:
    """As OpenShift wants it."""
    nobody: Json = {"runAsUser": None, "runAsGroup": None}
    values: Json = {"podSecurityContext": nobody | {"fsGroup": None}, "source": {"gitSync": {"securityContext": nobody}}}
    for pod in pod_templates(rendered(CHART / "ci" / "planner-ssh-values.yaml", values)).values():
        for context in (pod["spec"]["securityContext"], *(each["securityContext"] for each in containers(pod))):
            assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_alerts_and_dashboard_are_the_files_as_they_are() -> None:
    """No template of ours may touch theirs: both are full of braces."""
    objects = of(CHART / "ci" / "service-monitor-values.yaml")
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((CHART / "files").glob("*.*"))}
    groups = [group for name, text in files.items() if name.endswith(".yaml") for group in yaml.safe_load(text)["groups"]]
    assert only(objects, "PrometheusRule")["spec"] == {"groups": groups}
    (text,) = only(objects, "ConfigMap", "-dashboard")["data"].values()
    assert text == files.get("dashboard.json", "")


def test_as_a_part_of_a_larger_chart_it_takes_global_values(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "charts" / "reconciler").symlink_to(CHART)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n", encoding="utf-8")
    values: Json = {"global": {"region": "eu"}, "reconciler": SMALLEST}
    assert only(rendered(values, chart=parent), "Deployment")["metadata"]["name"] == "shop-reconciler"
