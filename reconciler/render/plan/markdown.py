"""A plan as Markdown for a pull request comment.

Invariant: shorter than what GitHub accepts; what did not fit is counted, never silently left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from reconciler.model.flow import with_domains
from reconciler.plan.change import Action, Change, Plan
from reconciler.render.plan.diff import change_diff
from reconciler.render.plan.phrases import DESTRUCTIVE, SYMBOLS, cause, counts, duplicates, own_notes
from reconciler.render.values import counted, printable, show

LIMIT = 65_000
_TAIL = 1_000
"""Kept free for the sentences that say what is missing, and for the fingerprint."""
_ROWS_SHARE = 0.5
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~@])")


def plan_markdown(plan: Plan, limit: int = LIMIT) -> str:
    """The whole comment."""
    text = "\n".join(_heading(plan))
    room = limit - _TAIL - len(text)
    if room < 0:
        text = text[: limit - _TAIL] + "\n\n… (cut off)"
        room = 0
    rows, rows_left = _fit(map(_row, plan.changes), int(room * _ROWS_SHARE))
    if rows:
        text += "\n\n| | resource | action | why |\n|---|---|---|---|\n" + "\n".join(rows)
    if rows_left:
        text += f"\n\n… and {rows_left} of {len(plan.changes)} changes that did not fit into this comment."
    details, details_left = _fit((_details(change) for change in plan.changes), limit - _TAIL - len(text))
    text += "\n\n" + "\n".join(details)
    if details_left:
        text += f"\n\nDetails of {details_left} of {len(plan.changes)} changes did not fit; `reconciler plan` prints all of them."
    unknown = f", {len(plan.unknown)} unknown" if plan.unknown else ""
    return text + f"\n\n{plan.unchanged} unchanged{unknown} · fingerprint `{plan.fingerprint}`\n"


def _heading(plan: Plan) -> Iterator[str]:
    environment = f" ({_escaped(plan.environment)})" if plan.environment else ""
    yield f"### Plan{environment}: {counts(plan)}"
    for reason in plan.refused:
        yield f"\n> [!CAUTION]\n> Refused, nothing will be written: {_escaped(str(reason))}"
    destructive = sum(change.action in DESTRUCTIVE for change in plan.changes)
    if destructive:
        yield f"\n> [!WARNING]\n> {counted(destructive, 'resource')} will be deleted or recreated."
    for note in plan.notes:
        yield f"\n> [!NOTE]\n> {_escaped(note)}"


def _fit(parts: Iterable[str], room: int) -> tuple[list[str], int]:
    """The parts that fit, from the first on, and how many did not."""
    taken: list[str] = []
    left = 0
    for part in parts:
        room -= len(part) + 1
        if room < 0:
            left += 1
        else:
            taken.append(part)
    return taken, left


def _row(change: Change) -> str:
    action = change.action.value
    if change.action is Action.BLOCKED and change.wanted:
        action = f"**blocked** ({change.wanted.value})"
    why = ", ".join(reason.code for reason in change.reasons) or cause(change)
    return f"| `{SYMBOLS[change.action]}` | {_escaped(str(change.key))} | {action} | {_escaped(why)} |"


def _details(change: Change) -> str:
    lines = [f"<details><summary>{_html(str(change.key))}</summary>", ""]
    for reason in change.reasons:
        way_out = f" → {_escaped(reason.way_out)}" if reason.way_out else ""
        lines += [f"- **{reason.code}**: {_escaped(reason.message)}{way_out}"]
    if change.procedure:
        lines += [f"{number}. {_escaped(step)}" for number, step in enumerate(change.procedure.steps, 1)]
        if change.procedure.point_of_no_return:
            lines.append(f"\nPoint of no return: {_escaped(change.procedure.point_of_no_return)}")
        lines.append(f"\n{duplicates(change.procedure).capitalize()}.")
        lines += [f"- {_escaped(note)}" for note in change.procedure.notes]
    if change.touches:
        lines.append(f"\nAlso touches {_escaped(', '.join(map(str, change.touches)))}.\n")
    lines += [f"- {_escaped(note)}" for note in own_notes(change)]
    lines += _block(_difference(change))
    return "\n".join([*lines, "</details>", ""])


def _difference(change: Change) -> Sequence[str]:
    lines = [line for line in change_diff(change) if not line.startswith("#")]
    if lines:
        return lines
    return [
        f"- {diff.path}: {show(with_domains(diff.live))}\n+ {diff.path}: {show(with_domains(diff.declared))}"
        for diff in change.fields
    ]


def _block(lines: Sequence[str]) -> list[str]:
    """A code block whose fence nothing inside can close."""
    if not lines:
        return []
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return ["", f"{fence}diff", *lines, fence, ""]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text))


def _html(text: str) -> str:
    return html.escape(printable(text), quote=False)
