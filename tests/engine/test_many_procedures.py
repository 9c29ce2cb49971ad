"""More procedures than there is room for: each has its turn, and meanwhile whatever else has drifted is repaired."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engine.daemon.keeper import SIDE_BY_SIDE
from tests.support.account.wire import Wire
from tests.support.daemon.inside import run_inside
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write

MANY = 2 * SIDE_BY_SIDE + 6


async def test_an_apply_brings_all_of_them_to_their_end(server: Server, tmp_path: Path) -> None:
    def apply(*filters: str) -> str:
        documents = [stream("S", "S.>"), *(consumer("S", f"c{number}", *filters) for number in range(MANY))]
        path = write(tmp_path / "all.yaml", documents)
        code, out, err = run_inside(["apply", "-f", str(path), "--yes"], "", {**os.environ, "NATS_URL": server.url}, tmp_path)
        assert code == 0, err
        return out

    async with await Wire.connect(server.url) as wire:
        apply("S.a")
        await wire.publish("S.b", 3)
        assert f"{MANY} applied" in apply("S.a", "S.b")
        shown = (await wire.expect("CONSUMER.LIST.S"))["consumers"]
        assert {tuple(one["config"]["filter_subjects"]) for one in shown} == {("S.a", "S.b")}
        assert {one["num_pending"] for one in shown} == {3}
