"""Taking our marks off something that stays as it is: from then on it is nobody's.

Invariant: nothing but our marks is changed, judged by what is there just before the request, and nothing that a procedure is in
the middle of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.engine.ports import LiveReader
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, Permit, Writes, info_of
from reconciler.errors import Refused
from reconciler.model.identity import Key
from reconciler.model.marker import declared_metadata, read_marker
from reconciler.model.normal import canonical, normal_form
from reconciler.procedures.requests import UpdateConsumer, UpdateStream, Write


@dataclass(frozen=True, slots=True)
class Disowning:
    """Of one resource, by its owner."""

    reader: LiveReader
    key: Key
    owner: str

    async def look(self) -> Write:
        """What takes the marks off as it is now; raises Refused."""
        key = self.key
        info = await self.reader.read(info_of(key.live_key))
        if not isinstance(info, dict):
            raise Refused((f"there is no {key}",))
        config: dict[str, Any] = info["config"]
        marker = read_marker(config.get("metadata"), key.live_key.mark)
        if marker.owner != self.owner:
            whose = f"belongs to {marker.owner!r}: give --owner" if marker.owner else "is nobody's already"
            raise Refused((f"{key} {whose}",))
        if marker.journal is not None:
            raise Refused((f"{key} is in the middle of the procedure {marker.journal.name}: wait for its end",))
        if marker.source:
            raise Refused((f"{key} is kept for {marker.source}, whose manifest it goes with",))
        bare = canonical({**config, "metadata": declared_metadata(config.get("metadata"))})
        return UpdateConsumer(key, bare) if key.kind == "Consumer" else UpdateStream(key.live_key, bare)

    async def judged(self, write: Write) -> Write:
        """The same on another look."""
        del write
        return await self.look()

    async def carry_out(self, writes: Writes, permit: Permit) -> None:
        """Raises NatsError and Refused."""
        order = Order(permit=permit, judge=self, normal=normal_form, rank=Rank.REPAIR)
        await writes.send(await self.look(), order)
