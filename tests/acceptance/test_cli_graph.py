"""`reconciler graph`, from outside: of manifests, of servers in two domains, and of a daemon."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command, Ended
from tests.support.daemon.process import daemon
from tests.support.server.leaves import Hub, hub_and_leaves
from tests.support.server.process import Server
from tests.support.sources.watched import aggregate, durable, entry, flows, until_source
from tests.support.values.catalogues import write

MANIFESTS = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: ORDERS}
spec: {subjects: [orders.>], retention: workqueue}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: AUDIT}
spec:
  sources:
    - {name: ORDERS, filterSubject: orders.paid, consumer: {name: audit, serverManaged: true}}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: ALONE}
spec: {subjects: [alone]}
"""


def _manifests(directory: Path) -> Path:
    path = directory / "all.yaml"
    path.write_text(MANIFESTS, encoding="utf-8")
    return path


def test_what_is_declared_is_drawn_without_a_server(offline: Command, tmp_path: Path) -> None:
    path = _manifests(tmp_path)
    drawn = offline("graph", "-f", path)
    assert drawn.out.splitlines() == [
        "flowchart LR",
        '  s0["AUDIT<br/>limits"]',
        '  s1["ORDERS<br/>workqueue"]',
        '  s1 -->|"managed: audit<br/>orders.paid"| s0',
    ]
    assert drawn.err == ""
    assert "ALONE" in offline("graph", "-f", path, "--all").out
    assert offline("graph", "-f", path, "--stream", "ORDERS").out == drawn.out
    assert 's1 -> s0 [label="managed: audit\\norders.paid"' in offline("graph", "-f", path, "--format", "dot").out


def test_the_picture_goes_to_a_file(offline: Command, tmp_path: Path) -> None:
    path, target = _manifests(tmp_path), tmp_path / "graph.svg"
    assert offline("graph", "-f", path, "--format", "svg", "--output", target).out == ""
    assert ET.parse(target).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own
    refused = offline("graph", "-f", path, "--output", tmp_path / "no" / "where", code=1)
    assert "No such file or directory" in refused.err


def test_what_cannot_be_asked_is_refused(offline: Command, tmp_path: Path) -> None:
    path = _manifests(tmp_path)
    assert "there is no stream NOWHERE" in offline("graph", "-f", path, "--stream", "NOWHERE", code=1).err
    assert "give either --daemon or -f" in offline("graph", "-f", path, "--daemon", "http://127.0.0.1:1", code=64).err
    offline("graph", "-f", path, "--format", "png", code=64)


def test_a_server_without_sources_gives_an_empty_graph_and_says_so(cli: Command) -> None:
    for how, starts in (("mermaid", "flowchart LR\n"), ("dot", "digraph sourcing {\n"), ("svg", "<svg ")):
        drawn = cli("graph", "--format", how)
        assert drawn.out.startswith(starts)
        assert drawn.err == "nothing is copied here: no stream has a source or a mirror\n"


async def _drawn(cli: Command, *arguments: str) -> Ended:
    """Beside the event loop, through which the leaf's link runs."""
    return await asyncio.to_thread(cli, "--timeout", "2s", "graph", *arguments)


def _shows(cli: Command, *wanted: str) -> Callable[[], Awaitable[bool]]:
    async def drawn() -> bool:
        text = (await _drawn(cli)).out
        return all(part in text for part in wanted)

    return drawn


def _colour(text: str, line: str) -> str:
    """Of the edge in this line of a Mermaid text."""
    edges = [one for one in text.splitlines() if re.match(r"  s\d+ (-->|==>)", one)]
    (number,) = (number for number, one in enumerate(edges) if line in one)
    styles = re.findall(r"linkStyle (\S+) stroke: (\S+)", text)
    return next((colour for numbers, colour in styles if str(number) in numbers.split(",")), "")


