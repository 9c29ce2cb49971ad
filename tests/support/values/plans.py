"""Plans to render, with everything in them that a plan can hold."""

from __future__ import annotations

import orjson

from reconciler.model.identity import Key
from reconciler.model.seen.live import Server
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff, Plan, Reason, Rules
from reconciler.procedures.machine import Description, Done, Observation, Step


class Script:
    """A procedure that only has a description."""

    name = "filter-add"
    key = Key("Consumer", "y", "BILLING")
    touches = (Key("Consumer", "z", "BILLING"),)

    def describe(self) -> Description:
        """As in a plan."""
        return Description(self.name, ("pause", "reset to 17", "update", "resume"), "the reset", 30, ("workers stand still",))

    def step(self, observation: Observation, memory: object) -> Step:
        """Never taken."""
        del observation, memory
        return Done()


def changes() -> tuple[Change, ...]:
    """One of each action."""
    stream = {"name": "NEW", "subjects": ["new.>"], "storage": "file", "max_age": 7 * 24 * 3600 * 10**9}
    live = {"name": "OLD", "subjects": ["old.>"], "metadata": {"reconciler.owner": "default", "team": "a"}}
    return (
        Change(key=Key("Stream", "NEW"), action=Action.CREATE, cause=Cause.MISSING, config=orjson.dumps(stream)),
        Change(
            key=Key("Stream", "MADE"),
            action=Action.RECREATE,
            cause=Cause.MANIFEST,
            fields=(FieldDiff("storage", "file", "memory"),),
            config=b'{"name":"MADE","storage":"memory"}',
            live_config=b"{}",
        ),
        Change(
            key=Key("Consumer", "x", "BILLING"),
            action=Action.UPDATE,
            cause=Cause.DRIFT,
            fields=(FieldDiff("ackWait", "30s", "45s"), FieldDiff("metadata", {"a": "1"}, None)),
            config=b'{"ack_wait":45000000000}',
            live_config=orjson.dumps({"ack_wait": 30 * 10**9, "ack_policy": "explicit", "metadata": {"a": "1"}, "durable": True}),
            by=Author("nats CLI", "bob", "2026-01-31T12:00:00Z"),
        ),
        Change(
            key=Key("Consumer", "y", "BILLING"),
            action=Action.PROCEDURE,
            cause=Cause.MANIFEST,
            fields=(FieldDiff("filterSubjects", [f"billing.{n}" for n in range(9)], [f"billing.{n}" for n in range(1, 10)]),),
            machine=Script(),
            touches=Script.touches,
            live_config=orjson.dumps({"filter_subjects": [f"billing.{n}" for n in range(9)], "durable": True}),
            config=b"{}",
        ),
        Change(
            key=Key("Consumer", "w", "BILLING", "leaf"),
            action=Action.BLOCKED,
            cause=Cause.MANIFEST,
            wanted=Action.UPDATE,
            fields=(FieldDiff("maxDeliver", -1, 5),),
            reasons=(Reason("data-loss", "12 pending messages would be lost", "--allow data-loss=leaf:Consumer/BILLING/w"),),
            live_config=b'{"durable":true}',
            config=b"{}",
        ),
        Change(key=Key("Stream", "TAKEN"), action=Action.ADOPT, cause=Cause.MANIFEST, config=b"{}", live_config=b"{}"),
        Change(key=Key("Stream", "OLD"), action=Action.DELETE, cause=Cause.PRUNE, live_config=orjson.dumps(live)),
    )


def plan_of(*found: Change, unchanged: int = 12, **more: object) -> Plan:
    """A plan of these changes."""
    facts = {"fingerprint": "sha256:f00", "server": Server("2.15.1", 5), "environment": "prod", "rules": Rules(owner="team/prod")}
    return Plan(changes=tuple(found), unchanged=unchanged, **{**facts, **more})  # type: ignore[arg-type]


def everything() -> Plan:
    """A plan with one change of each action."""
    return plan_of(*changes(), notes=("2 owned but no longer declared",))
