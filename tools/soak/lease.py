"""Who held the lease, revision by revision, as the server stored it.

Invariant: between two holders lies a release of the first, or as many seconds without a write as nobody may believe longer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from tests.support.account.wire import Wire
from tools.soak.families import OWNER

_TTL = 10.0
_BUCKET = f"KV_reconciler-{OWNER}"
_SECOND = 1e9
_AT, _SEQUENCE = -2, -4
"""In the subject to acknowledge at: when it was stored, and as which sequence."""


@dataclass(frozen=True)
class Revision:
    """One write of the entry."""

    sequence: int
    at: float
    holder: str
    release: bool


@dataclass
class LeaseRecord:
    """All of them since this began to listen."""

    revisions: list[Revision] = field(default_factory=list)

    async def listen(self, wire: Wire) -> None:
        """From now on."""
        inbox = wire.client.new_inbox()
        await wire.client.subscribe(inbox, cb=self._hear)
        config = {"deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "all", "mem_storage": True, "num_replicas": 1}
        await wire.expect(f"CONSUMER.CREATE.{_BUCKET}", {"stream_name": _BUCKET, "config": config})

    async def _hear(self, message: Msg) -> None:
        if not message.reply or (message.headers or {}).get("Status"):
            return
        parts = message.reply.split(".")
        try:
            holder = str(json.loads(message.data).get("holder", ""))
        except (json.JSONDecodeError, AttributeError):
            holder = ""
        release = (message.headers or {}).get("KV-Operation") == "DEL"
        self.revisions.append(Revision(int(parts[_SEQUENCE]), int(parts[_AT]) / _SECOND, holder, release))

    @property
    def terms(self) -> int:
        """How many times somebody began to hold it."""
        held = [one for one in self.revisions if not one.release]
        return sum(before is None or before.holder != one.holder for before, one in zip([None, *held], held, strict=False))

    def overlaps(self) -> list[str]:
        """Where somebody began while another one could still believe to lead."""
        return [
            f"revision {after.sequence} of {after.holder[:8]}, {after.at - before.at:.1f} s after that of {before.holder[:8]}"
            for before, after in zip(self.revisions, self.revisions[1:], strict=False)
            if not before.release and before.holder != after.holder and after.at - before.at < _TTL
        ]
