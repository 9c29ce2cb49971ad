"""What each alert is about, made on a stage: the fault, what no command of ours can mend, and how one sees that it is over.

Invariant: the fault alone makes the alert fire, and what its runbook says ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.support.account.lease import hold, hold_fenced
from tests.support.account.wire import Json
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import settled
from tests.support.incidents.stage import ORDERS, Stage
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.sources.watched import flows, make, stalls, told

Act = Callable[[Stage], Awaitable[None]]


async def nothing(_stage: Stage) -> None:
    """There is nothing to do that the runbook's commands do not."""


async def in_place(stage: Stage) -> None:
    """Everything is as declared, and nothing is wrong with the manifests."""
    await stage.daemon.until(lambda now: settled(now) and not now["manifests"]["problems"] and not now["refused"])


@dataclass(frozen=True)
class Scene:
    """One incident; the diagnosis is made between `fault` and `mended`, the mitigation between `mended` and `over`."""

    fault: Act
    mended: Act = nothing
    over: Act = in_place
    config: str = ""
    """Of the server."""


SITES = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: SITE}
spec: {subjects: [site.>]}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: ALL}
spec:
  sources:
    - name: SITE
      consumer: {name: site_to_all, deliverSubject: deliver.site}
"""
LEAF = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: READINGS}
spec: {domain: leaf, subjects: [readings.>]}
"""
ARCHIVE = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: ARCHIVE}
spec: {subjects: [archive.>], maxBytes: 900TB}
"""
TWENTY = "".join(ORDERS.partition("---\n")[2].replace("billing", f"worker-{number}") + "---\n" for number in range(20))
"""More consumers of ORDERS."""
POOL = """\
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: shipping}
spec:
  stream: ORDERS
"""
PLAN = """\
apiVersion: reconciler/v1
kind: PartitionPlan
metadata: {name: shipping}
spec:
  pool: shipping
  stream: ORDERS
  partitions: {format: csv, path: partitions.csv}
  workers: {format: csv, path: workers.csv}
  output: manifests/shipping
