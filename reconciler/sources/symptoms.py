"""What can be odd about a source or mirror entry, and what that means.

| told by the server | cause |
|---|---|
| the durable's, or the origin's, INFO says that there is none | consumer-missing, stream-missing |
| the durable's ack policy is another; error 10214 or 10217 | wrong-consumer |
| the durable delivers where the entry does not listen | deliver-subject |
| nobody listens where the durable delivers | not-bound |
| the durable delivers something else than is declared | filter |
| acknowledgements are missing and none arrives; from 2.15 on an error says so | flow-control |
| neither origin nor durable answers, and nothing is heard | domain |
| the origin is another stream than before, or ends before what its mirror has copied | origin-recreated |
| nothing is heard, and none of these | unknown-cause |

Invariant: pure; one look is judged, and what earlier looks add comes in as two numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.model.marker import read_marker
from reconciler.model.normal import EVERYTHING
from reconciler.model.seen.resource import mark_of
from reconciler.model.sourcing import detached
from reconciler.model.units import SECOND
from reconciler.plan.comparing.display import in_short
from reconciler.plan.comparing.mutability import MIRROR_WAY_OUT
from reconciler.sources.look import Look, Position
from reconciler.sources.overtaken import selected

HEARD = 2 * SECOND
"""Longer than that, and a heartbeat was missed."""
_NEVER = 1 << 62
_ERRORS = {10059: "stream-missing", 10014: "consumer-missing", 10214: "wrong-consumer", 10217: "wrong-consumer"}
_FLOW_CONTROL = "stalled on flow control"


class StallCause(StrEnum):
    """Why nothing is copied, as closely as the server lets one tell."""

    CONSUMER_MISSING = "consumer-missing"
    STREAM_MISSING = "stream-missing"
    DELIVER_SUBJECT = "deliver-subject"
    WRONG_CONSUMER = "wrong-consumer"
    DOMAIN = "domain"
    FLOW_CONTROL = "flow-control"
    NOT_BOUND = "not-bound"
    DETACHED = "detached"
    POSITION = "position"
    FILTER = "filter"
    ORIGIN_RECREATED = "origin-recreated"
    SERVER_ERROR = "server-error"
    UNKNOWN = "unknown-cause"


@dataclass(frozen=True, slots=True)
class Symptom:
    """Something is odd."""

    cause: StallCause
    message: str
    since: int
    certain: bool = False
    """No matter of patience."""
    error: str = ""
    """In the server's own words."""


def found(look: Look, stuck_since: int, skips_to: int) -> Symptom | None:
    """What is odd about an entry; `stuck_since`: acknowledgements are missing, `skips_to`: see `sources.incidents`."""
    entrance, told = look.entrance, look.told or {}
    if detached(entrance.entry):
        what = f"it is taken away: a placeholder stands for {detached(entrance.entry)}"
        return Symptom(StallCause.DETACHED, what, look.at)
    if skips_to or look.ended is not None:
        return Symptom(StallCause.ORIGIN_RECREATED, _another_origin(look, skips_to), look.at, certain=True)
    error = told.get("error")
    if error:
        return _told_error(look, error)
    if look.durable.info is not None:
        return _durable_symptom(look, look.durable.info, stuck_since)
    if look.durable.gone:
        return _missing(look)
    return _unheard(look)


def _another_origin(look: Look, skips_to: int) -> str:
    origin = look.entrance.origin
    if not look.entrance.mirror:
        return f"{origin} is another stream than before, and what it has up to {skips_to:,} is skipped"
    upto = max(skips_to, look.mirrored) if look.ended is not None else skips_to
    stand = f" and ends at {look.ended:,}" if look.ended is not None else ""
    what = f"{origin} is another stream than before{stand}; nothing it has up to {upto:,} is in this mirror, nor will be"
    return f"{what}: {MIRROR_WAY_OUT}"


def _told_error(look: Look, error: Mapping[str, Any]) -> Symptom:
    text = f"{error.get('description', '')} ({error.get('code')}/{error.get('err_code')})"
    if look.durable.gone:
        return replace(_missing(look), error=text)
    if _FLOW_CONTROL in error.get("description", ""):
        return Symptom(StallCause.FLOW_CONTROL, _no_flow_control(look), look.at, certain=True, error=text)
    code = _ERRORS.get(error.get("err_code", 0))
    if code is None:
        return Symptom(StallCause.SERVER_ERROR, text, look.at, error=text)
    missing = {
        "stream-missing": f"{_origin(look)} is not there",
        "consumer-missing": f"{look.entrance.durable or look.entrance.consumer} is not there",
        "wrong-consumer": _wrong_consumer(look),
    }
    return Symptom(StallCause(code), missing[code], look.at, error=text)


