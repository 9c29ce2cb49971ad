"""Plan, ask, take the lease, plan again, apply.

Invariant: what is written was planned while the lease was held, and is what the person said yes to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.text import Text

from reconciler.cli.connecting import connected
from reconciler.cli.pen import pen, streams_of, taken, tell_fence
from reconciler.cli.saying.confirm import confirm
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.saying.progress import ProgressLines
from reconciler.cli.session import Session
from reconciler.engine.apply.outcome import Word
from reconciler.engine.apply.run_once import Applied, ApplyOptions, apply_plan
from reconciler.engine.planning import Planned
from reconciler.engine.ports import LiveReader, Ports
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Writes
from reconciler.errors import Refused
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.leading.fence import PATIENCE
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.desired import Desired
from reconciler.plan.change import Action, Plan, Rules
from reconciler.plan.comparing.display import in_short
from reconciler.render.plan.json import Ended, apply_document
from reconciler.render.plan.text import plan_lines


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be applied; `plan` makes the plan from what is live now."""

    desired: Desired
    rules: Rules
    plan: Callable[[LiveReader], Awaitable[Planned]]
    source: str
    """Where it comes from, for whoever meets our lease."""
    fence: float = PATIENCE
    """Seconds to wait for a proof that nothing of the leader before can still land."""
    full: bool = True
    """Every change is shown, however many are alike."""


async def apply_task(session: Session, task: Task, options: ApplyOptions, *, yes: bool, json: bool) -> ExitCode:
    """The whole of `apply`."""
    terminal = session.terminal
    async with connected(session, task.desired) as apis:
        reader = JetStreamReader(apis)
        with terminal.working("looking at JetStream"):
            first = await task.plan(reader)
        if not json:
            terminal.lines(plan_lines(first.plan, full=task.full))
        holder = Holder(source=task.source, revision=task.desired.revision)
        ours = pen(
            apis,
            task.rules.owner,
            holder,
            patience=task.fence,
            streams=lambda: streams_of(task.desired),
            tell=lambda news: tell_fence(terminal, news),
        )
        clock = SystemClock()
        writes = Writes(reader, ours.writer, clock, Throttle(0, clock), fence=ours.lease)
        progress = ProgressLines(terminal, on_stdout=not json)
        ports = Ports(reader, writes, ours.lease, clock, progress)
        if not _would_write(first.plan, options):
            return _finish(session, await apply_plan(first, ports, options), json=json)
        if not yes and not await confirm(session, "Apply this plan?"):
            terminal.say("nothing was written")
            return ExitCode.FAILED
        async with taken(terminal, ours.lease):
            planned = await task.plan(reader)  # again, now that nobody else of this owner may write
            if planned.plan.fingerprint != first.plan.fingerprint:
                _tell_of_changes(session, planned.plan, yes=yes, json=json, full=task.full)
            if not json:
                terminal.lines([""])
            progress.expects(len(planned.plan.changes))
            applied = await apply_plan(planned, ports, options)
    return _finish(session, applied, json=json)


def _tell_of_changes(session: Session, plan: Plan, *, yes: bool, json: bool, full: bool) -> None:
    """The plan has become another one: a person said yes to what it was, `--yes` to whatever it is."""
    message = "what is live has changed since the plan was shown"
    if not yes:
        raise Refused((f"{message}: look at it again",))
    session.terminal.warn(f"{message}; this is what is applied")
    if not json:
        session.terminal.lines(plan_lines(plan, full=full))


def _would_write(plan: Plan, options: ApplyOptions) -> bool:
    """Whether there is anything to ask about and to take the lease for; without the lease nothing can be written."""
    possible = any(change.action is not Action.BLOCKED for change in plan.changes)
    return possible and not plan.refused and (options.continue_ or not plan.in_the_way)


def _finish(session: Session, applied: Applied, *, json: bool) -> ExitCode:
    terminal = session.terminal
    if json:
        ended = {outcome.change.key: Ended(outcome.word.value, outcome.why) for outcome in applied.outcomes}
        terminal.json(apply_document(applied.plan, ended))
    for reason in applied.refused:
        terminal.fail(f"refused, nothing was written: {reason}")
    if applied.refused and not applied.plan.refused and len(applied.plan.blocked) < len(applied.plan.changes):
        terminal.say("With --continue the changes that are not blocked would be made.")
    if not json and applied.outcomes:
        terminal.lines([_summary(applied)])
    if applied.come_up:
        keys = in_short([str(key) for key in applied.come_up])
        terminal.warn(f"not as declared by now, and not in the plan that was shown: {keys}; plan and apply once more")
    return ExitCode(int(applied.verdict))


def _summary(applied: Applied) -> Text:
    counts = {word: sum(outcome.word is word for outcome in applied.outcomes) for word in Word}
    shown = ", ".join(f"{count} {word.value}" for word, count in counts.items() if count or word is Word.APPLIED)
    return Text(f"Apply: {shown}", style="bold")
