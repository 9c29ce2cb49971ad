"""Runs containers of rendered pods without an engine: command, arguments, environment, mounts, user and groups as rendered.

Each has a network, a tree and processes of its own (`sandbox`); what is to reach it, or be reached by it, goes over sockets that
the sandbox hands out.
Invariant: every container is gone when its block is left, and so is its network.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chart import sandbox
from tests.support.chart.helm import containers
from tests.support.chart.image import Image
from tests.support.chart.volumes import Volumes
from tests.support.clock.until import glances
from tests.support.skipped import lacking, needs

Json = dict[str, Any]
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
_SECONDS = 240.0
_REFERENCE = re.compile(r"\$\((\w+)\)")


def needs_root() -> None:
    """Skips the test where nobody may run something as another user; where everything has to be tested, that is a failure."""
    if os.geteuid() != 0:
        lacking("root", "runs a container as another user: sudo make test ROOM=chart")
    needs("containers", "unshare", "ip", package="util-linux iproute2")


@dataclass
class Container:
    """A container that was started."""

    name: str
    log_path: Path
    _process: asyncio.subprocess.Process
    _asked: socket.socket
    _spec: Json
    _relays: list[asyncio.Server] = field(default_factory=list)
    _relayed: set[asyncio.Task[None]] = field(default_factory=set)

    def log(self) -> str:
        """All it has written."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.returncode is not None

    async def ends(self, seconds: float = _SECONDS) -> int:
        """Waits for its end; its exit code."""
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    async def stop(self, seconds: float) -> int:
        """Ends it as the kubelet does; its exit code."""
        await self._ask({"signal": 15})
        return await self.ends(seconds)

    async def kill(self) -> None:
        """Lets it die on the spot."""
        if not self.ended:
            self._process.kill()
        await self._process.wait()

    async def get(self, path: str, port: int = 8080, *, method: str = "GET", token: str = "") -> tuple[int, str]:
        """An HTTP request from outside the pod; code 0 when nobody answers."""
        found = await self._socket({"connect": port})
        if found is None:
            return 0, ""
        return await asyncio.to_thread(_fetch, found, method, path, {"Authorization": f"Bearer {token}"} if token else {})

    async def probe(self, name: str) -> int:
        """What one of its probes is answered."""
        get = self._spec[name]["httpGet"]
        (port,) = (port["containerPort"] for port in self._spec["ports"] if port["name"] == get["port"])
        return (await self.get(get["path"], port))[0]

    async def until_probed(self, name: str, code: int = 200) -> None:
        """Waits until a probe is answered like that."""
        async with asyncio.timeout(_SECONDS):
            async for _ in glances():
                if await self.probe(name) == code:
                    return
                assert not self.ended, self.log()

    async def status(self) -> Json:
        """Its status document."""
        code, text = await self.get("/status?limit=10000")
        assert code == 200, (code, text, self.log())
        document: Json = json.loads(text)
        return document

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        """Waits until its status document is like that."""
        document: Json = {}
        try:
            async with asyncio.timeout(_SECONDS):
                async for _ in glances():
                    document = await self.status()
                    if holds(document):
                        break
        except TimeoutError:
            msg = f"not like that: {document}\n{self.log()[-4000:]}"
            raise AssertionError(msg) from None
        return document

    async def relay(self, port: int, to: int) -> None:
        """Whoever in the pod connects to that port of the server's address gets to a port of this machine's loopback."""
        listening = await self._socket({"listen": port})
        assert listening is not None

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._relayed.add(task)
            writers = [writer]
            with suppress(OSError, asyncio.CancelledError):  # cancelled at the end, which asyncio would report
                there, further = await asyncio.open_connection("127.0.0.1", to)
                writers.append(further)
                await asyncio.gather(_pump(reader, further), _pump(there, writer))
            for each in writers:
                each.close()

        self._relays.append(await asyncio.start_server(serve, sock=listening))

    async def _socket(self, request: Json) -> socket.socket | None:
        data, descriptors = await asyncio.to_thread(_exchange, self._asked, request)
        assert descriptors or data, self.log()
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    async def _ask(self, request: Json) -> None:
        data, _ = await asyncio.to_thread(_exchange, self._asked, request)
        assert data == b"done", (data, self.log())

    async def _begin(self, start: Json, relays: Mapping[int, int]) -> None:
        for port, to in relays.items():
            await self.relay(port, to)
        await self._ask({"start": start})

    async def _end(self) -> None:
        await self.kill()
        for relay in self._relays:
            relay.close()
        for task in self._relayed:
            task.cancel()
        await asyncio.gather(*self._relayed, return_exceptions=True)
        self._asked.close()


