"""A daemon with many resources: what its passes cost, how fast it repairs, and how much memory it takes, over time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from reconciler.manifests.files.loader import Loader
from reconciler.model.desired import Desired
from tools.bench.daemon_latency import latency
from tools.bench.daemon_memory import as_declared, churn, settled
from tools.bench.daemon_pass import audited, passes
from tools.bench.daemon_process import running
from tools.bench.measure import Measure, Sizes, tell
from tools.bench.noop_pass import AUDITED_UP_TO, NoopPass
from tools.bench.workload import connected, documents, fill, write_by_stream

_FEW = 20
_CREW = 20
_BESIDE = 100.0
"""Milliseconds for 99 of 100 repairs while a commit goes on."""
_EDITED = 4
"""Consumers, of as many streams."""
_BIG = 100
"""Edits beside many resources."""


async def small(url: str, manifests: Path, scratch: Path, edits: int) -> Measure:
    """Repairs of a few resources."""
    desired = Loader().load([str(manifests)]).desired
    async with running(url, manifests, scratch, interval="1h"):
        return await latency(url, f"{len(desired.resources)} resources", _some(desired), edits)


async def beside_a_commit(url: str, scratch: Path, sizes: Sizes, *, edited: bool) -> Measure:
    """Repairs of a few resources while a commit edits many others, or creates them."""
    manifests, many = write_by_stream(scratch / "manifests", documents(_FEW, 2)), sizes.creates
    desired = Loader().load([str(manifests)]).desired
    crew = [text.replace("BENCH-", "CREW-") for _, text in documents(many, _CREW)]
    file = manifests / "crew.yaml"
    file.write_text("".join(text for text in crew if edited or "kind: Stream" in text), encoding="utf-8")
    async with running(url, manifests, scratch, "--max-change-percent", "100", interval="1h") as process:
        file.write_text("".join(text.replace("maxDeliver: 10", f"maxDeliver: {10 + edited}") for text in crew), encoding="utf-8")
        await process.post("/-/reload")
        name = f"a commit {'edits' if edited else 'creates'} {many} consumers"
        return await latency(url, name, _some(desired), sizes.edits, limit=_BESIDE)


async def big(url: str, manifests: Path, scratch: Path, sizes: Sizes, consumers: int) -> AsyncIterator[Measure]:
    """Everything about one number of consumers."""
    desired = Loader().load([str(manifests)]).desired
    files = sorted({Path(one.location.file) for one in desired.resources.values()})
    async with connected(url) as apis:
        tell(f"making {consumers} consumers for a daemon")
        await fill(apis, desired)
        async with running(url, manifests, scratch, interval="1h") as process:
            tell(f"passes of a daemon with {consumers} consumers")
            for measure in await passes(process, NoopPass(apis, desired, sizes.rounds), consumers, sizes.rounds):
                yield measure
            if consumers <= AUDITED_UP_TO:
                yield await audited(process, url, consumers)
            yield settled(process, consumers)
            tell(f"edits beside a daemon with {consumers} consumers")
            yield await latency(url, f"{consumers} consumers", _some(desired), min(_BIG, sizes.edits), limit=None)
        interval = f"{max(1.0, sizes.churn / 40):g}s"
        async with running(url, manifests, scratch, interval=interval) as process:
            tell(f"meddling for {sizes.churn:g} s with {consumers} consumers")
            for measure in await churn(process, url, files, consumers, sizes.churn):
                yield measure
            yield await as_declared(apis, manifests, consumers)


def _some(desired: Desired) -> list[tuple[str, str]]:
    chosen = list(desired.consumers.items())[:_EDITED]
    return [(stream.name, next(iter(named))) for stream, named in chosen]
