"""Export, from outside."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command


def test_what_was_applied_comes_out_as_declared(cli: Command, catalogue: Path) -> None:
    cli("apply", "-f", catalogue, "--yes")
    exported = cli("export").out
    again = cli("--owner", "other", "validate", "-f", "-", stdin=exported)
    assert again.out.startswith("3 resources")
    assert cli("plan", "-f", "-", "--detailed-exitcode", stdin=exported).err == ""
    assert cli("export").out == exported


async def test_adopting_what_was_exported_changes_no_field(cli: Command, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_age": 3600 * 10**9, "allow_direct": True})
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "max_deliver": 3, "filter_subject": "s.a"}
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    exported = cli("export").out
    changes = cli("plan", "-f", "-", "--adopt", "--format", "json", stdin=exported).json["changes"]
    assert [(change["key"], change["action"], change["fields"]) for change in changes] == [
        ("Stream/S", "adopt", []),
        ("Consumer/S/c", "adopt", []),
    ]


def test_one_stream_and_other_formats(cli: Command, catalogue: Path) -> None:
    cli("apply", "-f", catalogue, "--yes")
    kinds = [document["kind"] for document in yaml.safe_load_all(cli("export", "--stream", "PAYMENTS").out)]
    assert kinds == ["Stream", "Consumer"]
    nack = list(yaml.safe_load_all(cli("export", "--format", "nack").out))
    assert {document["apiVersion"] for document in nack} == {"jetstream.nats.io/v1beta2"}
    assert cli("export", "--format", "json").json["kind"] == "List"
    cli("export", "--stream", "NOWHERE", code=1)
