"""One name for each image, one version of everything: what the page on installing builds is what is started everywhere else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

from reconciler import __version__
from tests.support.chart.helm import CASES, CHART, ROOT, containers, pod_templates, rendered
from tests.support.pages.following import FENCE

Json = dict[str, Any]
PAGE = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
_BUILD = re.compile(r"^docker build (?:--target (\S+) )?--tag (\S+) \.$", re.MULTILINE)
_OURS = re.compile(r"ghcr\.io/[\w./-]+[\w](?::[\w.]+)?")
_RELEASE = re.compile(r"\bv(\d+\.\d+\.\d+)\b")
_REPOSITORY = "jetstream-reconciler/reconciler"


def runnable() -> list[str]:
    """The targets of the Dockerfile that become images, the one that is built when none is named last."""
    return [
        stage.partition("\n")[0]
        for stage in re.split(r"^FROM \S+ AS ", DOCKERFILE, flags=re.MULTILINE)[1:]
        if "\nENTRYPOINT" in stage
    ]


def built() -> dict[str, str]:
    """The name that the page gives to each target."""
    return {target or runnable()[-1]: name for target, name in _BUILD.findall(PAGE)}


def started() -> Iterator[tuple[str, str, bool]]:
    """Where a container of ours is started, its image, and whether it plans (with git beside it) instead of keeping JetStream."""
    for case in CASES:
        for pod, template in pod_templates(rendered(case)).items():
            for container in containers(template):
                if "/git-sync/" not in container["image"]:
                    yield f"{case.name} {pod} {container['name']}", container["image"], pod.endswith("-planner")
    kustomize = yaml.safe_load_all((ROOT / "deploy/kustomize/base/deployment.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
    shown = (document for language, body in FENCE.findall(page) if language == "yaml" for document in yaml.safe_load_all(body))
    for where, documents in (("the base", kustomize), ("gitops.md", shown)):
        for pod, template in pod_templates([one for one in documents if one.get("kind") in ("CronJob", "Deployment")]).items():
            for container in containers(template):
                yield f"{where} {pod}", container["image"], False
    service = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text(encoding="utf-8"))["services"]["reconciler"]
    yield "Compose", service["image"], service["build"]["target"] == "planner"


def test_the_page_builds_every_image_of_the_dockerfile() -> None:
    assert runnable() == ["planner", "daemon"]
    assert built().keys() == {"planner", "daemon"}
    assert built()["planner"] == built()["daemon"].replace(":", "-planner:")
    assert {name.partition(":")[2] for name in built().values()} == {__version__}


def test_whatever_is_started_somewhere_is_an_image_that_is_built() -> None:
    found = list(started())
    assert {where.split()[0] for where, _, _ in found} == {*(case.name for case in CASES), "the", "gitops.md", "Compose"}
    assert {plans for _, _, plans in found} == {False, True}
    others = {where: image for where, image, plans in found if image != built()["planner" if plans else "daemon"]}
    assert {where.split()[0] for where in others} == {"scheduling-values.yaml"}, "it names an image of its own"


def test_no_other_name_and_no_other_version_stands_anywhere() -> None:
    command = ["git", "grep", "--untracked", "--no-color", "-I", "-e", "ghcr.io/", "-e", _REPOSITORY, "--", ":!tests"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    allowed = {*built().values(), *(name.partition(":")[0] for name in built().values())}
    assert len(lines) > 15
    assert [line for line in lines for name in _OURS.findall(line) if name not in allowed] == []
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    assert (labels["version"], labels["source"]) == (__version__, f"https://github.com/{_REPOSITORY}")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__
    released = [version for line in lines if f"{_REPOSITORY}@" in line for version in _RELEASE.findall(line)]
    beside = [
        each
        for page in ("installation.md", "gitops.md")
        for each in re.findall(r"(?:rev|targetRevision|tag): v([\d.]+)", page_text(page))
    ]
    assert {*released, *beside} == {__version__}
    assert (len(released), len(beside)) == (2, 3)


def page_text(name: str) -> str:
    """A page of the documentation."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")
