"""`reconciler disown`."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import nullcontext
from typing import Annotated

import typer

from reconciler.cli import connecting
from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.pen import Ask, pen, taken, tell_fence, telling_of_daemon, through_daemon
from reconciler.cli.saying.confirm import confirm, must_be_able_to_ask
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session, session_of
from reconciler.engine.disowning import Disowning
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Writes
from reconciler.errors import NatsError, Refused, UsageError
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.identity import Key

app = typer.Typer(add_completion=False)


@app.command()
@flattened
def disown(
    ctx: typer.Context,
    daemon: DaemonFlags,
    *,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", show_default=False, help="What is given up (e.g. Stream/ORDERS)")],
    env: Annotated[
        str | None, typer.Option("--env", envvar="RECONCILER_ENV", help="The environment, a part of the owner")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> ExitCode:
    """Take our marks off live resources and leave them as they are: from then on they are nobody's.

    A daemon that holds the lease is asked to do it; what its own manifests still declare has to be taken out of them first.
    """
    session = session_of(ctx)
    owner = session.owner(environment=env or "")
    found = [_key(text) for text in keys]
    must_be_able_to_ask(session, yes=yes, look="`reconciler status`")
    return connecting.run(session, _disown(session, owner, found, daemon, yes=yes))


def _key(text: str) -> Key:
    try:
        return Key.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _disown(session: Session, owner: str, keys: list[Key], daemon: DaemonFlags, *, yes: bool) -> ExitCode:
    """One after the other; what cannot be given up is said, and the rest goes on."""
    terminal = session.terminal
    async with connecting.connected(session) as apis:
        reader, clock = JetStreamReader(apis), SystemClock()
        holder = Holder(source=f"disowning {', '.join(map(str, keys))}")
        ours = pen(
            apis, owner, holder, streams=lambda: {key.stream_key for key in keys}, tell=lambda news: tell_fence(terminal, news)
        )
        writes = Writes(reader, ours.writer, clock, Throttle(0, clock), fence=ours.lease)
        wanted = [one for key in keys if (one := await _looked_at(session, Disowning(reader, key, owner))) is not None]
        if not wanted:
            return ExitCode.REFUSED
        if not yes and not await confirm(session, f"Give up {', '.join(str(one.key) for one in wanted)}?"):
            terminal.say("nothing was written")
            return ExitCode.FAILED

        async def by_daemon(one: Disowning) -> object:
            ask: Ask = lambda client, holder: client.operate("disown", {"key": str(one.key), "holder": holder})  # noqa: E731 - short
            done = await through_daemon(terminal, ours.lease, daemon, f"give up {one.key}", ask)
            if done is None:
                raise Refused(("the daemon that was to give it up has gone: try again",))
            return done

        beside = await through_daemon(terminal, ours.lease, daemon, "give up what it wrote", lambda client, _: client.head())
        with telling_of_daemon("nothing was given up"):
            async with nullcontext() if beside else taken(terminal, ours.lease):
                given_up = [
                    await _given_up(session, one, by_daemon(one) if beside else one.carry_out(writes, ours.lease))
                    for one in wanted
                ]
    return ExitCode.OK if sum(given_up) == len(keys) else ExitCode.REFUSED


async def _given_up(session: Session, one: Disowning, doing: Awaitable[object]) -> bool:
    """Whether it is; what has changed since the first look, or is not taken, is said."""
    try:
        await doing
    except (NatsError, Refused) as error:
        session.terminal.fail(f"{one.key}: {error}")
        return False
    session.terminal.text(f"{one.key} is nobody's now: what still declares it is blocked (not-owned) until it adopts it")
    return True


async def _looked_at(session: Session, one: Disowning) -> Disowning | None:
    try:
        await one.look()
    except Refused as refused:
        for reason in refused.reasons:
            session.terminal.fail(str(reason))
        return None
    return one
