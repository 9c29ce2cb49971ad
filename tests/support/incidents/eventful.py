"""A day in a minute: nearly everything that can happen to a daemon, so that each of its metrics has something to show.

Invariant: what passes by itself goes on until whoever scrapes has seen it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.incidents.scenes import (
    ARCHIVE,
    SITES,
    TWENTY,
    edit_a_worker,
    gone_without_a_word,
    held_back,
    in_place_but_pools,
    its_source,
    loaded,
    lose,
    meddle,
    plan_workers,
    refused,
    sit,
    take_everything,
)
from tests.support.incidents.stage import ORDERS, Stage
from tests.support.sources.watched import flows, stalls

Seen = Callable[[str], Awaitable[None]]
"""Returns when this expression has an answer."""


async def eventful(stage: Stage, seen: Seen) -> None:
    """In the end a third daemon leads, behind a fence without a proof, and all that it can put in place is in place."""
    stage.commit(SITES.replace("[site.>]", "[site.>], retention: interest"), "sites.yaml")
    stage.commit(TWENTY, "workers.yaml")
    await plan_workers(stage, "w-a", "w-b")
    first = await stage.start(like=in_place_but_pools)
    second = await stage.start(like=lambda now: bool(now["leader"] and not now["leading"]))
    await first.until(its_source(stalls("consumer-missing")))
    await lose(stage)
    await _manifests(stage, seen)
    await _resources(stage, seen)
    await stage.somebody.expect("CONSUMER.PAUSE.SITE.site_to_all", {"pause_until": "2099-01-01T00:00:00Z"})
    await stage.somebody.publish("site.x", 30)
    await first.until(its_source(lambda source: bool(source["state"] == "Paused" and source["pending"])))
    await seen("reconciler_source_pending > 0")
    await stage.somebody.expect("CONSUMER.PAUSE.SITE.site_to_all", {})
    await first.until(its_source(flows))
    stage.server.freeze()
    await seen("reconciler_unfinished_work_seconds > 0")
    stage.server.thaw()
    await first.until(in_place_but_pools)
    stage.server.stop()
    await first.until(lambda now: not now["leading"])
    await seen("reconciler_nats_connected == 0")
    stage.server.start()
    await first.until(lambda now: bool(now["connected"] and now["leader"]))
    await seen("reconciler_nats_reconnects_total > 0")
    await first.stop()
    await second.until(in_place_but_pools)
    await seen("reconciler_leader == 1")
    await second.stop()
    await stage.somebody.edit("ORDERS", "billing", max_ack_pending=7)
    await gone_without_a_word(stage)
    await stage.start("--fence", "0s", like=in_place_but_pools)
    await seen("reconciler_fence_unproven == 1")


async def _manifests(stage: Stage, seen: Seen) -> None:
    """A new generation of the pool, one that is not whole, a wrong commit, and one that is too much."""
    leader = stage.daemon
    await leader.until(loaded(1))
    await plan_workers(stage, "w-a", "w-b", "w-c")
    await leader.until(loaded(2))
    edit_a_worker(stage)
    await leader.until(held_back)
    await seen("reconciler_pools_held_back == 1")
    stage.git("revert", "--no-edit", "HEAD")
    await leader.until(lambda now: not held_back(now))
    stage.commit(ORDERS.replace("maxAge", "maxAgge"))
    await leader.until(lambda now: bool(now["manifests"]["problems"]))
    await seen("reconciler_config_last_reload_successful == 0")
    stage.commit(ORDERS)
    await leader.until(lambda now: not now["manifests"]["problems"])
    stage.commit(TWENTY.replace("maxAckPending: 100", "maxAckPending: 200"), "workers.yaml")
    await leader.until(refused)
    await seen("reconciler_plan_refused == 1")
    stage.commit(TWENTY, "workers.yaml")
    await leader.until(in_place_but_pools)


async def _resources(stage: Stage, seen: Seen) -> None:
    """A fight, a procedure that waits, a consumer that stands still, and a stream that nobody has room for."""
    leader = stage.daemon
    while not leader.lines("drift.fighting"):
        await meddle(stage)
    work = await sit(stage)
    await seen("reconciler_procedure_oldest_seconds > 0")
    await work.finish()
    await leader.until(in_place_but_pools)
    await take_everything(stage)
    await seen("reconciler_consumers_full == 1")
    stage.commit(ARCHIVE, "archive.yaml")
    await leader.until(lambda now: bool(now["summary"]["Error"]))
    await seen("reconciler_backoff_resources == 1")
    stage.git("revert", "--no-edit", "HEAD")
    await leader.until(in_place_but_pools)
