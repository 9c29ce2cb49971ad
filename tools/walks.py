"""Walks through the product, traced on a real server: how many functions and files it takes to do one thing.

    python -m tools.walks        one line of JSON for each walk; `before` is what the first house took, where that was counted

A form is a class, or a kind of plain value, that carries the configuration of the consumer which the walk is about; `of_it` are
the parses in which it occurs. Counts are exact and repeatable but for polls of procedures; times mean nothing here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType

import orjson

from tests.support.account.meddling import Somebody
from tests.support.account.wire import Wire
from tests.support.daemon.engine import engines
from tests.support.daemon.inside import run_inside
from tests.support.daemon.passes import DOCUMENTS, A, Bench
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write
from tools import ending

_PRODUCT = str(Path(__file__).resolve().parent.parent / "reconciler") + os.sep
_BEFORE = {
    "apply, one filter removed": {
        "functions": 522,
        "files": 114,
        "parses": 39,
        "of_it": 19,
        "plans": 5,
        "requests": 14,
    },
    "apply, one filter added": {"functions": 581, "files": 116, "parses": 189, "of_it": 107, "plans": 5, "requests": 33},
    "hint, repair": {"functions": 354, "files": 85, "plans": 1, "requests": 2},
}
WALKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "apply, one filter removed": (("S.a", "S.b"), ("S.a",)),
    "apply, one filter added": (("S.a",), ("S.a", "S.b")),
    "hint, repair": (),
}
"""The filters before and after; none where nothing is applied."""
_PLAN, _ANSWER = ("plan/plan.py", "plan"), ("jetstream/api.py", "raise_for_error")


_FILTER = b'"filter_subject'
_loads = orjson.loads


@dataclass
class Walk:
    """What was called."""

    codes: set[CodeType] = field(default_factory=set)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    trail: list[str] = field(default_factory=list)
    """Every call in order, as `module:function`."""
    forms: set[str] = field(default_factory=set)
    parses: list[bool] = field(default_factory=list)
    """Whether the consumer occurs in it, for each."""

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_PRODUCT):
            return
        code = frame.f_code
        place = code.co_filename.removeprefix(_PRODUCT), code.co_name
        if code.co_name.startswith("<"):
            return  # a part of a function
        self.codes.add(code)
        self.calls[place] += 1
        self.trail.append(f"{place[0].removesuffix('.py').replace('/', '.')}:{code.co_qualname}")
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.forms |= {_name(value) for name in arguments if _carries(value := frame.f_locals.get(name))}

    def _parse(self, text: bytes | bytearray | memoryview | str) -> object:
        if sys._getframe(1).f_code.co_filename.startswith(_PRODUCT):  # noqa: SLF001 - who asks
            self.parses.append(_FILTER in (text.encode() if isinstance(text, str) else bytes(text)))
        return _loads(text)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """All threads, until the block ends."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        orjson.loads = self._parse
        try:
            yield
        finally:
            orjson.loads = _loads
            sys.setprofile(None)
            threading.setprofile(None)

    def figures(self) -> dict[str, int]:
        """As they are printed."""
        return {
            "functions": len(self.codes),
            "files": len({code.co_filename for code in self.codes}),
            "forms": len(self.forms),
            "parses": len(self.parses),
            "of_it": sum(self.parses),
            "plans": self.calls[_PLAN],
            "requests": self.calls[_ANSWER],
        }


def _carries(value: object) -> bool:
    """Whether it is the configuration of a consumer, or an object of the product with one among its fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return any(_is_configuration(getattr(value, one.name, None)) for one in fields(value))
    return _is_configuration(value)


def _is_configuration(value: object) -> bool:
    if isinstance(value, bytes):
        return _FILTER in value
    return isinstance(value, dict) and ("filter_subject" in value or "filter_subjects" in value)


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def main() -> None:
    """Prints each walk."""
    for name in WALKS:
        with tempfile.TemporaryDirectory(prefix="reconciler-walks-") as scratch:
            print(json.dumps({"walk": name, **walk_of(name, Path(scratch)).figures(), "before": _BEFORE.get(name)}), flush=True)


def walk_of(name: str, scratch: Path) -> Walk:
    """One of them, traced on a server of its own."""
    with Server(scratch / "server") as server:
        filters = WALKS[name]
        return _applied(server, scratch, *filters) if filters else asyncio.run(_repaired(server, scratch))


def _applied(server: Server, scratch: Path, before: tuple[str, ...], after: tuple[str, ...]) -> Walk:
    environ = {**os.environ, "NATS_URL": server.url}

    def apply(*filters: str) -> None:
        path = write(scratch / "walk.yaml", [stream("S", "S.>"), consumer("S", "c", *filters)])
        code, _, err = run_inside(["apply", "-f", str(path), "--yes"], "", environ, scratch)
        if code:
            raise RuntimeError(err)

    apply(*before)
    asyncio.run(_on(server, lambda wire: wire.publish("S.b" if len(after) > len(before) else "S.c", 3)))
    walk = Walk()
    with walk.traced():
        apply(*after)
    return walk


async def _on(server: Server, work: Callable[[Wire], Awaitable[object]]) -> None:
    async with await Wire.connect(server.url) as wire:
        await work(wire)


async def _repaired(server: Server, scratch: Path) -> Walk:
    async with engines() as start, await Somebody.arrive(server.url) as somebody:
        bench = Bench(await start(server), somebody, write(scratch / "all.yaml", DOCUMENTS))
        await bench.manifests.load()
        await bench.full()
        await somebody.edit("S", "a", max_deliver=99)
        walk = Walk()
        with walk.traced():
            await bench.hint(A)
        return walk


if __name__ == "__main__":
    ending.in_order()
    main()
