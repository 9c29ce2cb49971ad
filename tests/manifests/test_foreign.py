"""Directories that hold more than manifests of ours: what is somebody else's is skipped, what may be ours never is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reconciler.errors import InvalidInput
from reconciler.manifests.files.loader import Loaded, Loader
from reconciler.model.identity import API_VERSION
from tests.support.values import catalogues

ACCOUNT = {"apiVersion": "jetstream.nats.io/v1beta2", "kind": "Account", "metadata": {"name": "a"}, "spec": {"name": "a"}}


def stream(name: str, *subjects: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": API_VERSION, **catalogues.stream(name, *subjects, **spec)}


def load(path: Path) -> Loaded:
    return Loader(lambda *_: "default").load([str(path)], None)


def other(version: str, kind: str) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "data": {"any": "thing"}}


@pytest.mark.parametrize(
    "document",
    [
        ACCOUNT,
        other("v1", "ConfigMap"),
        other("apps/v1", "Deployment"),
        other("networking.k8s.io/v1", "NetworkPolicy"),
        other("kustomize.toolkit.fluxcd.io/v1beta2", "Kustomization"),
        other("argoproj.io/v1alpha1", "Application"),
    ],
    ids=lambda document: str(document["kind"]),
)
def test_what_is_not_ours_is_skipped_and_named(tmp_path: Path, document: dict[str, object]) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([stream("S", "s.>"), document, stream("T", "t.>")]), encoding="utf-8")
    loaded = load(tmp_path)
    assert {str(key) for key in loaded.desired.resources} == {"Stream/S", "Stream/T"}
    (warning,) = loaded.warnings
    assert (warning.code, warning.severity) == ("skipped", "warning")
    assert str(document["kind"]) in warning.message


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Stream"),
        ("v1", "Sream"),
        ("reconciler/v2", "ConfigMap"),
        ("recociler/v1", "Thing"),
        ("reconciler/v1", "ConfigMap"),
        ("jetstream.nats.io/v1beta1", "Account"),
        ("", "ConfigMap"),
        ("latest", "ConfigMap"),
    ],
)
def test_what_may_be_ours_is_refused(tmp_path: Path, version: str, kind: str) -> None:
    """Skipped, it would be no longer declared."""
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(other(version, kind)), encoding="utf-8")
    with pytest.raises(InvalidInput):
        load(tmp_path)


@pytest.mark.parametrize("head", [{}, {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}])
def test_a_kustomization_is_skipped_by_its_name(tmp_path: Path, head: dict[str, str]) -> None:
    text = yaml.safe_dump({**head, "resources": ["all.yaml"]})
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(stream("S", "s.>")), encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    assert [warning.message for warning in load(tmp_path).warnings] == ["kustomization.yaml is for kustomize"]
    (tmp_path / "kustomization.yaml").rename(tmp_path / "mine.yaml")
    with pytest.raises(InvalidInput):
        load(tmp_path)


def listed(*items: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "List", "items": [*items], "metadata": {"resourceVersion": ""}}


def test_the_items_of_a_list_are_documents(tmp_path: Path) -> None:
    theirs = {"apiVersion": "jetstream.nats.io/v1beta2", "kind": "Stream", "metadata": {"name": "t", "uid": "1"}}
    theirs |= {"spec": {"name": "T", "subjects": ["t.>"], "maxAge": "1h"}, "status": {}}
    path = tmp_path / "all.yaml"
    documents = [stream("A", "a.>"), listed(stream("B", "b.>"), theirs, ACCOUNT), listed(), stream("C", "c.>")]
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    loaded = load(path)
    assert [str(key) for key in loaded.desired.resources] == ["Stream/A", "Stream/B", "Stream/T", "Stream/C"]
    assert [warning.code for warning in loaded.warnings] == ["skipped"]


def test_faults_within_a_list_have_their_own_lines(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(listed(stream("A", "a.>"), stream("B", "b.>", maxAgge="1h"), 3, listed()), sort_keys=False))
    with pytest.raises(InvalidInput) as caught:
        load(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    by_code = {problem.code: problem for problem in caught.value.problems}
    misspelled = next(problem for problem in caught.value.problems if "maxAgge" in problem.message)
    assert "maxAgge" in lines[misspelled.line - 1]
    assert misspelled.field == "items[1].spec.maxAgge"
    assert lines[by_code["wrong-type"].line - 1] == "- 3"
    assert "unknown-kind" in by_code, "a list within a list"


def test_the_same_in_two_items_is_twice(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(listed(stream("A", "a.>"), stream("A", "b.>"))), encoding="utf-8")
    with pytest.raises(InvalidInput, match="Stream/A"):
        load(path)


def test_items_that_are_no_list(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": {}}), encoding="utf-8")
    with pytest.raises(InvalidInput, match="the items of a List are a list"):
        load(path)
