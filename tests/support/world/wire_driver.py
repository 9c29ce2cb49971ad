"""Runs a step machine against a real server, one request per read or write, and kills it where the test says.

Invariant: nothing of the product but the machine itself takes part.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.procedures.looks import Looking
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Procedure, Wait, kept
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    Copied,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Fact,
    LastCopied,
    Message,
    PauseConsumer,
    PurgeStream,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
)
from tests.support.account.wire import Json, Wire
from tests.support.world.driver import MAX_STEPS, NO_CRASH, Crash, Run

ABSENT = (10014, 10059, 10037)


async def nothing() -> None:
    """Nobody is at work meanwhile."""


async def run(machine: Procedure, wire: Wire, crash: Crash = NO_CRASH, between: Callable[[], Awaitable[None]] = nothing) -> Run:
    """Step the machine to its end; a crash at a write forgets everything before, or just after, it."""
    machine, done, memory, failure = Looking(machine), Run(), None, ""
    facts: dict[Read, Fact] = {}
    while done.steps < MAX_STEPS:
        await between()
        done.steps += 1
        now = await _now(wire, machine)
        step = machine.step(Observation(now, facts, failure), memory)
        known, failure, facts = facts, "", {}
        if isinstance(step, Done | Abort):
            done.end = step
            return done
        memory = step.memory
        if isinstance(step, Ask):
            answers = await asyncio.gather(*(_read(wire, read) for read in step.reads))
            facts = dict(zip(step.reads, answers, strict=True))
        elif isinstance(step, Wait):
            await asyncio.sleep(max(0, step.until - now) / 10**9)  # what the machine asked for
        elif isinstance(step, Do):
            crashing = len(done.writes) == crash.write
            done.writes.append(step.write)
            if not crashing or crash.executed:
                failure = await _write(wire, step.write)
            facts = {} if failure or crashing else kept(known, step)
            if crashing:
                memory, failure = None, ""
    msg = f"no end after {MAX_STEPS} steps: {done.writes[-6:]}"
    raise AssertionError(msg)


async def _now(wire: Wire, machine: Procedure) -> int:
    info = await wire.call(f"STREAM.INFO.{machine.key.stream_name}")
    return units.parse_time(info["ts"]) if "ts" in info else 0


async def _read(wire: Wire, read: Read) -> Fact:
    if isinstance(read, LastCopied):
        return await _last_copied(wire, read.stream.stream_name, read.identity)
    if isinstance(read, ConsumerInfo):
        answer = await wire.call(f"CONSUMER.INFO.{_path(read.consumer)}")
    elif isinstance(read, StreamInfo):
        answer = await wire.call(f"STREAM.INFO.{read.stream.stream_name}")
    else:
        answer = await wire.call(f"STREAM.MSG.GET.{read.stream.stream_name}", {"seq": read.seq, "next_by_subj": read.subject})
    if "error" in answer:
        assert answer["error"]["err_code"] in ABSENT, answer["error"]
        return Absent()
    return Message(answer["message"]["seq"], answer["message"]["time"]) if "message" in answer else answer


async def _last_copied(wire: Wire, stream: str, identity: str) -> Fact:
    info = await wire.call(f"STREAM.INFO.{stream}")
    if "error" in info:
        return Absent()
    state = info["state"]
    complete = state["first_seq"] <= 1 and not state.get("num_deleted")
    for seq in range(state["last_seq"], state["first_seq"] - 1, -1):
        answer = await wire.call(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        headers = base64.b64decode(answer.get("message", {}).get("hdrs", "")).decode()
        for line in headers.split("\r\n"):
            name, _, value = line.partition(": ")
            parts = value.split(" ")
            if name == "Nats-Stream-Source" and [parts[0], *parts[2:4]] == identity.split(" "):
                return Copied(int(parts[1]), answer["message"]["time"], complete)
    return Copied(0, "", complete)


async def _write(wire: Wire, write: Write) -> str:
    """Send it; the text of the error, if any."""
    answer = await wire.call(*_request(write))
    return str(answer["error"]) if "error" in answer else ""


def _request(write: Write) -> tuple[str, Json | None]:
    if isinstance(write, CreateStream | UpdateStream | DeleteStream | PurgeStream):
        return _stream_request(write)
    path = _path(write.consumer)
    match write:
        case CreateConsumer(key, config):
            return f"CONSUMER.CREATE.{path}", _consumer(key, config, "create")
        case UpdateConsumer(key, config):
            return f"CONSUMER.CREATE.{path}", _consumer(key, config, "update")
        case DeleteConsumer():
            return f"CONSUMER.DELETE.{path}", None
        case PauseConsumer(_, until):
            return f"CONSUMER.PAUSE.{path}", {"pause_until": until} if until else {}
        case ResetConsumer(_, seq):
            return f"CONSUMER.RESET.{path}", {"seq": seq}


def _stream_request(write: CreateStream | UpdateStream | DeleteStream | PurgeStream) -> tuple[str, Json | None]:
    name = write.stream.stream_name
    match write:
        case CreateStream(_, config):
            return f"STREAM.CREATE.{name}", json.loads(config)
        case UpdateStream(_, config):
            return f"STREAM.UPDATE.{name}", json.loads(config)
        case DeleteStream():
            return f"STREAM.DELETE.{name}", None
        case PurgeStream(_, before, subject):
            narrowed = {"filter": subject} if subject not in ("", ">") else {}
            return f"STREAM.PURGE.{name}", {"seq": before, **narrowed}


def _consumer(key: Key, config: bytes, action: str) -> Json:
    parsed: dict[str, Any] = json.loads(config)
    return {"stream_name": key.stream, "action": action, "config": {"name": key.name, **parsed}}


def _path(key: Key) -> str:
    return f"{key.stream}.{key.name}"
