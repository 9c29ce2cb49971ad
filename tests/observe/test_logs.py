"""The log as a machine or a person reads it, and what never gets into it."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from reconciler.observe.logs import configure, within_pass

pytestmark = pytest.mark.usefixtures("logging_restored")
log = structlog.get_logger("reconciler.test")


class Terminal(io.StringIO):
    """A stream with somebody in front of it."""

    def isatty(self) -> bool:
        """Always."""
        return True


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, _: str) -> int:
        """Never."""
        raise OSError(28, "No space left on device")


@pytest.fixture
def stream() -> io.StringIO:
    """Where the log goes: JSON, debug included."""
    stream = io.StringIO()
    configure(stream, json=True, level=logging.DEBUG)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_logger_and_event(stream: io.StringIO) -> None:
    log.bind(owner="default").info("pass.ended", applied=3, duration_s=0.25)
    (line,) = lines(stream)
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    expected = {"event": "pass.ended", "level": "info", "logger": "reconciler.test"}
    assert line == {**expected, "owner": "default", "applied": 3, "duration_s": 0.25}
    assert stream.getvalue().startswith('{"timestamp":"20')
    assert stream.getvalue().split('"timestamp":"')[1].split('"')[0].endswith("Z")


@pytest.mark.parametrize(
    "value", ["a\nb", "\ud800", 2**80, {1: 2}, b"bytes", {"a", "b"}, object(), ("x", None), float("nan"), ValueError("no\nway")]
)
def test_whatever_is_logged_stays_one_line_of_json(stream: io.StringIO, value: object) -> None:
    log.info("odd.value", value=value)
    (line,) = lines(stream)
    assert line["event"] == "odd.value"
    assert "value" in line


def test_a_traceback_stays_on_its_line(stream: io.StringIO) -> None:
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        log.exception("work.failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "ZeroDivisionError" in line["exception"]


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    configure(stream, json=True, level=logging.INFO)
    log.debug("not.seen")
    logging.getLogger("nats.aio.client").debug("not seen")
    log.info("is.seen")
    assert [line["event"] for line in lines(stream)] == ["is.seen"]


@pytest.mark.parametrize("name", ["nats.aio.client", "aiohttp.server", "asyncio"])
def test_lines_of_libraries_come_out_in_the_same_form(stream: io.StringIO, name: str) -> None:
    logging.getLogger(name).warning("lost %s after %d tries", "it", 3)
    (line,) = lines(stream)
    assert (line["level"], line["logger"], line["event"]) == ("warning", name, "library.logged")
    assert line["message"] == "lost it after 3 tries"


def test_a_line_per_http_request_is_not_written(stream: io.StringIO) -> None:
    logging.getLogger("aiohttp.access").info("GET /metrics")
    assert lines(stream) == []


def test_configuring_again_moves_the_log_and_doubles_nothing(stream: io.StringIO) -> None:
    second = io.StringIO()
    configure(second, json=True, level=logging.INFO)
    log.info("once.only")
    logging.getLogger("nats").info("once")
    assert lines(stream) == []
    assert len(lines(second)) == 2


def test_every_line_of_a_pass_names_it(stream: io.StringIO) -> None:
    with within_pass(7, "abc"):
        log.info("change.ended")
    log.info("afterwards")
    first, second = lines(stream)
    assert (first["pass"], first["revision"]) == (7, "abc")
    assert "pass" not in second


SECRETS: dict[str, dict[str, Any]] = {
    "a password with what ends it": {"error": 'nats://me:hun#x,/?" hunter2@nats:4222 is away'},
    "a part of a password": {"error": "not a server URL: nats://me:hunter2"},
    "password in a url": {"server": "nats://me:hunter2@nats:4222"},
    "token in a url": {"server": "nats://hunter2@nats:4222"},
    "url in a text": {"error": "cannot reach nats://me:hunter2@a:4222, nats://me:hunter2@b:4222"},
    "url in a list": {"servers": ["nats://me:hunter2@nats:4222"]},
    "url deeper": {"settings": {"more": [{"url": "nats://me:hunter2@nats"}]}},
    "url in an error": {"error": OSError("nats://me:hunter2@nats is away")},
    "named password": {"password": "hunter2"},
    "named token": {"http_token": "hunter2"},
    "named like the environment": {"NATS_SEED": "hunter2"},
    "named in camel case": {"apiKey": "hunter2"},
    "named deeper": {"settings": {"jwt": "hunter2"}},
    "bytes": {"secret": b"hunter2"},
    "in a list": {"tokens": ["hunter2"]},
}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("case", SECRETS)
def test_no_credential_is_written(case: str, as_json: bool) -> None:
    stream = io.StringIO()
    configure(stream, json=as_json, level=logging.DEBUG)
    log.info("settings.shown", **SECRETS[case])
    assert "hunter2" not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_no_credential_is_written_by_a_library_or_in_a_traceback(as_json: bool) -> None:
    stream = io.StringIO()
    configure(stream, json=as_json, level=logging.DEBUG)
    try:
        int("nats://me:hunter2@nats:4222")
    except ValueError as error:
        log.exception("work.failed")
        logging.getLogger("nats").exception("cannot reach %s", error)  # noqa: TRY401 - with its text
    assert stream.getvalue().count("Traceback") == 2
    assert "hunter2" not in stream.getvalue()


def test_people_and_plain_numbers_are_no_credentials(stream: io.StringIO) -> None:
    log.info("drift.detected", user="alice@example.com", client="nats CLI", token="", **{"pass": 3})
    (line,) = lines(stream)
    assert (line["user"], line["pass"], line["token"]) == ("alice@example.com", 3, "")


def test_on_a_terminal_a_line_is_for_people() -> None:
    stream = Terminal()
    configure(stream, json=False, level=logging.INFO)
    log.info("pass.ended", applied=3)
    text = stream.getvalue()
    assert "pass.ended" in text
    assert "\x1b[" in text
    assert not text.startswith("{")


def test_off_a_terminal_there_are_no_colours() -> None:
    stream = io.StringIO()
    configure(stream, json=False, level=logging.INFO)
    log.warning("pass.ended", applied=3)
    assert "\x1b" not in stream.getvalue()
    assert "applied=3" in stream.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_what_came_from_a_server_neither_breaks_the_line_nor_reaches_the_terminal(as_json: bool) -> None:
    stream = io.StringIO()
    configure(stream, json=as_json, level=logging.INFO)
    evil = "\x1b]0;owned\x07\r\n{}"
    log.info("drift.detected", client=evil, fields=[evil])
    logging.getLogger("nats").error("server said %s", evil)
    assert stream.getvalue().count("\n") == 2
    assert not set(stream.getvalue()) & set("\x1b\x07\r")


def test_a_log_that_cannot_be_written_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Full(), json=True, level=logging.INFO)
    log.info("pass.ended")
    assert "No space left on device" in capsys.readouterr().err
