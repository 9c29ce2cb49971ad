"""The questions that are asked when nobody meddles any more, each answered by one line."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterable

from tests.support.daemon.running import ran
from tests.support.sources import aggregate
from tools.soak import verdict
from tools.soak.course import INTERVAL, WATCHED, Soak
from tools.soak.ledger import Account
from tools.soak.pair import Life, Sample

GROWTH = 1.05
"""How much more than after the first third a process may need at the end."""
_MORE = 4
"""Files and threads that may come and go."""
_LONG = 300.0
"""Seconds of soak below which memory is told, and not judged: a process that begins has much to learn."""
_QUIET = 60.0
_COPIED = 90.0
_READ = 120.0
_HINTS = 2
"""Of each write: its advisory, and the line of the audit."""
_ONE_PASS = 4
"""Passes over everything for which a term, a connection or other manifests are a reason."""


async def judge(soak: Soak, took: float) -> None:
    """All of them; the daemons have ended when this returns."""
    found = await _what_is_said(soak, took)
    await _quiet(soak)
    await _messages_arrive(soak)
    await soak.pair.look()
    await soak.pair.end()
    await _messages(soak)
    soak.verdicts.tell("everything that is said to be in place is as it was declared", found)
    soak.verdicts.tell("never two who lead", [*soak.lease.overlaps(), *soak.two_leaders], _terms(soak))
    troubles = [line for life in soak.pair.lives for line in life.troubles()]
    soak.verdicts.tell(
        "no bug in the logs", troubles, f"{sum(life.log.stat().st_size for life in soak.pair.lives):,} bytes of them"
    )
    soak.verdicts.tell("no process ended by itself", soak.gone, f"{len(soak.pair.lives)} processes, {soak.kills} killed")
    for life in soak.pair.lives:
        tell_of_memory(soak, life)


async def _what_is_said(soak: Soak, took: float) -> list[str]:
    """Of every resource; and what is not true of it."""
    leader = await soak.pair.leader()
    if leader is None:
        soak.verdicts.tell("everything is in place or named", ["nobody leads"])
        return []
    url = leader.process.url
    document = (await ran(soak.pair.command, "status", "--daemon", url, "-o", "json")).json
    states = Counter(one["state"] for one in document["resources"])
    said = ", ".join(f"{number} {state}" for state, number in states.most_common())
    figures = f"{said}; {len(soak.ledger.standing)} left as the meddler wants them; after {took:.0f} s"
    soak.verdicts.tell("everything is in place or named", verdict.settled(document, soak.ledger), figures)
    sources = [f"{one['key']}: {one['state']} {one['message']}" for one in document["sources"] if one["state"] != "Flowing"]
    soak.verdicts.tell("every source flows", sources, f"{len(document['sources'])} of them")
    after = await verdict.configurations(soak.wire, soak.families)
    synced = [one["key"] for one in document["resources"] if one["state"] == "Synced"]
    return verdict.differing(soak.before, after, synced)


async def _quiet(soak: Soak) -> None:
    """Nobody does anything: neither do they."""
    seconds = min(_QUIET, soak.asked.seconds / 5)
    await soak.pair.look()
    before = {name: soak.pair.total(name) for name in ("reconciler_reconcile_total", "writes", "reconciler_api_requests_total")}
    await asyncio.sleep(seconds)
    await soak.pair.look()
    passes, writes, requests = (soak.pair.total(name) - number for name, number in before.items())
    most = 2 * (seconds / INTERVAL + 1) + len(soak.ledger.standing)
    figures = f"{passes} passes, {requests} requests in {seconds:.0f} s"
    found = [f"{passes} passes, where {most:.0f} are explained"] * (passes > most) + [f"{writes} writes"] * bool(writes)
    soak.verdicts.tell("nothing is done when there is nothing to do", found, figures)


async def _messages_arrive(soak: Soak) -> None:
    """What is on its way to readers and copies."""
    read = [family for family in soak.families.every if family.read]
    lacking = await soak.traffic.read_out(read, _READ)
    missing = ((family, soak.ledger.unread(family)) for family in lacking)
    unread = [f"{family.stream} ({family.retention}): {len(numbers)} {numbers[:5]}" for family, numbers in missing]
    given = sum(map(len, soak.ledger.read.values()))
    figures = f"{given:,} messages to {len(read)} readers, {soak.ledger.read_again:,} of them more than once"
    soak.verdicts.tell("whoever reads was given everything", unread, figures)
    deadline = time.monotonic() + _COPIED
    for family in soak.families.some("copied"):
        account = soak.ledger.accounts[family.stream]
        if not account.lost:
            await aggregate.settled(soak.wire, family.copy, account.published, max(2.0, deadline - time.monotonic()))


async def _messages(soak: Soak) -> None:
    """Every stream, read from its first message to its last."""
    url, ledger, tell = soak.server.url, soak.ledger, soak.verdicts.tell
    copying = soak.families.some("copied")
    left = [one for family in copying for one in await verdict.left(soak.wire, family, ledger)]
    plain = soak.families.some("kept", "rough", "full")
    found = [one for family in plain for one in await verdict.stored(url, family, ledger)]
    published = sum(account.published for account in ledger.accounts.values())
    removed = sum(account.removed for account in ledger.accounts.values())
    tell("nothing is lost but by acts", found, f"{published:,} published, {removed:,} of {len(plain)} streams removed by acts")
    found = [one for family in copying for one in await verdict.copied(url, family, ledger)]
    tell("every copy has each message once", found, _costs([ledger.accounts[family.stream] for family in copying]))
    tell("nothing is left in a queue that was copied", left)
    tell("what somebody copied is left alone", await verdict.copies_kept(url, ledger), f"{len(ledger.copies)} streams")
    done = ", ".join(f"{name} {number}" for name, number in ledger.acts.most_common())
    idle = ", ".join(f"{name} {number}" for name, number in ledger.failed.most_common())
    figures = f"{ledger.acts.total():,} acts: {done}; not possible: {idle}; left out: {soak.meddler.late}"
    tell("every act ended", soak.meddler.broken, figures)


def _costs(accounts: list[Account]) -> str:
    """How many were compared without an excuse."""
    exact = sum(not (one.again or one.lost) for one in accounts)
    costs = ", ".join(f"{sum(bool(getattr(one, part)) for one in accounts)} {part}" for part in ("again", "lost", "left"))
    return f"{exact} of {len(accounts)} without an excuse; acts may have cost: {costs}"


async def judge_work(soak: Soak) -> None:
    """How much they did while somebody meddled, and whether there was a reason."""
    await soak.pair.look()
    seconds = time.monotonic() - soak.began
    total = soak.pair.total
    full = 2 * seconds / INTERVAL / 0.9 + _ONE_PASS * (len(soak.pair.lives) + soak.commits + soak.lease.terms)
    explained = _HINTS * (soak.ledger.writes + total("writes")) + total("reconciler_retries_total") + full
    passes, requests = total("reconciler_reconcile_total"), total("reconciler_api_requests_total")
    acts, changing, written = soak.ledger.acts.total(), soak.ledger.writes, total("writes")
    figures = (
        f"{passes / seconds:.1f} passes/s for {explained / seconds:.1f} reasons/s; {acts / seconds:.1f} acts/s with"
        f" {changing / seconds:.1f} writes/s; {requests / seconds:.1f} requests/s, {written / seconds:.1f} writes/s;"
        f" {total('reconciler_drift_detected_total'):,} drifts, {total('reconciler_retries_total'):,} retries"
    )
    soak.verdicts.tell("no pass without a reason", [f"{passes} for {explained:.0f}"] * (passes > explained), figures)


def tell_of_memory(soak: Soak, life: Life) -> None:
    """Of one process, as far as it lived in the time that is watched."""
    since, until = (soak.began + part * soak.asked.seconds for part in WATCHED)
    seen = [sample for sample in life.samples if since <= sample.at <= until]
    if len(seen) < 2 * _MORE or life.samples[0].at > since:
        return
    tenth = max(1, len(seen) // 8)
    first, last = seen[:tenth], seen[-tenth:]
    grown = _middle(last, "rss") / _middle(first, "rss")
    lasted = seen[-1].at - seen[0].at
    figures = (
        f"{_middle(first, 'rss'):.1f} → {_middle(last, 'rss'):.1f} MB ({(grown - 1) * 100:+.1f} %, {_slope(seen):+.2f} MB/h),"
        f" files {_middle(first, 'files'):.0f} → {_middle(last, 'files'):.0f},"
        f" threads {_middle(first, 'threads'):.0f} → {_middle(last, 'threads'):.0f},"
        f" processor {(seen[-1].cpu - seen[0].cpu) / lasted * 100:.0f} %, over {lasted:.0f} s"
    )
    judged = soak.asked.seconds >= _LONG
    found = [f"grown by {(grown - 1) * 100:.1f} %"] * (judged and grown > GROWTH)
    found += [f"more {part}" for part in ("files", "threads") if _middle(last, part) > _middle(first, part) + _MORE]
    soak.verdicts.tell(f"daemon {life.log.stem} stays as large as it is", found, figures)


def _middle(samples: Iterable[Sample], part: str) -> float:
    return statistics.median(float(getattr(sample, part)) for sample in samples)


def _slope(samples: list[Sample]) -> float:
    """Megabytes an hour, by least squares."""
    return statistics.linear_regression([one.at for one in samples], [one.rss for one in samples]).slope * 3600


def _terms(soak: Soak) -> str:
    return f"{len(soak.lease.revisions)} revisions, {soak.lease.terms} terms"
