"""What cannot be done, may not be done or shall be left alone holds up nothing but itself, and is never called Synced."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.account.meddling import FEW, PATIENCE, Somebody, Watched, is_again, many, repaired_at_once, state_of, watched
from tests.support.account.wire import IN_FLIGHT
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import Json, consumer, everything, stream


async def meddle_with(somebody: Somebody, places: Iterable[tuple[str, str]]) -> None:
    """A script that edits all of these at once."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def one(name: str, member: str) -> None:
        async with room:
            await somebody.edit(name, member, max_deliver=99)

    await asyncio.gather(*(one(*place) for place in places))


def risky(allow: str = "") -> list[Json]:
    """Streams and a consumer whose repair will lose messages, each with a neighbour that is in no danger."""
    keep = stream("KEEP", "keep.>", retention="interest")
    keep["metadata"] |= {"annotations": {"reconciler/allow": allow}} if allow else {}
    family = [stream("LIMIT", "limit.>", maxMsgs=5), keep, stream("FILTER", "filter.>"), consumer("FILTER", "c", "filter.a")]
    return [*family, *(consumer(name, "other", f"{name.lower()}.a") for name in ("LIMIT", "KEEP", "FILTER"))]


RISKS = {"Stream/LIMIT": "maxMsgs 5 is below", "Stream/KEEP": "interest retention drops", "Consumer/FILTER/c": "filter.b"}


async def loosen(place: Watched) -> None:
    """Somebody makes room while nobody looks, and fills it."""
    somebody = place.somebody
    place.daemon.send(signal.SIGSTOP)
    await somebody.edit("LIMIT", max_msgs=100)
    await somebody.edit("KEEP", retention="limits")
    await somebody.edit("FILTER", "c", filter_subjects=["filter.a", "filter.b"])
    for subject in ("limit.b", "keep.b", "filter.b"):
        await somebody.publish(subject, 20)
    place.daemon.send(signal.SIGCONT)


async def test_what_cannot_be_repaired_without_loss_blocks_nobody_else(server: Server, tmp_path: Path) -> None:
    """The others are a thousand, and some of them belong to the very streams that are blocked."""
    others = many(10, 99)
    async with watched(server, tmp_path, [*others, *risky()]) as place:
        somebody = place.somebody
        await loosen(place)
        document = await place.daemon.until(lambda now: all(state_of(now, key) == "Blocked" for key in RISKS))
        assert document["summary"]["Blocked"] == len(RISKS)
        for resource in document["resources"]:
            if resource["key"] in RISKS:
                assert RISKS[resource["key"]] in resource["message"]
        for name in ("LIMIT", "KEEP", "FILTER", *(f"M{number}" for number in range(10))):
            member = "c7" if name.startswith("M") else "other"
            await repaired_at_once(somebody, name, member)
        await repaired_at_once(somebody, "FILTER", max_msgs=3)
        await somebody.expect("CONSUMER.DELETE.LIMIT.other")
        await place.drift("Consumer/LIMIT/other")
        assert {key for key in RISKS if state_of(await place.daemon.status(), key) == "Blocked"} == RISKS.keys()
        assert len(await somebody.payloads("LIMIT")) == 20

        await somebody.expect("STREAM.PURGE.LIMIT")
        await Work(somebody, "FILTER").drain()
        document = await place.daemon.looked()
        await place.daemon.until(lambda now: now["summary"]["Blocked"] == 1)
        assert len(await somebody.payloads("KEEP")) == 20
        await place.commit([*others, *risky(allow="data-loss")])
        await place.daemon.until(settled)
        assert (await somebody.config("KEEP"))["retention"] == "interest"


async def test_a_script_that_edits_four_in_ten_and_deletes_one_in_ten_is_no_mass_change_of_ours(
    server: Server, tmp_path: Path
) -> None:
    async with watched(server, tmp_path, many(10, 100)) as place:
        before = await everything(place.somebody)
        places = [(f"M{number}", f"c{member}") for number in range(10) for member in range(40)]
        await meddle_with(place.somebody, places)
        await until(lambda: is_again(place.somebody, before))
        await asyncio.gather(*(place.somebody.expect(f"CONSUMER.DELETE.{name}.{member}") for name, member in places[:100]))
        await until(lambda: is_again(place.somebody, before))
        await place.daemon.looked()
        await place.daemon.until(settled)
        assert not place.daemon.lines("plan.refused")
        drifts = 'reconciler_drift_detected_total{kind="Consumer"}'
        assert await place.daemon.metric(drifts) == len(places) + 100


@pytest.mark.parametrize("flags", [["--dry-run"], ["--drift", "report"]], ids=" ".join)
async def test_who_only_looks_writes_nothing_and_calls_nothing_synced_that_differs(
    server: Server, tmp_path: Path, flags: list[str]
) -> None:
    async with watched(server, tmp_path, FEW) as before:
        await before.daemon.stop()
    async with watched(server, tmp_path, FEW, *flags, like=lambda now: now["summary"]["Synced"] == 3) as place:
        await place.daemon.until(lambda now: bool(now["audit"]["state"] == "on"))
        await place.somebody.edit("S", "a", max_deliver=99)
        await place.somebody.edit("S", max_msgs=99)
        await place.somebody.expect("CONSUMER.DELETE.S.b")
        after = await everything(place.somebody)
        await place.daemon.until(lambda now: now["summary"]["OutOfSync"] == 3)
        document = await place.daemon.looked()
        assert document["summary"] | {"OutOfSync": 3, "Synced": 0} == document["summary"]
        assert await everything(place.somebody) == after
        drifts = {resource["key"]: resource["lastDrift"]["fields"] for resource in document["resources"]}
        assert drifts == {"Stream/S": ["maxMsgs"], "Consumer/S/a": ["maxDeliver"], "Consumer/S/b": []}