def _durable_symptom(look: Look, durable: Mapping[str, Any], stuck_since: int) -> Symptom | None:
    """What is odd though the durable is there."""
    entrance, config = look.entrance, durable["config"]
    if config.get("ack_policy") != "flow_control":
        return Symptom(StallCause.WRONG_CONSUMER, _wrong_consumer(look), look.at)
    bound, heard = durable.get("push_bound") is True, _silence(look) <= HEARD
    if config.get("deliver_subject") != entrance.deliver and not (bound and heard):
        what = f"{entrance.durable} delivers to {config.get('deliver_subject')}, but {entrance.aggregate} listens to"
        return Symptom(StallCause.DELIVER_SUBJECT, f"{what} {entrance.deliver}", look.at)
    if not bound:
        what = f"{entrance.durable} is there, but nobody listens to {config.get('deliver_subject')}: the stream has not attached"
        return Symptom(StallCause.NOT_BOUND, f"{what} (yet), or the subject is not imported from its account", _onset(look))
    if (other := _other_filter(look, durable)) is not None:
        return other
    position = Position.of(durable)
    if stuck_since and stuck_since < look.at:
        return Symptom(StallCause.FLOW_CONTROL, _no_flow_control(look, position), stuck_since)
    if look.origin.info and position.floor > int(look.origin.info["state"]["last_seq"]):
        last = int(look.origin.info["state"]["last_seq"])
        what = (
            f"{entrance.durable} stands at {position.floor:,}, beyond the last message, {last:,}: nothing up to there is copied"
        )
        return Symptom(StallCause.POSITION, what, look.at)
    return None if heard else _unheard(look)


def _other_filter(look: Look, durable: Mapping[str, Any]) -> Symptom | None:
    """A durable that delivers something else than it shall: at once where somebody has changed it since it was put in place.

    Else it is the manifest that has changed, and the durable is about to follow.
    """
    declared, config = look.entrance.declared, durable["config"]
    if declared is None:
        return None
    live, wanted = (sorted(set(selected(one, (EVERYTHING,)))) for one in (config, declared.config))
    if live == wanted:
        return None
    what = f"{look.entrance.durable} delivers {in_short(live)}, and not {in_short(wanted)}, as is declared"
    changed = read_marker(config.get("metadata"), mark_of(durable)).spec == declared.digest
    return Symptom(StallCause.FILTER, f"{what}: the plan says what is done about that", look.at, certain=changed)


def _missing(look: Look) -> Symptom:
    if look.origin.gone:
        return Symptom(StallCause.STREAM_MISSING, f"{_origin(look)} is not there", look.at)
    return Symptom(StallCause.CONSUMER_MISSING, f"{look.entrance.durable} is not there", look.at)


def _unheard(look: Look) -> Symptom | None:
    """Nothing is known but that nothing is heard."""
    if _silence(look) <= HEARD:
        return None
    entrance = look.entrance
    since = _onset(look)
    silence = look.durable.silence or look.origin.silence
    if silence:
        domain = entrance.origin.domain if entrance.origin else ""
        what = f"waiting for domain {domain}" if domain else "the origin does not answer"
        return Symptom(StallCause.DOMAIN, f"{what} (is it away, or is there none of that name?): {silence}", since)
    if look.origin.gone:
        return Symptom(StallCause.STREAM_MISSING, f"{_origin(look)} is not there", since)
    if entrance.origin is None:
        what = "nothing is heard from behind the import: its API, the deliver subject and $JS.FC.> must be exported and imported"
        return Symptom(StallCause.UNKNOWN, what, since)
    return Symptom(StallCause.UNKNOWN, f"nothing is heard from {_origin(look)}", since)


def _origin(look: Look) -> str:
    return str(look.entrance.origin or look.entrance.entry["name"])


def _silence(look: Look) -> int:
    """How long nothing was heard; very long when nothing ever was."""
    active: int = (look.told or {}).get("active", -1)
    return active if active >= 0 else _NEVER


def _onset(look: Look) -> int:
    silence = _silence(look)
    return look.at if silence >= _NEVER else look.at - silence if silence > HEARD else look.at


def _wrong_consumer(look: Look) -> str:
    return f"{look.entrance.durable or look.entrance.consumer} cannot be read through: its ackPolicy has to be flow_control"


def _no_flow_control(look: Look, position: Position | None = None) -> str:
    stand = f" (delivered to {position.reached:,}, acknowledged to {position.floor:,})" if position else ""
    return (
        f"no acknowledgement reaches {look.entrance.durable or look.entrance.consumer}{stand}: is $JS.FC.> exported and imported?"
    )


def warning(look: Look) -> str:
    """What flows by chance."""
    durable = look.durable.info
    if durable is None or durable["config"].get("deliver_subject") == look.entrance.deliver:
        return ""
    return f"flows until the server attaches it again: its durable delivers to {durable['config'].get('deliver_subject')}"
