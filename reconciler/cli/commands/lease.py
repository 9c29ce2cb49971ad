"""`reconciler lease show` and `reconciler lease release`."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli import connecting
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.saying.confirm import confirm, must_be_able_to_ask
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session, session_of
from reconciler.errors import Refused
from reconciler.jetstream.leading.holder import LeaseState
from reconciler.jetstream.leading.lease import KvLease
from reconciler.model.identity import API_VERSION

app = typer.Typer(add_completion=False, help="Show or end the write lease.")
Environment = Annotated[str | None, typer.Option("--env", envvar="RECONCILER_ENV", help="The environment, a part of the owner")]


@app.command()
def show(ctx: typer.Context, env: Environment = None, format_: TextOrJson = "text") -> None:
    """Show who may write now."""
    session = session_of(ctx)
    owner = session.owner(environment=env or "")
    state = connecting.run(session, _show(session, owner))
    if format_ == "json":
        session.terminal.json(_document(owner, state))
    elif state is None:
        session.terminal.text(f"nobody holds the write lease of {owner}")
    else:
        session.terminal.text(f"{state.holder}, last renewed {state.renewed}")


@app.command()
def release(
    ctx: typer.Context,
    *,
    env: Environment = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    format_: TextOrJson = "text",
) -> ExitCode:
    """End the lease of a holder that is gone for good; a live one would go on until it notices."""
    session = session_of(ctx)
    owner = session.owner(environment=env or "")
    must_be_able_to_ask(session, yes=yes, look="`reconciler lease show`")
    ended = connecting.run(session, _release(session, owner, yes=yes))
    if format_ == "json":
        session.terminal.json(_document(owner, None))
    return ExitCode.OK if ended else ExitCode.FAILED


async def _show(session: Session, owner: str) -> LeaseState | None:
    async with connecting.connected(session) as apis:
        return await KvLease(apis(""), owner).show()


async def _release(session: Session, owner: str, *, yes: bool) -> bool:
    async with connecting.connected(session) as apis:
        lease = KvLease(apis(""), owner)
        state = await lease.show()
        if state is None:
            session.terminal.say(f"nobody holds the write lease of {owner}")
            return True
        if not yes and not await confirm(session, f"End the lease of {state.holder}?"):
            session.terminal.say("the lease was left as it is")
            return False
        if not await lease.evict(state):
            msg = "the holder has just renewed it, so it is alive: stop that process instead"
            raise Refused((msg,))
        session.terminal.say(f"the lease of {state.holder} has ended")
        return True


def _document(owner: str, state: LeaseState | None) -> dict[str, object]:
    holder = None
    if state is not None:
        names = ("host", "pid", "source", "revision", "at")
        holder = {name: getattr(state.holder, name) for name in names} | {"renewed": state.renewed}
    return {"apiVersion": API_VERSION, "kind": "Lease", "owner": owner, "holder": holder}