async def test_a_follower_writes_nothing_and_calls_nothing_synced_that_differs(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FEW) as leader:
        log, cli = tmp_path / "follower.log", Command(tmp_path, server.url)
        async with daemon(cli, log, "-f", leader.manifests) as follower:
            assert not (await follower.status())["leading"]
            leader.daemon.send(signal.SIGSTOP)
            before = await leader.somebody.config("S", "a")
            await leader.somebody.edit("S", "a", max_deliver=99)
            document = await follower.looked()
            assert state_of(document, "Consumer/S/a") == "OutOfSync"
            assert (await leader.somebody.config("S", "a"))["max_deliver"] == 99
            leader.daemon.send(signal.SIGCONT)
            await leader.somebody.until_like(before, "S", "a", PATIENCE)  # its status of before the stop says "settled" as well
            assert state_of(await follower.looked(), "Consumer/S/a") == "Synced"


LIMITED = """
authorization {
  users: [
    {user: admin, password: pw},
    {user: looker, password: pw, permissions: {publish: {deny: ["$JS.API.STREAM.UPDATE.S"]}}},
  ]
}
no_auth_user: admin
"""


async def test_what_we_may_not_write_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    with Server(tmp_path / "limited", config=LIMITED) as server:
        async with watched(server, tmp_path, FEW, NATS_USER="looker", NATS_PASSWORD="pw") as place:
            await place.somebody.edit("S", max_msgs=99)
            await place.daemon.until(lambda now: state_of(now, "Stream/S") in {"Error", "Blocked"})
            await repaired_at_once(place.somebody, "S", "a")
            document = await place.daemon.looked()
            found = next(resource for resource in document["resources"] if resource["key"] == "Stream/S")
            assert found["state"] in {"Error", "Blocked"}
            assert "STREAM.UPDATE.S" in found["message"]


async def test_what_is_suspended_by_request_is_left_alone_until_it_is_resumed(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FEW) as place:
        before = await place.somebody.config("S", "a")
        code, text = await place.daemon.post("/-/suspend?key=Consumer/S/a")
        assert code == 200, text
        await place.somebody.edit("S", "a", max_deliver=99)
        await repaired_at_once(place.somebody, "S", "b")
        document = await place.daemon.looked()
        assert state_of(document, "Consumer/S/a") == "Suspended"
        assert (await place.somebody.config("S", "a"))["max_deliver"] == 99
        code, text = await place.daemon.post("/-/resume?key=Consumer/S/a")
        assert code == 200, text
        await place.somebody.until_like(before, "S", "a", PATIENCE)
        await place.daemon.until(settled)


async def test_what_the_manifest_suspends_is_left_alone_until_it_says_otherwise(server: Server, tmp_path: Path) -> None:
    suspended = consumer("S", "a", "s.a")
    suspended["metadata"] |= {"annotations": {"reconciler/suspend": "true"}}
    async with watched(server, tmp_path, FEW) as place:
        before = await place.somebody.config("S", "a")
        await place.commit([FEW[0], suspended, FEW[2]])
        await place.somebody.edit("S", "a", max_deliver=99)
        await repaired_at_once(place.somebody, "S", "b")
        assert state_of(await place.daemon.looked(), "Consumer/S/a") == "Suspended"
        assert (await place.somebody.config("S", "a"))["max_deliver"] == 99
        await place.commit(FEW)
        await place.somebody.until_like(before, "S", "a", PATIENCE)


async def test_what_the_policy_leaves_is_not_called_synced(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, FEW, "--policy", "create-only") as place:
        await place.somebody.edit("S", "a", max_deliver=99)
        await place.daemon.until(lambda now: state_of(now, "Consumer/S/a") == "OutOfSync")
        assert state_of(await place.daemon.looked(), "Consumer/S/a") == "OutOfSync"
        assert (await place.somebody.config("S", "a"))["max_deliver"] == 99
        await place.somebody.edit("S", "a", max_deliver=-1)
        await place.daemon.until(lambda now: state_of(now, "Consumer/S/a") == "Synced")


async def test_a_domain_that_does_not_answer_is_unknown_and_holds_up_nobody(server: Server, tmp_path: Path) -> None:
    away = stream("AWAY", "away.>", domain="nowhere")
    far = consumer("AWAY", "c", "away.a", domain="nowhere")

    def like(document: Json) -> bool:
        return bool(
            document["summary"]["Unknown"] == 2 and document["summary"]["Synced"] == 3 and document["audit"]["state"] == "on"
        )

    async with watched(server, tmp_path, [*FEW, away, far], like=like) as place:
        await repaired_at_once(place.somebody, "S", "a")
        document = await place.daemon.looked()
        assert like(document)
        assert state_of(document, "nowhere:Stream/AWAY") == "Unknown"
