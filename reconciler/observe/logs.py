"""The log: one line per thing that happened, JSON for machines, colours for people, whoever writes it.

Invariants: no credential is written; nothing that came from a server breaks a line or reaches a terminal as a control
sequence; a log that cannot be written stops nobody.
"""

from __future__ import annotations

import io
import json as stdlib_json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from reconciler.jetstream.transport.settings import REDACTED, redact, without_keys
from reconciler.render.values import printable

_SECRET_NAME = re.compile(
    r"password|passwd|secret|token|seed|jwt|nkey|authorization|api_?key|private_?key|credential", re.IGNORECASE
)
_FIRST = ("timestamp", "level", "logger", "event")
_FOR_MACHINES = frozenset({"logger", "owner", "pass", "revision"})
_TIME_OF_DAY = slice(11, 23)
_EVENT_WIDTH = 16


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again by the next `configure`."""


def configure(stream: TextIO, *, json: bool, level: int) -> None:
    """Makes structlog and the standard library's logging write to `stream`; may be called again."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    for_people: list[Processor] = [_redact, _printable, _brief, _console(stream)]
    render = [structlog.processors.format_exc_info, _redact, _as_json] if json else for_people
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
            foreign_pre_chain=[_from_library, *shared],
        )
    )
    root = logging.getLogger()
    for former in [former for former in root.handlers if isinstance(former, _Handler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # a line per scrape tells nothing


def hush() -> None:
    """From now on only what is wrong is told: what has to be done first is told as a whole, when it is done."""
    root = logging.getLogger()
    root.setLevel(logging.WARNING if root.level == logging.INFO else root.level)


def speak() -> None:
    """Everything is told again."""
    root = logging.getLogger()
    root.setLevel(logging.INFO if root.level == logging.WARNING else root.level)


def within_pass(number: int, revision: str) -> AbstractContextManager[None]:
    """Every line written inside, by whatever task is started there, names this pass."""
    return structlog.contextvars.bound_contextvars(**{"pass": number, "revision": revision})


def _from_library(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    """Lines of libraries are free text: they get an event name like ours."""
    return {**fields, "event": "library.logged", "message": fields["event"]}


def _redact(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    return {name: _safe(name, value) for name, value in fields.items()}


def _safe(name: str, value: Any) -> Any:  # noqa: ANN401 - whatever is logged
    if value and isinstance(value, str | bytes) and _SECRET_NAME.search(name):
        return REDACTED
    if isinstance(value, str):
        return _without_logins(value)
    if isinstance(value, Mapping):
        return {key: _safe(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(name, item) for item in value]
    if isinstance(value, BaseException):
        return _without_logins(str(value))
    return value


def _without_logins(text: str) -> str:
    return redact(text) if "://" in text else without_keys(text)  # an address alone names a person, not a login


def _as_json(_: WrappedLogger, __: str, fields: EventDict) -> str:
    line = {name: fields[name] for name in _FIRST if name in fields} | dict(fields)
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits: rare, so the strict one is tried first
        return stdlib_json.dumps(line, default=str)


def _printable(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    return {name: printable(value) if isinstance(value, str) else value for name, value in fields.items()}


def _brief(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
    """Somebody who watches knows the day, and whose process it is."""
    fields["timestamp"] = fields["timestamp"][_TIME_OF_DAY]
    return {name: value for name, value in fields.items() if name not in _FOR_MACHINES and value not in (None, "", [])}


def _console(stream: TextIO) -> Processor:
    colours = stream.isatty() and not os.environ.get("NO_COLOR")
    return structlog.dev.ConsoleRenderer(
        colors=colours, sort_keys=False, pad_event_to=_EVENT_WIDTH, exception_formatter=_traceback
    )


def _traceback(out: TextIO, exc_info: ExcInfo) -> None:
    buffer = io.StringIO()
    structlog.dev.plain_traceback(buffer, exc_info)
    out.write(_without_logins(buffer.getvalue()))
