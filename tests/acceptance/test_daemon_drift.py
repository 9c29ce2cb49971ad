"""Whatever somebody changes behind the daemon's back, it puts back at once, and says who it was.

The list of fields is that of `tests.support.values.field_cases`, which has a case for every field of the product's own table.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.support.account.meddling import SOMEBODY, Somebody, is_again, level_of, watched
from tests.support.account.wire import Wire
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, settled
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.values.catalogues import Json, consumer, everything, stream
from tests.support.values.field_cases import ABSENT, CONSUMER_CASES, SECOND, STREAM_CASES, Case, named


@dataclass(frozen=True)
class Edited:
    """One resource of its own for one field that somebody changes."""

    case: Case
    of_consumer: bool
    number: int
    declared: bool
    """Whether the manifest says anything about the field."""

    @property
    def name(self) -> str:
        """The stream's."""
        return f"{'C' if self.of_consumer else 'S'}{'d' if self.declared else 'u'}{self.number}"

    @property
    def place(self) -> tuple[str, str]:
        """Stream and consumer."""
        return self.name, "c" if self.of_consumer else ""

    @property
    def key(self) -> str:
        """As the status names it."""
        return f"Consumer/{self.name}/c" if self.of_consumer else f"Stream/{self.name}"

    @property
    def documents(self) -> list[Json]:
        """Its manifests."""
        said = {self.case.said: self.case.ours} if self.declared else {}
        spec: Json = named({**self.case.beside, **said}, self.name)
        if self.of_consumer:
            return [stream(self.name, f"{self.name}.>"), consumer(self.name, "c") | {"spec": {"stream": self.name, **spec}}]
        own = {} if "mirror" in spec else {"subjects": [f"{self.name}.>"]}
        return [{"kind": "Stream", "metadata": {"name": self.name}, "spec": {**own, **spec}}]

    @property
    def change(self) -> dict[str, Any]:
        """What somebody makes of the field."""
        same = self.declared and self.case.shown == self.case.ours
        return {self.case.wire: ABSENT if same else named(self.case.theirs, self.name)}


def edits(level: int) -> list[Edited]:
    """Every field that this server can change, declared and not."""
    found = []
    for of_consumer, cases in ((False, STREAM_CASES), (True, CONSUMER_CASES)):
        for number, case in enumerate(case for case in cases if case.level <= level):
            found.append(Edited(case, of_consumer, number, declared=True))
            if case.default is not ABSENT:
                found.append(Edited(case, of_consumer, number, declared=False))
    return found


async def test_every_field_that_somebody_changes_is_put_back_and_the_status_says_who_it_was(
    any_server: Server, tmp_path: Path
) -> None:
    async with await Somebody.arrive(any_server.url) as somebody:
        all_edits = edits(await level_of(somebody))
        documents = [document for one in all_edits for document in one.documents]
        async with watched(any_server, tmp_path, documents) as place:
            before = {one.key: await somebody.config(*one.place) for one in all_edits}
            for one in all_edits:
                await somebody.edit(*one.place, **one.change)
            for one in all_edits:
                await somebody.until_like(before[one.key], *one.place)
            assert {one.key: await somebody.config(*one.place) for one in all_edits} == before
            told = {one.key: ([one.case.path], SOMEBODY, True) for one in all_edits}
            await place.daemon.until(lambda document: settled(document) and drifts_of(document) == told)


def drifts_of(document: Json) -> dict[str, tuple[list[str], str, bool]]:
    """Of each resource that was changed: the fields, the client, and whether it is repaired."""
    drifts = {resource["key"]: resource["lastDrift"] for resource in document["resources"] if resource["lastDrift"]}
    return {key: (drift["fields"], drift["client"], drift["repairedAt"] is not None) for key, drift in drifts.items()}


FAMILY = [
    stream("S", "s.>"),
    consumer("S", "a", "s.a"),
    consumer("S", "b", "s.b", maxDeliver=7),
    {"kind": "KeyValue", "metadata": {"name": "settings"}, "spec": {"history": 5}},
]


def placeless(configs: dict[str, Json], rewindable: bool) -> dict[str, Json]:
    """The configurations; where a cursor cannot be set, a restored consumer has to say for good where it began."""
    place = () if rewindable else ("deliver_policy", "opt_start_seq", "metadata")
    return {name: {field: value for field, value in config.items() if field not in place} for name, config in configs.items()}


