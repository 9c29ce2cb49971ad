"""Load, connect, plan: what `plan`, `diff` and `apply` have in common."""

from __future__ import annotations

from reconciler.cli.connecting import connected
from reconciler.cli.flags.groups import PlanFlags, SourceFlags
from reconciler.cli.flags.rules import rules_of
from reconciler.cli.loading import load
from reconciler.cli.session import Session
from reconciler.engine.planning import Planned, make_plan
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.desired import Desired
from reconciler.plan.change import Rules


def declared(session: Session, source: SourceFlags, flags: PlanFlags) -> tuple[Desired, Rules]:
    """What is declared, and the rules it is planned by."""
    rules_of(flags, "")  # a wrong flag is told before anything is read
    desired = load(session, source).desired
    return desired, rules_of(flags, session.owner(desired.governance.owner, desired.environment))


async def planned(session: Session, source: SourceFlags, flags: PlanFlags) -> Planned:
    """The plan, made over a connection of its own."""
    desired, rules = declared(session, source, flags)
    async with connected(session, desired) as apis:
        with session.terminal.working("looking at JetStream"):
            return await make_plan(desired, rules, JetStreamReader(apis))
