"""Source and mirror entries: how an entry reads, what the server knows it by, and the durables that we keep for entries.

| mode | the entry on the server | the durable |
|---|---|---|
| ephemeral | as declared | the server's own, if any |
| managed (`serverManaged: true`) | `attached`: filter and start live in the durable | ours, `durable_config` |
| user-managed | as declared | declared as a Consumer, or somebody else's |

Invariant: nothing but configurations is looked at; the same answers for declared and for live entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from reconciler.model.desired import Declared, Desired, Durable
from reconciler.model.flow import copied_entries, domain_of, imported
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.normal import EVERYTHING, Config, digest, normal_consumer, normal_form, packed
from reconciler.model.residue import UNUSED
from reconciler.model.subjects import covers

PLACEHOLDER = "_detached."
"""An entry with such a filter copies nothing: it stands where an entry is taken away for a moment."""
DELIVERED = "_reconciler.src."
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASHED = 8

Entry = Mapping[str, Any]


def origin_of(entry: Entry, domain: str) -> Key | None:
    """The stream that an entry of a stream in this domain copies; None where it lives behind an account's import."""
    return None if imported(entry) else Key("Stream", entry["name"], "", domain_of(entry, domain))


def durable_of(entry: Entry, domain: str) -> Key | None:
    """The durable consumer that an entry reads through; None for an ephemeral entry, or behind an account's import."""
    origin = origin_of(entry, domain)
    name = (entry.get("consumer") or {}).get("name", "")
    return Key("Consumer", name, origin.name, origin.domain) if origin and name else None


def durables_read(desired: Desired) -> dict[Key, Key]:
    """The durables that entries of declared streams read through, whoever keeps them, with the stream that reads."""
    return {
        durable: stream
        for stream, declared in desired.streams.items()
        if b'"consumer"' in declared.wire
        for entry in copied_entries(declared.config)
        if (durable := durable_of(entry, stream.domain))
    }


def is_managed(entry: Entry) -> bool:
    """Whether a declared entry leaves its durable to us, and was not given its deliver subject yet."""
    return "consumer" in entry and "deliver_subject" not in entry["consumer"]


def copied_subjects(entry: Entry) -> tuple[str, ...]:
    """The subjects that an entry itself selects; none means all (or what its durable delivers)."""
    if entry.get("filter_subject"):
        return (entry["filter_subject"],)
    return tuple(transform.get("src") or ">" for transform in entry.get("subject_transforms") or ())


def identity_of(entry: Entry) -> str:
    """What the server knows an entry by, as it writes it into `Nats-Stream-Source`: origin, filters and destinations.

    What was copied under an identity is never copied again under the same; a new one begins where its consumer stands.
    """
    token = entry["name"]
    if api := (entry.get("external") or {}).get("api", ""):
        token += f":{_server_hash(api)}"
    if name := (entry.get("consumer") or {}).get("name", ""):
        token += f":C={_server_hash(name)}"
    transforms = entry.get("subject_transforms") or ()
    sources = "\f".join(transform.get("src") or ">" for transform in transforms)
    destinations = "\f".join(transform.get("dest") or ">" for transform in transforms)
    return f"{token} {sources or entry.get('filter_subject') or '>'} {destinations or '>'}"


def _server_hash(text: str) -> str:
    return "".join(_BASE62[byte % len(_BASE62)] for byte in hashlib.sha256(text.encode()).digest()[:_HASHED])


def placeholder(entry: Entry) -> Config:
    """What stands for an entry while it is detached: it copies nothing, and says which durable it stands for."""
    kept = {part: entry[part] for part in ("name", "external") if part in entry}
    return {**kept, "filter_subject": f"{PLACEHOLDER}{(entry.get('consumer') or {}).get('name', '')}"}


def detached(entry: Entry) -> str:
    """The durable that a placeholder stands for; empty for every other entry."""
    text: str = entry.get("filter_subject") or ""
    return text.removeprefix(PLACEHOLDER) if text.startswith(PLACEHOLDER) else ""


def is_unused(subject: str) -> bool:
    """Whether a subject only serves to tell one ephemeral entry from another."""
    return subject.startswith(UNUSED)


