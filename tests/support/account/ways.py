"""What somebody takes from a way out: the commands and the fields that it names."""

from __future__ import annotations

import re

from tests.support.account.wire import Json, Wire
from tests.support.account.work import Work
from tests.support.ways_out import promised

_FIELD = re.compile(r"`(\w+): ([^`]+)`")
_COMMAND = re.compile(r"`reconciler ([^`<>|]+)")
_NUMBER = re.compile(r"\d+")


def fields_in(way: str) -> Json:
    """The fields of a manifest that are named with a value, as in `optStartSeq: 3`."""
    return {name: int(value) if _NUMBER.fullmatch(value) else value for name, value in _FIELD.findall(way)}


def commands_in(text: str) -> list[list[str]]:
    """The arguments of the commands that are named, as in `reconciler status`."""
    return [command.split() for command in _COMMAND.findall(text)]


def allowing(document: str, what: str) -> str:
    """The same manifest with the annotation that accepts this."""
    before, name, after = document.partition("metadata: {name: ")
    assert name, document
    return f'{before}metadata: {{annotations: {{"reconciler/allow": {what}}}, name: {after}'


def printed_way(err: str) -> str:
    """The way out at the end of the one refusal that a command printed on stderr."""
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    parts = line.split("; ")
    return next(way for first in range(1, len(parts)) if promised(way := "; ".join(parts[first:])))


async def handled(wire: Wire, stream: str, consumer: str = "c", most: int = 100) -> list[int]:
    """The numbers that a worker of this consumer gets and finishes, each of them once."""
    work = Work(wire, stream, consumer)
    await work.pull(most)
    assert not work.duplicates
    return sorted(work.handled)
