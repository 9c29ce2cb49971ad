"""What a daemon removes, and what stops it from changing too much."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.account.meddling import FEW, Somebody, many, repaired_at_once, state_of, watched
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import LEASE_BUCKETS, Json, consumer, everything, stream, write


async def names(somebody: Somebody) -> set[str]:
    """The streams but the lease's, and their consumers."""
    found = set()
    for name in (await somebody.expect("STREAM.NAMES"))["streams"]:
        if not name.startswith(LEASE_BUCKETS):
            answer = await somebody.call(f"CONSUMER.NAMES.{name}")  # it may just be going
            found |= {name, *(f"{name}/{member}" for member in answer.get("consumers") or ())}
    return found


async def test_what_is_no_longer_declared_goes_by_full_passes_only_and_tombstones_by_name(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FEW, "--prune", "--prune-delay", "0") as place:
        somebody = place.somebody
        marked = {**await somebody.config("S", "b"), "durable_name": "extra", "name": "extra"}
        marked["metadata"]["reconciler.key"] = "Consumer/S/extra"
        await somebody.expect("CONSUMER.CREATE.S.extra", {"stream_name": "S", "config": marked, "action": "create"})
        for _ in range(3):
            await repaired_at_once(somebody, "S", "a")
            await repaired_at_once(somebody, "S", max_msgs=99)
        assert await names(somebody) == {"S", "S/a", "S/b", "S/extra"}
        await place.daemon.looked()
        assert await names(somebody) == {"S", "S/a", "S/b"}
        more = [stream("GONE", "gone.>"), consumer("GONE", "c", "gone.a"), stream("T", "t.>")]
        await place.commit([*FEW, *more])
        await until(lambda: are(somebody, {"S", "S/a", "S/b", "GONE", "GONE/c", "T"}))
        await place.daemon.until(settled)
        tomb = {"kind": "Stream", "metadata": {"name": "T"}, "spec": {"state": "absent"}}
        await place.commit([*FEW[:2], tomb])
        await until(lambda: are(somebody, {"S", "S/a"}))
        await place.daemon.until(settled)


async def are(somebody: Somebody, wanted: set[str]) -> bool:
    """Whether exactly these are there."""
    return await names(somebody) == wanted


REFUSED = 'reconciler_plan_refused{reason="percent"}'


async def test_a_commit_that_changes_half_of_it_all_changes_nothing_before_it_is_approved(server: Server, tmp_path: Path) -> None:
    before = many(2, 9)
    half = [{**one, "spec": {**one["spec"], "maxDeliver": 5}} if one["spec"].get("stream") == "M0" else one for one in before] + [
        stream("NEW", "new.>")
    ]
    async with watched(server, tmp_path, before) as place:
        somebody, was = place.somebody, await everything(place.somebody)
        await place.commit(half)
        document = await place.daemon.until(lambda now: bool(now["refused"]))
        assert re.search(r"9 of 2[01] owned resources would be updated", document["refused"][0])
        assert await place.daemon.metric(REFUSED) == 1
        assert [line["reasons"] for line in place.daemon.lines("plan.refused")] == [["mass-change"]]
        found = await everything(somebody)
        assert {**found, **was} == found

        await somebody.edit("M1", "c3", max_deliver=99)
        await somebody.until_like({"max_deliver": -1}, "M1", "c3")
        document = await place.daemon.looked()
        assert document["summary"]["OutOfSync"] == 9
        assert state_of(document, "Stream/NEW") == "Synced"

        approve = {"kind": "Policy", "metadata": {"name": "p"}, "spec": {"approve": document["lastPass"]["fingerprint"]}}
        await place.commit([*half, approve])
        await place.daemon.until(settled)
        assert await place.daemon.metric(REFUSED) == 0
        assert (await somebody.config("M0", "c3"))["max_deliver"] == 5
        assert (await everything(somebody))["M1/c3"] == was["M1/c3"]


