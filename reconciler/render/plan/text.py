"""A plan for the terminal: grouped, in the order in which it would be done, its sum in the last line.

Invariant: colour only repeats what a symbol or a word already says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from rich.text import Text

from reconciler.model.flow import with_domains
from reconciler.plan.change import Action, Change, FieldDiff, Plan, Reason
from reconciler.procedures.machine import Description
from reconciler.render.plan.diff import declared_spec
from reconciler.render.plan.phrases import SYMBOLS, counts, duplicates, headline, own_notes
from reconciler.render.values import counted, printable, show
from reconciler.render.yaml import in_order

_STYLES = {
    Action.CREATE: "green",
    Action.UPDATE: "yellow",
    Action.ADOPT: "cyan",
    Action.PROCEDURE: "magenta",
    Action.RECREATE: "bold red",
    Action.DELETE: "red",
    Action.BLOCKED: "bold red",
}
_GROUPS = {
    "Stream": "Streams",
    "KeyValue": "Key-value buckets",
    "ObjectStore": "Object buckets",
    "WorkerPool": "Worker pools",
}
_FIELD = 8
"""Columns before a field, so that what belongs to a change stands clear of its key."""
_TOO_MANY = 200
"""Changes of one sort."""
_EXAMPLES = 3
_LIST_TOO_LONG = 60
_ENTRIES_TOO_LONG = 120


def plan_lines(plan: Plan, *, full: bool = True) -> Iterator[Text]:
    """The plan, line by line; the whole of it, or of very many like changes only the first."""
    yield Text(_where(plan), style="dim")
    many = Counter() if full else _many(plan.changes)
    left = dict.fromkeys(many, _EXAMPLES)
    for group, changes in groupby((change for change in plan.changes if _is_shown(change, left)), key=_group):
        yield Text()
        yield Text(group, style="bold")
        for change in changes:
            yield from change_lines(change)
    for (action, kind, *rest), count in many.items():
        yield Text()
        fields = f" of {', '.join(map(printable, rest))}" if rest else ""
        what = f"{count - _EXAMPLES:,} more of {kind} like these: {action}{fields}"
        yield Text(f"{SYMBOLS[Action(action)]:>5} {what} (shown with --full)", style=_STYLES[Action(action)])
    yield Text()
    for note in plan.notes:
        yield Text(f"Note: {printable(note)}", style="yellow")
    for reason in plan.refused:
        yield Text(f"Refused, nothing will be written: {reason}", style="bold red")
    if plan.unchanged or plan.unknown:
        yield Text(_unchanged(plan), style="dim")
    yield summary_line(plan)


def _many(changes: Iterable[Change]) -> Counter[tuple[str, ...]]:
    """How many there are of each sort that there are very many of."""
    counted = Counter(sort for change in changes if (sort := _sort(change)))
    return Counter({sort: count for sort, count in counted.items() if count > _TOO_MANY})


def _sort(change: Change) -> tuple[str, ...]:
    """What makes one like another; empty for one that is to be seen, whatever else there is."""
    special = change.reasons or change.notes or change.touches or change.procedure
    if special or change.action not in (Action.CREATE, Action.UPDATE, Action.ADOPT):
        return ()
    return (change.action.value, change.key.kind, *(diff.path for diff in change.fields))


def _is_shown(change: Change, left: dict[tuple[str, ...], int]) -> bool:
    """Whether it is not one of very many of which enough were shown; counts down."""
    sort = _sort(change)
    if sort not in left:
        return True
    left[sort] -= 1
    return left[sort] >= 0


def summary_line(plan: Plan) -> Text:
    """The last line."""
    return Text(f"Plan: {counts(plan)}", style="bold")


def change_lines(change: Change) -> Iterator[Text]:
    """One change with everything that is to be known about it."""
    style = _STYLES[change.action]
    yield Text.assemble(
        (f"{SYMBOLS[change.action]:>5} ", style), (printable(str(change.key)), style), (f"  {headline(change)}", "dim")
    )
    for reason in change.reasons:
        yield from _reason_lines(reason)
    for diff in change.fields or _created(change):
        yield from _field_lines(diff)
    if change.procedure:
        yield from _procedure_lines(change.procedure)
    if change.touches:
        yield _indented(f"also touches {', '.join(str(key) for key in change.touches)}", "dim")
    for note in own_notes(change):
        yield _indented(f"note: {printable(note)}", "yellow")


def _created(change: Change) -> Iterator[FieldDiff]:
    """The fields of what is not there yet."""
    spec = declared_spec(change) if change.action is Action.CREATE else None
    for path, value in in_order(change.key, spec or {}).items():
        yield FieldDiff(path, None, value)


def _group(change: Change) -> str:
    domain = f" in domain {change.key.domain}" if change.key.domain else ""
    if change.key.kind == "Consumer":
        return f"Consumers of {change.key.stream}{domain}"
    return _GROUPS[change.key.kind] + domain


def _where(plan: Plan) -> str:
    environment = f", environment {plan.environment}" if plan.environment else ""
    server = f"nats-server {plan.server.version}, API level {plan.server.level}" if plan.server.version else "an unknown server"
    return f"Owner {plan.rules.owner}{environment}, policy {plan.rules.policy}, on {server}"


def _unchanged(plan: Plan) -> str:
    counts = ((plan.unchanged, "as declared"), (len(plan.unknown), "unknown"))
    said = ", ".join(f"{counted(count, 'resource')} {'is' if count == 1 else 'are'} {what}" for count, what in counts if count)
    if plan.changes or plan.refused:
        return f"{said}."
    return f"Nothing to do as far as can be seen: {said}." if plan.unknown else f"Nothing to do: {said}."


def _indented(text: str, style: str = "", extra: int = 0) -> Text:
    return Text(" " * (_FIELD + extra) + text, style=style)


def _reason_lines(reason: Reason) -> Iterator[Text]:
    yield _indented(f"{reason.code}: {printable(reason.message)}", "red")
    if reason.way_out:
        yield _indented(f"way out: {printable(reason.way_out)}", extra=2)


def _field_lines(diff: FieldDiff) -> Iterator[Text]:
    live, declared = with_domains(diff.live), with_domains(diff.declared)
    line = Text.assemble(" " * _FIELD, (f"{printable(diff.path)}: ", "default"))
    if _is_list(declared) and _is_list(live or []) and _too_long(live, declared):
        parts = _list_change(live or [], declared)
        if not any(isinstance(item, Mapping) for item in declared):
            yield line.append_text(Text(", ").join(parts))
            return
        yield _indented(f"{printable(diff.path)}:")
        yield from (Text(" " * (_FIELD + 2)).append_text(part) for part in parts)
        return
    if live is not None:
        line.append(show(live), style="red")
        line.append(" → ")
    yield line.append(show(declared), style="green")


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _too_long(live: list[object] | None, declared: list[object]) -> bool:
    """Whether the lists beside each other would hide what differs, or entries of many fields would run into each other."""
    if any(isinstance(item, Mapping) for item in declared):
        return len(show(live or [])) + len(show(declared)) > _ENTRIES_TOO_LONG
    return live is not None and len(show(live)) > _LIST_TOO_LONG


def _list_change(live: list[object], declared: list[object]) -> list[Text]:
    """Only what goes and what comes."""
    gone = [item for item in live if item not in declared]
    new = [item for item in declared if item not in live]
    parts = [Text(f"- {show(item)}", style="red") for item in gone] + [Text(f"+ {show(item)}", style="green") for item in new]
    kept = len(declared) - len(new)
    if kept or not parts:
        parts.append(Text(f"{kept} kept" if parts else f"{kept} in another order", style="dim"))
    return parts


def _procedure_lines(procedure: Description) -> Iterator[Text]:
    width = len(str(len(procedure.steps)))
    for number, step in enumerate(procedure.steps, 1):
        yield _indented(f"{number:>{width}}. {printable(step)}")
    if procedure.point_of_no_return:
        yield _indented(f"point of no return: {printable(procedure.point_of_no_return)}", "bold magenta")
    if procedure.point_of_no_return or procedure.expected_duplicates:
        yield _indented(duplicates(procedure), "magenta" if procedure.expected_duplicates else "dim")
    for note in procedure.notes:
        yield _indented(f"note: {printable(note)}", "yellow")
