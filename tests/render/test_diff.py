"""The plan as a unified diff of canonical YAML."""

from __future__ import annotations

import yaml

from reconciler.model.identity import Key
from reconciler.render.plan.diff import change_diff, plan_diff
from reconciler.render.yaml import dump, resource
from tests.support.values.plans import changes, plan_of


def parts() -> dict[str, list[str]]:
    return {str(change.key): list(change_diff(change)) for change in changes()}


def test_an_update_shows_the_changed_lines_alone() -> None:
    lines = parts()["Consumer/BILLING/x"]
    assert lines[1:3] == ["--- live/Consumer/BILLING/x", "+++ declared/Consumer/BILLING/x"]
    assert [line for line in lines[4:] if line[0] in "+-"] == [
        "-  ackWait: 30s",
        "-  metadata:",
        "-    a: '1'",
        "+  ackWait: 45s",
    ]


def test_what_is_created_comes_from_nowhere_and_what_goes_leads_there() -> None:
    created, deleted = parts()["Stream/NEW"], parts()["Stream/OLD"]
    assert created[1] == "--- /dev/null"
    assert "+  maxAge: 7d" in created
    assert deleted[2] == "+++ /dev/null"
    assert "-    team: a" in deleted
    assert not any("reconciler." in line for line in deleted)


def test_a_blocked_change_says_why_and_shows_what_it_would_be() -> None:
    lines = parts()["leaf:Consumer/BILLING/w"]
    assert any("data-loss" in line for line in lines if line.startswith("#"))
    assert "-  maxDeliver: -1" in lines
    assert "+  maxDeliver: 5" in lines


def test_no_change_is_an_empty_diff() -> None:
    assert list(plan_diff(plan_of())) == []


def test_canonical_yaml_does_not_depend_on_the_order_of_its_input() -> None:
    key = Key("Consumer", "c", "S", "leaf")
    one = dump(resource(key, {"maxDeliver": 3, "ackWait": "30s", "unheard": 1}))
    other = dump(resource(key, {"unheard": 1, "ackWait": "30s", "maxDeliver": 3}))
    assert one == other
    assert list(yaml.safe_load(one)["spec"]) == ["stream", "domain", "ackWait", "maxDeliver", "unheard"]
