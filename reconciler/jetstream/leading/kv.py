"""A key-value bucket whose every write names the revision it replaces.

Invariant: nothing is written unconditionally, so two writers can never overwrite each other unseen.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Self

import orjson

from reconciler.errors import MESSAGE_NOT_FOUND, ApiError, NotSent
from reconciler.jetstream.api import JetStreamApi, raise_for_error
from reconciler.model.api import JETSTREAM_API
from reconciler.model.identity import Key
from reconciler.model.kinds.buckets import KeyValueSpec, compile_key_value
from reconciler.model.units import SECOND, parse_time

_EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_LAST = "Nats-Expected-Last-Sequence"
_OPERATION = "KV-Operation"
_DELETED = "DEL"
_WRONG_REVISION = 10071
_REFUSES_REPLICAS = frozenset({10005, 10074})
"""No suitable peers; replicas on a server that is not clustered."""
_CLUSTERED_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """The newest state of a key; a deleted one still has a revision."""

    value: bytes
    revision: int
    time: str
    """When the server stored it, RFC 3339."""
    deleted: bool


@dataclass(frozen=True, slots=True)
class BucketState:
    """A bucket as a whole, by its server."""

    config: dict[str, Any]
    """Of the stream behind it."""
    kept_by: str
    """The server that leads that stream."""
    last: int
    """The revision of the last write, also when nothing is left of it; 0: there was none."""
    still: float
    """Seconds since that write, or since the bucket was made: servers keep both when entries run out, are deleted or purged."""

    @classmethod
    def of(cls, info: dict[str, Any]) -> Self:
        """Reads the answer to STREAM.INFO."""
        state = info["state"]
        since = max(parse_time(info["created"]), parse_time(state["last_ts"]) if state["last_seq"] else 0)
        return cls(
            config=info["config"],
            kept_by=(info.get("cluster") or {}).get("leader", ""),
            last=state["last_seq"],
            still=(parse_time(info["ts"]) - since) / SECOND,
        )


class KeyValueBucket:
    """One bucket of JetStream's key-value store."""

    def __init__(self, api: JetStreamApi, bucket: str, *, timeout: float | None = None) -> None:
        self.bucket = bucket
        self.stream = Key("KeyValue", bucket).stream_name
        self._api = api
        self._timeout = timeout
        self.kept_by = ""
        """The server that led the stream behind it at the last look."""
        # Into another domain or account the writes travel through its API prefix, as in every NATS client.
        self._prefix = f"$KV.{bucket}" if api.prefix == JETSTREAM_API else f"{api.prefix}.$KV.{bucket}"

    async def look(self) -> BucketState | None:
        """The bucket as it is now; None when there is none."""
        try:
            found = BucketState.of(await self._api.stream_info(self.stream))
        except ApiError as error:
            if error.absent:
                return None
            raise
        self.kept_by = found.kept_by
        return found

    async def note(self, name: str, text: str, api: JetStreamApi, patience: float) -> None:
        """Writes something into the metadata of the stream behind the bucket, the way of `api`; raises NatsError."""
        found = await self.look()
        if found is None:
            msg = f"the bucket {self.bucket} is gone"
            raise NotSent(msg)
        changed = {**found.config, "metadata": {**(found.config.get("metadata") or {}), name: text}}
        await api.call(f"STREAM.UPDATE.{self.stream}", changed, write=True, timeout=patience)

    async def create_bucket(self, max_age: float, description: str = "") -> None:
        """Creates the bucket, on three peers where a cluster has them; values vanish `max_age` seconds after their last write."""
        spec = KeyValueSpec(ttl=round(max_age * SECOND), description=description, storage="file", replicas=1)
        config = compile_key_value(self.bucket, spec)
        if self._api.connection.server.cluster:
            try:
                await self._api.create_stream(self.stream, {**config, "num_replicas": _CLUSTERED_REPLICAS})
            except ApiError as error:
                if error.err_code not in _REFUSES_REPLICAS:
                    raise
                await self._api.create_stream(self.stream, config)
        else:
            await self._api.create_stream(self.stream, config)

    async def get(self, key: str) -> BucketEntry | None:
        """The newest entry of a key, tombstones included; None when there is none (any more)."""
        try:
            request = {"last_by_subj": f"$KV.{self.bucket}.{key}"}
            reply = await self._api.call(f"STREAM.MSG.GET.{self.stream}", request, timeout=self._timeout)
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        message = reply["message"]
        headers = base64.b64decode(message.get("hdrs", ""))
        return BucketEntry(
            value=base64.b64decode(message.get("data", "")),
            revision=message["seq"],
            time=message["time"],
            deleted=f"{_OPERATION}: ".encode() in headers,
        )

    async def create(self, key: str, value: bytes) -> int | None:
        """Writes a key that has no entry at all; returns its revision, or None when somebody was first."""
        return await self.update(key, value, 0)

    async def update(self, key: str, value: bytes, revision: int, last: int | None = None) -> int | None:
        """Replaces exactly that revision (a tombstone's too); returns the new one, or None when it is not the newest.

        With `last`, also None when that is not the revision of the last write of all, which outlasts its entry.
        """
        whole = {} if last is None else {_EXPECTED_LAST: str(last)}
        return await self._put(key, value, {_EXPECTED_REVISION: str(revision), **whole})

    async def delete(self, key: str, revision: int, note: bytes = b"") -> bool:
        """Puts a tombstone in place of exactly that revision, with a note in it; False when it is not the newest."""
        headers = {_EXPECTED_REVISION: str(revision), _OPERATION: _DELETED}
        return await self._put(key, note, headers) is not None

    async def _put(self, key: str, value: bytes, headers: dict[str, str]) -> int | None:
        subject = f"{self._prefix}.{key}"
        reply = await self._api.connection.request(subject, value, headers=headers, write=True, timeout=self._timeout)
        try:
            raise_for_error(reply.data, subject)
        except ApiError as error:
            if error.err_code == _WRONG_REVISION:
                return None
            raise
        revision: int = orjson.loads(reply.data)["seq"]
        return revision
