"""What the page of clusters gives to Kubernetes: values for the chart, and a CronJob whose pod is Spark's driver."""

from __future__ import annotations

import subprocess

import kubernetes_validate  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from reconciler import __version__
from tests.support.chart.helm import ROOT, only, rendered
from tests.support.pages.following import Command, steps

VERSION = "1.34"
PAGE = (ROOT / "docs" / "partitions-cluster.md").read_text(encoding="utf-8")
FILES = dict(step for step in steps(PAGE) if not isinstance(step, Command))


@pytest.mark.parametrize("one", list(yaml.safe_load_all(FILES["planner.yaml"])), ids=lambda one: str(one["kind"]))
def test_its_manifests_are_valid(one: dict[str, object]) -> None:
    kubernetes_validate.validate(one, VERSION, strict=True)


def test_the_shell_of_its_cron_job_can_be_read() -> None:
    *_, job = yaml.safe_load_all(FILES["planner.yaml"])
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    read = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    assert container["image"].endswith(f"/reconciler-planner:{__version__}")
    assert '"$(python -m reconciler.cli.spark_submit)" -c plan.yaml --commit\ngit push\n' in script


def test_its_values_bring_the_planner_to_a_connect_server() -> None:
    job = only(rendered(yaml.safe_load(FILES["values.yaml"])), "CronJob")
    kubernetes_validate.validate(job, VERSION, strict=True)
    plan = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"][1]
    assert plan["args"][-2:] == ["--remote", "sc://spark-connect.spark:15002"]
