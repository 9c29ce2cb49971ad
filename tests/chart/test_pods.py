"""What the rendered Deployment starts, run here as its user in a read-only tree, against a real server."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from tests.support.account.wire import Wire
from tests.support.chart.helm import CHART, Json, pod_templates, rendered
from tests.support.chart.node import Container, container, needs_root, ran
from tests.support.chart.volumes import Volumes
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import settled
from tests.support.server.certificates import Pki
from tests.support.server.process import Server

NATS = 4222
WRITABLE = "/tmp"  # noqa: S108 - of the container
NO_LOGIN = {"secretName": "", "creds": ""}
ORDERS = {
    "apiVersion": "reconciler/v1",
    "kind": "Stream",
    "metadata": {"name": "ORDERS"},
    "spec": {"subjects": ["orders.>"], "maxAge": "7d"},
}
BILLING = {
    "apiVersion": "reconciler/v1",
    "kind": "Consumer",
    "metadata": {"name": "billing"},
    "spec": {"stream": "ORDERS", "filterSubjects": ["orders.paid"]},
}


@pytest.fixture(autouse=True)
def _as_root() -> None:
    needs_root()


def text_of(*documents: Json) -> str:
    return yaml.safe_dump_all(documents)


class Repository:
    """The manifests of a team, in git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._git("init", "-q", "-b", "main", str(root))

    def commit(self, *documents: Json) -> None:
        """These are the manifests now."""
        (self.root / "manifests").mkdir(exist_ok=True)
        (self.root / "manifests" / "shop.yaml").write_text(text_of(*documents), encoding="utf-8")
        self._git("-C", str(self.root), "add", "--all")
        self._git("-C", str(self.root), "-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "-qm", "next")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], check=True)


def daemon_pod(*values: Path | Json) -> Json:
    """The pod of the rendered Deployment."""
    return pod_templates(rendered(*values))["Deployment/shop-reconciler"]


@asynccontextmanager
async def as_daemon(pod: Json, volumes: Volumes, server: Server | int, *, live: bool = True) -> AsyncIterator[Container]:
    """Starts it and waits, as the kubelet does, for its startup probe."""
    port = server if isinstance(server, int) else server.port
    async with container(pod, "reconciler", volumes, relays={NATS: port}) as running:
        if live:
            await running.until_probed("startupProbe")
        yield running


async def leader_of(pods: list[Container]) -> Container:
    """The one that leads, once there is one."""
    leading: list[Container] = []

    async def one_leads() -> bool:
        leading[:] = [pod for pod in pods if (await pod.status())["leading"]]
        return len(leading) == 1

    await until(one_leads)
    return leading[0]


async def test_a_container_is_what_it_says_it_is(tmp_path: Path) -> None:
    """The others prove nothing unless it is another user in a tree that it cannot write to, without any rights."""
    pod = daemon_pod(CHART / "ci" / "inline-values.yaml")
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"context.json": b"{}"}})
    script = (
        "id -u; id -G; echo $$; for at in / /manifests /credentials/nats /opt/reconciler /tmp; do touch $at/x && echo $at; done; "
    )
    script += "grep CapEff /proc/self/status; cat /credentials/nats/context/reconciler.json"
    code, said = await ran(pod, "reconciler", volumes, command=["sh", "-c", script], args=[])
    refused = [line for line in said.splitlines() if "touch" in line]
    left = [line for line in said.splitlines() if line not in refused]
    assert (code, left) == (0, ["65532", "65532", "1", WRITABLE, "CapEff:\t0000000000000000", "{}"]), said
    assert len(refused) == 4
    assert all("Read-only file system" in line for line in refused), said


