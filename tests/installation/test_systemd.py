"""The units for a virtual machine: what systemd thinks of them, the command line they start, and a machine on which they run."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.account.credentials import Operator
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.process import Daemon, settled
from tests.support.installing import ROOT, checkout, pip_environ
from tests.support.pages.following import section, typed
from tests.support.server.process import Server
from tests.support.skipped import lacking, needs

UNITS = ROOT / "deploy" / "systemd"
STREAM = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: ORDERS}}\nspec: {{subjects: [orders.>], maxAge: {age}}}\n"
EXPOSED = 20
"""In tenths; 100 is a service without any protection."""


async def lives(wire: Wire, hours: int) -> bool:
    """Whether the messages of ORDERS live that long."""
    return bool((await wire.stream_info("ORDERS"))["config"]["max_age"] == hours * 3600 * 10**9)


def settings(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each as often as it stands there."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as they are installed, but with a program that is there."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    (folder / "reconciler.service.d").mkdir()
    (folder / "credentials.conf").rename(folder / "reconciler.service.d" / "credentials.conf")
    unit = folder / "reconciler.service"
    text = unit.read_text(encoding="utf-8")
    assert "ExecStart=/opt/reconciler/bin/reconciler run\n" in text
    unit.write_text(text.replace("/opt/reconciler/bin", str(Path(sys.executable).parent)), encoding="utf-8")
    return folder


def test_systemd_accepts_the_units(units: Path) -> None:
    needs("systemd", "systemd-analyze", package="systemd")
    names = sorted(path.name for path in units.iterdir() if path.is_file())
    assert names == ["reconciler-pull.service", "reconciler-pull.timer", "reconciler.service"]
    environ = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"}
    command = ["systemd-analyze", "verify", *names]
    said = subprocess.run(command, cwd=units, env=environ, capture_output=True, text=True, check=False)
    assert (said.returncode, [line for line in said.stderr.splitlines() if "reconciler" in line]) == (0, [])
    with (units / "reconciler.service").open("a", encoding="utf-8") as unit:
        unit.write("ProtectEverything=yes\n")
    again = subprocess.run(["systemd-analyze", "verify", names[-1]], cwd=units, capture_output=True, text=True, check=False)
    assert "Unknown key 'ProtectEverything'" in again.stderr, "it would have said so"


def test_the_daemon_is_well_protected_from_what_it_reads(units: Path) -> None:
    needs("systemd", "systemd-analyze", package="systemd")
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSED}", str(units / "reconciler.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


# -- the command line -----------------------------------------------------------------------------------------------------------


class Machine:
    """The paths of the unit, on this one."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.etc = folder / "etc-reconciler"
        (self.etc / "manifests").mkdir(parents=True)
        self.declare("1h")
        lines = [f"NATS_URL={server.url}", "RECONCILER_OWNER=shop", "RECONCILER_HTTP=127.0.0.1:0"]
        (self.etc / "environment").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.unit = settings("reconciler.service")

    def declare(self, age: str) -> None:
        """Commit a manifest, in one step."""
        new = self.etc / "new"
        new.write_text(STREAM.format(age=age), encoding="utf-8")
        new.rename(self.etc / "manifests" / "orders.yaml")

    def here(self, text: str) -> str:
        """What the unit says, with the paths of this machine."""
        return text.replace("/opt/reconciler/bin", str(Path(sys.executable).parent)).replace("/etc/reconciler", str(self.etc))

    def environ(self) -> dict[str, str]:
        """The variables of the process, which are all it has: systemd gives it neither HOME nor a terminal."""
        (file,) = self.unit["EnvironmentFile"]
        words = [word for line in self.unit["Environment"] for word in shlex.split(line)]
        words += Path(self.here(file)).read_text(encoding="utf-8").splitlines()
        return dict(self.here(word).split("=", 1) for word in words)

    @asynccontextmanager
    async def started(self, log: Path) -> AsyncIterator[Daemon]:
        """ExecStart, under way."""
        (line,) = self.unit["ExecStart"]
        with log.open("wb") as sink:
            command = shlex.split(self.here(line))
            process = await asyncio.create_subprocess_exec(*command, env=self.environ(), stdout=sink, stderr=sink, cwd="/")
        daemon = Daemon(process, log)
        try:
            await daemon.ready()
            yield daemon
        finally:
            await daemon.kill()
            assert "Traceback" not in daemon.log(), daemon.log()


async def test_the_command_line_of_the_unit_is_ready_reloads_and_ends_in_time(server: Server, wire: Wire, tmp_path: Path) -> None:
    machine = Machine(tmp_path, server)
    async with machine.started(tmp_path / "log") as daemon:
        await daemon.until(settled)
        assert await lives(wire, hours=1)
        assert daemon.lines("lease.acquired"), "its log is JSON"
        machine.declare("2h")
        (reload,) = machine.unit["ExecReload"]
        reloading = await asyncio.create_subprocess_exec(*shlex.split(reload.replace("$MAINPID", str(daemon.pid))))
        assert await reloading.wait() == 0
        await daemon.until(lambda _: len(daemon.lines("change.ended")) == 2)
        assert await lives(wire, hours=2)
        (seconds,) = machine.unit["TimeoutStopSec"]
        assert await daemon.stop(float(seconds)) == 0


