"""What a daemon removes, and what stops it from changing too much."""

from __future__ import annotations

from pathlib import Path

from tests.support.account.meddling import FEW, Somebody, many, repaired_at_once, state_of, watched
from tests.support.clock.until import until
from tests.support.daemon.process import settled
from tests.support.server.process import Server
from tests.support.values.catalogues import LEASE_BUCKETS, consumer, everything, stream


async def names(somebody: Somebody) -> set[str]:
    """The streams but the lease's, and their consumers."""
    found = set()
    for name in (await somebody.expect("STREAM.NAMES"))["streams"]:
        if not name.startswith(LEASE_BUCKETS):
            answer = await somebody.call(f"CONSUMER.NAMES.{name}")  # it may just be going
            found |= {name, *(f"{name}/{member}" for member in answer.get("consumers") or ())}
    return found


async def test_what_is_no_longer_declared_goes_by_full_passes_only_and_tombstones_by_name(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FEW, "--prune") as place:
        somebody = place.somebody
        marked = {**await somebody.config("S", "b"), "durable_name": "extra", "name": "extra"}
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


async def test_a_commit_that_changes_half_of_it_all_writes_nothing_before_it_is_approved(server: Server, tmp_path: Path) -> None:
    before = many(2, 9)
    half = [{**one, "spec": {**one["spec"], "maxDeliver": 5}} if one["spec"].get("stream") == "M0" else one for one in before] + [
        stream("NEW", "new.>")
    ]
    async with watched(server, tmp_path, before) as place:
        somebody, was = place.somebody, await everything(place.somebody)
        await place.commit(half)
        document = await place.daemon.until(lambda now: bool(now["refused"]))
        assert "9 of 20 owned resources would be updated (45 %" in document["refused"][0]
        assert await place.daemon.metric(REFUSED) == 1
        assert [line["reasons"] for line in place.daemon.lines("plan.refused")] == [["mass-change"]]
        assert await everything(somebody) == was

        await somebody.edit("M1", "c3", max_deliver=99)
        await place.daemon.until(lambda now: state_of(now, "Consumer/M1/c3") == "OutOfSync")
        document = await place.daemon.looked()
        assert document["summary"]["OutOfSync"] == 11
        assert (await somebody.config("M1", "c3"))["max_deliver"] == 99

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