async def test_two_of_them_keep_what_git_says_with_the_rights_that_permissions_prints(tmp_path: Path) -> None:
    """One leads; when it dies the other does; both take up what is committed; and the server has refused neither anything."""
    repository = Repository(tmp_path / "origin")
    repository.commit(ORDERS)
    every = tmp_path / "every.yaml"
    every.write_text(text_of(ORDERS, BILLING), encoding="utf-8")
    grants = Command(tmp_path)("--owner", "shop", "permissions", "--mode", "daemon", "--format", "conf", "-f", every).out
    key = nkeys.from_seed(seed := new_seed())
    user = f"{{nkey: {key.public_key.decode()}, {grants}}}, {{user: test, password: pw}}"
    config = f"accounts {{ A {{ jetstream: enabled, users: [{user}] }} }}"
    pod = daemon_pod(CHART / "ci" / "git-ssh-values.yaml")
    secrets = {"nats": {"seed.nk": seed}, "git": {}}
    pair = [Volumes(pod, tmp_path / name, secrets) for name in ("one", "two")]
    with Server(tmp_path / "server", config=config) as server:
        for volumes in pair:
            volumes.sync("manifests", repository.root)
        async with AsyncExitStack() as stack:
            pods = [await stack.enter_async_context(as_daemon(pod, volumes, server)) for volumes in pair]
            for each in pods:
                await each.until_probed("readinessProbe")
                assert await each.probe("livenessProbe") == 200
            leader = await leader_of(pods)
            (follower,) = (each for each in pods if each is not leader)
            await leader.until(settled)

            repository.commit(ORDERS, BILLING)
            (commit,) = {volumes.sync("manifests", repository.root) for volumes in pair}
            document = await leader.until(lambda now: settled(now) and now["summary"]["Synced"] == 2)
            assert document["revision"] == commit
            await follower.until(lambda now: bool(now["revision"] == commit))

            await leader.kill()
            await follower.until(lambda now: bool(now["leading"]))
            async with await Wire.connect(server.url, user="test", password="pw") as somebody:
                await somebody.expect("CONSUMER.DELETE.ORDERS.billing")
                await until(lambda: there(somebody))
            grace = pod["spec"]["terminationGracePeriodSeconds"]
            assert await follower.stop(grace) == 0
        assert "Permissions Violation" not in server.logs(), server.logs()
        for each in pods:
            assert "denied" not in each.log(), each.log()


async def there(somebody: Wire) -> bool:
    """Whether the consumer is back."""
    return "error" not in await somebody.call("CONSUMER.INFO.ORDERS.billing")


def new_seed() -> bytes:
    """Of a user."""
    return bytes(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))


async def test_a_pod_that_starts_during_an_outage_is_not_restarted(tmp_path: Path) -> None:
    """The startup probe looks at the process alone: NATS may come later, and go."""
    case = CHART / "ci" / "inline-values.yaml"
    pod = daemon_pod(case)
    probes = {
        name: pod["spec"]["containers"][0][name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"context.json": b'{"url": "nats://nats:4222"}'}})
    volumes.publish("manifests", {"orders.yaml": text_of(ORDERS)})
    with Server(tmp_path / "server") as server:
        server.stop()
        async with as_daemon(pod, volumes, server) as running:
            assert (await running.probe("livenessProbe"), await running.probe("readinessProbe")) == (200, 503)
            server.start()
            await running.until_probed("readinessProbe")
            await running.until(settled)
            server.kill()
            await running.until_probed("readinessProbe", 503)
            assert await running.probe("livenessProbe") == 200


async def test_a_config_map_is_taken_up_as_a_whole_and_a_wrong_one_never(server: Server, tmp_path: Path) -> None:
    pod = daemon_pod(CHART / "ci" / "inline-values.yaml")
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"context.json": b'{"url": "nats://nats:4222"}'}})
    volumes.publish("manifests", {"orders.yaml": text_of(ORDERS)})
    async with as_daemon(pod, volumes, server) as running:
        await running.until(settled)
        volumes.publish("manifests", {"orders.yaml": text_of(ORDERS), "billing.yaml": text_of(BILLING)})
        await running.until(lambda now: settled(now) and now["summary"]["Synced"] == 2)
        volumes.publish("manifests", {"orders.yaml": "kind: Strem\n"})
        document = await running.until(lambda now: bool(now["manifests"]["problems"]))
        assert document["summary"]["Synced"] == 2
        assert await running.probe("readinessProbe") == 200