@asynccontextmanager
async def container(
    pod: Json,
    name: str,
    volumes: Volumes,
    *,
    relays: Mapping[int, int] | None = None,
    image: Image | None = None,
    **instead: Any,
) -> AsyncIterator[Container]:
    """Starts a container of a rendered pod; `relays`: ports that its hosts answer on, and the ports of this machine behind them.

    `image` is one that was built, instead of what stands in for it. `instead` replaces parts of the container, for what a test
    wants to see from inside.
    """
    spec = next(one for one in containers(pod) if one["name"] == name) | instead
    number = sum(1 for _ in volumes.folder.glob(f"{name}-*.log"))
    log, root = volumes.folder / f"{name}-{number}.log", volumes.folder / f"{name}-{number}"
    root.mkdir()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with log.open("wb") as sink, theirs:
        command = [*_UNSHARE, sys.executable, "-S", str(Path(sandbox.__file__))]
        process = await asyncio.create_subprocess_exec(*command, stdin=theirs.fileno(), stdout=sink, stderr=sink)
    running = Container(name, log, process, ours, spec)
    try:
        await running._begin(_as_told(pod["spec"], spec, image or Image.of(spec["image"]), volumes, root), relays or {})
        yield running
    finally:
        await running._end()


async def ran(pod: Json, name: str, volumes: Volumes, **how: Any) -> tuple[int, str]:
    """Runs a container to its end; its exit code and what it said."""
    async with container(pod, name, volumes, **how) as running:
        return await running.ends(), running.log()


def _as_told(pod: Json, spec: Json, image: Image, volumes: Volumes, root: Path) -> Json:
    """What the sandbox has to do for this container."""
    environ = dict(image.environ)
    for each in spec.get("env", ()):
        environ[each["name"]] = _value(each, environ, volumes.secrets)
    command = [*spec.get("command", image.entrypoint), *spec.get("args", ())]
    context = pod["securityContext"] | spec["securityContext"]
    assert context["runAsNonRoot"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    return {
        "root": str(root),
        "tree": image.tree,
        "files": image.files,
        "links": image.links,
        "mounts": [
            {"source": str(volumes.at[mount["name"]]), "at": mount["mountPath"], "writable": not mount.get("readOnly", False)}
            for mount in spec["volumeMounts"]
        ],
        "command": [_expanded(word, environ) for word in command],
        "environ": environ,
        "user": context["runAsUser"],
        "group": context["runAsGroup"],
        "groups": [context["fsGroup"]],
        "readOnly": context["readOnlyRootFilesystem"],
        "directory": spec.get("workingDir", "/"),
    }


def _value(each: Json, environ: Mapping[str, str], secrets: Mapping[str, Mapping[str, bytes]]) -> str:
    if "valueFrom" in each:
        reference = each["valueFrom"]["secretKeyRef"]
        return secrets[reference["name"]][reference["key"]].decode()
    return _expanded(each["value"], environ)


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """As Kubernetes does it: what is not known stays as it is."""
    return _REFERENCE.sub(lambda found: environ.get(found[1], found[0]), text)


def _exchange(asked: socket.socket, request: Json) -> tuple[bytes, list[int]]:
    try:
        asked.send(json.dumps(request).encode())
        data, descriptors, _, _ = socket.recv_fds(asked, 4096, 1)
    except ConnectionError:
        return b"it has ended", []
    return data, descriptors


def _fetch(connected: socket.socket, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection(sandbox.ADDRESS)
    connected.settimeout(5)
    connection.sock = connected
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
