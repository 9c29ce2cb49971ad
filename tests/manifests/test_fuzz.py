"""Whatever is thrown at it: a Desired or InvalidInput with file and line, soon."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from reconciler.errors import InvalidInput
from reconciler.manifests.environment import MODELS
from reconciler.manifests.files.loader import Loader
from reconciler.model.kinds.documents import AssignmentIndexSpec, EnvironmentSpec, PolicySpec
from reconciler.model.kinds.pool import WorkerAssignmentSpec
from tests.support.choice import examples

ALL: dict[str, type[BaseModel]] = {
    **MODELS,
    "WorkerAssignment": WorkerAssignmentSpec,
    "Environment": EnvironmentSpec,
    "Policy": PolicySpec,
    "AssignmentIndex": AssignmentIndexSpec,
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["30s", "64MB", "2024-01-01T00:00:00Z", "a.>", ">", "absent", "limits", "flow_control", "explicit", "{{wildcard(9)}}"]
    ),
)
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6
)
SOON = 5.0


def load(documents: list[Any]) -> None:
    """Load the documents, one JSON file each; anything but InvalidInput fails the test."""
    with tempfile.TemporaryDirectory() as directory:
        for number, value in enumerate(documents):
            (Path(directory) / f"{number}.json").write_bytes(orjson.dumps(value))
        begin = time.process_time()
        try:
            loaded = Loader().load([directory], None)
            problems = loaded.warnings
        except InvalidInput as error:
            problems = error.problems
            assert any(problem.severity == "error" for problem in problems)
        assert time.process_time() - begin < SOON
    for problem in problems:
        assert problem.file.startswith(directory), problem
        assert problem.line >= 1, problem
        assert problem.column >= 1, problem
        assert str(problem).isprintable(), problem
        assert "Input should" not in problem.message, problem
        assert "Traceback" not in problem.message, problem


def envelope(kind: Any, spec: Any, name: Any = "a") -> dict[str, Any]:
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("kind", sorted(ALL))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_wrong_types_in_every_field_of_every_kind(kind: str, data: st.DataObject) -> None:
    names = [info.alias for info in ALL[kind].model_fields.values() if info.alias]
    fields = data.draw(st.dictionaries(st.sampled_from(names), JUNK, max_size=5))
    base = {"stream": "S"} if "stream" in names else {}
    load([envelope(kind, base | fields)])


@pytest.mark.parametrize("kind", sorted(ALL))
@pytest.mark.parametrize("junk", [None, True, -1, 2**64 - 1, 0.5, "", "x", [], ["x", 1, None], {}, {"x": None}, [{}], [[]]])
def test_the_same_junk_in_each_single_field(kind: str, junk: Any) -> None:
    names = [info.alias for info in ALL[kind].model_fields.values() if info.alias]
    base = {"stream": "S"} if "stream" in names else {}
    load([envelope(kind, base | {name: junk}, name=f"n{number}") for number, name in enumerate(names)])


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(JUNK | st.builds(envelope, st.sampled_from(sorted(ALL)) | JUNK, JUNK, JUNK), max_size=4))
def test_junk_structures(documents: list[Any]) -> None:
    load(documents)


SUBJECTS = st.lists(st.sampled_from(["a", "b", "*", ">"]), min_size=1, max_size=3).map(".".join)
SOURCES = st.fixed_dictionaries(
    {"name": st.sampled_from("ABC")},
    optional={
        "filterSubject": SUBJECTS,
        "optStartSeq": st.integers(0, 2),
        "external": st.sampled_from([{"domain": "leaf"}, {"api": "x.y"}]),
        "consumer": st.sampled_from(
            [
                {"name": "c", "serverManaged": True},
                {"name": "c", "deliverSubject": "a.b"},
                {"name": "c", "deliverSubject": "d", "unmanaged": True},
            ]
        ),
        "subjectTransforms": st.lists(st.fixed_dictionaries({"src": SUBJECTS, "dest": SUBJECTS}), max_size=2),
    },
)
STATES = st.sampled_from(["present", "absent", "unmanaged"])
STREAMS = st.fixed_dictionaries(
    {},
    optional={
        "subjects": st.lists(SUBJECTS, max_size=2),
        "sources": st.lists(SOURCES, max_size=2),
        "mirror": SOURCES,
        "retention": st.sampled_from(["limits", "interest", "workqueue"]),
        "state": STATES,
        "maxConsumers": st.integers(-1, 2),
    },
)
CONSUMERS = st.fixed_dictionaries(
    {"stream": st.sampled_from("ABC")},
    optional={
        "filterSubjects": st.lists(SUBJECTS, max_size=2),
        "deliverSubject": st.sampled_from(["a.b", "d"]),
        "ackPolicy": st.sampled_from(["none", "explicit", "flow_control"]),
        "state": STATES,
    },
)
POOLS = st.fixed_dictionaries(
    {"stream": st.sampled_from("ABC")},
    optional={
        "workers": st.lists(
            st.fixed_dictionaries({"id": st.sampled_from("vw"), "filterSubjects": st.lists(SUBJECTS, max_size=3)}), max_size=2
        ),
        "overlap": st.sampled_from(["allowed", "refused"]),
        "consumerPrefix": st.sampled_from(["p", "q"]),
        "limits": st.just({"maxSubjects": 2}),
        "shardOverCap": st.booleans(),
        "state": STATES,
    },
)
NAMES = st.sampled_from("ABC")
PLAUSIBLE = st.one_of(
    st.builds(envelope, st.just("Stream"), STREAMS, NAMES),
    st.builds(envelope, st.just("Consumer"), CONSUMERS, st.sampled_from("cd")),
    st.builds(envelope, st.just("WorkerPool"), POOLS, st.sampled_from("pq")),
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PLAUSIBLE, max_size=8))
def test_plausible_sets(documents: list[Any]) -> None:
    load(documents)


@pytest.mark.parametrize(
    "spec",
    [
        {f"unknown{number}": number for number in range(20_000)},
        {"subjects": ["a..b"] * 20_000},
        {"subjects": [f"s.{number}" for number in range(20_000)]},
        {"subjects": [f"*.{number}.x" for number in range(5_000)] + [f"{number}.*.x" for number in range(5_000)]},
        {"metadata": {f"k{number}": "v" for number in range(20_000)}},
        {"description": "x" * 1_000_000},
        {"ignore": ["maxAeg"] * 20_000},
    ],
    ids=lambda spec: f"{next(iter(spec))}…",
)
def test_a_huge_document_is_answered_soon_with_few_problems(spec: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "x.json").write_bytes(orjson.dumps(envelope("Stream", spec)))
        begin = time.process_time()
        try:
            problems = Loader().load([directory]).warnings
        except InvalidInput as error:
            problems = error.problems
        assert time.process_time() - begin < SOON
        assert len(problems) <= 21
