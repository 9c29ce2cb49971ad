"""A day in a minute: nearly everything that can happen to a daemon, so that each of its metrics has something to show."""

from __future__ import annotations

from tests.support.incidents.scenes import (
    ARCHIVE,
    SITES,
    TWENTY,
    edit_a_worker,
    fought,
    held_back,
    in_place_but_pools,
    loaded,
    lose,
    meddle,
    plan_workers,
    refused,
    sit,
    take_everything,
)
from tests.support.incidents.stage import ORDERS, Stage
from tests.support.sources.watched import flows, stalls, until_source


async def eventful(stage: Stage) -> None:
    """In the end a third daemon leads, and all that it can put in place is in place."""
    stage.commit(SITES.replace("[site.>]", "[site.>], retention: interest"), "sites.yaml")
    stage.commit(TWENTY, "workers.yaml")
    await plan_workers(stage, "w-a", "w-b")
    first = await stage.start(like=in_place_but_pools)
    second = await stage.start(like=lambda now: bool(now["leader"] and not now["leading"]))
    await until_source(first, "ALL", stalls("consumer-missing"))
    await lose(stage)
    await _manifests(stage)
    await _resources(stage)
    await stage.somebody.expect("CONSUMER.PAUSE.SITE.site_to_all", {"pause_until": "2099-01-01T00:00:00Z"})
    await stage.somebody.publish("site.x", 30)
    await until_source(first, "ALL", lambda source: bool(source["state"] == "Paused" and source["pending"]))
    await stage.somebody.expect("CONSUMER.PAUSE.SITE.site_to_all", {})
    await until_source(first, "ALL", flows)
    stage.server.stop()
    await first.until(lambda now: not now["leading"])
    stage.server.start()
    await first.until(lambda now: bool(now["connected"] and now["leader"]))
    await first.stop()
    await second.until(in_place_but_pools)
    await second.stop()
    await stage.somebody.edit("ORDERS", "billing", max_ack_pending=7)
    await stage.start(like=in_place_but_pools)


async def _manifests(stage: Stage) -> None:
    """A new generation of the pool, one that is not whole, a wrong commit, and one that is too much."""
    leader = stage.daemon
    await leader.until(loaded(1))
    await plan_workers(stage, "w-a", "w-b", "w-c")
    await leader.until(loaded(2))
    edit_a_worker(stage)
    await leader.until(held_back)
    stage.git("revert", "--no-edit", "HEAD")
    await leader.until(lambda now: not held_back(now))
    stage.commit(ORDERS.replace("maxAge", "maxAgge"))
    await leader.until(lambda now: bool(now["manifests"]["problems"]))
    stage.commit(ORDERS)
    await leader.until(lambda now: not now["manifests"]["problems"])
    stage.commit(TWENTY.replace("maxAckPending: 100", "maxAckPending: 200"), "workers.yaml")
    await leader.until(refused)
    stage.commit(TWENTY, "workers.yaml")
    await leader.until(in_place_but_pools)


async def _resources(stage: Stage) -> None:
    """A fight, a procedure that waits, a consumer that stands still, and a stream that nobody has room for."""
    leader = stage.daemon
    while not fought(await leader.status()):
        await meddle(stage)
    work = await sit(stage)
    await work.finish()
    await leader.until(in_place_but_pools)
    await take_everything(stage)
    stage.commit(ARCHIVE, "archive.yaml")
    await leader.until(lambda now: bool(now["summary"]["Error"]))
    stage.git("revert", "--no-edit", "HEAD")
    await leader.until(in_place_but_pools)
