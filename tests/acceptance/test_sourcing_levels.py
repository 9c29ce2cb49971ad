"""Sources on servers that are too old for durables: the plan says so, and nothing is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.server.process import Server

pytestmark = pytest.mark.differs

DURABLE_LEVEL = 4
MANIFESTS = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: Q}
spec: {subjects: [q.>], retention: workqueue}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: S}
spec: {subjects: [s.>]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: DURABLE}
spec: {sources: [{name: S, consumer: {name: c, serverManaged: true}}]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: MIRROR}
spec: {mirror: {name: S, consumer: {name: m, serverManaged: true}}}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: EPHEMERAL}
spec: {sources: [{name: Q}]}
"""
TOO_OLD = {"Stream/DURABLE": ["level"], "Stream/MIRROR": ["level"], "Stream/EPHEMERAL": ["data-loss"]}


async def test_a_server_that_cannot_keep_durables_is_not_asked_to(any_server: Server, offline: Command, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(MANIFESTS, encoding="utf-8")
    cli = Command(offline.home, any_server.url)
    async with await Wire.connect(any_server.url) as wire:
        level = (await wire.expect("INFO"))["api"].get("level", 0)
        old = level < DURABLE_LEVEL
        document = cli("plan", "-f", manifests, "--format", "json").json
        reasons = {change["key"]: change["reasons"] for change in document["changes"] if change["reasons"]}
        assert reasons == (TOO_OLD if old else {})
        assert {change["key"] for change in document["changes"]} == {"Stream/S", "Stream/Q", *TOO_OLD}
        if not old:
            return
        allowed = cli("plan", "-f", manifests, "--format", "json", "--allow", "data-loss=Stream/EPHEMERAL").json
        assert {change["key"] for change in allowed["changes"] if change["reasons"]} == {"Stream/DURABLE", "Stream/MIRROR"}
        async with wire.audit() as audit:
            cli("apply", "-f", manifests, "--yes", code=3)
        assert audit.writes("reconciler") == []
