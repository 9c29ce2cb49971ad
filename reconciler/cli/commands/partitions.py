"""`reconciler partitions plan` and `explain`.

Invariant: what needs numpy, Arrow or Spark is imported when one of them is called, and by nobody else.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session, session_of
from reconciler.errors import ReconcilerError, UsageError
from reconciler.model.identity import API_VERSION

if TYPE_CHECKING:
    from reconciler.partitions.run import How, Made
    from reconciler.partitions.spark.session import SparkOptions

app = typer.Typer(add_completion=False, help="Plan which worker gets which partition, from tables to worker manifests.")

Config = Annotated[str, typer.Option("--config", "-c", metavar="PLAN.YAML", help="The file with the PartitionPlan")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planning:
    """By what is planned."""

    engine: Annotated[
        Literal["auto", "local", "spark"],
        typer.Option(help="auto: Spark for more than spec.localRows partitions, and for formats that only Spark reads"),
    ] = "auto"
    master: Annotated[str | None, typer.Option(metavar="URL", show_default=False, help="Spark: the master")] = None
    remote: Annotated[str | None, typer.Option(metavar="URL", show_default=False, help="Spark Connect: sc://host:15002")] = None
    packages: Annotated[
        list[str], typer.Option(metavar="G:A:V", show_default=False, help="Spark: a package from Maven; repeats")
    ] = field(default_factory=list)
    conf: Annotated[list[str], typer.Option(metavar="NAME=VALUE", show_default=False, help="Spark: a setting; repeats")] = field(
        default_factory=list
    )
    shared_filesystem: Annotated[
        bool, typer.Option("--shared-filesystem", help="Spark: every executor sees plain paths as this machine does")
    ] = False

    def options(self) -> SparkOptions:
        """What they say about the session of Spark."""
        from reconciler.partitions.spark.session import SparkOptions  # noqa: PLC0415 - only with the extra

        conf = {}
        for setting in self.conf:
            name, equals, value = setting.partition("=")
            if not equals or not name:
                msg = f"--conf {setting}: NAME=VALUE is expected"
                raise UsageError(msg)
            conf[name] = value
        if self.master and self.remote:
            msg = "--master starts a driver here, --remote talks to one elsewhere: give one of them"
            raise UsageError(msg)
        return SparkOptions(self.master, self.remote, tuple(self.packages), conf, self.shared_filesystem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """What may be done with the plan."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show the moves of each worker and the difference")
    ] = False
    prune: Annotated[bool, typer.Option("--prune", help="Delete the files of workers that are gone")] = False
    commit: Annotated[bool, typer.Option("--commit", help="Make one git commit of the manifests; nothing is pushed")] = False
    force: Annotated[
        list[str],
        typer.Option(metavar="GATE", show_default=False, help="Do it although this gate refuses; repeats"),
    ] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is explained."""

    subject: Annotated[str | None, typer.Option(metavar="S", show_default=False, help="Only this partition")] = None
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="Draw the load per worker before and after")
    ] = None


@app.command()
@flattened
def plan(ctx: typer.Context, config: Config, writing: _Writing, planning: _Planning, format_: TextOrJson = "text") -> ExitCode:
    """Read the tables, plan with as few moves as the load makes necessary, and write the manifests in one step."""
    session = session_of(ctx)
    _need_planner()
    from reconciler.partitions.report import lines  # noqa: PLC0415 - only with the extra
    from reconciler.partitions.run import How  # noqa: PLC0415 - the same

    if writing.dry_run and writing.commit:
        msg = "--dry-run writes nothing, so there is nothing to --commit"
        raise UsageError(msg)
    how = How(
        frozenset(writing.force),
        dry_run=writing.dry_run,
        prune=writing.prune,
        commit=writing.commit,
        engine=planning.engine,
        spark=planning.options(),
        say=session.terminal.say,
    )
    with _made(session, config, how) as made:
        if format_ == "json":
            session.terminal.json(made.report | {"commit": made.commit or None})
        else:
            if writing.dry_run:
                _show_difference(session, made)
            session.terminal.lines(lines(made.report))
        return _closed_gates(session, made)


@app.command()
@flattened
def explain(ctx: typer.Context, config: Config, asked: _Asked, planning: _Planning, format_: TextOrJson = "text") -> None:
    """Say why partitions move, what holds the balance, and what one more worker would do; writes no manifest."""
    session = session_of(ctx)
    _need_planner()
    from reconciler.partitions.run import How  # noqa: PLC0415 - only with the extra

    with _made(session, config, How(dry_run=True, engine=planning.engine, spark=planning.options())) as made:
        if asked.svg is not None:
            _draw(asked.svg, made)
        said, lines = _of_all(made) if asked.subject is None else _of_one(made, asked.subject)
    if format_ == "json":
        session.terminal.json({"apiVersion": API_VERSION, "kind": "PartitionExplanation", **said})
    else:
        session.terminal.lines(lines)


def _of_one(made: Made, subject: str) -> tuple[dict[str, object], list[str]]:
    from reconciler.partitions import explaining  # noqa: PLC0415 - only with the extra

    found = explaining.of_subject(made, subject)
    where = f"{found['subject']} on {found['worker']}" + (f", before on {found['from']}" if found["from"] else "")
    return found, [where, f"  {found['why']}"]


def _of_all(made: Made) -> tuple[dict[str, object], list[str]]:
    from reconciler.partitions import explaining  # noqa: PLC0415 - only with the extra

    (part,) = made.report["pools"].values()
    more, counts = explaining.one_more(made), explaining.reasons(made)
    said = {"planned": made.draft.differs, "reasons": counts, "load": part["load"], "heldBy": part["heldBy"]}
    return {**said, "oneMoreWorker": more}, _explained(made, counts, more)


@contextmanager
def _made(session: Session, config: str, how: How) -> Iterator[Made]:
    """What comes of the plan, as long as the block lasts; a spinner until it is there."""
    from reconciler.partitions.plan_file import read_plan  # noqa: PLC0415 - only with the extra
    from reconciler.partitions.run import make  # noqa: PLC0415 - the same

    with ExitStack() as stack:
        with session.terminal.working("planning") as tell:
            made = stack.enter_context(make(read_plan(config), replace(how, tell=tell)))
        yield made


def _show_difference(session: Session, made: Made) -> None:
    from reconciler.partitions.output.diffing import diff_lines, move_lines  # noqa: PLC0415 - only with the extra
    from reconciler.partitions.output.render import slices  # noqa: PLC0415 - the same

    session.terminal.lines(move_lines(slices(made.draft.moves)))
    session.terminal.lines(diff_lines(made.output, made.output.name, made.files, made.draft.gone))


def _closed_gates(session: Session, made: Made) -> ExitCode:
    """What a dry run would have been refused for; a real run has been, before it came here."""
    closed = [gate for gate in made.report["gates"] if not gate["passed"] and not gate["forced"]]
    for gate in closed:
        session.terminal.fail(f"{gate['gate']}: {gate['message']}")
    return ExitCode.REFUSED if closed else ExitCode.OK


def _explained(made: Made, counts: dict[str, int], more: dict[str, Any]) -> list[str]:
    from reconciler.partitions.explaining import HOLDS, WHY  # noqa: PLC0415 - only with the extra

    (part,) = made.report["pools"].values()
    load = part["load"]
    found = ["the next plan would move:" if made.draft.differs else "nothing would move; the last plan moved:"]
    found += [f"  {count:,} × {reason}: {WHY[reason]}" for reason, count in counts.items()] or ["  nothing"]
    found.append(f"load: {load['minOverLevel']:.3f} to {load['maxOverLevel']:.3f} of the share")
    found += [
        f"  {giant['subject']} is a giant of {giant['weight']} and has {giant['worker']} to itself"
        for giant in load["giants"][:5]
    ]
    found += [f"  held by {held}: {HOLDS[held]}" for held in part["heldBy"]]
    if not more["possible"]:
        found.append(f"one more worker: {more['message']}")
    else:
        moved = f"moves {more['movedCount']:,} partitions ({more['movedFraction']:.2%} of the weight)"
        found.append(f"one more worker: {moved}; the largest load falls from {more['largestBefore']} to {more['largestAfter']}")
    return found


def _draw(path: Path, made: Made) -> None:
    from reconciler.partitions import explaining  # noqa: PLC0415 - only with the extra
    from reconciler.partitions.picture import svg  # noqa: PLC0415 - the same

    found = explaining.loads(made)
    try:
        path.write_text(svg(found.before, found.after, made.gathered.rules.trigger / 1_000_000), encoding="utf-8")
    except OSError as error:
        msg = f"the picture cannot be written to {path}: {error.strerror}"
        raise ReconcilerError(msg) from error


def _need_planner(found: Callable[[str], object] = importlib.util.find_spec) -> None:
    missing = [name for name in ("numpy", "pyarrow", "xxhash") if found(name) is None]
    if missing:
        msg = f"planning partitions needs {', '.join(missing)}: pip install 'jetstream-reconciler[planner]'"
        raise UsageError(msg)
