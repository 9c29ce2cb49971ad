"""The rules of documents 002 and 003, each broken once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.values.manifests import codes, load, refused

POLICY = """
kind: Policy
metadata: {name: default}
spec:
  consumers:
    namePattern: "^[a-z0-9]+([_-][a-z0-9]+)*$"
    requirePull: true
    requireExplicitAck: true
    requireDurable: true
    protectNames: true
    unusedAfter: 30d
  subjects: {forbidDirectPublish: [dlq.>]}
  owner: team-payments
  approve: "sha256:abc"
"""
STREAM = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>]}"


def consumer(spec: str = "", name: str = "billing_worker") -> str:
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {{stream: S, {spec}}}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (consumer(name="Billing"), "namePattern"),
        (consumer("deliverSubject: d"), "requirePull"),
        (consumer("ackPolicy: none"), "requireExplicitAck"),
        (consumer("ackPolicy: all"), "requireExplicitAck"),
        (consumer("durable: false"), "requireDurable"),
        (consumer("state: unmanaged", name="Billing"), "namePattern"),
    ],
)
def test_a_broken_rule_is_named(tmp_path: Path, text: str, rule: str) -> None:
    assert codes(refused(tmp_path, POLICY, STREAM, text)) == [rule]
    assert load(tmp_path / "free", STREAM, text).desired.resources, "no Policy document, no policy"


@pytest.mark.parametrize(
    "text",
    [
        consumer(),
        consumer("ackPolicy: flow_control, deliverSubject: d"),
        consumer("state: absent", name="Billing"),
    ],
)
def test_what_obeys_or_is_excepted_passes(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, POLICY, STREAM, text).desired.resources


def test_the_workers_of_a_pool_obey_the_rule_of_names(tmp_path: Path) -> None:
    pool = "kind: WorkerPool\nmetadata: {name: p}\nspec: {stream: S, workers: [{id: W0, filterSubjects: [s.a]}]}"
    assert codes(refused(tmp_path, POLICY, STREAM, pool)) == ["namePattern"]
    assignment = "kind: WorkerAssignment\nmetadata: {name: p.w}\nspec: {pool: q, worker: W1, filterSubjects: [s.a]}"
    bare = "kind: WorkerPool\nmetadata: {name: q}\nspec: {stream: S}"
    assert codes(refused(tmp_path, POLICY, STREAM, bare, assignment)) == ["namePattern"]


def test_the_plan_is_told_what_it_must_enforce(tmp_path: Path) -> None:
    governance = load(tmp_path, POLICY, STREAM).desired.governance
    assert (governance.owner, governance.protect_names, governance.approve) == ("team-payments", True, "sha256:abc")


def test_a_set_has_one_policy(tmp_path: Path) -> None:
    problems = refused(tmp_path, POLICY, POLICY, STREAM)
    assert codes(problems) == ["several-policies"]
    assert f"{tmp_path}/x.yaml:1" in problems[0].message


@pytest.mark.parametrize(
    "spec",
    ["consumers: {namePattern: '('}", "consumers: {requirePul: true}", "subjects: {forbidDirectPublish: [a..b]}"],
)
def test_a_policy_is_checked_by_itself(tmp_path: Path, spec: str) -> None:
    assert codes(refused(tmp_path, f"kind: Policy\nmetadata: {{name: p}}\nspec: {{{spec}}}"))[0] in ("bad-value", "unknown-field")


def test_no_pattern_takes_more_time_than_the_name_is_long(tmp_path: Path) -> None:
    """With `re` this one would still be searching when the machine is replaced: each letter doubles its time."""
    endless = "kind: Policy\nmetadata: {name: p}\nspec: {consumers: {namePattern: '^(a+)+$'}}"
    begun = time.process_time()
    assert codes(refused(tmp_path, endless, STREAM, consumer(name="a" * 200 + "b"))) == ["namePattern"]
    load(tmp_path, endless, STREAM, consumer(name="a" * 200))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\\1"])
def test_a_pattern_that_could_take_long_says_what_it_must_do_without(tmp_path: Path, pattern: str) -> None:
    problems = refused(tmp_path, f'kind: Policy\nmetadata: {{name: p}}\nspec: {{consumers: {{namePattern: "{pattern}"}}}}')
    assert codes(problems) == ["bad-value"]
    assert "look-around" in problems[0].message
