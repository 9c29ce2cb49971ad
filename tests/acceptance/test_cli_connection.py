"""Where the command connects to, and how it says that it cannot."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon.command import Command
from tests.support.server.certificates import Pki
from tests.support.server.process import Server

PASSWORDS = 'authorization { users: [ {user: ann, password: "pw"} ] }'


@pytest.fixture
def closed() -> Iterator[str]:
    """A URL at which nobody listens, taken so that nobody else will meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server that wants a password."""
    with Server(tmp_path / "guarded", config=PASSWORDS) as running:
        yield running


def context(home: Path, name: str, **values: str) -> None:
    """A natscli context, selected."""
    directory = home / ".config" / "nats"
    (directory / "context").mkdir(parents=True, exist_ok=True)
    (directory / "context" / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")
    (directory / "context.txt").write_text(name, encoding="utf-8")


@pytest.mark.parametrize("command", ["plan", "diff", "status", "apply --yes"])
def test_no_server_is_6_with_the_address(offline: Command, catalogue: Path, closed: str, command: str) -> None:
    ended = offline("-s", closed, *command.split(), "-f", catalogue, code=6)
    assert closed in ended.err
    assert ended.out == ""


def test_wrong_credentials_are_6(offline: Command, catalogue: Path, guarded: Server) -> None:
    for login in ({}, {"NATS_USER": "ann", "NATS_PASSWORD": "wrong"}, {"NATS_TOKEN": "geheim"}):
        ended = offline("-s", guarded.url, "plan", "-f", catalogue, code=6, environ=login)
        assert "refused the login" in ended.err
        assert "geheim" not in ended.err


def test_tls_without_trust_is_6(offline: Command, catalogue: Path, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    with Server(tmp_path / "secure", config=pki.block()) as server:
        url = server.url.replace("nats://127.0.0.1", "tls://localhost")
        assert "--tlsca" in offline("-s", url, "plan", "-f", catalogue, code=6).err
        offline("-s", url, "--tlsca", pki.ca, "plan", "-f", catalogue)


def test_a_denied_subject_is_6_and_named(offline: Command, catalogue: Path, tmp_path: Path) -> None:
    user = '{user: u, password: "pw", permissions: {publish: {deny: ["$JS.API.STREAM.LIST"]}}}'
    with Server(tmp_path / "denying", config=f"accounts {{ A {{ jetstream: enabled, users: [{user}] }} }}") as server:
        login = {"NATS_USER": "u", "NATS_PASSWORD": "pw"}
        ended = offline("-s", server.url, "plan", "-f", catalogue, code=6, environ=login)
        assert "$JS.API.STREAM.LIST" in ended.err


def test_jetstream_switched_off_is_said(offline: Command, catalogue: Path, tmp_path: Path) -> None:
    accounts = 'accounts { A { users: [{user: u, password: "pw"}] } }'
    with Server(tmp_path / "without", config=accounts) as server:
        login = {"NATS_USER": "u", "NATS_PASSWORD": "pw"}
        ended = offline("-s", server.url, "plan", "-f", catalogue, code=1, environ=login)
        assert "JetStream not enabled" in ended.err


def test_flag_beats_environment_beats_selected_context(offline: Command, catalogue: Path, server: Server, closed: str) -> None:
    context(offline.home, "mine", url=server.url)
    offline("plan", "-f", catalogue)
    offline("plan", "-f", catalogue, code=6, environ={"NATS_URL": closed})
    offline("-s", server.url, "plan", "-f", catalogue, environ={"NATS_URL": closed})


def test_contexts_by_flag_and_by_environment(offline: Command, catalogue: Path, guarded: Server, closed: str) -> None:
    context(offline.home, "good", url=guarded.url, user="ann", password="pw")
    context(offline.home, "bad", url=closed)
    offline("--context", "good", "plan", "-f", catalogue)
    offline("plan", "-f", catalogue, environ={"NATS_CONTEXT": "good"})
    offline("plan", "-f", catalogue, code=6)


def test_an_environment_of_the_manifests_names_the_server(offline: Command, catalogue: Path, server: Server, closed: str) -> None:
    def declare(spec: str) -> None:
        text = f"apiVersion: reconciler/v1\nkind: Environment\nmetadata: {{name: prod}}\nspec: {spec}\n"
        (catalogue / "env.yaml").write_text(text, encoding="utf-8")

    def plan(*flags: str, code: int = 0, **environ: str) -> str:
        return offline(*flags, "plan", "-f", str(catalogue), "--env", "prod", code=code, environ=environ).err

    declare(f'{{url: "{server.url}"}}')
    assert "which counts more" not in plan() + plan(NATS_URL=server.url) + plan("-s", closed, code=6)
    said = f"environment prod names the server {server.url}, but NATS_URL is set, which counts more: connecting to {closed}"
    assert said in plan(code=6, NATS_URL=closed)
    declare("{context: prod}")
    said = f"environment prod names the context prod, but NATS_URL is set, which counts more: connecting to {server.url}"
    assert said in plan(NATS_URL=server.url)
    assert "unknown NATS context" in plan(code=64)
    context(offline.home, "prod", url=server.url)
    context(offline.home, "selected", url=closed)
    plan()
    plan("--context", "selected", code=6)


def test_another_cluster_than_expected_is_refused(offline: Command, catalogue: Path, server: Server) -> None:
    text = "apiVersion: reconciler/v1\nkind: Environment\nmetadata: {name: prod}\nspec: {expect: {cluster: prod-eu}}\n"
    (catalogue / "env.yaml").write_text(text, encoding="utf-8")
    ended = offline("-s", server.url, "plan", "-f", catalogue, "--env", "prod", code=3)
    assert "prod-eu" in ended.err


def test_an_environment_must_be_chosen_once_there_is_one(offline: Command, catalogue: Path) -> None:
    text = "apiVersion: reconciler/v1\nkind: Environment\nmetadata: {name: prod}\nspec: {}\n"
    (catalogue / "env.yaml").write_text(text, encoding="utf-8")
    offline("validate", "-f", catalogue, code=4)
    offline("validate", "-f", catalogue, "--env", "prod")
    offline("validate", "-f", catalogue, "--env", "staging", code=4)
