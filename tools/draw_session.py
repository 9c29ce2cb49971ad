"""Draws the picture at the top of the README: a session at a terminal that has really taken place.

    python -m tools.draw_session            plays it, and writes docs/session.svg

A test plays it again, and compares what was printed with the picture, but for numbers.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.style import Style
from rich.text import Text

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "session.svg"
_PASSWORD = "pw"
_USERS = f"authorization {{ users: [ {{user: reconciler, password: {_PASSWORD}}}, {{user: alice, password: {_PASSWORD}}} ] }}"
_MANIFEST = """apiVersion: reconciler/v1
kind: Stream
metadata: {name: ORDERS}
spec: {subjects: [orders.>], maxMsgs: 1000000}
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: billing}
spec: {stream: ORDERS, filterSubjects: [orders.paid], maxDeliver: 10}
"""
_STORED = 50
_COLUMNS = 120
_CELL, _LINE, _SIZE, _EDGE = 8.0, 18.0, 13.0, 18.0
_COLOURS = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341", 5: "#d2a8ff", 6: "#79c0ff"}
"""By their number at a terminal."""
_INK, _FAINT, _GROUND, _PROMPT = "#e6edf3", "#8b949e", "#0d1117", "#79c0ff"
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_NUMBER = re.compile(r"\d+(\.\d+)?")


async def play() -> list[Text]:
    """The session, line by line."""
    with tempfile.TemporaryDirectory(prefix="reconciler-session-") as scratch:
        here = Path(scratch)
        (here / "orders.yaml").write_text(_MANIFEST, encoding="utf-8")
        with Server(here / "server", config=_USERS) as server:
            url = server.url.replace("nats://", f"nats://reconciler:{_PASSWORD}@")
            command = Command(here, url)
            shown = _asked(command, "apply", "orders.yaml", "--yes")
            shown += [Text(), _typed("reconciler run -f orders.yaml &")]
            async with daemon(command, here / "log", "-f", "orders.yaml", "--audit", "on") as running:
                await running.until(settled)
                shown += [Text(), *await _meddled(server.url, running)]
                asked, *told = _asked(command, "status", "--daemon", running.url)
                shown += [Text(), asked, *(line for line in told if line.plain.startswith("Synced"))]
            (here / "orders.yaml").write_text(_MANIFEST.replace("1000000", "10"), encoding="utf-8")
            shown += [Text(), _typed("sed -i 's/maxMsgs: 1000000/maxMsgs: 10/' orders.yaml")]
            shown += _asked(command, "plan", "orders.yaml")
    return shown


async def _meddled(url: str, running: Daemon) -> list[Text]:
    """Somebody else changes both, and messages come in."""
    async with await Wire.connect(url, user="alice", password=_PASSWORD, name="cleanup.py") as wire:
        await wire.publish("orders.paid", _STORED)
        config = (await wire.stream_info("ORDERS"))["config"]
        await wire.expect("STREAM.UPDATE.ORDERS", config | {"max_msgs": 500})
        await wire.expect("CONSUMER.DELETE.ORDERS.billing")

        async def repaired() -> bool:
            rows = (await running.status())["resources"]
            return all((row["lastDrift"] or {}).get("repairedAt") and row["lastDrift"]["user"] for row in rows)

        await until(repaired, 60.0)
    return [Text("# meanwhile alice's cleanup.py lowers maxMsgs and deletes the consumer", style="dim")]


def _asked(command: Command, *arguments: str) -> list[Text]:
    """A command as it is typed, and what it prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "reconciler", *arguments],
        env=command.environ({"FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS), "TERM": "xterm"}),
        cwd=command.home,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = Text.from_ansi(ended.stdout.rstrip("\n")).split("\n")
    return [_typed(" ".join(["reconciler", *arguments])), *(line for line in lines if line.plain.strip())]


def _typed(line: str) -> Text:
    return Text.assemble(("$ ", "cyan"), (line, "bold"))


def draw(lines: list[Text]) -> str:
    """The lines in a window."""
    width, height = _COLUMNS * _CELL + 2 * _EDGE, len(lines) * _LINE + 2 * _EDGE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="A session: applied, changed by somebody else, repaired and named; a loss is refused">'
    )
    rows = "\n".join(_row(number, line) for number, line in enumerate(lines))
    style = f'font-family="{_FONT}" font-size="{_SIZE:g}" fill="{_INK}" xml:space="preserve"'
    return f'{head}\n<rect width="100%" height="100%" rx="8" fill="{_GROUND}"/>\n<g {style}>\n{rows}\n</g>\n</svg>\n'


def _row(number: int, line: Text) -> str:
    place = f'x="{_EDGE:g}" y="{_EDGE + (number + 0.75) * _LINE:g}"'
    return f"<text {place}>{''.join(_spans(line))}</text>"


def _spans(line: Text) -> Iterator[str]:
    """Runs of one style."""
    plain = line.plain
    styles = [_look(line, at) for at in range(len(plain))]
    begin = 0
    for end in range(1, len(plain) + 1):
        if end == len(plain) or styles[end] != styles[begin]:
            yield f"<tspan{styles[begin]}>{html.escape(plain[begin:end])}</tspan>"
            begin = end


def _look(line: Text, at: int) -> str:
    style = Style.combine([Style.parse(str(span.style)) for span in line.spans if span.start <= at < span.end] or [Style()])
    number = style.color.number if style.color else None
    fill = _COLOURS.get(number if number is not None else -1, _FAINT if style.dim else "")
    return (f' fill="{fill}"' if fill else "") + (' font-weight="600"' if style.bold else "")


def said(picture: str) -> list[str]:
    """The lines of a picture, without numbers."""
    rows = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return [_NUMBER.sub("N", html.unescape(re.sub(r"<[^>]+>", "", row))) for row in rows]


def main() -> None:
    """Plays and draws."""
    PICTURE.write_text(draw(asyncio.run(play())), encoding="utf-8")
    sys.stdout.write(f"{os.path.relpath(PICTURE)}\n")


if __name__ == "__main__":
    main()
