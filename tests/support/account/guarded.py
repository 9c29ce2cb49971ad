"""A command that must not destroy anything, somebody else beside it who may, and the documents they disagree about.

Invariant: `refused` proves from the server's audit that nothing was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.account.wire import Json, Wire
from tests.support.cluster.audit import cluster_audit
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.values.manifests import written

US = "reconciler"
"""The name of our connections."""
SECOND = 10**9
Spec = dict[str, Any]


def stream(name: str, **spec: Any) -> str:
    """A stream on its own subjects."""
    return f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {json.dumps({'subjects': [f'{name}.>'], **spec})}"


def consumer(on: str, name: str = "c", **spec: Any) -> str:
    """A consumer of a stream."""
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {json.dumps({'stream': on, **spec})}"


def gone(kind: str, name: str, **spec: Any) -> str:
    """A tombstone."""
    return f"kind: {kind}\nmetadata: {{name: {name}}}\nspec: {json.dumps({'state': 'absent', **spec})}"


async def count(wire: Wire, name: str) -> int:
    """How many messages a stream holds."""
    return int((await wire.stream_info(name))["state"]["messages"])


async def pull(wire: Wire, on: str, expected: int) -> list[str]:
    """The subjects a worker of consumer c gets and acknowledges; with none expected, what comes within half a second."""
    inbox = wire.client.new_inbox()
    subscription = await wire.client.subscribe(inbox)
    request = {"batch": expected or 1, "expires": 10 * SECOND if expected else SECOND // 2}
    await wire.client.publish(wire.subject(f"CONSUMER.MSG.NEXT.{on}.c"), json.dumps(request).encode(), reply=inbox)
    found: list[str] = []
    while len(found) < request["batch"]:
        message = await subscription.next_msg(15)
        if message.headers and message.headers.get("Status"):
            break
        found.append(message.subject)
        await wire.client.publish(message.reply, b"+ACK")
    await wire.client.flush()
    await subscription.unsubscribe()
    return found


@dataclass
class Guarded:
    """The command, somebody else beside it, and a directory of manifests."""

    cli: Command
    wire: Wire
    directory: Path
    cluster: Cluster | None = None

    def apply(self, *documents: str, flags: Iterable[str] = (), code: int = 0) -> Json:
        """Declare and apply; what it printed."""
        file = written(self.directory, *documents)
        document: Json = self.cli("apply", "-f", file, "--yes", "--format", "json", *flags, code=code).json
        return document

    async def refused(self, *documents: str, flags: Iterable[str] = ()) -> dict[str, set[str]]:
        """Exit 3, and not one write; the codes of the reasons by key, those of the whole pass under ''."""
        async with cluster_audit(self.wire, self.cluster) if self.cluster else self.wire.audit() as audit:
            ended = self.apply(*documents, flags=flags, code=3)
        assert audit.subjects(US)
        assert audit.writes(US) == []
        said = {change["key"]: set(change["reasons"]) for change in ended["changes"]}
        assert all(reason["wayOut"] for change in ended["changes"] for reason in change["explanations"])
        return {key: codes for key, codes in said.items() if codes} | {"": set(ended["refused"])}

    async def offered(self, *documents: str, flags: Iterable[str] = ()) -> dict[str, dict[str, str]]:
        """As `refused`: the ways out by key and code, those of the whole pass under ''."""
        async with cluster_audit(self.wire, self.cluster) if self.cluster else self.wire.audit() as audit:
            ended = self.apply(*documents, flags=flags, code=3)
        assert audit.subjects(US)
        assert audit.writes(US) == []
        said = {change["key"]: change["explanations"] for change in ended["changes"]} | {"": ended["refusals"]}
        return {key: {each["code"]: each["wayOut"] for each in reasons} for key, reasons in said.items() if reasons}

    async def twin(self, of: str, name: str = "TWIN") -> None:
        """A stream like ours with as many messages, of nobody."""
        config = {**(await self.wire.stream_info(of))["config"], "name": name, "subjects": [f"{name}.>"], "metadata": {}}
        await self.wire.expect(f"STREAM.CREATE.{name}", config)

    async def change_twin(self, changes: Spec, name: str = "TWIN") -> None:
        """Somebody updates it by hand."""
        await self.wire.expect(f"STREAM.UPDATE.{name}", {**(await self.wire.stream_info(name))["config"], **changes})
