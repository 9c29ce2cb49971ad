"""Each kind of request is made to fail in each way, in turn: it is asked again by its backoff, and never more often."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.account.meddling import Somebody
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict, let_pass
from tests.support.values.catalogues import consumer, stream, write

SUBJECTS = ("STREAM.LIST", "CONSUMER.LIST.S", "STREAM.INFO.S", "CONSUMER.INFO.S.c", "STREAM.UPDATE.S", "CONSUMER.CREATE.S.c")
SECONDS = 5.0
ALLOWED = 15
"""With full jitter from 0.5 s, doubling, five or six on average; a second apart where a look is asked again, or twice a second
where it has to be known what became of a change."""
PASSES = 60
"""In that time, of whatever scope: far below the hundreds that a request without a backoff makes."""

log = logging.getLogger(__name__)


def _failing(subject: str, fate: Verdict) -> Callable[[Request], Verdict]:
    return lambda request: fate if request.subject == f"$JS.API.{subject}" else Verdict.PASS


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fate", [Verdict.REFUSE, Verdict.DROP, Verdict.MUTE])
async def test_what_fails_is_asked_again_by_its_backoff(server: Server, tmp_path: Path, fate: Verdict) -> None:
    path = write(tmp_path / "all.yaml", [stream("S", "s.>"), consumer("S", "c", "s.a")])
    counted: dict[str, int] = {}
    async with Proxy(server.port) as proxy, await Somebody.arrive(server.url) as somebody:
        cli = Command(tmp_path, proxy.url)
        async with daemon(cli, tmp_path / "log", "-f", path, "--audit", "on", NATS_TIMEOUT="1s") as running:
            await running.until(settled)
            for number, subject in enumerate(SUBJECTS):
                before, passes = len(proxy.requests), await _passes(running.get)
                proxy.rule = _failing(subject, fate)
                await somebody.edit("S", description=f"edit {number}")
                await somebody.edit("S", "c", max_deliver=20 + number)
                await running.post("/-/reconcile")
                await asyncio.sleep(SECONDS)  # what is measured is how often it asks in that time
                proxy.rule = let_pass
                asked = Counter(request.subject for request in proxy.requests[before:])
                counted[subject] = asked[f"$JS.API.{subject}"]
                assert 0 < counted[subject] <= ALLOWED, (subject, asked)
                assert await _passes(running.get) - passes <= PASSES, subject
                await running.until(settled)
    log.info("%s, in %g s: %s", fate.value, SECONDS, counted)


@pytest.mark.slow
async def test_what_is_too_large_is_neither_sent_nor_tried_again_and_again(tmp_path: Path) -> None:
    large = consumer("S", "c", *(f"s.{number}.{'x' * 60}" for number in range(400)))
    path = write(tmp_path / "all.yaml", [stream("S", "s.>"), large, consumer("S", "d", "s.a")])
    with Server(tmp_path / "small", config="max_payload: 16384") as small:
        async with Proxy(small.port) as proxy:
            cli = Command(tmp_path, proxy.url)
            async with daemon(cli, tmp_path / "log", "-f", path) as running:
                await asyncio.sleep(SECONDS)  # the same
                document = await running.status()
                assert document["summary"]["Synced"] == 2
                assert "too-large" in (await running.resource("Consumer/S/c"))["message"]
                assert await _passes(running.get) <= PASSES
                assert [request for request in proxy.writes if request.subject.endswith("S.c")] == []


async def _passes(get: Callable[[str], object]) -> int:
    """How many passes there have been."""
    _, text = await get("/metrics")  # type: ignore[misc]
    lines = (line for line in text.splitlines() if line.startswith("reconciler_reconcile_total{"))
    number = sum(int(float(line.rpartition(" ")[2])) for line in lines)
    assert number, text
    return number
