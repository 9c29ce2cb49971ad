"""The reference of fields: complete, and the same in `explain`, in the schema and in what validation accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from reconciler.errors import UsageError
from reconciler.manifests.reference.explain import explain
from reconciler.manifests.reference.fields import KINDS, fields_of, model_in
from reconciler.manifests.reference.own_fields import DOCS
from reconciler.manifests.reference.schema import schema
from reconciler.model.kinds.fields import table

ROOT = Path(__file__).parents[2]


def every_model() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    waiting = list(KINDS.values())
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.append(model)
            waiting += [inner for field in fields_of(model).values() if (inner := model_in(field.shape))]
    return found


@pytest.mark.parametrize("model", every_model(), ids=lambda model: model.__name__)
def test_every_field_is_described(model: type[BaseModel]) -> None:
    assert [field.name for field in fields_of(model).values() if not field.doc or field.shape.name == "any"] == [] or (
        model is fields_of(KINDS["Environment"])["patches"].shape.item.model  # type: ignore[union-attr]
    )


def test_no_line_describes_a_field_that_is_gone() -> None:
    models = {model.__name__: set(fields_of(model)) for model in every_model()}
    assert {f"{model}.{name}" for model, lines in DOCS.items() for name in lines if name not in models[model]} == set()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Stream.maxAge", {"type": "duration", "default": "0s", "mutability": "mutable", "level": 0, "wire": "max_age"}),
        ("stream.maxAge", {"type": "duration"}),
        ("Stream.spec.maxAge", {"type": "duration"}),
        ("Stream.replicas", {"wire": "num_replicas", "default": 1}),
        ("Stream.numReplicas", {"name": "replicas"}),
        ("Stream.storage", {"type": "file | memory", "mutability": "immutable"}),
        ("Stream.mirror.filterSubject", {"mutability": "removable", "type": "subject"}),
        ("Stream.sources.filterSubject", {"wire": "filter_subject", "mutability": "mutable"}),
        ("Stream.sources.consumer.name", {"level": 4, "server": "2.14"}),
        ("Stream.allowAtomic", {"level": 2, "server": "2.12"}),
        ("Consumer.ackPolicy", {"default": "explicit", "mutability": "immutable"}),
        ("Consumer.ackWait", {"default": "30s"}),
        ("KeyValue.storage", {"mutability": "immutable", "default": "file", "wire": None}),
        ("KeyValue.history", {"default": 1}),
        ("WorkerPool.consumer.maxAckPending", {"default": 500}),
        ("WorkerPool.handoff.deadline", {"default": "2m"}),
        ("Policy.consumers.unusedAfter", {"type": "duration"}),
    ],
)
def test_explain_says_what_the_table_says(path: str, expected: dict[str, Any]) -> None:
    explained = explain(path).to_json()
    assert {name: explained[name] for name in expected} == expected


def test_explaining_a_kind_lists_its_fields() -> None:
    explained = explain("Stream")
    assert {field.name for field in explained.below} == set(fields_of(KINDS["Stream"]))
    assert "maxMsgsPerSubject" in str(explained)


@pytest.mark.parametrize(
    ("path", "hint"),
    [("Strem", "did you mean Stream?"), ("Stream.maxAeg", "did you mean maxAge?"), ("Stream.maxAge.x", "no field")],
)
def test_explaining_what_is_not_there_suggests_what_is(path: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint.replace("?", r"\?")):
        explain(path)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_schemas_are_draft_07(kind: str | None) -> None:
    jsonschema.Draft7Validator.check_schema(schema(kind))


def test_an_unknown_kind_has_no_schema() -> None:
    with pytest.raises(UsageError, match="did you mean Consumer"):
        schema("Consumr")


def document(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def accepts(value: dict[str, Any]) -> bool:
    whole = not list(jsonschema.Draft7Validator(schema()).iter_errors(value))
    if value["kind"] in KINDS:
        assert whole == (not list(jsonschema.Draft7Validator(schema(value["kind"])).iter_errors(value)))
    return whole


GOOD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Stream", {}),
    ("Stream", {"maxAge": "1h30m", "maxBytes": "64MiB", "maxMsgs": -1, "replicas": None, "sources": [{"name": "A"}]}),
    ("Stream", {"maxAge": 5, "maxBytes": -1, "numReplicas": 3, "metadata": {"a": "b"}}),
    ("Stream", {"sources": [{"name": "A", "external": {"domain": "leaf"}}, {"name": "B", "external": {"api": "$JS.l.API"}}]}),
    ("Stream", {"mirror": {"name": "A", "optStartTime": "2026-01-31T12:00:00.5+02:00"}}),
    ("Consumer", {"stream": "A", "backoff": ["1s", 5], "deadLetter": {"subject": "dlq.a"}, "filterSubjects": ["a.>", "b.*.c"]}),
    ("WorkerPool", {"state": "absent"}),
    ("WorkerPool", {"stream": "A", "workers": [{"id": "w", "filterSubjects": []}]}),
    ("Environment", {"defaults": {"Stream": {"replicas": 3}, "Consumer": {"ackWait": None}}}),
    ("PartitionPlan", {"anything": 1}),
)
BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Stream", {"maxAges": "1h"}),
    ("Stream", {"maxAge": "1 hour"}),
    ("Stream", {"maxAge": -1}),
    ("Stream", {"maxBytes": "64"}),
    ("Stream", {"storage": "disk"}),
    ("Stream", {"subjects": ["a..b"]}),
    ("Stream", {"subjects": "a"}),
    ("Stream", {"replicas": 6}),
    ("Stream", {"sources": [{"name": "A", "external": {}}]}),
    ("Consumer", {}),
    ("Consumer", {"stream": "A", "deliverSubject": "push.>"}),
    ("Consumer", {"stream": "A", "headersOnly": "yes"}),
    ("WorkerPool", {}),
    ("Environment", {"defaults": {"Stream": {"replica": 3}}}),
    ("Policy", {"consumers": {"namePatern": "x"}}),
    ("Strem", {}),
)


@pytest.mark.parametrize(("kind", "spec"), GOOD, ids=str)
def test_the_schema_accepts_what_validation_accepts(kind: str, spec: dict[str, Any]) -> None:
    assert accepts(document(kind, spec))


@pytest.mark.parametrize(("kind", "spec"), BAD, ids=str)
def test_the_schema_refuses(kind: str, spec: dict[str, Any]) -> None:
    assert not accepts(document(kind, spec))


def test_good_examples_are_good_for_the_models_as_well() -> None:
    for kind, spec in GOOD:
        if kind in KINDS and spec.get("state") != "absent" and None not in spec.values():
            KINDS[kind].model_validate(spec)


def test_every_manifest_of_the_default_set_fits_the_schema() -> None:
    documents = [
        value
        for file in sorted((ROOT / "manifests").rglob("*.yaml"))
        for value in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    assert len(documents) > 30
    assert [value["metadata"]["name"] for value in documents if not accepts(value)] == []


def test_tables_and_reference_name_the_same_wire_fields() -> None:
    for kind in ("Stream", "Consumer"):
        wire_names = {field.wire_name for field in fields_of(KINDS[kind]).values() if field.wire_name}
        assert wire_names == set(table(KINDS[kind]))