async def test_what_somebody_deletes_comes_back_as_it_was(any_server: Server, tmp_path: Path) -> None:
    async with watched(any_server, tmp_path, FAMILY) as place:
        somebody = place.somebody
        rewindable = await level_of(somebody) >= 4
        before = placeless(await everything(somebody), rewindable)

        async def is_back() -> bool:
            return placeless(await everything(somebody), rewindable) == before

        for request, keys in {
            "CONSUMER.DELETE.S.a": ["Consumer/S/a"],
            "STREAM.DELETE.S": ["Stream/S", "Consumer/S/a", "Consumer/S/b"],
            "STREAM.DELETE.KV_settings": ["KeyValue/settings"],
        }.items():
            await somebody.expect(request)
            await until(is_back)
            drifts = {key: await place.drift(key, SOMEBODY if key == keys[0] else None) for key in keys}
            assert {key: drift["fields"] for key, drift in drifts.items()} == {key: [] for key in keys}


@pytest.mark.since("2.14")
async def test_a_deleted_durable_is_told_as_what_it_is_and_its_stream_as_untouched(server: Server, tmp_path: Path) -> None:
    """What only reads through a durable has lost nothing with it; a stream that is gone has lost all that it held."""
    copy = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
    documents = [stream("S", "s.>"), {**stream("A"), "spec": {"sources": [copy]}}]
    async with watched(server, tmp_path, documents) as place:
        cli = Command(tmp_path, server.url)
        await place.somebody.expect("CONSUMER.DELETE.S.c")
        drift = await place.drift("Stream/A")
        assert drift["deleted"] == [{"key": "Consumer/S/c", "client": SOMEBODY, "user": drift["user"]}]
        (line,) = place.daemon.lines("drift.detected")
        assert (line["resource"], line["message"]) == ("Consumer/S/c", "it was deleted; Stream/A reads through it")
        shown = (await ran(cli, "status", "--daemon", place.daemon.url)).out
        assert re.search(rf"Stream/A +drifted \d s ago: Consumer/S/c deleted by {SOMEBODY}, made again$", shown, re.MULTILINE)
        assert "all that it held" not in shown
        await place.somebody.expect("STREAM.DELETE.A")
        await place.daemon.until(lambda document: "deleted" not in (drift_of(document, "Stream/A") or {"deleted": []}))
        assert (await place.drift("Stream/A"))["fields"] == []
        assert place.daemon.lines("drift.detected")[-1]["message"] == "it was deleted, with all that it held"


def drift_of(document: Json, key: str) -> Json | None:
    """The last drift of a resource."""
    drift: Json | None = next(resource["lastDrift"] for resource in document["resources"] if resource["key"] == key)
    return drift


async def test_a_wiped_marker_and_a_replaced_configuration_are_put_back(any_server: Server, tmp_path: Path) -> None:
    async with watched(any_server, tmp_path, FAMILY) as place:
        somebody, before = place.somebody, await everything(place.somebody)
        for name in ("", "b"):
            key = f"Consumer/S/{name}" if name else "Stream/S"
            wiped = {**await somebody.config("S", name), "metadata": {}}
            await somebody.put(wiped, "S", name)
            await until(lambda: is_again(somebody, before))
            assert (await place.drift(key))["fields"] == ["marker"]
        await somebody.put({"name": "S", "subjects": ["s.>", "other"], "storage": "file"}, "S")
        plain = {"durable_name": "b", "ack_policy": "explicit", "filter_subjects": ["s.b"]}
        await somebody.put(plain, "S", "b")
        await until(lambda: is_again(somebody, before))
        assert "subjects" in (await place.drift("Stream/S"))["fields"]
        assert "maxDeliver" in (await place.drift("Consumer/S/b"))["fields"]


async def test_a_restart_that_forgets_memory_streams_is_repaired(server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "s.>", storage="memory"), consumer("S", "a", "s.a"), stream("KEPT", "kept.>")]
    async with watched(server, tmp_path, documents) as place:
        before = await everything(place.somebody)
        server.kill()
        server.start()
        async with await Wire.connect(server.url) as again:
            await until(lambda: is_again(again, before))
        await place.daemon.until(settled)


