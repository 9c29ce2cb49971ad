"""`status`: of much, what is asked for."""

from __future__ import annotations

from pathlib import Path

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.values.catalogues import consumer, stream, write


def keys(document: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row["key"] for row in document["resources"]]


async def test_of_much_what_is_asked_for(cli: Command, wire: Wire, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", [stream("A", "a.>"), stream("B", "b.>"), consumer("A", "c"), consumer("A", "d")])
    cli("apply", "-f", path, "--yes")
    await wire.expect("STREAM.DELETE.B")
    both = cli("status", "-f", path, "-o", "json").json
    assert len(keys(both)) == 4
    assert keys(cli("status", "-f", path, "--state", "OutOfSync", "-o", "json").json) == ["Stream/B"]
    chosen = cli("status", "-f", path, "--kind", "Consumer", "--kind", "KeyValue", "-o", "json").json
    assert keys(chosen) == ["Consumer/A/c", "Consumer/A/d"]
    assert (chosen["summary"]["Synced"], chosen["summary"]["OutOfSync"]) == (2, 0)
    assert keys(cli("status", "Consumer/A/c", "Stream/B", "-f", path, "-o", "json").json) == ["Stream/B", "Consumer/A/c"]
    assert cli("status", "-f", path).out.splitlines()[2].startswith("OutOfSync    Stream/B")
    cli("status", "Stream/A", "--wait", "-f", path)
    cli("status", "Stream/B", "--wait", "--timeout", "1s", "-f", path, code=1)
    assert "did you mean Stream/A?" in cli("status", "Stream/a", "-f", path, code=1).err
    assert "did you mean OutOfSync?" in cli("status", "--state", "outofsync", "-f", path, code=64).err
    cli("status", "--kind", "Streams", "-f", path, code=64)
