"""A status document as people read it: the same table, whether it was read from NATS or comes from a daemon.

Invariant: it is made from the document alone; what came from elsewhere can neither break a line nor steer the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from reconciler.render.status.judged import Condition
from reconciler.render.status.pools_text import pool_lines
from reconciler.render.status.sources_text import source_lines
from reconciler.render.values import ANOTHER, ago, counted, named, printable, show

Json = Mapping[str, Any]

_STYLES = {
    Condition.SYNCED: "green",
    Condition.OUT_OF_SYNC: "yellow",
    Condition.PROGRESSING: "magenta",
    Condition.BLOCKED: "bold red",
    Condition.ERROR: "bold red",
    Condition.SUSPENDED: "cyan",
    Condition.UNKNOWN: "yellow",
    Condition.UNMANAGED: "dim",
}
_WORST_FIRST = (
    Condition.ERROR,
    Condition.BLOCKED,
    Condition.UNKNOWN,
    Condition.OUT_OF_SYNC,
    Condition.PROGRESSING,
    Condition.SUSPENDED,
    Condition.UNMANAGED,
    Condition.SYNCED,
)
_SHOWN_PROBLEMS = 20
_LONGEST_VALUE = 60


def status_lines(document: Json, now: int, before: Json | None = None) -> Iterator[Text]:
    """A table, what is wrong first, and the sum in the last line; `now` is nanoseconds since the epoch.

    With what was shown before: only what is another by now.
    """
    resources, sources, pools = (_news(document, before, part) for part in ("resources", "sources", "pools"))
    width = max((len(printable(resource["key"])) for resource in resources), default=0)
    for resource in sorted(resources, key=lambda resource: _WORST_FIRST.index(Condition(resource["state"]))):
        yield _resource_line(resource, width, now)
    yield from source_lines(sources, now)
    yield from pool_lines(pools, now)
    yield Text()
    counts = ", ".join(f"{count} {name}" for name, count in document["summary"].items() if count)
    yield Text(f"Status: {counts or 'nothing to show'}")


def _news(document: Json, before: Json | None, part: str) -> Sequence[Json]:
    rows: Sequence[Json] = document.get(part, ())
    known = list(before.get(part, ())) if before else []
    return [row for row in rows if row not in known] if known else rows


def owner_line(document: Json) -> Text:
    """Whose resources these are."""
    return Text(f"Owner: {printable(document['owner'])}", style="dim")


def daemon_lines(document: Json, now: int) -> Iterator[Text]:
    """What a daemon has to say beyond its resources: who it is, what it works from, and what stands in its way."""
    process, manifests = document["process"], document["manifests"]
    since = ago(process["startedAt"], now)
    who = f"{process['host']} (pid {process['pid']}, version {process['version']}), started {since}"
    yield Text(f"Daemon: {printable(who)}", style="dim")
    yield owner_line(document)
    loaded = f", loaded {ago(manifests['loadedAt'], now)}" if manifests["loadedAt"] else ""
    yield Text(f"Manifests: {printable(manifests['revision']) or '(no revision)'}{loaded}", style="dim")
    yield writer_line(document)
    yield from _mode(document.get("mode", {}))
    yield from _warnings(document)
    for procedure in document["procedures"]:
        yield _procedure_line(procedure, now)
    yield Text()


def writer_line(document: Json) -> Text:
    """Who holds the lease; a daemon of an earlier version does not say when it does not know."""
    unknown = printable(document.get("leaderUnknown", ""))
    said = f"not known: {unknown}" if unknown else printable(document["leader"] or "") or "nobody holds the lease"
    return Text(f"Writer: {said}", style="yellow" if unknown else "dim")


def _mode(mode: Json) -> Iterator[Text]:
    if mode.get("readOnly"):
        yield Text(f"Nothing is written: {printable(mode['readOnly'])}", style="yellow")
    if mode.get("drift") == "report":
        yield Text("Drift is reported, and not repaired", style="yellow")


def procedure_lines(document: Json, now: int) -> Iterator[Text]:
    """Every procedure a daemon runs, or stopped without coming to its end."""
    procedures = document["procedures"]
    yield from (_procedure_line(procedure, now) for procedure in procedures)
    if not procedures:
        yield Text("no procedure is running")


def _warnings(document: Json) -> Iterator[Text]:
    if not document["ready"]:
        yield Text(f"Not ready: {printable(document['notReady']) or 'it is stopping'}", style="yellow")
    problems = document["manifests"]["problems"]
    errors = [problem for problem in problems if problem["severity"] == "error"]
    if errors:
        yield Text(
            f"The manifests there are now have {counted(len(errors), 'problem')}; the last good ones stay:", style="bold red"
        )
    for problem in errors[:_SHOWN_PROBLEMS]:
        where = f" ({problem['field']})" if problem["field"] else ""
        place = f"{problem['file']}:{problem['line']}:{problem['column']}"
        yield Text(printable(f"  {place}: {problem['code']}: {problem['message']}{where}"))
    for reason in document["refused"]:
        yield Text(f"Refused: {printable(reason)}", style="bold red")
    if prunes := document.get("prunes"):
        what = counted(prunes["waiting"], "removal")
        said = f"Prune: {what} will wait {prunes['seconds']:.0f} s more for manifests that stay the same"
        yield Text(said, style="yellow")
    yield from _fence(document.get("fence") or {})
    if document["audit"]["state"] not in ("on", ""):
        yield Text(f"API audit: {printable(document['audit']['state'])}; who makes a change is not known", style="yellow")


def _fence(fence: Json) -> Iterator[Text]:
    """What may still come of the leader before; a daemon of an earlier version says nothing about it."""
    why = printable(fence.get("why", ""))
    match fence.get("state"):
        case "waiting":
            yield Text(f"Not writing yet: waiting {why}", style="yellow")
        case "unproven":
            yield Text(f"A change may still land late: {why}", style="yellow")
        case _ if why:
            yield Text(f"Fence: {why}", style="yellow")


def _resource_line(resource: Json, width: int, now: int) -> Text:
    condition = Condition(resource["state"])
    line = Text.assemble((f"{condition.value:<11}", _STYLES[condition]), f"  {printable(resource['key']):<{width}}")
    drift = resource["lastDrift"]
    said = (printable(resource["message"]), _drift(drift, now, resource["key"]), _fight(resource.get("fight")))
    message = "; ".join(part for part in said if part)
    if message:
        line.append(f"  {message}", style="dim")
    line.rstrip()
    return line


def _drift(drift: Json | None, now: int, key: str) -> str:
    """`drifted 12 s ago: ackWait 30s → 1s by nats CLI (user app), repaired`; what is read from NATS alone does not know when."""
    if not drift or not drift.get("at"):
        return ""
    deleted = [f"{printable(one['key'])} deleted{_by(one)}" for one in drift.get("deleted", ())]
    repaired = drift.get("repairedAt")
    said = [f"{_changed(drift)}{_by(drift)}{', repaired' if repaired else ''}"] if drift["fields"] else []
    if deleted:  # durables that it reads through: of itself nothing was
        said.append(f"{', '.join(deleted)}{', made again' if repaired else ''}")
    elif not said:  # a consumer goes on where it stood; what a stream held is nowhere else
        lost = "" if key.startswith("Consumer/") else " with all that it held"
        said.append(f"deleted{_by(drift)}{lost}{', made again' if repaired else ''}")
    return f"drifted {ago(drift['at'], now)}: {'; '.join(said)}"


def _changed(drift: Json) -> str:
    values = {one["field"]: f" {_brief(one['declared'])} → {_brief(one['live'])}" for one in drift.get("changes", ())}
    return ", ".join(f"{printable(field)}{values.get(field, '')}" for field in drift["fields"])


def _by(found: Json) -> str:
    return f" by {_author(found)}" if _author(found) else ""


def _brief(value: Any) -> str:  # noqa: ANN401 - any value of a field
    text = printable(show(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _author(found: Json) -> str:
    """Who made it; empty where nobody knows."""
    return named(found.get("client") or "", found.get("user") or "")


def _fight(fight: Json | None) -> str:
    """`nats CLI (user app) sets ackWait to 1s again and again (21 times)`; a daemon of an earlier version does not say who."""
    if not fight:
        return ""
    what = f"{printable(fight['field'])} to {show(fight['value'])}"
    return f"{_author(fight) or ANOTHER} sets {what} again and again ({fight['times']} times)"


def _procedure_line(procedure: Json, now: int) -> Text:
    begun = f", since {ago(procedure['since'], now).removesuffix(' ago')}" if procedure.get("since") else ""
    state = procedure.get("state", "running")
    style = "magenta" if state in ("running", "aborting", "journaled") else "bold red"
    line = Text.assemble((f"{state:<11}", style), f"  {printable(procedure['key'])}  ")
    return line.append(f"{printable(procedure['message'])}{begun}", style="dim")
