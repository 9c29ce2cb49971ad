"""What a NATS user needs for these manifests: each subject with the reason why.

Invariant: enough and least. Everything the mode does works with exactly these subjects, and none of them can be left out
(those marked as re-reads are used only after a lost answer, those marked as proofs by the fence, which says what it misses).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from reconciler.model.api import JETSTREAM_API, JETSTREAM_EVENTS, api_prefix
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.sourcing import durables_read
from reconciler.model.subjects import covers
from reconciler.procedures.holds import hold_key


class PermissionMode(StrEnum):
    """What the user is for; every mode but `read` includes `apply`, and `daemon` includes `procedures`."""

    READ = "read"
    APPLY = "apply"
    SYNC = "sync"
    PROCEDURES = "procedures"
    DAEMON = "daemon"


@dataclass(frozen=True, slots=True)
class AccountNames:
    """Under which names this account reaches JetStream, the lease and its answers."""

    prefix: str = JETSTREAM_API
    """Of the API in the home domain."""
    inbox: str = "_INBOX"
    lease_bucket: str = ""
    event_prefix: str = JETSTREAM_EVENTS


@dataclass(frozen=True, slots=True)
class Grant:
    """One subject and what it is for."""

    subject: str
    why: str
    reread: bool = False
    """Only used to find out what became of a request whose answer was lost."""
    proof: bool = False
    """Only used to prove that nothing of the leader before can land: without it everything works, and the proof is missing."""


@dataclass(frozen=True, slots=True)
class Grants:
    """All subjects of a user."""

    publish: tuple[Grant, ...]
    subscribe: tuple[Grant, ...]


def permissions(desired: Desired, modes: frozenset[PermissionMode], place: AccountNames) -> Grants:
    """Exactly what these modes need for what is declared."""
    effective = _implied(modes)
    resources = sorted(desired.resources.values(), key=lambda declared: declared.key)
    read = sorted(durables_read(desired))
    domains = sorted({key.domain for key in (*desired.resources, *read)}) or [""]  # the home domain where nothing is declared
    publish = [*_reading(domains, resources, read, place), *_copying(desired, place)]
    if PermissionMode.APPLY in effective:
        publish += _lease(place, [domain for domain in domains if domain])
        for declared in resources:
            publish += _applying(declared, place)
        publish += _keeping(desired, place)
    if PermissionMode.PROCEDURES in effective:
        for declared in resources:
            publish += _procedures(declared, place)
        publish += _migrating(desired, place)
    if PermissionMode.DAEMON in effective:
        publish += _watching(resources, read, place)
    if PermissionMode.SYNC in effective:
        publish += _pruning(domains, place)
    subscribe = [Grant(f"{place.inbox}.>", "answers to our requests")]
    if PermissionMode.DAEMON in effective:
        subscribe += _hints(place)
    return Grants(_least(publish), tuple(subscribe))


def _implied(modes: frozenset[PermissionMode]) -> frozenset[PermissionMode]:
    found = set(modes)
    if PermissionMode.DAEMON in found:
        found.add(PermissionMode.PROCEDURES)
    if found - {PermissionMode.READ}:
        found.add(PermissionMode.APPLY)
    return frozenset(found)


def _api(place: AccountNames, domain: str) -> str:
    return api_prefix(domain, place.prefix)


def _reading(domains: list[str], resources: list[Declared], durables: list[Key], place: AccountNames) -> Iterator[Grant]:
    for domain in domains:
        api = _api(place, domain)
        yield Grant(f"{api}.INFO", "the account's API level")
        yield Grant(f"{api}.STREAM.LIST", "all streams with config and state")
    for stream in sorted({key.stream_key for key in (*(declared.key for declared in resources), *durables)}):
        api = _api(place, stream.domain)
        yield Grant(f"{api}.CONSUMER.LIST.{stream.name}", f"the consumers of {stream.name}")
    for stream in _read_streams(resources):
        api = _api(place, stream.domain)
        yield Grant(f"{api}.STREAM.MSG.GET.{stream.name}", f"whether a filter that goes has unread messages in {stream.name}")


def _copying(desired: Desired, place: AccountNames) -> Iterator[Grant]:
    """What a plan asks about streams that copy through durables of ours."""
    for key, stream in _own_durables(desired):
        home = _api(place, stream.domain)
        yield Grant(f"{home}.STREAM.INFO.{stream.name}", f"how far {stream} reaches")
        yield Grant(f"{home}.STREAM.MSG.GET.{stream.name}", f"how far {stream} has copied")
        why = f"whether a filter of {key} that comes or goes has messages"
        yield Grant(f"{_api(place, key.domain)}.STREAM.MSG.GET.{key.stream}", why)


def _own_durables(desired: Desired) -> list[tuple[Key, Key]]:
    """Durables of sources that we keep, with the stream that reads."""
    read = durables_read(desired)
    return sorted((key, stream) for key, stream in read.items() if key in desired.durables or key in desired.resources)


def _read_streams(resources: Iterable[Declared]) -> list[Key]:
    """The streams that declared consumers read."""
    return sorted({declared.key.stream_key for declared in resources if declared.key.kind == "Consumer"})


def _lease(place: AccountNames, domains: Iterable[str]) -> Iterator[Grant]:
    bucket = place.lease_bucket
    yield Grant(f"{place.prefix}.STREAM.INFO.KV_{bucket}", "the write lease: is its bucket there")
    yield Grant(f"{place.prefix}.STREAM.CREATE.KV_{bucket}", "the write lease: make its bucket once")
    yield from _fence(place, domains)
    yield Grant(f"{place.prefix}.STREAM.MSG.GET.KV_{bucket}", "the write lease: who holds it")
    prefix = "" if place.prefix == JETSTREAM_API else f"{place.prefix}."
    yield Grant(f"{prefix}$KV.{bucket}.writer", "the write lease: take, renew and release it")


def _fence(place: AccountNames, domains: Iterable[str]) -> Iterator[Grant]:
    """What proves that nothing of the leader before can land any more."""
    noted, name = "the fence: note our connection, behind all writes that wait", f"KV_{place.lease_bucket}"
    yield Grant(f"{place.prefix}.STREAM.UPDATE.{name}", noted, proof=True)
    yield Grant("$SYS.REQ.ACCOUNT.PING.CONNZ", "the fence: is the connection of the leader before gone", proof=True)
    for domain in domains:
        why = f"the fence: a write that is refused, behind all that wait in {domain}"
        yield Grant(f"{_api(place, domain)}.STREAM.CREATE.{name}", why, proof=True)


def _applying(declared: Declared, place: AccountNames) -> Iterator[Grant]:
    key, state = declared.key, declared.intent.state
    if state is State.UNMANAGED:
        return
    if state is State.ABSENT:
        yield from _removing(key, place, "its tombstone")
        return
    api = _api(place, key.domain)
    if key.kind == "Consumer":
        name = f"{key.stream}.{key.name}"
        yield Grant(f"{api}.CONSUMER.CREATE.{name}", f"create and update {key}")
        yield Grant(f"{api}.CONSUMER.INFO.{name}", f"read {key} again when an answer was lost", reread=True)
        if declared.intent.pause_until:
            yield Grant(f"{api}.CONSUMER.PAUSE.{name}", f"pauseUntil of {key}")
        return
    yield Grant(f"{api}.STREAM.CREATE.{key.stream_name}", f"create {key}")
    yield Grant(f"{api}.STREAM.UPDATE.{key.stream_name}", f"update {key}")
    yield Grant(f"{api}.STREAM.INFO.{key.stream_name}", f"read {key} again when an answer was lost", reread=True)
    if "recreate" in declared.intent.allow:
        yield from _removing(key, place, "recreating is allowed")


def _removing(key: Key, place: AccountNames, why: str) -> Iterator[Grant]:
    api = _api(place, key.domain)
    what, name = ("CONSUMER", f"{key.stream}.{key.name}") if key.kind == "Consumer" else ("STREAM", key.stream_name)
    yield Grant(f"{api}.{what}.INFO.{name}", f"look at {key} right before it is deleted")
    yield Grant(f"{api}.{what}.DELETE.{name}", f"delete {key}: {why}")


def _procedures(declared: Declared, place: AccountNames) -> Iterator[Grant]:
    key = declared.key
    if key.kind != "Consumer" or declared.intent.state is not State.PRESENT:
        return
    api, name = _api(place, key.domain), f"{key.stream}.{key.name}"
    yield Grant(f"{api}.CONSUMER.INFO.{name}", f"watch {key} between steps")
    yield Grant(f"{api}.CONSUMER.PAUSE.{name}", f"hold {key} still, and let it go on")
    yield Grant(f"{api}.CONSUMER.RESET.{name}", f"move {key} back so that nothing is skipped")
    yield Grant(f"{api}.STREAM.INFO.{key.stream}", f"where {key.stream_key} begins and ends")
    if "recreate" in declared.intent.allow:
        yield Grant(f"{api}.CONSUMER.DELETE.{name}", f"recreate {key}")
    hold = hold_key(key)
    yield Grant(f"{api}.CONSUMER.CREATE.{hold.stream}.{hold.name}", f"keep the place of {key} while it is made anew")
    yield Grant(f"{api}.CONSUMER.INFO.{hold.stream}.{hold.name}", f"read the place of {key} again")
    yield Grant(f"{api}.CONSUMER.DELETE.{hold.stream}.{hold.name}", f"give up the place of {key} afterwards")


def _keeping(desired: Desired, place: AccountNames) -> Iterator[Grant]:
    """The durables that are kept for sources."""
    for key, durable in sorted(desired.durables.items()):
        api, name = _api(place, key.domain), f"{key.stream}.{key.name}"
        yield Grant(f"{api}.CONSUMER.CREATE.{name}", f"create and update {key}, which is kept for {durable.aggregate}")
        yield Grant(f"{api}.CONSUMER.INFO.{name}", f"read {key} again when an answer was lost", reread=True)


def _migrating(desired: Desired, place: AccountNames) -> Iterator[Grant]:
    """Changes of how a stream reads its sources; a durable that is not declared any more has no name here."""
    for key, stream in _own_durables(desired):
        api, name = _api(place, key.domain), f"{key.stream}.{key.name}"
        yield Grant(f"{api}.STREAM.INFO.{key.stream}", f"where {key.stream_key} begins and ends")
        origin = desired.streams.get(key.stream_key)
        if origin is not None and origin.config.get("retention") == "workqueue":
            yield Grant(f"{api}.STREAM.PURGE.{key.stream}", f"remove what {stream} has copied already from {key.stream_key}")
        if key in desired.durables:
            yield Grant(f"{api}.CONSUMER.INFO.{name}", f"watch {key} between steps")
            yield Grant(f"{api}.CONSUMER.PAUSE.{name}", f"hold {key} still, and let it go on")
            yield Grant(f"{api}.CONSUMER.RESET.{name}", f"have {key} go on where {stream} stands")
            yield Grant(f"{api}.CONSUMER.DELETE.{name}", f"make {key} anew in another place")


def _pruning(domains: Iterable[str], place: AccountNames) -> Iterator[Grant]:
    """What is no longer declared has no name here: these need wildcards."""
    for domain in domains:
        api = _api(place, domain)
        yield Grant(f"{api}.CONSUMER.LIST.*", "consumers of streams that are no longer declared")
        yield Grant(f"{api}.STREAM.INFO.*", "look at a stream right before it is deleted")
        yield Grant(f"{api}.STREAM.DELETE.*", "delete streams that are no longer declared")
        yield Grant(f"{api}.CONSUMER.INFO.*.*", "look at a consumer right before it is deleted")
        yield Grant(f"{api}.CONSUMER.DELETE.*.*", "delete consumers that are no longer declared")


def _watching(resources: list[Declared], durables: list[Key], place: AccountNames) -> Iterator[Grant]:
    for stream in _read_streams(resources):
        yield Grant(f"{_api(place, stream.domain)}.STREAM.INFO.{stream.name}", f"where {stream.name} begins and ends")
    for key in (*(declared.key for declared in resources), *durables, *(durable.stream_key for durable in durables)):
        what, name = ("CONSUMER", f"{key.stream}.{key.name}") if key.kind == "Consumer" else ("STREAM", key.stream_name)
        yield Grant(f"{_api(place, key.domain)}.{what}.INFO.{name}", f"look at {key} when a hint says that it changed")
    yield Grant("reconciler.events.>", "tell whoever listens what was found and done")


def _hints(place: AccountNames) -> Iterator[Grant]:
    for subject, what in (
        ("STREAM.CREATED.*", "stream was created"),
        ("STREAM.UPDATED.*", "stream was updated"),
        ("STREAM.DELETED.*", "stream was deleted"),
        ("CONSUMER.CREATED.*.*", "consumer was created"),
        ("CONSUMER.DELETED.*.*", "consumer was deleted"),
        ("CONSUMER.PAUSE.*.*", "consumer was paused or resumed"),
        ("API", "consumer was updated, and who changed what"),
    ):
        yield Grant(f"{place.event_prefix}.ADVISORY.{subject}", f"hints that a {what}")


def _least(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Each subject once, and none that another one permits anyway; what is not only a re-read gives the reason."""
    unique: dict[str, Grant] = {}
    for grant in grants:
        if grant.subject not in unique or (unique[grant.subject].reread and not grant.reread):
            unique[grant.subject] = grant
    subjects = list(unique)
    return tuple(
        grant
        for subject, grant in unique.items()
        if not any(other != subject and covers(other, subject) for other in subjects if "*" in other)
    )
