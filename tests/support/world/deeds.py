"""What a person does to the durables and the stream of a model server in the middle of a change, and what that may cost.

A stream whose metadata somebody wiped costs nothing. What else may be:

- a durable resumed, deleted or wiped between the moment in which a stream begins to read through it and the one in which its
  position is set (that is only in its journal), or deleted before anything was copied through it: what was copied before is
  copied again;
- a durable deleted on a workqueue: what it had delivered, but was not told to be stored, is copied again by another one, and
  what is copied already may stay in the queue;
- a durable deleted on interest: what is published until it is back is lost;
- a durable wiped that nobody declares: it is nobody's, stays, and on interest keeps messages; wiped in the middle of a change
  on a workqueue: what is copied already may stay in the queue.

Invariant: on limits and on a workqueue never is a message missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.model.sourcing import identity_of
from reconciler.procedures.requests import DeleteConsumer, LastCopied, PauseConsumer, UpdateConsumer, UpdateStream
from tests.support.world.server import ModelServer
from tests.support.world.sources import A


@dataclass
class Deeds:
    """Done so far; what they may have cost, by the stream that is copied from."""

    server: ModelServer
    again: set[str] = field(default_factory=set)
    """It may cost duplicates,"""
    lost: set[str] = field(default_factory=set)
    """or messages,"""
    left: set[str] = field(default_factory=set)
    """or leave some behind."""
    done: list[str] = field(default_factory=list)

    def do(self, deed: str, key: Key) -> None:
        """`resume`, `delete`, `wipe` (the durable) or `wipe A`, unless there is nothing to do it to."""
        if deed == "wipe A":
            config = {part: value for part, value in self.server.streams["A"].config.items() if part != "metadata"}
            self.server.write(UpdateStream(A, orjson.dumps(config)))
            self.done.append(deed)
            return
        seen = self.server.consumers.get((key.stream, key.name))
        if seen is None:
            return
        self.done.append(f"{deed} {key.stream}/{key.name}")
        origin, retention = key.stream, self.server.streams[key.stream].retention
        journal = read_marker(seen.config.get("metadata"), key.mark).journal
        at_once = deed == "delete" and (retention == "workqueue" or not self._copied(key))
        if journal is not None or at_once:
            self.again.add(origin)
        if deed == "resume" and self.server.paused(seen):
            self.server.write(PauseConsumer(key, ""))
        elif deed == "delete":
            if retention == "interest":
                self.lost.add(origin)
            if retention != "limits":
                self.left.add(origin)
            self.server.write(DeleteConsumer(key))
        elif deed == "wipe":
            if retention == "interest" or (journal is not None and retention != "limits"):
                self.left.add(origin)
            config = {part: value for part, value in seen.config.items() if part != "metadata"}
            self.server.write(UpdateConsumer(key, orjson.dumps(config)))

    def _copied(self, key: Key) -> bool:
        """Whether anything was copied through a durable."""
        entries = self.server.streams["A"].config.get("sources") or ()
        reading = [one for one in entries if one["name"] == key.stream and (one.get("consumer") or {}).get("name") == key.name]
        return all(self.server.read(LastCopied(A, identity_of(entry))).seq for entry in reading)  # type: ignore[union-attr]


def resumed_by_hand(server: ModelServer) -> bool:
    """Somebody who wiped a paused durable has to resume it: nothing says any more that we had paused it."""
    paused = [place for place, one in server.consumers.items() if server.paused(one)]
    for stream, name in paused:
        server.write(PauseConsumer(Key("Consumer", name, stream), ""))
    return bool(paused)
