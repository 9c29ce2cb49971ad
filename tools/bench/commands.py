"""Commands as a person calls them, whole processes, beside what they stand on: the start of Python with nats and pydantic."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from reconciler.manifests.files.loader import Loader
from tests.support.server.process import Server
from tools.bench.creating import body
from tools.bench.measure import Measure, Sizes, rounded, tell
from tools.bench.workload import creations, documents, write_by_stream

_BASE = "import nats, pydantic"
_BARE = """
import asyncio, sys
import nats, pydantic

async def main():
    client = await nats.connect(sys.argv[1])
    with open(sys.argv[2], "rb") as file:
        lines = [line.rstrip(b"\\n").split(b" ", 1) for line in file]
    for begin in range(0, len(lines), 256):
        waiting = (client.request(subject.decode(), body, timeout=60) for subject, body in lines[begin : begin + 256])
        for answer in await asyncio.gather(*waiting):
            assert b'"error"' not in answer.data, answer.data
    await client.close()

asyncio.run(main())
"""
_HELP, _PLAN, _APPLY = 1.3, 2.0, 1.8
_VALIDATE = 0.5
"""Seconds, for a thousand manifests."""
_MANIFESTS = 1_000
_STREAMS = 20

Run = Callable[[], object]


def commands(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    """Help, validation, a plan of nothing, and many creations."""
    scratch.mkdir(parents=True)
    rounds = 2 * sizes.rounds
    manifests = write_by_stream(scratch / "some", documents(min(_MANIFESTS, sizes.creates), _STREAMS))
    one = next(manifests.iterdir())
    tell(f"commands, {rounds} times each")
    yield _beside("--help", lambda: _reconciler("--help"), lambda: _python(_BASE), rounds, _HELP)
    with Server(scratch / "empty") as server:
        plan = _beside(
            "plan of one file on an empty server",
            lambda: _reconciler("plan", "-f", one, url=server.url),
            lambda: _python(_BASE),
            rounds,
            _PLAN,
        )
        yield plan
    yield _validate(manifests, rounds)
    yield _apply(sizes, scratch)


def _beside(name: str, ours: Run, bare: Run, rounds: int, limit: float) -> Measure:
    ours(), bare()
    pairs = [(_seconds(ours), _seconds(bare)) for _ in range(rounds)]
    ratio = statistics.median(one / other for one, other in pairs)
    return Measure(
        measure=f"reconciler {name}",
        value=rounded(statistics.median(one for one, _ in pairs)),
        unit="s",
        ratio=rounded(ratio),
        limit=limit,
        ok=ratio <= limit,
        detail={"bare": rounded(statistics.median(other for _, other in pairs))},
    )


def _validate(manifests: Path, rounds: int) -> Measure:
    taken = statistics.median(_seconds(lambda: _reconciler("validate", "-f", manifests)) for _ in range(rounds))
    return Measure(
        measure=f"reconciler validate of {_MANIFESTS} manifests",
        value=rounded(taken),
        unit="s",
        ratio=rounded(taken / _VALIDATE),
        limit=_VALIDATE,
        ok=taken <= _VALIDATE,
    )


def _apply(sizes: Sizes, scratch: Path) -> Measure:
    tell(f"apply of {sizes.creates} creations, {sizes.rounds + 1} times")
    found = ((stream, text.replace("storage: memory", "storage: file")) for stream, text in documents(sizes.creates, _STREAMS))
    manifests = write_by_stream(scratch / "many", found)
    streams, consumers = creations(Loader().load([str(manifests)]).desired)
    requests = scratch / "requests"
    requests.write_bytes(
        b"".join(
            [
                *(f"$JS.API.STREAM.CREATE.{one.stream.name} ".encode() + one.config + b"\n" for one in streams),
                *(
                    f"$JS.API.CONSUMER.CREATE.{one.consumer.stream}.{one.consumer.name} ".encode() + body(one) + b"\n"
                    for one in consumers
                ),
            ]
        )
    )
    pairs = []
    for number in range(sizes.rounds + 1):
        with _servers(scratch / f"round-{number}") as (one, other):
            ours = _seconds(partial(_reconciler, "apply", "-f", manifests, "--yes", url=one))
            pairs.append((ours, _seconds(partial(_python, _BARE, other, requests))))
    ratio = statistics.median(ours / bare for ours, bare in pairs[1:])
    return Measure(
        measure=f"reconciler apply of {sizes.creates} creations, by requests sent one behind the other",
        value=rounded(statistics.median(ours for ours, _ in pairs[1:])),
        unit="s",
        ratio=rounded(ratio),
        limit=_APPLY,
        ok=ratio <= _APPLY,
        detail={"bare": rounded(statistics.median(bare for _, bare in pairs[1:]))},
    )


@contextmanager
def _servers(scratch: Path) -> Iterator[tuple[str, str]]:
    with Server(scratch / "one") as one, Server(scratch / "other") as other:
        yield one.url, other.url


def _reconciler(*arguments: str | Path, url: str = "") -> None:
    _run(["-m", "reconciler", *map(str, arguments)], {"NATS_URL": url} if url else {})


def _python(script: str, *arguments: str | Path) -> None:
    _run(["-c", script, *map(str, arguments)], {})


def _run(arguments: list[str], environ: dict[str, str]) -> None:
    subprocess.run([sys.executable, *arguments], env={**os.environ, **environ}, stdout=subprocess.DEVNULL, check=True)


def _seconds(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