async def test_a_deleted_consumer_goes_on_behind_what_was_acknowledged(any_server: Server, tmp_path: Path) -> None:
    """On interest as well, as long as somebody else keeps the messages meanwhile."""
    documents = [consumer("interest", "keeper")]
    for retention in ("limits", "interest", "workqueue"):
        documents += [stream(retention, f"{retention}.>", retention=retention), consumer(retention, "a", f"{retention}.a")]
    documents[0]["spec"]["filterSubjects"] = ["interest.>"]
    async with watched(any_server, tmp_path, documents) as place:
        works = {retention: Work(place.somebody, retention, "a") for retention in ("limits", "interest", "workqueue")}
        for name, work in works.items():
            await work.publish(*[f"{name}.a"] * 10)
            await work.pull(6)
        await place.daemon.looked()  # how far it had come is known from the last look
        for name, work in works.items():
            await place.somebody.expect(f"CONSUMER.DELETE.{name}.a")
            await work.publish(f"{name}.a")
            await place.drift(f"Consumer/{name}/a")
            await work.drain()
            assert (work.lost(f"{name}.a"), work.duplicates) == ([], []), name


QUICK = 5.0
"""Seconds; on a busy machine. `make bench` has the sharp limit."""


async def test_two_hundred_edits_in_a_row_are_each_repaired_at_once(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FAMILY) as place:
        places = [("S", "a", {"max_deliver": 99}), ("S", "", {"max_msgs": 99}), ("S", "b", {"ack_wait": 7 * SECOND})]
        places.append(("KV_settings", "", {"max_msgs_per_subject": 9}))
        before = {(name, member): await place.somebody.config(name, member) for name, member, _ in places}
        took = []
        for number in range(200):
            name, member, fields = places[number % len(places)]
            changed = {field: value + number for field, value in fields.items()}
            await place.somebody.edit(name, member, **changed)
            started = time.monotonic()
            await place.somebody.until_like(before[name, member], name, member)
            took.append(time.monotonic() - started)
        cuts = quantiles(took, n=100)
        assert cuts[89] < QUICK, f"p50 {cuts[49]:.4f} p90 {cuts[89]:.4f} p99 {cuts[98]:.4f} max {max(took):.4f}"


FOUGHT = {"max_deliver": 66}


@pytest.mark.slow
async def test_a_fight_is_slowed_down_and_shown_and_never_given_up(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FAMILY) as place:
        somebody, ours = place.somebody, await place.somebody.config("S", "a")
        fights = 'reconciler_drift_fights_total{kind="Consumer"}'
        for _ in range(20):
            assert await place.daemon.metric(fights) == 0
            await somebody.edit("S", "a", **FOUGHT)
            await somebody.until_like(ours, "S", "a")
        async with fighting(place.daemon, somebody) as repairs:
            for number in range(20):
                before = await somebody.config("S", "b")
                await somebody.edit("S", "b", max_deliver=100 + number)
                await somebody.until_like(before, "S", "b")
            await until(lambda: at_least(repairs, 3))
        gaps = [after - before for before, after in pairwise(repairs)]
        assert all(gap > 4.5 for gap in gaps), gaps
        assert await place.daemon.metric(fights) >= len(repairs) - 1
        await somebody.until_like(ours, "S", "a")
        fight = (await place.daemon.resource("Consumer/S/a"))["fight"]
        assert (fight["field"], fight["value"], fight["client"]) == ("maxDeliver", 66, SOMEBODY)
        assert place.daemon.lines("drift.fighting")[-1]["client"] == SOMEBODY
        assert "fight" not in await place.daemon.resource("Consumer/S/b")


async def at_least(found: list[float], number: int) -> bool:
    """Whether there are so many."""
    return len(found) >= number


@asynccontextmanager
async def fighting(running: Daemon, somebody: Somebody) -> AsyncIterator[list[float]]:
    """Meanwhile somebody sets the field back as soon as it is repaired: when he did so first, and when it was found repaired."""
    repairs, over = [time.monotonic()], asyncio.Event()

    async def fight() -> None:
        while not over.is_set():  # a cancellation alone can be lost in a request
            if (await somebody.config("S", "a"))["max_deliver"] != FOUGHT["max_deliver"]:
                repairs.append(time.monotonic())
            await somebody.edit("S", "a", **FOUGHT)
            await asyncio.sleep(0.05)

    await somebody.edit("S", "a", **FOUGHT)
    assert not running.ended
    task = asyncio.create_task(fight())
    try:
        yield repairs
    finally:
        over.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
