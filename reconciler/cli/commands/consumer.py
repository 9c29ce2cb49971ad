"""`reconciler consumer pause`, `resume` and `reset`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from reconciler.cli import connecting
from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.operating import CommandManner, CommandResult, operator, tell_notes
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session, session_of
from reconciler.errors import ReconcilerError, UsageError
from reconciler.model import units
from reconciler.model.identity import API_VERSION, Key, valid_name
from reconciler.plan.requests.pause import Command, Decision, Operated, Pause, Resume, paused_until
from reconciler.plan.requests.reset import Reset, Span

app = typer.Typer(add_completion=False, help="Pause, resume or move any one consumer by hand, whoever owns it.")

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", show_default=False, help="The consumer's stream")]
ConsumerArgument = Annotated[str, typer.Argument(metavar="CONSUMER", show_default=False, help="The consumer's name")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where(DaemonFlags):
    """In which JetStream the consumer is, and under whose lease it is changed."""

    domain: Annotated[str, typer.Option(metavar="D", show_default=False, help="The JetStream domain of the stream")] = ""
    env: Annotated[str | None, typer.Option(envvar="RECONCILER_ENV", help="The environment, a part of the owner")] = None
    format_: TextOrJson = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deadline:
    """Until when, by the server's clock."""

    until: Annotated[str | None, typer.Option(metavar="TIME", show_default=False, help="Until then, RFC 3339")] = None
    lasting: Annotated[str | None, typer.Option("--for", metavar="D", show_default=False, help="For so long, e.g. 2h30m")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where to go on, and how that is decided."""

    seq: Annotated[int | None, typer.Option(min=1, show_default=False, help="Go on with this sequence of the stream")] = None
    to_ack_floor: Annotated[
        bool, typer.Option("--to-ack-floor", help="Go on after what was acknowledged without a gap (the default)")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come of it, and change nothing")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False


@app.command()
@flattened
def pause(ctx: typer.Context, stream: StreamArgument, consumer: ConsumerArgument, deadline: _Deadline, where: _Where) -> None:
    """Deliver nothing until a moment (`--until` or `--for`), by the server's clock. No reconcile ends what a person paused."""
    done = _run(
        session_of(ctx), _key(stream, consumer, where), where, _pause(deadline), CommandManner(quiet=where.format_ == "json")
    )
    if done.answer is not None and not done.answer.get("paused"):
        msg = f"{done.found.key} is not paused: the moment was over when the request arrived"
        raise ReconcilerError(msg)
    _tell_done(session_of(ctx), done, where)
    _print_pause(session_of(ctx), done, where)


@app.command()
@flattened
def resume(ctx: typer.Context, stream: StreamArgument, consumer: ConsumerArgument, where: _Where) -> None:
    """End a pause, whoever began it."""
    done = _run(session_of(ctx), _key(stream, consumer, where), where, Resume(), CommandManner(quiet=where.format_ == "json"))
    _tell_done(session_of(ctx), done, where)
    _print_pause(session_of(ctx), done, where)


@app.command()
@flattened
def reset(ctx: typer.Context, stream: StreamArgument, consumer: ConsumerArgument, position: _Position, where: _Where) -> ExitCode:
    """Move a consumer back or forward, after saying what is delivered again or skipped. Needs nats-server 2.14."""
    session = session_of(ctx)
    if position.seq is not None and position.to_ack_floor:
        msg = "--seq and --to-ack-floor are two positions: give one"
        raise UsageError(msg)
    ask = not position.yes and not position.dry_run
    if ask and not session.terminal.interactive:
        msg = "this moves a consumer and there is no terminal to ask on: look at it with --dry-run, then give --yes"
        raise UsageError(msg)
    command = Reset(position.seq)
    manner = CommandManner(ask=ask, dry_run=position.dry_run, quiet=where.format_ == "json")
    done = _run(session, _key(stream, consumer, where), where, command, manner)
    if done.declined:
        session.terminal.say("nothing was written")
        return ExitCode.FAILED
    _tell_done(session, done, where)
    if where.format_ == "json":
        session.terminal.json(_reset_document(command, done))
    elif done.answer is not None:
        session.terminal.text(_arrived(done))
    return ExitCode.OK


def _run(session: Session, key: Key, where: _Where, command: Command, manner: CommandManner) -> CommandResult:
    async def work() -> CommandResult:
        async with operator(session, key, session.owner(environment=where.env or ""), where) as somebody:
            return await somebody.carry_out(command, manner)

    return connecting.run(session, work())


def _key(stream: str, consumer: str, where: _Where) -> Key:
    for name in (stream, consumer, *([where.domain] if where.domain else ())):
        if not valid_name(name):
            msg = f"JetStream knows no such name: {name!r}"
            raise UsageError(msg)
    return Key("Consumer", consumer, stream, where.domain)


def _pause(deadline: _Deadline) -> Pause:
    if (deadline.until is None) == (deadline.lasting is None):
        msg = "say how long: either --until TIME or --for DURATION"
        raise UsageError(msg)
    try:
        if deadline.until is not None:
            return Pause(until=units.parse_time(deadline.until))
        return Pause(lasting=units.parse_duration(deadline.lasting or ""))
    except ValueError as error:
        msg = f"--{'for' if deadline.until is None else 'until'}: {error}"
        raise UsageError(msg) from error


def _document(kind: str, found: Operated, decision: Decision, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    notes = [{"code": note.code, "message": note.message, "warning": note.warning} for note in decision.notes]
    owner = found.seen.marker.owner or None
    return {"apiVersion": API_VERSION, "kind": kind, "key": str(found.key), "owner": owner, **more, "notes": notes}


def _tell_done(session: Session, done: CommandResult, where: _Where) -> None:
    """What has come of it, as far as it was not told before."""
    tell_notes(session.terminal, done.untold, quiet=where.format_ == "json")


def _print_pause(session: Session, done: CommandResult, where: _Where) -> None:
    if where.format_ != "json":
        if done.answer is not None:
            session.terminal.text("done")
        return
    before = paused_until(done.found) or None
    now = before if done.answer is None else (done.answer.get("pause_until") if done.answer.get("paused") else None)
    more = {"changed": done.answer is not None, "pausedUntil": now, "wasPausedUntil": before}
    session.terminal.json(_document("ConsumerPause", done.found, done.decision, **more))


def _reset_document(command: Reset, done: CommandResult) -> dict[str, Any]:
    ahead = command.forecast(done.found)
    return _document(
        "ConsumerReset",
        done.found,
        done.decision,
        changed=done.answer is not None,
        resetSeq=done.answer.get("reset_seq") if done.answer else None,
        redelivered=_span(ahead.again),
        skipped=_span(ahead.skipped),
        before=_standing(done.found.info),
        after=_standing(done.after) if done.after else None,
    )


def _span(span: Span | None) -> dict[str, Any] | None:
    return {"first": span.first, "last": span.last, "count": span.count, "exact": span.exact} if span else None


def _standing(info: dict[str, Any]) -> dict[str, int]:
    """Where a consumer stands, by its INFO."""
    names = {"delivered": info["delivered"]["stream_seq"], "ackFloor": info["ack_floor"]["stream_seq"]}
    return {**names, "pending": info.get("num_pending", 0), "unacknowledged": info.get("num_ack_pending", 0)}


def _arrived(done: CommandResult) -> str:
    """Where it is now, as the server says."""
    answer, after = done.answer or {}, done.after or {}
    waiting = f", {after['num_pending']:,} messages pending" if "num_pending" in after else ""
    return f"moved: it goes on with sequence {answer.get('reset_seq')}{waiting}"
