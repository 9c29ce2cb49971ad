"""Procedures run beside the passes: seen, stopped, taken back, and over for good."""

from __future__ import annotations

from pathlib import Path

from tests.support.account.meddling import FEW, Settled, Somebody, Watched, repaired_at_once, state_of, watched
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.daemon.process import Daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import Json, consumer, stream


def changing(after: bool, allow: str = "recreate") -> list[Json]:
    """A consumer whose filters grow, one that has to be made anew, and one that stays."""
    filters = ["p.a", "p.b"] if after else ["p.a"]
    anew = {"maxWaiting": 7} if after else {}
    return [stream("P", "p.>"), consumer("P", "grows", *filters), consumer("P", "anew", "p.a", allow=allow, **anew), *FEW]


async def busy(somebody: Somebody, member: str) -> Work:
    """Its worker sits on what it got, so that draining takes as long as the test wants."""
    work = Work(somebody, "P", member)
    await work.publish(*["p.a", "p.b"] * 5)
    assert await work.pull(3, finish=False) == 3
    return work


def progressing(*keys: str) -> Settled:
    """Whether procedures of these are under way."""
    return lambda document: {one["key"] for one in document["procedures"] if one["state"] == "running"} == set(keys)


async def test_procedures_run_beside_the_passes_and_leave_nothing_to_do(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, changing(after=False)) as place:
        somebody = place.somebody
        works = [await busy(somebody, member) for member in ("grows", "anew")]
        await place.commit(changing(after=True))
        keys = ["Consumer/P/grows", "Consumer/P/anew"]
        document = await place.daemon.until(progressing(*keys))
        assert {state_of(document, key) for key in keys} == {"Progressing"}
        assert {one["name"] for one in document["procedures"]} == {"filter-add", "recreate-consumer"}
        assert all(one["step"] for one in document["procedures"])
        for name, member in (("S", "a"), ("S", ""), ("P", "")):
            await repaired_at_once(somebody, name, member, **({"max_msgs": 99} if not member else {}))
        await place.daemon.looked()
        assert progressing(*keys)(await place.daemon.status())
        for work in works:
            await work.finish()
        await place.daemon.until(settled)
        config = await somebody.config("P", "grows")
        assert config["filter_subjects"] == ["p.a", "p.b"]
        assert (await somebody.config("P", "anew"))["max_waiting"] == 7
        await nothing_left(place)
        await place.daemon.stop()
    async with watched(server, tmp_path, changing(after=True)) as again:
        document = await again.daemon.looked()
        assert document["lastPass"]["changes"] == 0
        assert not again.daemon.lines("change.ended")


async def changes_total(running: Daemon) -> float:
    """How many changes were tried so far."""
    _, text = await running.get("/metrics")
    lines = [line for line in text.splitlines() if line.startswith("reconciler_changes_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def nothing_left(place: Watched) -> None:
    """Three passes plan nothing and try nothing."""
    before = await changes_total(place.daemon)
    for _ in range(3):
        assert (await place.daemon.looked())["lastPass"]["changes"] == 0
    assert await changes_total(place.daemon) == before


async def test_manifests_that_change_while_a_procedure_runs_take_effect_at_its_next_step(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, changing(after=False)) as place:
        somebody, key = place.somebody, "Consumer/P/grows"
        work = await busy(somebody, "grows")
        before = await somebody.config("P", "grows")
        others = [one for one in changing(after=False) if one["metadata"]["name"] != "grows"]
        await place.commit([*others, consumer("P", "grows", "p.a", "p.b")])
        await until(lambda: is_paused(somebody, "P", "grows"))
        await place.commit([*others, consumer("P", "grows", "p.a")])
        await place.daemon.until(progressing(key))
        await work.finish()
        await place.daemon.until(settled)
        assert await is_like_before(somebody, before)
        await work.drain()
        assert (work.lost("p.a"), work.duplicates) == ([], [])
        await nothing_left(place)


async def test_an_aborted_procedure_is_taken_back_and_stays_so_until_it_is_retried(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, changing(after=False)) as place:
        somebody, key = place.somebody, "Consumer/P/grows"
        work = await busy(somebody, "grows")
        before = await somebody.config("P", "grows")
        after = [
            consumer("P", "grows", "p.a", "p.b") if one["metadata"]["name"] == "grows" else one for one in changing(after=False)
        ]
        await place.commit(after)
        await place.daemon.until(progressing(key))
        await until(lambda: is_paused(somebody, "P", "grows"))
        code, text = await place.daemon.post(f"/-/procedure/abort?key={key}")
        assert code == 200, text
        document = await place.daemon.until(lambda now: procedure_state(now, key) == "aborted")
        assert state_of(document, key) == "Blocked"
        await until(lambda: is_like_before(somebody, before))
        for _ in range(2):
            document = await place.daemon.looked()
            assert (state_of(document, key), procedure_state(document, key)) == ("Blocked", "aborted")
        assert await is_like_before(somebody, before)

        code, text = await place.daemon.post(f"/-/procedure/retry?key={key}")
        assert code == 200, text
        await place.daemon.until(progressing(key))
        await work.finish()
        await place.daemon.until(settled)
        assert (await somebody.config("P", "grows"))["filter_subjects"] == ["p.a", "p.b"]
        await nothing_left(place)
        code, text = await place.daemon.post(f"/-/procedure/abort?key={key}")
        assert (code, "no procedure" in text) == (409, True)


def procedure_state(document: Json, key: str) -> str:
    """The state of a procedure."""
    return next((str(one["state"]) for one in document["procedures"] if one["key"] == key), "")


async def is_paused(somebody: Somebody, name: str, member: str) -> bool:
    """Whether it delivers nothing."""
    return bool((await somebody.consumer_info(name, member)).get("paused"))


async def is_like_before(somebody: Somebody, before: Json) -> bool:
    """Whether the consumer is as it was: filters, marker, no pause that lasts."""
    now = await somebody.config("P", "grows")
    fields = before.keys() - {"pause_until", "filter_subjects", "filter_subject"}
    filters = now.get("filter_subjects") or [now["filter_subject"]]
    same = all(now.get(field) == before[field] for field in fields) and filters == ["p.a"]
    return same and not await is_paused(somebody, "P", "grows")