async def test_helm_test_plans_with_the_same_rights_and_manifests(server: Server, tmp_path: Path) -> None:
    objects = rendered(CHART / "ci" / "inline-values.yaml")
    pod = pod_templates(objects)["Pod/shop-reconciler-plan"]
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"context.json": b'{"url": "nats://nats:4222"}'}})
    volumes.publish("manifests", {"orders.yaml": text_of(ORDERS)})
    code, said = await ran(pod, "plan", volumes, relays={NATS: server.port})
    assert (code, "Plan: 1 to create" in said) == (0, True), said
    async with await Wire.connect(server.url) as somebody:
        assert (await somebody.expect("STREAM.NAMES"))["total"] == 0, "a plan changes nothing"
    server.stop()
    code, said = await ran(pod, "plan", volumes, relays={NATS: server.port})
    assert code == 6, said


async def test_a_volume_that_is_there_already(server: Server, tmp_path: Path) -> None:
    pod = daemon_pod(CHART / "ci" / "existing-volume-values.yaml")
    (tmp_path / "claim" / "shop").mkdir(parents=True)
    (tmp_path / "claim" / "shop" / "orders.yaml").write_text(text_of(ORDERS), encoding="utf-8")
    volumes = Volumes(pod, tmp_path / "pod", {}, {"manifests": tmp_path / "claim"})
    async with as_daemon(pod, volumes, server) as running:
        await running.until(settled)


async def test_missing_manifests_end_it_and_say_which(server: Server, tmp_path: Path) -> None:
    """So the checkout comes first: the container of git-sync has to have started before this one is."""
    pod = daemon_pod(CHART / "ci" / "git-ssh-values.yaml")
    (sidecar,) = pod["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/"
    assert "--root=/manifests" in sidecar["args"]
    assert "--link=current" in sidecar["args"]
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"seed.nk": new_seed()}, "git": {}})
    code, said = await ran(pod, "reconciler", volumes, relays={NATS: server.port})
    assert (code, "/manifests/current/manifests" in said) == (4, True), said


async def test_what_somebody_calls_in_the_pod_needs_no_flags(server: Server, tmp_path: Path) -> None:
    """`kubectl exec` inherits the container's environment: owner, manifests and login are there."""
    pod = daemon_pod(CHART / "ci" / "inline-values.yaml")
    volumes = Volumes(pod, tmp_path / "pod", {"nats": {"context.json": b'{"url": "nats://nats:4222"}'}})
    volumes.publish("manifests", {"orders.yaml": text_of(ORDERS)})
    code, said = await ran(pod, "reconciler", volumes, relays={NATS: server.port}, args=["apply", "--yes"])
    assert code == 0, said
    code, said = await ran(pod, "reconciler", volumes, relays={NATS: server.port}, args=["status"])
    assert (code, "Synced       Stream/ORDERS" in said) == (0, True), said


async def test_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    files = {"ca.crt": pki.ca.read_bytes(), "tls.crt": pki.cert.read_bytes(), "tls.key": pki.key.read_bytes()}
    pod = daemon_pod(CHART / "ci" / "tls-values.yaml", {"nats": {"url": "tls://localhost:4222", "auth": NO_LOGIN}})
    volumes = Volumes(pod, tmp_path / "pod", {"nats-tls": files, "http-token": {"token": b"for tests"}})
    volumes.publish("manifests", {"orders.yaml": text_of(ORDERS)})
    block = pki.block("verify: true, handshake_first: true")
    with Server(tmp_path / "server", config=block) as server:
        async with as_daemon(pod, volumes, server) as running:
            await running.until(settled)
            code, said = await running.get("/-/reload", method="POST")
            assert code == 401, said
            code, said = await running.get("/-/reload", method="POST", token="for tests")
            assert code == 200, said
