"""The plan as programs read it."""

from __future__ import annotations

import orjson

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, FieldDiff
from reconciler.render.plan.json import Ended, apply_document, plan_document
from tests.support.values.contract import APPLIED, PLAN, conforms
from tests.support.values.plans import everything, plan_of


def test_the_document_has_the_shape_of_the_contract() -> None:
    conforms(orjson.loads(orjson.dumps(plan_document(everything()))), PLAN)
    conforms(plan_document(plan_of()), PLAN)


def test_an_update_carries_fields_and_author() -> None:
    change = next(one for one in plan_document(everything())["changes"] if one["action"] == "update")
    assert change["key"] == "Consumer/BILLING/x"
    assert change["fields"][0] == {"path": "ackWait", "from": "30s", "to": "45s"}
    assert change["by"] == {"client": "nats CLI", "user": "bob", "at": "2026-01-31T12:00:00Z"}
    assert change["procedure"] is None


def test_entries_say_the_domain_as_a_manifest_does() -> None:
    entry = {"name": "S", "external": {"api": "$JS.leaf.API"}}
    change = Change(
        key=Key("Stream", "A"), action=Action.UPDATE, cause=Cause.DRIFT, fields=(FieldDiff("sources", [{"name": "S"}], [entry]),)
    )
    (document,) = plan_document(plan_of(change))["changes"]
    assert document["fields"][0]["to"] == [{"name": "S", "external": {"domain": "leaf"}}]


def test_a_procedure_carries_its_description() -> None:
    change = next(one for one in plan_document(everything())["changes"] if one["action"] == "procedure")
    assert change["touches"] == ["Consumer/BILLING/z"]
    assert change["procedure"]["steps"] == ["pause", "reset to 17", "update", "resume"]
    assert (change["procedure"]["pointOfNoReturn"], change["procedure"]["expectedDuplicates"]) == ("the reset", 30)


def test_apply_adds_result_and_error() -> None:
    ended = {Key("Stream", "NEW"): Ended("applied"), Key("Stream", "OLD"): Ended("failed", "stream is sealed")}
    document = apply_document(everything(), ended)
    conforms(document, APPLIED)
    results = {change["key"]: (change["result"], change["error"]) for change in document["changes"]}
    assert results["Stream/NEW"] == ("applied", None)
    assert results["Stream/OLD"] == ("failed", "stream is sealed")
    assert results["Stream/MADE"] == ("skipped", None)
