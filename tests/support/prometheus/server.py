"""A real Prometheus that scrapes daemons several times a second, with our rules hurried.

Invariant: the process is gone when its block is left.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.clock.until import SECONDS, glances
from tests.support.cluster.servers import free_ports
from tests.support.prometheus.programs import program
from tests.support.prometheus.rules import ALERTS, RULES, hurried

Json = dict[str, Any]
TIMES = 100
"""A minute of the rules is 0.6 seconds here."""
CONFIG = """\
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}
rule_files: [alerts.yaml, rules.yaml]
scrape_configs:
  - job_name: nobody
    file_sd_configs: [{files: [targets.json], refresh_interval: 500ms}]
"""


class Prometheus:
    """One server, under way."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self._started = time.time()
        self._targets: list[Json] = []

    def scrape(self, job: str, url: str) -> None:
        """From now on this daemon is scraped as well."""
        self._targets.append({"targets": [url.removeprefix("http://")], "labels": {"job": job}})
        self._write()

    def forget(self, url: str) -> None:
        """This one is not scraped any more."""
        self._targets = [target for target in self._targets if target["targets"] != [url.removeprefix("http://")]]
        self._write()

    async def query(self, expression: str) -> list[Json]:
        """The answer to an instant query, now."""
        return list((await self._get("query", query=expression))["result"])

    async def since_the_beginning(self, expression: str) -> list[Json]:
        """The answer to a query for each second since this server was started."""
        now = time.time()
        step = max(1.0, (now - self._started) / 10_000)
        return list((await self._get("query_range", query=expression, start=self._started, end=now, step=step))["result"])

    async def alerts(self, state: str = "firing") -> set[str]:
        """The names of the alerts that fire, or only wait for their time to be over."""
        found = (await self._get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == state}

    async def until_answered(self, expression: str) -> None:
        """Waits until there is an answer."""
        async with asyncio.timeout(SECONDS):
            async for _ in glances():
                if await self.query(expression):
                    return

    async def until_firing(self, *names: str, seconds: float = SECONDS) -> None:
        """Waits until exactly these fire."""
        firing: set[str] = set()
        try:
            async with asyncio.timeout(seconds):
                async for _ in glances():
                    firing = await self.alerts()
                    if firing == set(names):
                        return
        except TimeoutError:
            msg = (
                f"within {seconds} s these do not fire alone: {names}; firing: {firing}, pending: {await self.alerts('pending')}"
            )
            raise AssertionError(msg) from None

    def _write(self) -> None:
        following = self._directory / "targets.next"
        following.write_text(json.dumps(self._targets), encoding="utf-8")
        following.replace(self._directory / "targets.json")

    async def _get(self, what: str, **parameters: str | float) -> Json:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        document: Json = json.loads(await asyncio.to_thread(_fetched, url))
        assert document["status"] == "success", document
        data: Json = document["data"]
        return data


@asynccontextmanager
async def prometheus(directory: Path, times: int = TIMES, lookback: int = 5) -> AsyncIterator[Prometheus]:
    """Runs in that directory; no target yet. What was not scraped again is remembered for `lookback` seconds."""
    _write_files(directory, times)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    log = directory / "prometheus.log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            program("prometheus"),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--query.lookback-delta={lookback}s",
            f"--web.listen-address={address}",
            "--log.level=warn",
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        async with asyncio.timeout(SECONDS):
            async for _ in glances():
                assert process.returncode is None, log.read_text(encoding="utf-8")
                if await asyncio.to_thread(_ready, f"http://{address}"):
                    break
        yield Prometheus(directory, f"http://{address}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _write_files(directory: Path, times: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in (ALERTS, RULES):
        (directory / path.name).write_text(hurried(path.read_text(encoding="utf-8"), times), encoding="utf-8")
    (directory / "prometheus.yml").write_text(CONFIG, encoding="utf-8")
    (directory / "targets.json").write_text("[]", encoding="utf-8")


def _ready(url: str) -> bool:
    try:
        return bool(_fetched(f"{url}/-/ready"))
    except OSError:
        return False


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text
