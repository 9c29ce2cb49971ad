"""Several daemons of one owner: one leads, the others wait, and whatever happens to the leader, another takes over in time.

A short TTL is what an operator may choose: the age limit of the lease's bucket.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.account.lease import hold
from tests.support.account.wire import Wire, eventually
from tests.support.daemon.leadership import Place, Two, counting, edit, limit_is, names, repaired, shop, short_lease, two
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.server.proxy import Request, Verdict

TTL = 10.0
FENCE = 32.0
"""How long who follows a frozen one waits for a proof that nothing of it can land, on servers that keep its connection."""
WITHIN = TTL + FENCE + 20.0
"""How long it may take until somebody else does the work of a leader that is gone, and what a busy machine needs.

Without a lease that runs out it would be the next look at everything, a minute later; `make bench` measures the time."""
SHORT = 2.0


@pytest.fixture
def place(server: Server, wire: Wire, tmp_path: Path) -> Place:
    return Place(server, wire, tmp_path)


async def killed(both: Two) -> None:
    await both.leader.kill()


async def frozen(both: Two) -> None:
    both.leader.send(signal.SIGSTOP)


async def stalled(both: Two) -> None:
    both.proxy.stall()


async def cut_off(both: Two) -> None:
    both.proxy.cut()


EVENTS = (killed, frozen, stalled, cut_off)


async def seconds_without_a_writer(place: Place, event: Callable[[Two], Awaitable[None]]) -> float:
    """From the event to the repair of an edit that was made right after it."""
    async with two(place) as both:
        began = time.monotonic()
        await event(both)
        await edit(place.wire, place.stream)
        took = await repaired(place.wire, place.stream, 60) - began
        await both.follower.until(settled)
        assert names(both.follower)(await both.follower.status())
        assert await both.follower.metric("reconciler_leader_transitions_total") == 1
        return took


@pytest.mark.slow
async def test_killed_frozen_or_cut_off_a_leader_is_followed_in_time(place: Place) -> None:
    places = [replace(place, owner=event.__name__) for event in EVENTS]
    took = await asyncio.gather(*map(seconds_without_a_writer, places, EVENTS))
    assert max(took) < WITHIN, took


async def test_a_leader_that_is_stopped_is_followed_at_once(place: Place) -> None:
    async with two(place) as both:
        assert await both.leader.stop() == 0
        ended = time.monotonic()
        await edit(place.wire, place.stream)
        assert await repaired(place.wire, place.stream, 60) - ended < TTL / 2, "it gave the lease back, nobody waited for its end"


async def test_a_leader_that_thaws_follows_and_says_so(place: Place) -> None:
    await short_lease(place.wire, SHORT)
    async with two(place) as both:
        assert await both.leader.metric("reconciler_leader") == 1
        both.leader.send(signal.SIGSTOP)
        await edit(place.wire, place.stream)
        await repaired(place.wire, place.stream, WITHIN)
        async with place.wire.audit() as audit, counting(both.leader, both.follower) as sums:
            both.leader.send(signal.SIGCONT)
            status = await both.leader.until(names(both.follower))
            writes = len(both.proxy.writes)
            assert status["leading"] is False
            assert await both.leader.metric("reconciler_leader") == 0
            assert await both.leader.metric("reconciler_leader_transitions_total") == 2
            assert next(line["reason"] for line in both.leader.lines("lease.lost")) == "not renewed in time"
            del sums[:]
            for _ in range(5):
                await edit(place.wire, place.stream)
                await repaired(place.wire, place.stream, WITHIN)
            await eventually(lambda: len(sums) > 2)
            assert set(sums) == {1}
        assert len(both.proxy.writes) == writes, "it writes no more"
        assert len([one for one in audit.writes() if one.endswith(f"UPDATE.{place.stream}")]) == 10, "each edit, each repair"
        both.follower.send(signal.SIGTERM)
        await both.leader.until(settled)
        assert await both.leader.metric("reconciler_leader_transitions_total") == 3


@pytest.mark.parametrize("event", [stalled, cut_off])
async def test_a_leader_that_was_cut_off_steps_down_before_another_leads(
    place: Place, event: Callable[[Two], Awaitable[None]]
) -> None:
    await short_lease(place.wire, SHORT)
    async with two(place) as both, counting(both.leader, both.follower) as sums:
        await event(both)
        await both.follower.until(settled)
        assert set(sums) == {0, 1}
        assert (await both.leader.status())["leading"] is False
        both.proxy.mend()
        await both.leader.until(names(both.follower))
        assert 2 not in sums


async def test_of_five_that_start_at_once_exactly_one_leads(place: Place) -> None:
    await short_lease(place.wire, SHORT)
    async with AsyncExitStack() as stack:
        started = (stack.enter_async_context(place.daemon(str(number), ready=False)) for number in range(5))
        daemons = tuple(await asyncio.gather(*started))
        await asyncio.gather(*(one.ready() for one in daemons))
        async with counting(*daemons) as sums:
            (leader,) = [one for one in daemons if (await one.status())["leading"]]
            for one in daemons:
                await one.until(names(leader))
            await asyncio.sleep(SHORT)
        assert set(sums) == {1}


async def test_lease_show_names_the_daemon(place: Place) -> None:
    async with two(place) as both:
        cli = place.command()
        shown = (await ran(cli, "--owner", place.owner, "lease", "show", "--format", "json")).json["holder"]
        assert (shown["host"], shown["pid"], shown["source"]) == (socket.gethostname(), both.leader.pid, str(place.manifests))
        leader = (await both.follower.status())["leader"]
        assert leader in (await ran(cli, "--owner", place.owner, "lease", "show")).out


def acquired(times: int, *daemons: Daemon) -> bool:
    """Whether the lease has been taken so often, by whichever."""
    return sum(len(one.lines("lease.acquired")) for one in daemons) >= times


async def test_whose_lease_somebody_ends_stops_writing_before_another_begins(place: Place) -> None:
    await short_lease(place.wire, SHORT)
    async with two(place) as both, counting(both.leader, both.follower) as sums:
        times = 1
        while not both.follower.lines("lease.acquired"):  # who has lost it may well be the first to ask for it again
            times += 1
            await ran(place.command(), "lease", "release", "--yes")
            await eventually(partial(acquired, times, both.leader, both.follower))
        await both.follower.until(settled)
        status = await both.leader.until(names(both.follower))
        assert status["leading"] is False
        assert both.leader.lines("lease.lost")[0]["reason"] == "taken by another process, or removed"
        assert set(sums) <= {0, 1}
        await edit(place.wire, place.stream)
        await repaired(place.wire, place.stream, WITHIN)


async def test_an_apply_waits_for_a_daemon_that_leads_and_is_refused(place: Place) -> None:
    await short_lease(place.wire, SHORT)
    async with place.daemon("leader") as leader:
        await leader.until(settled)
        began = time.monotonic()
        more = shop(place.directory / "more.yaml", "more")
        refused = await ran(place.command(), "apply", "-f", more, "--yes", code=3)
        assert time.monotonic() - began > SHORT
        assert f"{socket.gethostname()} (pid {leader.pid}," in refused.err
        assert (await leader.status())["leading"] is True
        await ran(place.command(), "--owner", "other", "apply", "-f", more, "--yes")
        async with replace(place, owner="third").daemon("leader") as third:
            await third.until(settled)
            assert (await leader.status())["leading"] is True


async def test_a_follower_shows_what_differs_and_sends_people_to_the_leader(place: Place) -> None:
    await short_lease(place.wire, SHORT)
    async with two(place) as both:
        await edit(place.wire, place.stream)
        await repaired(place.wire, place.stream, 10)
        key = f"Stream/{place.stream}"
        code, text = await both.follower.post(f"/-/suspend?key={key}")
        assert code == 409
        assert f"(pid {both.leader.pid}," in text
        assert (await both.leader.post(f"/-/suspend?key={key}"))[0] in (200, 202)
        await both.leader.until(lambda document: document["summary"]["Suspended"] == 1)
        await edit(place.wire, place.stream)
        assert (await both.follower.post("/-/reconcile"))[0] in (200, 202)
        status = await both.follower.until(lambda document: document["summary"]["OutOfSync"] == 1)
        assert (status["leading"], status["ready"]) == (False, True)
        assert names(both.leader)(status)
        assert (await both.follower.resource(key))["state"] == "OutOfSync"
        assert (await both.follower.get("/readyz"))[0] == 200
        assert await both.follower.metric("reconciler_leader") == 0


@pytest.mark.slow
async def test_what_a_frozen_leader_had_on_its_way_is_put_right_by_the_next_one(place: Place) -> None:
    """The two declare different things here, so that the last word can be told from the stale one."""
    await short_lease(place.wire, SHORT)
    async with two(place) as both:
        frozen = asyncio.Event()

        def freeze(request: Request) -> Verdict:
            if request.is_write and not frozen.is_set():
                both.leader.send(signal.SIGSTOP)
                both.proxy.stall()
                frozen.set()
            return Verdict.PASS

        newer = shop(place.directory / "newer.yaml", place.stream, f"{place.stream}-beside", limit=2000)
        async with daemon(place.command(), place.directory / "newer.log", "-f", newer, "--audit", "on") as third:
            await both.follower.stop()
            both.proxy.rule = freeze
            await edit(place.wire, place.stream)
            await frozen.wait()
            await third.until(settled)
            await limit_is(place.wire, place.stream, 2000)
            async with place.wire.audit() as audit:
                both.proxy.mend()
                async with asyncio.timeout(SHORT * 10):  # what it had on its way arrives, and may be put right at once
                    while not audit.writes():  # noqa: ASYNC110 - nobody signals it
                        await asyncio.sleep(0.01)
                both.leader.send(signal.SIGCONT)
                await limit_is(place.wire, place.stream, 2000)
                await both.leader.until(names(third))
                await asyncio.sleep(SHORT)
            assert len(audit.writes()) == 2, "the stale one and the one that puts it right"
            await limit_is(place.wire, place.stream, 2000)


async def test_a_leader_behind_which_nothing_is_proven_leads_and_says_so(place: Place) -> None:
    """The one before is of a version that does not name its connection."""
    await short_lease(place.wire, SHORT)
    connection, lease = await hold(place.server)
    connection.cut()
    await connection.close()
    async with place.daemon("next", "--fence", "0s") as next_one:
        status = await next_one.until(lambda document: document["leading"])
        assert status["fence"]["state"] == "unproven"
        assert "it is not known over which connection" in status["fence"]["why"]
        assert await next_one.metric("reconciler_fence_unproven") == 1
        assert next_one.lines("fence.unproven")
        shown = await ran(place.command(), "status", "--daemon", next_one.url)
        assert "A change may still land late" in shown.out
    assert not lease.held()
