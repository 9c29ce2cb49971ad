"""What the product promises, and which of it a run has seen kept on a real server.

Reason codes are noted where a command, a daemon or an engine says them; procedures where one is applied to its end; migrations
where messages are counted.
Invariant: nothing is noted because a test claims it: only what came back from a process or an engine that talked to a server.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from reconciler.engine.apply.outcome import Outcome, Word
from reconciler.plan import losses
from tests.support.sources.rows import MIRRORS, ROWS
from tests.support.ways_out import promised, ways_out

PACKAGE = Path(__file__).parents[2] / "reconciler"
_BLOCKED = re.compile(r"^ {4,}([a-z]+(?:-[a-z]+)*): .*\n +way out: ", re.MULTILINE)
"""A field of a plan is printed like a reason, but has no way out."""
_REFUSED = re.compile(r"^error: ([a-z]+(?:-[a-z]+)*): ", re.MULTILINE)
_IN_A_MESSAGE = re.compile(r": ([a-z]+(?:-[a-z]+)*): ")
ELSEWHERE = frozenset(
    (
        "tell us what the log says about it; everything else goes on",
        "use the version that began it",
    )
)
"""Ways out that lead to what no test has at hand: people, and versions to come."""
_seen: set[str] = set()


def all_promises() -> set[str]:
    """Every reason code, every way out of one, every procedure and every migration."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    codes = {code for tree in trees.values() for code in _codes(tree)} | {losses.DATA_LOSS, losses.POSITION_LOSS}
    rooms = (PACKAGE / "procedures", PACKAGE / "sources")
    procedures = {name for path, tree in trees.items() if {*rooms} & {*path.parents} for name in _names(tree)}
    rows = {row.name for row in (*ROWS, *MIRRORS)}
    return {*map("reason {}".format, codes), *map("procedure {}".format, procedures), *map("migration {}".format, rows)} | {
        f"way out: {way}" for way in ways_out() - ELSEWHERE
    }


def seen() -> set[str]:
    """What this process has seen kept."""
    return set(_seen)


def saw(promises: Iterable[str]) -> None:
    """What another process has seen."""
    _seen.update(promises)


def saw_migration(name: str) -> None:
    """A stream copies in another way by now, and its messages were counted."""
    _seen.add(f"migration {name}")


def tried(way_out: str) -> None:
    """Somebody was shown this, did what it says, and got what was wanted."""
    ways = promised(way_out)
    assert ways, f"no reason is made with the way out {way_out!r}"
    _seen.update(f"way out: {way}" for way in ways)


def saw_output(out: str, err: str = "") -> None:
    """What a command printed."""
    if out.startswith("{"):
        saw_document(orjson.loads(out))
    for text in (out, err):
        _seen.update(f"reason {code}" for code in (*_BLOCKED.findall(text), *_REFUSED.findall(text)))


def saw_document(document: Any) -> None:
    """A plan, a status or a line of a log."""
    if isinstance(document, list):
        for each in document:
            saw_document(each)
    if isinstance(document, dict):
        _saw_fields(document)
        for value in document.values():
            saw_document(value)


def _saw_fields(document: dict[str, Any]) -> None:
    _seen.update(f"reason {code}" for field in ("reasons", "refused") for code in _texts(document.get(field)))
    procedure = document.get("procedure")
    name = procedure.get("name") if isinstance(procedure, dict) else procedure
    if isinstance(name, str) and document.get("result") == Word.APPLIED:
        _seen.add(f"procedure {name}")
    if isinstance(document.get("code"), str):
        _seen.add(f"reason {document['code']}")
    if isinstance(document.get("message"), str):
        _seen.update(f"reason {code}" for code in _IN_A_MESSAGE.findall(document["message"]))


def saw_plan(plan: Any) -> None:
    """A plan made in this process."""
    _seen.update(f"reason {reason.code}" for reason in plan.refused)
    for change in plan.changes:
        _seen.update(f"reason {reason.code}" for reason in change.reasons)


def saw_outcomes(outcomes: Iterable[Outcome]) -> None:
    """How the changes of an apply in this process ended."""
    ended = (outcome.change.procedure for outcome in outcomes if outcome.word is Word.APPLIED)
    _seen.update(f"procedure {procedure.name}" for procedure in ended if procedure)


def _texts(found: Any) -> Iterator[str]:
    for one in found if isinstance(found, Iterable) and not isinstance(found, str) else ():
        if isinstance(one, str):
            yield one.partition(":")[0]


def _codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Reason"), args=[ast.Constant(value=str(code)), *_]):
                yield code


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="NAME")], value=ast.Constant(value=str(name))):
                yield name
