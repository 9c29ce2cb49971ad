"""What the page on installing types for Kubernetes, typed: on a real API server, where pods have to be restricted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.chart.helm import HELM
from tests.support.installing import ROOT, checkout
from tests.support.kube.cluster import RESTRICTED, cluster
from tests.support.pages.following import files, section, typed
from tests.support.skipped import needs

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

DOCS = ROOT / "docs"
PAGE = (DOCS / "installation.md").read_text(encoding="utf-8")
NAMESPACE = "messaging"
HELMS = ("Deployment", "PodDisruptionBudget", "Service", "ServiceAccount")
KUSTOMIZES = ("ConfigMap", "ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount")


@pytest.mark.parametrize(("title", "made"), [("Kubernetes, with Helm", HELMS), ("Kubernetes, with Kustomize", KUSTOMIZES)])
def test_what_the_page_types_is_taken_by_kubernetes(title: str, made: tuple[str, ...], tmp_path: Path) -> None:
    """Where nothing runs pods, what waits for them is left out; nothing else is."""
    needs("kubectl", "kubectl", package="kubectl")
    text = section(PAGE, title)
    here = checkout(tmp_path / "here")
    (here / "user.creds").write_text("a credentials file\n", encoding="utf-8")
    with cluster(tmp_path / "kubernetes") as kubernetes:
        path = f"{HELM.parent}:{os.environ['PATH']}"
        environ = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(kubernetes.kubeconfig)}
        for name, content in files(text).items():
            (here / name).write_text(content, encoding="utf-8")
        for line in typed(text):
            if " rollout status " in line:
                continue
            done = subprocess.run(["bash", "-c", line], cwd=here, env=environ, capture_output=True, text=True, check=False)
            assert (done.returncode, "arning" in done.stderr) == (0, False), f"$ {line}\n{done.stdout}{done.stderr}"
            if line.startswith("kubectl create namespace"):
                body = {"metadata": {"labels": RESTRICTED}}
                kubernetes.call("PATCH", f"/api/v1/namespaces/{NAMESPACE}", body, "application/merge-patch+json")
        listed = "kubectl --namespace messaging get all,cm,pdb,sa,netpol --output jsonpath='{range .items[*]}{.kind} {end}'"
        said = subprocess.run(["bash", "-c", listed], cwd=here, env=environ, capture_output=True, text=True, check=True).stdout
        assert sorted(said.split()) == sorted(made)


def test_the_job_that_asks_whether_everything_is_in_place_is_taken_by_kubernetes(tmp_path: Path) -> None:
    job = yaml.safe_load(files((DOCS / "gitops.md").read_text(encoding="utf-8"))["in-place.yaml"])
    with cluster(tmp_path / "kubernetes") as kubernetes:
        path = kubernetes.path_of(job, kubernetes.namespace(NAMESPACE))
        assert kubernetes.answer("POST", f"{path.rpartition('/')[0]}?fieldValidation=Strict", job)[1] == []
