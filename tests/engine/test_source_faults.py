"""A fault about the sources of one stream leaves those of all others alone."""

from __future__ import annotations

from typing import Any

from reconciler.engine.sources.looks import Looks
from reconciler.model.identity import Key
from reconciler.procedures.requests import Absent, Read, StreamInfo
from reconciler.sources.health import SourceState
from tests.support.values.build import NOW, desired, marked, stream, stream_info

ONE, TWO = stream("ONE", {"sources": [{"name": "O"}]}), stream("TWO", {"sources": [{"name": "O"}]})


class Reader:
    """What it shows of one stream makes no sense once it is damaged."""

    damaged = False

    async def read(self, read: Read) -> Any:
        """An INFO answer."""
        if not isinstance(read, StreamInfo) or read.stream not in (ONE.key, TWO.key):
            return Absent()
        info = stream_info(marked(ONE if read.stream == ONE.key else TWO))
        return {"config": 7} if self.damaged and read.stream == ONE.key else info


async def test_a_stream_that_makes_no_sense_hides_no_other() -> None:
    reader = Reader()
    looks = Looks(reader, lambda: NOW)  # type: ignore[arg-type]  # it only reads
    before = await looks.everything(desired(ONE, TWO), {}, 5)
    assert {key for key, _ in before} == {Key("Stream", "ONE"), Key("Stream", "TWO")}
    reader.damaged = True
    after = await looks.everything(desired(ONE, TWO), before, 5)
    states = {key.name: source.history.health.state for (key, _), source in after.items() if source.history.health}
    assert states["ONE"] is SourceState.UNKNOWN
    assert after.keys() == before.keys()
