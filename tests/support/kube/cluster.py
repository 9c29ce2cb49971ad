"""A Kubernetes API server with an etcd of its own, on loopback. Nothing runs there: no kubelet, no controllers.

Invariant: both processes and all their files are gone when the block is left.
"""

from __future__ import annotations

import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kube.programs import definitions, program
from tests.support.server.certificates import Pki

Json = dict[str, Any]
SECONDS = 120.0
TOO_EARLY = 429
"""The store of a kind that is new is still being made."""
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


class NotLikeThat(Exception):
    """The API server refused a request; carries what it said."""


@dataclass(frozen=True)
class Cluster:
    """An API server that answers."""

    url: str
    token: str
    kubeconfig: Path

    def call(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """One request; its answer. Raises NotLikeThat."""
        return self.answer(method, path, body, kind)[0]

    def answer(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> tuple[Json, list[str]]:
        """The same, with the warnings that came along."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=headers)
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30, context=_unverified()) as answer:
                    return json.load(answer), answer.headers.get_all("Warning") or []
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != TOO_EARLY or time.monotonic() > deadline:
                        raise NotLikeThat(error.read().decode()) from None
            time.sleep(0.1)

    def namespace(self, name: str) -> str:
        """A new one, in which pods have to be restricted; its name."""
        metadata = {"name": name, "labels": RESTRICTED}
        self.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return name

    def path_of(self, one: Json, namespace: str) -> str:
        """Where an object is, or will be."""
        group = one["apiVersion"]
        root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        (plural,) = (
            each["name"]
            for each in self.call("GET", root)["resources"]
            if each["kind"] == one["kind"] and "/" not in each["name"]
        )
        return f"{root}/namespaces/{namespace}/{plural}/{one['metadata']['name']}"

    def everything(self, namespace: str) -> list[str]:
        """Every object of a namespace, of whatever kind, but for what the server notes down about them and forgets by itself."""
        groups = ["/api/v1"]
        groups += [f"/apis/{group['preferredVersion']['groupVersion']}" for group in self.call("GET", "/apis")["groups"]]
        found = []
        for group in groups:
            for kind in self.call("GET", group)["resources"]:
                if kind["namespaced"] and "list" in kind["verbs"] and kind["name"] != "events":
                    listed = self.call("GET", f"{group}/namespaces/{namespace}/{kind['name']}")["items"]
                    found += [f"{kind['name']}/{one['metadata']['name']}" for one in listed]
        return found


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Starts it and waits until it answers and knows the Prometheus operator's kinds."""
    token = secrets.token_hex(16)
    etcd, peers, api = _free_ports(3)
    folder.mkdir(parents=True)
    key = Pki(folder / "accounts").key
    (folder / "tokens.csv").write_text(f"{token},tests,tests,system:masters\n", encoding="utf-8")
    with ExitStack() as stack:
        database = [program("etcd"), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"]
        database += [f"--{which}-client-urls=http://127.0.0.1:{etcd}" for which in ("listen", "advertise")]
        database += [f"--listen-peer-urls=http://127.0.0.1:{peers}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}"]
        database += [f"--initial-cluster=default=http://127.0.0.1:{peers}"]
        first = stack.enter_context(_running(database, folder / "etcd.log"))
        _until(lambda: _answers(f"http://127.0.0.1:{etcd}/health"), first, folder / "etcd.log")
        server = [program("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={api}"]
        server += [
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
        ]
        server += ["--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none"]
        server += ["--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}"]
        server += [f"--service-account-signing-key-file={key}"]
        second = stack.enter_context(_running(server, folder / "kube-apiserver.log"))
        made = Cluster(f"https://127.0.0.1:{api}", token, _kubeconfig(folder, api, token))
        _until(lambda: _answers(f"{made.url}/readyz", token), second, folder / "kube-apiserver.log")
        for one in definitions():
            made.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)
        _until(lambda: _knows_the_operator(made), second, folder / "kube-apiserver.log")
        yield made


def _knows_the_operator(made: Cluster) -> bool:
    with suppress(NotLikeThat):
        found = {each["kind"] for each in made.call("GET", "/apis/monitoring.coreos.com/v1")["resources"]}
        return {"ServiceMonitor", "PodMonitor", "PrometheusRule"} <= found
    return False


def _kubeconfig(folder: Path, port: int, token: str) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    path.chmod(0o600)
    return path


@contextmanager
def _running(command: list[Any], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)  # what it has is thrown away
        process.wait()


def _until(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text(encoding="utf-8", errors="replace")[-4000:])
        time.sleep(0.05)


def _answers(url: str, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=_unverified()) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _unverified() -> ssl.SSLContext:
    """Its certificate is its own, made a moment ago for loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
