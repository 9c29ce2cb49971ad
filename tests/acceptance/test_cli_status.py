"""`status`: of much, what is asked for."""

from __future__ import annotations

from pathlib import Path

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write
from tests.support.values.contract import PLAN, STATUS, conforms


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
    assert cli("status", "-f", path).out.splitlines()[3].startswith("OutOfSync    Stream/B")
    assert "Owner: shop/dev" in cli("--owner", "shop", "status", "--env", "dev").out.splitlines()[:2]
    cli("status", "Stream/A", "--wait", "-f", path)
    cli("status", "Stream/B", "--wait", "--timeout", "1s", "-f", path, code=1)
    assert "did you mean Stream/A?" in cli("status", "Stream/a", "-f", path, code=1).err
    assert "did you mean OutOfSync?" in cli("status", "--state", "outofsync", "-f", path, code=64).err
    cli("status", "--kind", "Streams", "-f", path, code=64)


DENYING = """
authorization { users: [
  {user: all, password: pw},
  {user: part, password: pw, permissions:
    {publish: {deny: ["$JS.API.CONSUMER.LIST.RETURNS", "$JS.API.CONSUMER.LIST.KV_half"]}}} ] }
"""


async def test_what_may_not_be_looked_at_is_unknown_once_and_never_as_declared(offline: Command, tmp_path: Path) -> None:
    half = {"kind": "KeyValue", "metadata": {"name": "half"}, "spec": {}}
    declared = [stream("ORDERS", "o.>"), stream("RETURNS", "r.>"), consumer("ORDERS", "c"), half]
    path = write(tmp_path / "all.yaml", declared)
    with Server(tmp_path / "server", config=DENYING) as server:
        everybody = Command(offline.home, server.url.replace("//", "//all:pw@"))
        everybody("apply", "-f", path, "--yes")
        assert "Nothing to do: 4 resources are as declared." in everybody("plan", "-f", path).out
        async with await Wire.connect(server.url, user="all", password="pw") as wire:
            for name in ("RETURNS", "KV_half"):  # which nobody has to list as long as there are no consumers
                config = {"name": "theirs", "durable_name": "theirs"}
                await wire.expect(f"CONSUMER.CREATE.{name}.theirs", {"stream_name": name, "config": config})
        cli = Command(offline.home, server.url.replace("//", "//part:pw@"))
        said = "Nothing to do as far as can be seen: 2 resources are as declared, 2 resources are unknown."
        assert said in cli("plan", "-f", path).out
        document = cli("plan", "-f", path, "-o", "json").json
        conforms(document, PLAN)
        assert (document["summary"]["unchanged"], document["unknown"]) == (2, ["Stream/RETURNS", "KeyValue/half"])
        assert "2 unchanged, 2 unknown" in cli("plan", "-f", path, "-o", "markdown").out
        expected = dict.fromkeys(("Stream/ORDERS", "Consumer/ORDERS/c"), "Synced")
        expected |= dict.fromkeys(("Stream/RETURNS", "KeyValue/half"), "Unknown")
        for given in (("-f", path), ()):
            shown = cli("status", *given, "-o", "json").json
            conforms(shown, STATUS)
            assert sorted((row["key"], row["state"]) for row in shown["resources"]) == sorted(expected.items())
            assert (shown["summary"]["Synced"], shown["summary"]["Unknown"]) == (2, 2)
