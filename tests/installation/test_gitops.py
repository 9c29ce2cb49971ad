"""What stands beside Argo CD and Flux: the Job that asks whether everything is in place, and the health of a CronJob in Lua."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua51

from tests.support.chart.helm import rendered
from tests.support.daemon.command import Command
from tests.support.installing import ROOT
from tests.support.pages.following import files
from tests.support.server.process import Server

Json = dict[str, Any]
PAGE = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: ORDERS}\nspec: {subjects: [orders.>]}\n"
DUE, BEFORE, AFTER = "2026-01-01T10:00:00Z", "2026-01-01T09:00:31Z", "2026-01-01T10:00:31Z"


def documents(name: str) -> list[Json]:
    """A file of the page."""
    return list(yaml.safe_load_all(files(PAGE)[name]))


def health(cron_job: Json) -> tuple[str, str]:
    """What Argo CD makes of a CronJob, with the snippet; its Lua is 5.1."""
    (config,) = documents("argocd-cm.yaml")
    (name,) = config["data"]
    assert name == "resource.customizations.health.batch_CronJob"
    lua = lua51.LuaRuntime()
    judge = lua.eval(f"function(obj)\n{config['data'][name]}\nend")
    found = judge(lua.table_from(cron_job, recursive=True))
    return str(found["status"]), str(found["message"])


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, None, ("Healthy", "not yet due")),
        ({}, {}, ("Healthy", "not yet due")),
        ({"suspend": True}, {"lastScheduleTime": DUE}, ("Healthy", "suspended")),
        ({"suspend": False}, {"lastScheduleTime": DUE, "active": [{"name": "x"}]}, ("Healthy", f"running since {DUE}")),
        ({}, {"lastScheduleTime": DUE, "active": []}, ("Degraded", f"the run of {DUE} failed")),
        ({}, {"lastScheduleTime": DUE, "lastSuccessfulTime": BEFORE}, ("Degraded", f"the run of {DUE} failed")),
        ({}, {"lastScheduleTime": DUE, "lastSuccessfulTime": AFTER}, ("Healthy", f"the run of {DUE} succeeded")),
    ],
)
def test_argo_cd_sees_whether_the_last_run_succeeded(spec: Json, status: Json | None, expected: tuple[str, str]) -> None:
    assert health({"spec": spec, **({} if status is None else {"status": status})}) == expected


def job() -> Json:
    """The container that asks."""
    (cron_job,) = documents("in-place.yaml")
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_the_job_ends_with_0_when_everything_is_in_place_and_else_with_1(server: Server, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "orders.yaml").write_text(STREAM, encoding="utf-8")
    environ = {each["name"]: each["value"] for each in job()["env"]} | {"NATS_URL": server.url, "RECONCILER_FILE": str(manifests)}
    del environ["NATS_CREDS"]
    arguments = ["1s" if each == "2m" else each for each in job()["args"]]
    cli = Command(tmp_path)
    missing = cli(*arguments, environ=environ, code=1)
    assert "OutOfSync" in missing.out
    assert "Stream/ORDERS" in missing.out
    cli("apply", "--yes", environ=environ)
    assert "1 Synced" in cli(*arguments, environ=environ).out


def test_the_job_is_as_restricted_as_the_daemon_and_ends_before_the_next() -> None:
    (cron_job,) = documents("in-place.yaml")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    base = next(yaml.safe_load_all((ROOT / "deploy/kustomize/base/deployment.yaml").read_text(encoding="utf-8")))
    assert base["kind"] == "ServiceAccount"
    daemon = list(yaml.safe_load_all((ROOT / "deploy/kustomize/base/deployment.yaml").read_text(encoding="utf-8")))[1]
    ours = daemon["spec"]["template"]["spec"]
    assert {**pod["securityContext"], "fsGroupChangePolicy": "OnRootMismatch"} == ours["securityContext"]
    assert job()["securityContext"] == ours["containers"][0]["securityContext"]
    assert job()["image"] == ours["containers"][0]["image"]
    assert pod["automountServiceAccountToken"] is False
    assert cron_job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 300, "it runs every five minutes"


def test_argo_cd_and_flux_install_the_same_chart_of_the_same_version() -> None:
    (application,) = documents("application.yaml")
    repository, release = documents("release.yaml")
    source = application["spec"]["source"]
    assert source["repoURL"] == repository["spec"]["url"]
    assert source["targetRevision"] == repository["spec"]["ref"]["tag"]
    assert source["path"] == release["spec"]["chart"]["spec"]["chart"]


def test_argo_cd_gives_the_chart_what_the_page_on_installing_does() -> None:
    (application,) = documents("application.yaml")
    values = application["spec"]["source"]["helm"]["valuesObject"]
    assert values == yaml.safe_load(files((ROOT / "docs" / "installation.md").read_text(encoding="utf-8"))["values.yaml"])
    assert rendered(values), "which takes them"
