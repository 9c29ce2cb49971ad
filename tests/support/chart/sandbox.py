"""Runs one container as a node would: its image's tree read-only, its volumes, its user, no capabilities, a network of its own.

    unshare --mount --net --pid --fork --kill-child python sandbox.py < socket

A script, because it has to be root in namespaces of its own. What it is asked for comes as JSON over the socket that is its
stdin: `start` (once), `listen` and `connect` (answered with a socket of the container's network), `signal`. It ends as the
container ends.
Invariant: the container can change nothing outside its writable volumes.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

ADDRESS = "10.244.0.5"
"""The pod's."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWPID = 0x20000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_LAST_CAPABILITY = 63
_DEVICES = ("null", "zero", "full", "random", "urandom")
_STREAMS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def main() -> int:
    """Serve what is asked for until the container has ended; its exit code."""
    asked = socket.socket(fileno=os.dup(0))
    _network()
    child = 0
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not asked:
                    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256
                message = asked.recv(1 << 20)
                if not message:
                    return 0  # whoever asked is gone, and the kernel ends the container with us
                request = json.loads(message)
                if "start" in request:
                    child = _start(request["start"], asked)
                    selector.register(os.pidfd_open(child), selectors.EVENT_READ)
                _answer(asked, request, child)


def _answer(asked: socket.socket, request: dict[str, Any], child: int) -> None:
    try:
        if "listen" in request:
            with socket.create_server(("", request["listen"])) as made:
                socket.send_fds(asked, [b"socket"], [made.fileno()])
        elif "connect" in request:
            with socket.create_connection((ADDRESS, request["connect"]), timeout=5) as made:
                made.settimeout(None)
                socket.send_fds(asked, [b"socket"], [made.fileno()])
        elif "signal" in request:
            os.kill(child, request["signal"])
            asked.send(b"done")
        else:
            asked.send(b"done")
    except OSError as error:
        asked.send(str(error).encode())


def _network() -> None:
    for command in ("link set lo up", f"address add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)


def _start(container: dict[str, Any], asked: socket.socket) -> int:
    """Fork it into a process namespace of its own, in which it is the first, as in a pod."""
    _call(_LIBC.unshare(_CLONE_NEWPID))
    child = os.fork()
    if child:
        return child
    try:
        asked.close()
        _become(container)
    except BaseException as error:  # noqa: BLE001 - a fork must not go on as its parent
        os.write(2, f"the container cannot start: {error!r}\n".encode())
    os._exit(127)


def _become(container: dict[str, Any]) -> NoReturn:
    root = Path(container["root"])
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0, "mode=0755")
    for at, text in container["files"].items():
        path = _place(root, at)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    for at, target in container["links"].items():
        _place(root, at).symlink_to(target)
    for at, source in container["tree"].items():
        _bind(Path(source), _place(root, at), writable=False)
    _devices(root)
    _folder(root, "/proc")
    _mount("proc", root / "proc", "proc", _MS_NOSUID | _MS_NODEV)
    for mount in container["mounts"]:
        _bind(Path(mount["source"]), _place(root, mount["at"]), writable=mount["writable"])
    if container["readOnly"]:
        _mount("none", root, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
    os.chroot(root)
    os.chdir(container["directory"])
    _without_rights(container["user"], container["group"], container["groups"])
    output = os.open("/dev/null", os.O_RDONLY)
    os.dup2(output, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(3, 256)
    program, environ = container["command"][0], container["environ"]
    for folder in environ["PATH"].split(":"):
        found = os.path.join(folder, program)  # noqa: PTH118 - as execvp does it
        if os.access(found, os.X_OK):
            os.execve(found, container["command"], environ)  # noqa: S606 - that is what it is for
    msg = f"{program} is not on PATH {environ['PATH']}"
    raise FileNotFoundError(msg)


def _devices(root: Path) -> None:
    for name in _DEVICES:
        _bind(Path("/dev", name), _place(root, f"/dev/{name}"), writable=True)
    for name, target in _STREAMS.items():
        _place(root, f"/dev/{name}").symlink_to(f"/proc/self/{target}")
    _folder(root, "/dev/shm")  # noqa: S108 - of the container
    _mount("tmpfs", root / "dev" / "shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=64m")


def _without_rights(user: int, group: int, groups: list[int]) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # those beyond the kernel's last are refused
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)  # of whoever is not root any more, the kernel takes all capabilities
    _call(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _call(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def _place(root: Path, at: str) -> Path:
    """A path below the root, whose folder is there."""
    path = root / at.lstrip("/")
    _folder(root, str(Path(at).parent))
    return path


def _folder(root: Path, at: str) -> None:
    (root / at.lstrip("/")).mkdir(parents=True, exist_ok=True)


def _bind(source: Path, target: Path, *, writable: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.touch()
    _mount(source, target, "", _MS_BIND | _MS_REC)
    if not writable:
        _mount("none", target, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)


def _mount(source: Path | str, target: Path | str, kind: str, flags: int, data: str = "") -> None:
    _call(_LIBC.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()), str(target))


def _call(result: int, about: str = "") -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)


if __name__ == "__main__":
    sys.exit(main())
