"""`python -m tools.soak` runs and leaves nothing behind; and each of its questions can be answered with FAIL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tools.soak import verdict
from tools.soak.families import Family
from tools.soak.lease import LeaseRecord, Revision
from tools.soak.ledger import Ledger, Standing

ROOT = Path(__file__).resolve().parent.parent
SHORT = (sys.executable, "-m", "tools.soak", "--minutes", "0.6", "--resources", "100", "--rate", "5", "--messages", "20")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.thorough(also="tests/acceptance/test_daemon_drift.py::test_a_wiped_marker_and_a_replaced_configuration_are_put_back")
def test_nothing_is_lost_and_all_is_in_place_or_named(tmp_path: Path) -> None:
    done = subprocess.run(
        SHORT, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_soak_that_is_ended_early_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        SHORT, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    told = next(line for line in process.stderr if line.startswith("meddling"))
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert told
    assert list(tmp_path.iterdir()) == []
    assert [one for one in _commands() if str(tmp_path) in one] == []


def _commands() -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize(
    ("holder", "release", "later", "overlaps"),
    [("a", False, 3.0, 0), ("b", False, 3.0, 1), ("b", True, 0.1, 0), ("b", False, 10.1, 0)],
    ids=["renewed", "taken too early", "given back before", "waited out"],
)
def test_a_lease_that_is_taken_while_another_one_may_believe_is_seen(
    holder: str, release: bool, later: float, overlaps: int
) -> None:
    record = LeaseRecord([Revision(1, 100.0, "a", release), Revision(2, 100.0 + later, holder, release=False)])
    assert len(record.overlaps()) == overlaps


async def test_a_message_that_is_gone_is_told_by_its_number(server: Server, wire: Wire) -> None:
    family, ledger = await _kept(wire)
    assert await verdict.stored(server.url, family, ledger) == []
    await wire.expect("STREAM.MSG.DELETE.KEPT-0", {"seq": 4})
    (said,) = await verdict.stored(server.url, family, ledger)
    assert "1 missing (3 …)" in said


async def test_a_message_that_is_there_twice_is_told(server: Server, wire: Wire) -> None:
    family, ledger = await _kept(wire)
    await _put(wire, 3)
    (said,) = await verdict.stored(server.url, family, ledger)
    assert "1 twice" in said


async def test_what_an_act_removed_is_not_missed(server: Server, wire: Wire) -> None:
    family, ledger = await _kept(wire)
    await wire.expect("STREAM.PURGE.KEPT-0", {"keep": 2})
    assert await verdict.stored(server.url, family, ledger) != []
    ledger.accounts["KEPT-0"].keeps(2)
    assert await verdict.stored(server.url, family, ledger) == []


def test_what_a_reader_was_not_given_is_told() -> None:
    family, ledger = Family("kept", 0), Ledger()
    ledger.open([family], 100)
    for subject in (0, 1, 2, 0):
        ledger.accounts["KEPT-0"].confirmed(subject)
    ledger.delivered("KEPT-0", 0)
    assert ledger.unread(family) == [1, 3]


@pytest.mark.parametrize(
    ("state", "message", "explained", "found"),
    [
        ("Synced", "", False, 0),
        ("Unmanaged", "", False, 0),
        ("Blocked", "other-owner: it belongs to 'x'", True, 0),
        ("Blocked", "other-owner: it belongs to 'x'", False, 1),
        ("Blocked", "", True, 1),
        ("OutOfSync", "update, drift: maxMsgs", True, 1),
        ("Progressing", "filter-add", True, 1),
    ],
)
def test_what_is_neither_in_place_nor_named_for_a_reason_is_told(state: str, message: str, explained: bool, found: int) -> None:
    ledger = Ledger()
    if explained:
        ledger.standing["Stream/S"] = Standing("Stream/S", "forged", 0.0, _nothing)
    document: dict[str, Any] = {"resources": [{"key": "Consumer/S/c", "state": state, "message": message}]}
    assert len(verdict.settled(document, ledger)) == found


def test_what_is_said_to_be_in_place_and_is_not_is_told() -> None:
    before = {"Stream/S": {"max_msgs": 5}, "Stream/T": {"max_msgs": 5}}
    after = {"Stream/S": {"max_msgs": 6}, "Stream/T": {"max_msgs": 6}}
    assert verdict.differing(before, after, ["Stream/S"]) == ["Stream/S: max_msgs 6"]


async def _kept(wire: Wire) -> tuple[Family, Ledger]:
    """A stream with five messages, all accounted for."""
    family, ledger = Family("kept", 0), Ledger()
    ledger.open([family], 100)
    await wire.expect("STREAM.CREATE.KEPT-0", {"name": "KEPT-0", "subjects": ["kept.0.>"]})
    for number in range(5):
        await _put(wire, number)
        ledger.accounts["KEPT-0"].confirmed(0)
    return family, ledger


async def _put(wire: Wire, number: int) -> None:
    await wire.client.request("kept.0.a", f"KEPT-0.{number}".encode())


async def _nothing() -> None:
    await asyncio.sleep(0)