async def _leaf_into_hub(hub: Hub) -> None:
    """EV on the leaf is copied into AG on the hub, through a durable of nobody's, and AG is mirrored."""
    leaf = hub.leaves["leaf"].wire
    config = {"durable_name": "c", "ack_policy": "flow_control", "deliver_subject": "dlv.c", "filter_subject": "ev.a"}
    external = {"api": "$JS.leaf.API", "deliver": ""}
    source = {"name": "EV", "external": external, "consumer": {"name": "c", "deliver_subject": "dlv.c"}}
    await leaf.expect("STREAM.CREATE.EV", {"name": "EV", "subjects": ["ev.>"], "retention": "workqueue"})
    await leaf.expect("CONSUMER.CREATE.EV.c", {"stream_name": "EV", "config": config})
    await hub.wire.expect("STREAM.CREATE.AG", {"name": "AG", "sources": [source]})
    await hub.wire.expect("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "AG"}})
    pull = {"durable_name": "p", "ack_policy": "explicit"}
    await hub.wire.expect("CONSUMER.CREATE.AG.p", {"stream_name": "AG", "config": pull})


@pytest.mark.slow
async def test_two_domains_live_and_how_their_entries_fare(offline: Command, tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path, "leaf") as hub:
        cli = Command(offline.home, hub.server.url)
        await _leaf_into_hub(hub)
        await until(_shows(cli, '|"unmanaged: c<br/>ev.a"|', '==>|"mirror, ephemeral"|', "linkStyle 0,1"))
        text = (await _drawn(cli)).out
        assert re.findall(r'subgraph d\d\["(.*)"\]', text) == ["domain hub", "domain leaf"]
        assert re.findall(r's\d\["(.*)"\]', text) == ["AG<br/>limits", "M<br/>limits", "EV<br/>workqueue"]
        green = _colour(text, "unmanaged: c")
        assert (_colour(text, "mirror"), "paused" in text) == (green, False)
        assert 'c0(["p<br/>pull"])' in (await _drawn(cli, "--consumers")).out
        assert (await _drawn(cli, "--stream", "leaf:EV")).out == text
        await _faring(cli, hub, green)


async def _faring(cli: Command, hub: Hub, green: str) -> None:
    """Paused, then without its durable, then without its domain."""
    leaf = hub.leaves["leaf"]
    await leaf.wire.expect("CONSUMER.PAUSE.EV.c", {"pause_until": "2099-01-01T00:00:00Z"})
    paused = (await _drawn(cli)).out
    assert _colour(paused, "unmanaged: c<br/>ev.a<br/>paused") not in ("", green)
    await leaf.wire.expect("CONSUMER.DELETE.EV.c")
    missing = (await _drawn(cli)).out
    assert _colour(missing, "user-managed: c<br/>stalled: consumer-missing") not in ("", green, _colour(paused, "paused"))
    leaf.link.cut()
    await until(_shows(cli, "waiting: domain"), 30)
    away = await _drawn(cli)
    assert "warning: domain leaf is not known" in away.err
    assert '["EV<br/>not seen"]:::absent' in away.out


async def test_what_a_daemon_tells(offline: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    streams: list[Json] = [aggregate("S", subjects=["s.>"]), durable("S", "dlv.c"), aggregate("A", entry("S", "dlv.c"))]
    path = write(tmp_path / "all.yaml", streams)
    async with daemon(Command(offline.home, server.url), tmp_path / "log", "-f", path) as running:
        await until_source(running, "A", flows)
        drawn = await asyncio.to_thread(offline, "graph", "--daemon", running.url)
        assert drawn.out.splitlines()[1:4] == ['  s0["A"]', '  s1["S"]', '  s1 -->|"user-managed: c"| s0']
        await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
        await until_source(running, "A", lambda source: source["state"] == "Paused")
        paused = await asyncio.to_thread(offline, "graph", environ={"RECONCILER_DAEMON": running.url})
        assert '|"user-managed: c<br/>paused"|' in paused.out