def fresh_ephemeral(entry: Entry, start: int, subjects: tuple[str, ...], seed: str) -> Config | None:
    """An ephemeral entry that copies the same from `start` on, under an identity that was never used before.

    It gets one more transform, for a subject nobody publishes to. None where the subjects leave no room for such a one.
    """
    own = entry.get("subject_transforms") or ()
    chosen = (entry["filter_subject"],) if entry.get("filter_subject") else subjects
    transforms = [dict(one) for one in own] or [{"src": one, "dest": one} for one in chosen]
    unused = f"{UNUSED}{hashlib.blake2b(f'{seed} {start}'.encode(), digest_size=8).hexdigest()}"
    if not transforms or any(covers(one.get("src") or ">", unused) for one in transforms):
        return None
    kept = {name: value for name, value in entry.items() if name not in ("filter_subject", "opt_start_seq", "opt_start_time")}
    return {**kept, "opt_start_seq": start, "subject_transforms": [*transforms, {"src": unused, "dest": unused}]}


def deliver_subject(owner: str, origin: Key, aggregate: Key, name: str) -> str:
    """Where a managed durable delivers: stable, and shared by no two of them, in whichever domains they live."""
    parts = (owner, origin.domain, origin.name, aggregate.domain, aggregate.stream_name, name)
    return DELIVERED + hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def attached(entry: Entry, deliver: str) -> Config:
    """A managed entry as the server gets it: what it selects and where it starts is in the durable."""
    kept = {part: entry[part] for part in ("name", "external", "subject_transforms") if part in entry}
    return {**kept, "consumer": {"name": entry["consumer"]["name"], "deliver_subject": deliver}}


def durable_config(entry: Entry, deliver: str) -> Config:
    """The durable of a managed entry."""
    name = entry["consumer"]["name"]
    config: Config = {
        "name": name,
        "durable_name": name,
        "ack_policy": "flow_control",
        "deliver_subject": deliver,
        "flow_control": True,
        "idle_heartbeat": 10**9,
        "deliver_policy": "all",
    }
    if entry.get("opt_start_seq"):
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": entry["opt_start_seq"]}
    elif entry.get("opt_start_time"):
        config |= {"deliver_policy": "by_start_time", "opt_start_time": entry["opt_start_time"]}
    # Never none: a server lets a consumer go deaf that had filters and has none any more (see `plan.comparing.diff`).
    config["filter_subjects"] = list(copied_subjects(entry)) or [EVERYTHING]
    return config


def with_durables(desired: Desired, owner: str) -> Desired:
    """What is declared, with the durables of managed entries spelled out for this owner."""
    resources: dict[Key, Declared] = {}
    durables: dict[Key, Durable] = {}
    for declared in desired.streams.values():
        if b'"consumer"' in declared.wire and declared.intent.state is State.PRESENT:
            config = declared.config
            found = [_spelled_out(declared, entry, owner) for entry in copied_entries(config) if is_managed(entry)]
            if found:
                durables |= {durable.declared.key: durable for durable in found}
                resources[declared.key] = _with_attached(declared, config, owner)
    if not resources:
        return desired
    everything = MappingProxyType({**desired.resources, **resources})
    return replace(desired, resources=everything, durables=MappingProxyType(durables))


def _spelled_out(declared: Declared, entry: Entry, owner: str) -> Durable:
    key, origin = durable_of(entry, declared.key.domain), origin_of(entry, declared.key.domain)
    if key is None or origin is None:
        msg = f"{declared.key}: an entry behind an account's import cannot be managed"  # the rules refuse it before
        raise ValueError(msg)
    config = durable_config(entry, deliver_subject(owner, origin, declared.key, key.name))
    made = Declared(key, packed(config), digest(normal_consumer(config)), declared.location)
    return Durable(made, declared.key)


def _with_attached(declared: Declared, config: Config, owner: str) -> Declared:
    def settled(entry: Config) -> Config:
        origin = origin_of(entry, declared.key.domain)
        if origin is None or not is_managed(entry):
            return entry
        return attached(entry, deliver_subject(owner, origin, declared.key, entry["consumer"]["name"]))

    if config.get("sources"):
        config["sources"] = [settled(entry) for entry in config["sources"]]
    if config.get("mirror"):
        config["mirror"] = settled(config["mirror"])
    return replace(declared, wire=packed(config), digest=digest(normal_form(declared.key, config)))
