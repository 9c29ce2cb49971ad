"""Two daemons beside somebody who meddles with everything, for hours; one line for each question, exit code 1 when one says FAIL.

    python -m tools.soak                                       two hours, 2,000 resources, 20 acts a second
    python -m tools.soak --minutes 1 --resources 100 --rate 5  whether it runs

What is meddled with, and what each act may cost, stands in the tables of `tools/soak/families.py`, `meddler.py` and `copying.py`.
Nothing else may be lost: every message is numbered, and each stream is read from its first message to its last in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.server.binaries import NEWEST
from tools import ending
from tools.soak.course import Asked, beside, prepared
from tools.soak.judging import judge, judge_work

_MEMORY = Path("/dev/shm")  # noqa: S108 - a server syncs to disk; in memory that costs nothing
_ROOM = 4 * 2**30


async def soak(asked: Asked, place: Path) -> int:
    """One of them; the number of lines that are not ok."""
    async with prepared(asked, place) as one:
        _say(f"{one.count} resources of {len(one.families.every)} families on nats-server {asked.version}")
        await one.put_in_place()
        async with beside(one.traffic.reading()):
            _say(f"meddling for {asked.minutes:g} minutes")
            await one.meddle()
            await judge_work(one)
            _say("left alone")
            await judge(one, await one.leave_alone())
        return one.verdicts.failed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak")
    parser.add_argument("--minutes", type=float, default=120.0, help="of meddling; the judgement takes some more")
    parser.add_argument("--resources", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=20.0, help="acts a second")
    parser.add_argument("--messages", type=float, default=40.0, help="messages a second, over all streams")
    parser.add_argument("--settle", type=float, default=180.0, metavar="SECONDS", help="until everything is in place or named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", default=NEWEST, help="of nats-server")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the daemons have logged there")
    given = vars(parser.parse_args())
    logs = given.pop("logs")
    roomy = "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    with tempfile.TemporaryDirectory(prefix="reconciler-soak-", dir=_MEMORY if roomy else None) as scratch:
        try:
            failed = asyncio.run(soak(Asked(**given), Path(scratch)))
        finally:
            if logs:
                logs.mkdir(parents=True, exist_ok=True)
                for log in Path(scratch).glob("*.log"):
                    shutil.copy(log, logs)
    print(f"{failed} not ok" if failed else "all ok", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    ending.in_order()
    main()
