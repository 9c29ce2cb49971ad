"""A Spark cluster on this machine whose members do not see the files of whoever asks it.

A master, two workers and a Connect server, all of the installed pyspark. The workers with their executors and the Connect server
run where this repository and the directory of the clients are empty: what all of them shall see lies in `shared`.

Invariant: every member is the first process of a process namespace, or has started nothing; it is ended by its own pid, and
whatever it has started ends with it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.partitions.files import Ended

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 600.0
POLL_SECONDS = 0.05
APART = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")
_HIDE = """
set -eu
mount --bind "$1" "$2"
shift 2
while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done
shift
cd /
exec "$@"
"""
"""Spark is kept at another place, then the directories are emptied (of all that this shell and its children see)."""
_GIVEN = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_MASTER", "MASTER", "PYSPARK_SUBMIT_ARGS")
LITTLE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What makes small plans quick."""
EXECUTORS = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "700m"}
"""One on each worker."""


class NotStarted(Exception):
    """A member of the cluster ended, or was not ready in time; carries its log."""


def home() -> Path:
    """Where the installed Spark is."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def confs(*settings: Mapping[str, str]) -> list[str]:
    """As arguments of a command."""
    return [part for some in settings for name, value in some.items() for part in ("--conf", f"{name}={value}")]


def environment(scratch: Path) -> dict[str, str]:
    """For any process of Spark: on loopback, its files below `scratch`, nothing given from outside."""
    kept = {name: value for name, value in os.environ.items() if name not in _GIVEN}
    java = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(scratch), "JAVA_TOOL_OPTIONS": java}
    return kept | own | {"PYSPARK_PYTHON": sys.executable}


def ran(command: Sequence[str | Path], scratch: Path, **more: str) -> Ended:
    """A client, until it and what it has started are over."""
    given = [str(part) for part in command]
    done = subprocess.run(
        given,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment(scratch) | more,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def reconciler(*arguments: str | Path) -> list[str]:
    """The command of the environment that the tests run in."""
    return [sys.executable, "-m", "reconciler", *map(str, arguments)]


class Member:
    """One process of the cluster."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environ), start_new_session=True
            )

    def said(self, pattern: str) -> str:
        """Waits until it logs this; the group of the pattern."""
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self._log.read_text(encoding="utf-8", errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(self.name, self._log.read_text(encoding="utf-8", errors="replace")[-4000:])
            time.sleep(POLL_SECONDS)
        return found[1]

    def end(self) -> None:
        """With everything that it has started."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        first = children.read_text(encoding="ascii").split() if self._process.poll() is None else []
        for pid in first:
            os.kill(int(pid), 9)  # all of a namespace ends with its first process
        self._process.kill()
        self._process.wait(SECONDS)


class Standalone:
    """The cluster; `client` is where those who ask it have their files, `shared` what its members see as well."""

    def __init__(self, directory: Path) -> None:
        self.client, self.shared, self.scratch = (directory / name for name in ("client", "shared", "scratch"))
        self._spark, self._logs = directory / "spark", directory / "logs"
        for path in (self.client, self.shared, self.scratch, self._spark, self._logs):
            path.mkdir(parents=True)
        self._members: list[Member] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            command = [str(home() / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
            master = self._start("master", [*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"])
            self.master = master.said(r"Starting Spark master at (spark://\S+)")
            one = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "4", "--memory", "4g"]
            workers = [
                self._hidden(f"worker-{n}", "spark-class", "org.apache.spark.deploy.worker.Worker", *one, self.master)
                for n in (1, 2)
            ]
            for worker in workers:
                worker.said(r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in reversed(self._members):
            member.end()

    def connect(self, *arguments: str) -> str:
        """Starts a Connect server on the cluster; its address."""
        bound = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
        server = self._hidden(
            "connect",
            "spark-submit",
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", self.master),
            *confs(LITTLE, EXECUTORS, bound),
            *arguments,
        )
        port = server.said(r"Spark Connect server started at: \S*?:(\d+)")
        return f"sc://127.0.0.1:{port}"

    def _hidden(self, name: str, program: str, *arguments: str) -> Member:
        hide = ["sh", "-c", _HIDE, "sh", str(home()), str(self._spark), str(ROOT), str(self.client), "--"]
        return self._start(name, [*APART, *hide, str(self._spark / "bin" / program), *arguments], SPARK_HOME=str(self._spark))

    def _start(self, name: str, command: Sequence[str], **more: str) -> Member:
        own = {"SPARK_WORKER_DIR": str(self.scratch / name), **more}
        member = Member(name, command, self._logs, environment(self.scratch) | own)
        self._members.append(member)
        return member