"""


# The process


async def commit_that_ends_it(stage: Stage) -> None:
    """Wrong manifests at a start: the process ends with 4, however often it is started."""
    running = await stage.start()
    stage.commit(ORDERS.replace("maxAge", "maxAgge"))
    await running.kill()


async def started_again(stage: Stage) -> None:
    """Whatever runs it starts it again."""
    stage.daemons.clear()
    await stage.start()


async def lease_of_another(stage: Stage) -> None:
    """Somebody whom nobody scrapes holds the lease."""
    gone = await hold_fenced(stage.server, ttl=20.0)
    stage.stack.push_async_callback(gone)
    stage.other = gone
    await stage.start(like=lambda now: bool(now["connected"] and now["leader"]))


async def another_gone(stage: Stage) -> None:
    """He is gone, and did not give it back."""
    assert stage.other is not None
    await stage.other()


async def gone_without_a_word(stage: Stage) -> None:
    """A leader that nobody asks after: its lease runs out, and it did not say over which connection it changed anything."""
    connection, _ = await hold(stage.server, ttl=5.0)
    connection.cut()
    await connection.close()


async def behind_an_unknown(stage: Stage) -> None:
    """The leader before was such a one."""
    await gone_without_a_word(stage)
    await stage.start()


async def started_again_in_order(stage: Stage) -> None:
    """The leader gives the lease back, and the next term has nothing to wait for."""
    await stage.daemons.pop().stop()
    await stage.start()


async def two_servers(stage: Stage) -> None:
    """The second process was given another server."""
    other = stage.stack.enter_context(Server(stage.here.parent / "other"))
    await stage.start()
    await stage.start(server=other)


async def one_server(stage: Stage) -> None:
    """It is started with the right one."""
    wrong = stage.daemons.pop()
    await wrong.stop()
    await stage.start(like=lambda now: bool(now["connected"] and now["leader"] and not now["leading"]))


PERMISSIONS = """\
authorization {
  users: [{user: reconciler, password: pw, permissions: {publish: {allow: [">"], deny: [%s]}, subscribe: [">"]}}]
}
no_auth_user: reconciler
"""
EVERYTHING = PERMISSIONS % ""


async def permission_taken(stage: Stage) -> None:
    """Somebody takes a permission away that every look needs."""
    running = await stage.start()
    stage.server.reload(PERMISSIONS % '"$JS.API.STREAM.LIST"')
    await running.until(lambda now: now["lastPass"].get("result") == "error" and now["leading"])


async def permission_given(stage: Stage) -> None:
    """It is given back."""
    stage.server.reload(EVERYTHING)


async def nats_gone(stage: Stage) -> None:
    """The server ends."""
    running = await stage.start()
    stage.server.stop()
    await running.until(lambda now: not now["connected"])


async def nats_back(stage: Stage) -> None:
    """It is there again."""
    stage.server.start()


# Manifests


async def wrong_manifests(stage: Stage) -> None:
    """A commit with a typing error."""
    running = await stage.start()
    stage.commit(ORDERS.replace("maxAge", "maxAgge"))
    await running.until(lambda now: bool(now["manifests"]["problems"]))


def refused(now: Json) -> bool:
    """Whether nothing at all is written."""
    return bool(now["refused"])


async def half_of_it_all(stage: Stage) -> None:
    """A commit that changes more than a guard lets through."""
    stage.commit(TWENTY, "workers.yaml")
    running = await stage.start()
    stage.commit(TWENTY.replace("maxAckPending: 100", "maxAckPending: 200"), "workers.yaml")
    await running.until(refused)


async def plan_workers(stage: Stage, *workers: str) -> None:
    """The planner deals eight subjects to these, and somebody commits that."""
    here = stage.here
    (here / "plan.yaml").write_text(PLAN, encoding="utf-8")
    (here / "workers.csv").write_text("".join(f"{name}\n" for name in ("worker", *workers)), encoding="utf-8")
    rows = "".join(f"orders.region{number},1\n" for number in range(8))
    (here / "partitions.csv").write_text(f"subject,weight\n{rows}", encoding="utf-8")
    await asyncio.to_thread(Command(here), "partitions", "plan", "-c", "plan.yaml", "--force", "maxMovedFraction")
    stage.commit(POOL, "pool.yaml")


def edit_a_worker(stage: Stage) -> None:
    """By hand, which makes it another file than the index says."""
    worker = next(path for path in (stage.manifests / "shipping").rglob("*.yaml") if path.name != "_index.yaml")
    edited = worker.read_text(encoding="utf-8") + "# edited by hand\n"
    stage.commit(edited, str(worker.relative_to(stage.manifests)))


def loaded(generation: int) -> Callable[[Json], bool]:
    """Whether this generation of the pool is in use."""
    return lambda now: bool(now["pools"] and now["pools"][0]["generation"] == generation)


def in_place_but_pools(now: Json) -> bool:
    """Whether everything is in place that this version puts there: pools are blocked, as `unsupported`."""
    blocked = [one for one in now["resources"] if one["state"] == "Blocked"]
    summary = now["summary"] | {"Blocked": now["summary"]["Blocked"] - len(blocked)}
    return settled(now | {"summary": summary}) and all("unsupported" in one["message"] for one in blocked)


def held_back(now: Json) -> bool:
    """Whether the newest files of the pool do not count."""
    return bool(now["pools"] and now["pools"][0]["heldBack"])


async def edited_worker(stage: Stage) -> None:
    """Somebody edits a generated file."""
    await plan_workers(stage, "w-a", "w-b")
    running = await stage.start(like=loaded(1))
    edit_a_worker(stage)
    await running.until(held_back)


async def whole_again(stage: Stage) -> None:
    """The pool's files are what the index says."""
    await stage.daemon.until(lambda now: not held_back(now))


# Resources


async def reported_only(stage: Stage) -> None:
    """Somebody edits a stream, and the daemon only reports that."""
    running = await stage.start("--drift", "report")
    await stage.somebody.edit("ORDERS", max_age=3600 * 10**9)
    await running.until(lambda now: bool(now["summary"]["OutOfSync"]))


async def too_large(stage: Stage) -> None:
    """A stream that no server has room for; each retry of five minutes is three seconds, as the alerts are hurried here."""
    running = await stage.start()
    stage.commit(ARCHIVE, "archive.yaml")
    await running.until(lambda now: bool(now["summary"]["Error"]))

    async def hurry() -> None:
        while True:
            await asyncio.sleep(3)
            await running.post("/-/reconcile?key=Stream/ARCHIVE")

    _beside(stage, hurry())


async def fight(stage: Stage) -> None:
    """A script sets a field again and again."""
    running = await stage.start()

    async def script() -> None:
        while True:
            await meddle(stage)

    _beside(stage, script())
    await running.until(fought)


async def meddle(stage: Stage) -> None:
    """Somebody edits billing, and it is repaired."""
    await stage.somebody.edit("ORDERS", "billing", max_ack_pending=7)
    await stage.somebody.until_like({"max_ack_pending": 100}, "ORDERS", "billing")


def fought(now: Json) -> bool:
    """Whether two writers fight."""
    return any("fight" in one for one in now["resources"])


async def too_small(stage: Stage) -> None:
    """A commit that would throw messages away."""
    running = await stage.start()
    await stage.somebody.publish("orders.paid", 50)
    stage.commit(ORDERS.replace("maxAge: 7d", "maxAge: 7d\n  maxMsgs: 10"))
    await running.until(lambda now: bool(now["summary"]["Blocked"]))