async def test_a_refused_commit_that_is_taken_back_lets_repairs_go_on(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, many(2, 9), "--max-change-percent", "0") as place:
        await place.commit([*many(2, 8), consumer("M0", "c8", "m0.8", maxDeliver=5), consumer("M1", "c8", "m1.8")])
        await place.daemon.until(lambda now: bool(now["refused"]))
        await place.commit(many(2, 9))
        await place.daemon.until(settled)
        await repaired_at_once(place.somebody, "M0", "c8")


def spread_out(directory: Path, documents: Iterable[Json]) -> Path:
    """One file a document."""
    directory.mkdir()
    for number, document in enumerate(documents):
        write(directory / f"{number:02}.yaml", [document])
    return directory


@asynccontextmanager
async def pruning(server: Server, directory: Path, manifests: Path, delay: str) -> AsyncIterator[tuple[Daemon, Somebody]]:
    """A daemon that prunes, and has put everything in place."""
    flags = ("-f", manifests, "--prune", "--prune-delay", delay)
    async with (
        await Somebody.arrive(server.url) as somebody,
        daemon(Command(directory, server.url), directory / "log", *flags) as running,
    ):
        await running.until(settled)
        yield running, somebody


MORE = [*many(2, 6), stream("S", "s.>"), stream("T", "t.>")]


async def test_files_that_are_away_for_a_moment_are_not_pruned(any_server: Server, tmp_path: Path) -> None:
    manifests = spread_out(tmp_path / "manifests", MORE)
    async with pruning(any_server, tmp_path, manifests, "1h") as (running, somebody):
        was = await everything(somebody)
        away = [path.rename(tmp_path / path.name) for path in sorted(manifests.iterdir())[1:4]]
        document = await running.until(lambda now: bool(now["prunes"]))
        assert document["prunes"]["waiting"] == 3
        assert 3000 < document["prunes"]["seconds"] <= 3600
        document = await running.looked()
        assert document["summary"]["OutOfSync"] == 3
        assert await everything(somebody) == was
        await somebody.edit("S", max_msgs=99)
        await somebody.until_like({"max_msgs": -1}, "S")
        for path in away:
            path.rename(manifests / path.name)
        document = await running.until(settled)
        assert document["prunes"] is None
        assert await everything(somebody) == was


async def test_what_stays_away_is_pruned_when_the_rest_has_not_changed_for_a_while(server: Server, tmp_path: Path) -> None:
    manifests = spread_out(tmp_path / "manifests", MORE)
    async with pruning(server, tmp_path, manifests, "3s") as (running, somebody):
        (manifests / f"{len(MORE) - 1}.yaml").unlink()
        await running.until(lambda now: bool(now["prunes"]))
        assert "T" in await names(somebody)
        await running.until(lambda now: settled(now) and not now["prunes"])
        assert "T" not in await names(somebody)


async def test_a_link_that_leads_elsewhere_swaps_everything_at_once_and_nothing_waits(server: Server, tmp_path: Path) -> None:
    spread_out(tmp_path / "one", MORE)
    spread_out(tmp_path / "two", MORE[:-1])
    manifests = tmp_path / "manifests"
    manifests.symlink_to("one")
    async with pruning(server, tmp_path, manifests, "1h") as (running, somebody):
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(manifests)
        await running.until(lambda now: now["revision"] == "two" and settled(now))
        await until(lambda: are(somebody, set(names_of(MORE[:-1]))))


def names_of(documents: Iterable[Json]) -> Iterator[str]:
    """As `names` names them."""
    for document in documents:
        name, of = document["metadata"]["name"], document["spec"].get("stream")
        yield f"{of}/{name}" if of else name


async def test_files_cut_down_to_nothing_are_errors_and_what_they_declared_stays(any_server: Server, tmp_path: Path) -> None:
    manifests = spread_out(tmp_path / "manifests", MORE)
    async with pruning(any_server, tmp_path, manifests, "0") as (running, somebody):
        was = await everything(somebody)
        for path in sorted(manifests.iterdir())[:4]:
            os.truncate(path, 0)
        document = await running.until(lambda now: bool(now["manifests"]["problems"]))
        assert {problem["code"] for problem in document["manifests"]["problems"]} == {"empty-file"}
        await running.looked()
        await running.looked()
        assert await everything(somebody) == was