# -- a machine ------------------------------------------------------------------------------------------------------------------


PAGE = ROOT / "docs" / "installation.md"
_INIT = "/usr/lib/systemd/systemd"
_SECONDS = 300.0


class Booted:
    """A machine that has this one's programs, nothing else of it, and a systemd of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._init = 0

    def until_up(self) -> None:
        """Waits for its systemd."""
        deadline = time.monotonic() + _SECONDS
        while not self._init or self("systemctl is-system-running", code=None).stdout.strip() not in ("running", "degraded"):
            assert self._process.poll() is None, "it did not boot"
            assert time.monotonic() < deadline
            time.sleep(0.1)
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii").split()
            self._init = int(children[0]) if children else 0

    def __call__(self, line: str, environ: Mapping[str, str] = {}, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Somebody logged in there as root types this."""
        inside = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **environ}
        command = ["nsenter", "--all", f"--target={self._init}", "bash", "-c", f"cd /checkout; {line}"]
        done = subprocess.run(command, env=inside, capture_output=True, text=True, check=False, timeout=_SECONDS * 4)
        assert code is None or done.returncode == code, f"# {line}\n{done.stdout}{done.stderr}{self.journal()}"
        return done

    def journal(self) -> str:
        """What our units have said."""
        return self("journalctl --no-pager --lines 50 --unit 'reconciler*'", code=None).stdout


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Booted]:
    if os.geteuid():
        lacking("root", "starts a machine: sudo make test-images")
    needs("systemd", "systemd-nspawn", package="systemd-container")
    copy = checkout(tmp_path / "checkout")
    binds = [path for path in ("/etc/ssl", "/etc/alternatives", "/etc/nsswitch.conf") if Path(path).exists()]
    cache = pip_environ()["PIP_CACHE_DIR"]
    command = ["systemd-nspawn", "--quiet", "--directory=/", "--volatile=yes", "--boot", "--register=no", "--keep-unit"]
    command += ["--console=pipe", f"--machine=installing-{os.getpid()}", "--resolv-conf=bind-host"]
    command += [*(f"--bind-ro={path}" for path in binds), f"--bind={copy}:/checkout", f"--bind={cache}:/pip-cache"]
    with (tmp_path / "console").open("wb") as console:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    machine = Booted(process)
    try:
        machine.until_up()
        yield machine
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.images
@pytest.mark.timeout(3600)
async def test_the_unit_runs_under_systemd(booted: Booted, tmp_path: Path) -> None:
    """Everything that the page says, typed on a machine; then a change that is pulled, a crash, and a mistake."""
    operator = Operator()
    origin = tmp_path / "checkout" / "origin"
    manifest = origin / "orders.yaml"
    origin.mkdir()
    commit = "git -C origin add . && git -C origin -c user.name=me -c user.email=me@example.org commit -qm next"
    manifest.write_text(STREAM.format(age="1h"), encoding="utf-8")
    booted(f"git init -q -b main origin && {commit}")
    (tmp_path / "checkout" / "user.creds").write_text(operator.user().credentials, encoding="utf-8")
    admin = tmp_path / "admin.creds"
    admin.write_text(operator.user().credentials, encoding="utf-8")
    with Server(tmp_path / "server", config=operator.config) as server:
        pip = {**pip_environ(), "PIP_CACHE_DIR": "/pip-cache"}
        for line in typed(section(PAGE.read_text(encoding="utf-8"), "A virtual machine, with systemd")):
            done = line.replace("https://git.example.org/shop/jetstream.git", "/checkout/origin")
            done = done.replace("tls://nats.example.org:4222", server.url)
            if line.startswith("/opt/reconciler/bin/reconciler status"):
                done += " --wait --timeout 120s"
            booted(done, pip)
        async with await Wire.connect(server.url, user_credentials=str(admin)) as wire:
            assert await lives(wire, hours=1)
            shown = booted("systemctl show reconciler --property=MainPID,User,DynamicUser,NRestarts").stdout
            first = dict(line.split("=", 1) for line in shown.splitlines())
            assert (first["DynamicUser"], first["NRestarts"]) == ("yes", "0")
            assert booted(f"stat --format=%u /proc/{first['MainPID']}").stdout.strip() != "0"

            booted("install --mode 644 --target-directory /etc/systemd/system deploy/systemd/reconciler-pull.*")
            manifest.write_text(STREAM.format(age="2h"), encoding="utf-8")
            booted(f"{commit} && systemctl daemon-reload && systemctl enable --now reconciler-pull.timer")
            booted("systemctl start reconciler-pull")
            await until(lambda: lives(wire, hours=2), _SECONDS)

            booted(f"kill -9 {first['MainPID']}")
            manifest.write_text(STREAM.format(age="3h"), encoding="utf-8")
            booted(f"{commit} && systemctl start reconciler-pull")
            await until(lambda: lives(wire, hours=3), _SECONDS)
            assert booted("systemctl show reconciler --property=NRestarts --value").stdout.strip() == "1"

            booted("systemctl stop reconciler")
            assert "result=success" in booted("systemctl show reconciler --property=Result").stdout.lower()