async def cut_off(stage: Stage) -> None:
    """The line to a leaf node is cut, whose streams are declared here."""
    hub = await stage.stack.enter_async_context(hub_and_leaves(stage.here.parent / "net", "leaf"))
    stage.server, stage.link = hub.server, hub.leaves["leaf"].link
    stage.commit(LEAF, "leaf.yaml")
    running = await stage.start()
    stage.link.cut()
    await running.until(lambda now: bool(now["summary"]["Unknown"] == 1))


async def line_mended(stage: Stage) -> None:
    """The line is there again."""
    assert stage.link is not None
    stage.link.mend()


async def slow_worker(stage: Stage) -> None:
    """A filter is added, and a worker sits on what it has."""
    await stage.start()
    await sit(stage)


async def sit(stage: Stage) -> Work:
    """The worker that does."""
    work = Work(stage.somebody, "ORDERS", "billing")
    await work.publish(*["orders.paid"] * 3)
    await stage.somebody.publish("orders.refunded")
    assert await work.pull(2, finish=False) == 2
    stage.commit(ORDERS.replace("[orders.paid]", "[orders.paid, orders.refunded]"))
    await stage.daemon.until(lambda now: any("waiting" in one["message"] for one in now["procedures"]))
    return work


async def lazy_workers(stage: Stage) -> None:
    """Workers take all they may have, and acknowledge nothing."""
    await stage.start()
    await take_everything(stage)


async def take_everything(stage: Stage) -> None:
    """Until billing stands still."""
    work = Work(stage.somebody, "ORDERS", "billing")
    await work.publish(*["orders.paid"] * 150)
    await work.pull(100, finish=False)
    await told(stage.daemon, "consumers.full")


async def room_again(stage: Stage) -> None:
    """The rest may be delivered."""

    async def more() -> bool:
        return await stage.daemon.metric("reconciler_consumers_full") == 0

    await until(more)
    await in_place(stage)


# Sources


def its_source(holds: Callable[[Json], bool]) -> Callable[[Json], bool]:
    """Whether the one source of ALL is like that."""
    return lambda now: any(source["key"] == "Stream/ALL" and holds(source) for source in now["sources"])


async def durable_missing(stage: Stage) -> None:
    """A source reads through a durable that is not there."""
    stage.commit(SITES, "sites.yaml")
    running = await stage.start()
    await running.until(its_source(stalls("consumer-missing")))


async def flowing(stage: Stage) -> None:
    """It copies again."""
    await in_place(stage)
    await stage.daemon.until(its_source(flows))


async def durable_away(stage: Stage) -> None:
    """On interest nothing is kept while the durable is away."""
    stage.commit(SITES.replace("[site.>]", "[site.>], retention: interest"), "sites.yaml")
    await stage.start()
    await lose(stage)


async def lose(stage: Stage) -> None:
    """What is published while the durable is away."""
    running = stage.daemon
    await make(stage.somebody, "SITE", "deliver.site", "site_to_all")
    await running.until(its_source(flows))
    await stage.somebody.publish("site.x", 20)
    await running.until(its_source(lambda source: flows(source) and source["lastSequence"] == 20))
    await stage.somebody.expect("CONSUMER.DELETE.SITE.site_to_all")
    await stage.somebody.publish("site.x", 10)
    await make(stage.somebody, "SITE", "deliver.site", "site_to_all")
    await told(running, "source.lost")


def _beside(stage: Stage, work: Awaitable[None]) -> None:
    """Goes on until the stage is left."""
    task = asyncio.ensure_future(work)

    async def end() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    stage.stack.push_async_callback(end)


SCENES: dict[str, Scene] = {
    "ReconcilerDown": Scene(commit_that_ends_it, over=started_again),
    "ReconcilerNotReconciling": Scene(permission_taken, permission_given, config=EVERYTHING),
    "ReconcilerNoLeader": Scene(lease_of_another, another_gone),
    "ReconcilerMultipleLeaders": Scene(two_servers, one_server),
    "ReconcilerSourceLost": Scene(durable_away, over=flowing),
    "ReconcilerNatsDisconnected": Scene(nats_gone, nats_back),
    "ReconcilerFenceUnproven": Scene(behind_an_unknown, started_again_in_order),
    "ReconcilerPlanRefused": Scene(half_of_it_all),
    "ReconcilerInvalidManifests": Scene(wrong_manifests),
    "ReconcilerDriftPersistent": Scene(reported_only),
    "ReconcilerApplyErrors": Scene(too_large),
    "ReconcilerFlapping": Scene(fight),
    "ReconcilerResourcesBlocked": Scene(too_small),
    "ReconcilerResourcesUnknown": Scene(cut_off, line_mended),
    "ReconcilerSourceStalled": Scene(durable_missing, over=flowing),
    "ReconcilerProcedureStuck": Scene(slow_worker),
    "ReconcilerPoolHeldBack": Scene(edited_worker, over=whole_again),
    "ReconcilerConsumerBacklog": Scene(lazy_workers, over=room_again),
}
"""By alert."""
