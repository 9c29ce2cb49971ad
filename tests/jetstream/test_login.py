"""Logins and TLS against real servers: what works, and one sentence for each mistake."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import nkeys  # type: ignore[import-untyped]
import pytest

from reconciler.errors import Unreachable
from tests.support.account.connecting import Connect
from tests.support.account.credentials import Operator
from tests.support.server.certificates import Pki
from tests.support.server.process import Server


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("tls") / "pki")


@pytest.fixture
def secure(tmp_path: Path, pki: Pki) -> Iterator[Server]:
    """A server that requires TLS."""
    with Server(tmp_path / "secure", config=pki.block()) as server:
        yield server


def named(server: Server, scheme: str = "tls") -> str:
    """The URL with the host name its certificate is for."""
    return f"{scheme}://localhost:{server.port}"


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_tls_with_the_right_ca(secure: Server, pki: Pki, connect: Connect, scheme: str) -> None:
    assert (await connect(named(secure, scheme), ca=str(pki.ca))).connected


async def test_tls_first(tmp_path: Path, pki: Pki, connect: Connect) -> None:
    with Server(tmp_path / "s", config=pki.block("handshake_first: true")) as server:
        assert (await connect(named(server), ca=str(pki.ca), tls_first=True)).connected
        with pytest.raises(Unreachable, match=r"--tlsfirst|no answer"):
            await connect(named(server), ca=str(pki.ca), timeout=3.0)


async def test_client_certificates(tmp_path: Path, pki: Pki, connect: Connect) -> None:
    with Server(tmp_path / "s", config=pki.block("verify: true")) as server:
        assert (await connect(named(server), ca=str(pki.ca), cert=str(pki.cert), key=str(pki.key))).connected
        with pytest.raises(Unreachable, match="--tlscert"):
            await connect(named(server), ca=str(pki.ca))


async def test_unknown_ca(secure: Server, connect: Connect) -> None:
    with pytest.raises(Unreachable, match=r"tls://localhost:\d+ is not signed by a known CA .*--tlsca"):
        await connect(named(secure))


async def test_tls_required_but_not_asked_for(secure: Server, connect: Connect) -> None:
    with pytest.raises(Unreachable, match=r"not signed by a known CA .*--tlsca"):
        await connect(secure.url)


async def test_certificate_for_another_name(secure: Server, pki: Pki, connect: Connect) -> None:
    with pytest.raises(Unreachable, match="is for another name"):
        await connect(secure.url, ca=str(pki.ca))


async def test_a_login_is_never_sent_in_the_clear_by_who_asked_for_tls(tmp_path: Path, pki: Pki, connect: Connect) -> None:
    with Server(
        tmp_path / "s", config="authorization { user: me, password: s3cret }\ntrace: true\nlogfile_size_limit: 0"
    ) as server:
        with pytest.raises(Unreachable, match="does not offer TLS, but TLS was asked for"):
            await connect(named(server), ca=str(pki.ca), user="me", password="s3cret")
        assert "CONNECT" not in server.logs()


async def test_files_that_are_missing_or_wrong(server: Server, tmp_path: Path, connect: Connect) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing useful\n")
    for field, says in {"ca": "CA file", "creds": "does not hold a user JWT", "nkey": "valid nkey seed"}.items():
        with pytest.raises(Unreachable, match=says):
            await connect(server.url, **{field: str(wrong)})
        with pytest.raises(Unreachable, match=r"/none cannot be read: No such file"):
            await connect(server.url, **{field: str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("config", "login"),
    [
        ('{ user: "a b", password: "p@:/s" }', {"user": "a b", "password": "p@:/s"}),
        ("{ token: t0ken }", {"token": "t0ken"}),
    ],
)
async def test_passwords_and_tokens(tmp_path: Path, connect: Connect, config: str, login: dict[str, str]) -> None:
    with Server(tmp_path / "s", config=f"authorization {config}") as server:
        assert (await connect(server.url, **login)).connected
        quoted = "a%20b:p%40%3A%2Fs" if "user" in login else "t0ken"
        assert (await connect(server.url.replace("//", f"//{quoted}@"))).connected
        for wrong in ({}, {"user": "x", "password": "hunter2"}, {"token": "hunter2"}):
            with pytest.raises(Unreachable, match=r"refused the login \(Authorization Violation\)") as caught:
                await connect(server.url.replace("//", "//me:hunter2@") if not wrong else server.url, **wrong)
            assert "hunter2" not in str(caught.value)


async def test_nkeys(tmp_path: Path, connect: Connect) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    public = nkeys.from_seed(bytearray(seed.encode())).public_key.decode()
    path = tmp_path / "user.nk"
    path.write_text(f"{seed}\n")
    with Server(tmp_path / "s", config=f"authorization {{ users: [{{ nkey: {public} }}] }}") as server:
        assert (await connect(server.url, nkey=str(path))).connected
        with pytest.raises(Unreachable, match="refused the login"):
            await connect(server.url)


async def test_credentials_file_and_jwt(tmp_path: Path, connect: Connect) -> None:
    operator = Operator()
    user = operator.user()
    creds = tmp_path / "user.creds"
    creds.write_text(user.credentials)
    with Server(tmp_path / "s", config=operator.config) as server:
        assert (await connect(server.url, creds=str(creds))).connected
        assert (await connect(server.url, jwt=user.jwt, seed=user.seed)).connected
        with pytest.raises(Unreachable, match="refused the login"):
            await connect(server.url, jwt=user.jwt, seed=operator.user().seed)


async def test_a_name_that_does_not_exist(connect: Connect) -> None:
    with pytest.raises(Unreachable, match=r"nats://no-such-host\.invalid:4222 cannot be resolved"):
        await connect("no-such-host.invalid:4222", timeout=10.0)


async def test_a_server_that_says_nothing_ends_at_the_timeout(server: Server, connect: Connect) -> None:
    server.freeze()
    started = time.monotonic()
    with pytest.raises(Unreachable, match=r"no answer from nats://.* within 0\.5s"):
        await connect(server.url, timeout=0.5)
    assert time.monotonic() - started < 30, "by its own timeout; the server never says a word"


@pytest.mark.parametrize(
    "url", ["nats://127.0.0.1:port", f"nats://{'a' * 70}.example:1", "nats://", "nats://[::1", "ftp://127.0.0.1:21"]
)
async def test_what_is_no_server_url(connect: Connect, url: str) -> None:
    with pytest.raises(Unreachable):
        await connect(url, timeout=1.0)


async def test_something_that_is_no_nats_server(server: Server, connect: Connect) -> None:
    with pytest.raises(Unreachable) as caught:
        await connect(f"127.0.0.1:{server.monitor_port}", timeout=1.0)
    assert re.search(r"no answer|greeting", str(caught.value))


async def test_nothing_is_printed(server: Server, connect: Connect, capfd: pytest.CaptureFixture[str]) -> None:
    server.stop()
    with pytest.raises(Unreachable):
        await connect(server.url)
    assert capfd.readouterr() == ("", "")
