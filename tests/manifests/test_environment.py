"""Environments: which one, and what it makes of a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifests.merge import merge_patch
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from tests.support.values.manifests import codes, load, refused, warnings

PROD = """
kind: Environment
metadata: {name: prod}
spec:
  context: prod
  expect: {cluster: prod-eu, domain: ""}
  defaults: {Stream: {replicas: 3, maxAge: 7d}, Consumer: {ackWait: 45s, maxDeliver: 10, maxWaiting: 64}, WorkerPool: {}}
  patches:
    - {target: {kind: Stream, name: DLQ}, spec: {maxAge: 60d}}
"""
DEV = "kind: Environment\nmetadata: {name: dev}\nspec: {url: 'nats://127.0.0.1:4222'}"
DLQ = "kind: Stream\nmetadata: {name: DLQ}\nspec: {subjects: [dlq.>], maxAge: 30d}"
DAY = 86400 * 10**9


def config(directory: Path, *documents: str, key: Key, env: str = "prod") -> dict[str, Any]:
    return load(directory, PROD, DLQ, *documents, env=env).desired.resources[key].config


def consumer(spec: str) -> str:
    return f"kind: Consumer\nmetadata: {{name: c}}\nspec: {{stream: DLQ, {spec}}}"


C = Key("Consumer", "c", "DLQ")


def test_defaults_come_before_the_document_and_patches_after(tmp_path: Path) -> None:
    found = config(tmp_path, key=Key("Stream", "DLQ"))
    assert (found["num_replicas"], found["max_age"]) == (3, 60 * DAY)


def test_without_the_environment_the_document_says_it_all(tmp_path: Path) -> None:
    found = load(tmp_path, PROD, DEV, DLQ, env="dev").desired
    assert "num_replicas" not in found.resources[Key("Stream", "DLQ")].config
    assert (found.environment, found.url, found.context) == ("dev", "nats://127.0.0.1:4222", "")


def test_the_chosen_environment_says_where_to_and_what_to_expect(tmp_path: Path) -> None:
    desired = load(tmp_path, PROD, DLQ, env="prod").desired
    assert (desired.environment, desired.context, desired.expect.cluster, desired.expect.domain) == (
        "prod",
        "prod",
        "prod-eu",
        "",
    )


def test_one_must_be_chosen_as_soon_as_one_is_declared(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, PROD, DEV, DLQ)
    assert problem.code == "env-required"
    assert "dev, prod" in problem.message


def test_a_misspelled_one_is_not_none(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, PROD, DEV, DLQ, env="prd")
    assert problem.code == "env-unknown"
    assert problem.message.endswith("did you mean prod?")


def test_choosing_where_none_is_declared_is_an_error(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, DLQ, env="prod")) == ["env-unknown"]


def test_a_missing_choice_does_not_hide_other_problems(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, PROD, "kind: Stream\nmetadata: {name: A}\nspec: {maxAeg: 1}")) == [
        "env-required",
        "unknown-field",
    ]


@pytest.mark.parametrize(
    ("spec", "absent"),
    [
        ("ackPolicy: flow_control, deliverSubject: d", ["ack_wait", "max_deliver", "max_waiting"]),
        ("deliverSubject: d", ["max_waiting"]),
        ("backoff: [1s]", ["ack_wait"]),
        ("ackWait: null", ["ack_wait"]),
        ("state: absent", ["ack_wait", "max_deliver"]),
    ],
)
def test_defaults_stay_away_where_they_are_not_legal(tmp_path: Path, spec: str, absent: list[str]) -> None:
    found = config(tmp_path, consumer(spec), key=C)
    assert not [name for name in absent if name in found]


def test_defaults_apply_where_they_are_legal(tmp_path: Path) -> None:
    found = config(tmp_path, consumer("maxDeliver: 3"), key=C)
    assert (found["ack_wait"], found["max_deliver"], found["max_waiting"]) == (45 * 10**9, 3, 64)


def test_a_mirror_takes_no_subjects_from_the_defaults(tmp_path: Path) -> None:
    environment = "kind: Environment\nmetadata: {name: e}\nspec: {defaults: {Stream: {allowAtomic: true, replicas: 3}}}"
    loaded = load(tmp_path, environment, "kind: Stream\nmetadata: {name: M}\nspec: {mirror: {name: O}}", env="e")
    assert loaded.desired.resources[Key("Stream", "M")].config == {"name": "M", "mirror": {"name": "O"}, "num_replicas": 3}


def test_a_patch_can_remove_a_resource_in_one_environment(tmp_path: Path) -> None:
    environment = PROD.replace("{maxAge: 60d}", "{state: absent}")
    desired = load(tmp_path, environment, DLQ, env="prod").desired
    assert desired.resources[Key("Stream", "DLQ")].intent.state is State.ABSENT


def test_a_patch_for_nobody_is_most_likely_a_mistake(tmp_path: Path) -> None:
    loaded = load(tmp_path, PROD.replace("name: DLQ", "name: DQL"), DLQ, env="prod")
    assert warnings(loaded) == ["unmatched-patch"]
    assert loaded.warnings[0].field == "spec.patches"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("defaults: {Stream: {replicsa: 3}}", "spec.defaults.Stream.replicsa"),
        ("defaults: {Consumer: {ackWait: soon}}", "spec.defaults.Consumer.ackWait"),
        ("defaults: {Stream: {state: absent}}", "spec.defaults.Stream.state"),
        ("defaults: {Streams: {}}", "spec.defaults.Streams"),
        ("patches: [{target: {kind: Stream, name: A}, spec: {maxAeg: 1d}}]", "spec.patches[0].spec.maxAeg"),
        ("patches: [{target: {kind: Strem, name: A}, spec: {}}]", "spec.patches[0].target.kind"),
        ("expect: {clustre: x}", "spec.expect.clustre"),
    ],
)
def test_an_environment_is_checked_by_itself(tmp_path: Path, spec: str, field: str) -> None:
    problems = refused(tmp_path, DEV, f"kind: Environment\nmetadata: {{name: e}}\nspec: {{{spec}}}", env="dev")
    assert [problem.field for problem in problems] == [field]


def test_a_fault_that_the_environment_adds_is_blamed_on_it(tmp_path: Path) -> None:
    environment = "kind: Environment\nmetadata: {name: e}\nspec: {defaults: {Stream: {maxAge: 1m, duplicateWindow: 2m}}}"
    problems = refused(tmp_path, environment, "kind: Stream\nmetadata: {name: A}", env="e")
    assert codes(problems) == ["duplicate-window-too-long"]
    assert "(from Environment e)" in problems[0].message


def test_a_null_of_an_unknown_name_is_still_unknown(tmp_path: Path) -> None:
    assert codes(refused(tmp_path, "kind: Stream\nmetadata: {name: A}\nspec: {maxAeg: null, maxAge: null}")) == ["unknown-field"]


JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(OBJECTS, OBJECTS)
def test_merging_is_rfc_7396(base: dict[str, Any], patch: dict[str, Any]) -> None:
    def reference(target: object, change: object) -> object:
        if not isinstance(change, dict):
            return change
        result = dict(target) if isinstance(target, dict) else {}
        for name, value in change.items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = reference(result.get(name), value)
        return result

    assert merge_patch(base, patch) == reference(base, patch)
