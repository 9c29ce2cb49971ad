"""Where each setting comes from, natscli's contexts, and what is never printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reconciler.errors import Unreachable, UsageError
from reconciler.jetstream.transport.servers import ServerList
from reconciler.jetstream.transport.settings import FLAGS, Resolved, redact, resolve


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose natscli directory has the contexts `prod` and `lab`, none selected."""
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    prod = {
        "url": "nats://u:pw@prod:4222",
        "creds": "$KEYS/prod.creds",
        "jetstream_domain": "hub",
        "tls_first": True,
        "color_scheme": "red",
    }
    (folder / "prod.json").write_text(json.dumps(prod))
    (folder / "lab.json").write_text(json.dumps({"url": "lab:4222", "user": "ann", "password": "s3cret", "token": ""}))
    return {"XDG_CONFIG_HOME": str(tmp_path), "KEYS": "/keys"}


def origin(resolved: Resolved, name: str) -> tuple[str, str]:
    return next((value.value, value.origin) for value in resolved.view if value.name == name)


def test_defaults() -> None:
    resolved = resolve({}, {"HOME": "/nowhere"}, None)
    assert resolved.settings.servers == ("nats://127.0.0.1:4222",)
    assert resolved.settings.timeout == 5.0
    assert origin(resolved, "server") == ("nats://127.0.0.1:4222", "default")
    assert {value.name for value in resolved.view} == set(FLAGS)


def test_a_user_without_a_name_and_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, or as a service under a user of its own."""

    def nobody(_: int) -> object:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert origin(resolve({}, {}, None), "server") == ("nats://127.0.0.1:4222", "default")
    with pytest.raises(UsageError, match=r"no /\.config/nats/context/prod\.json"):
        resolve({}, {}, "prod")


def test_flag_beats_environment_beats_context_beats_default(home: dict[str, str]) -> None:
    environ = {**home, "NATS_URL": "nats://env:1, nats://env:2"}
    assert origin(resolve({"server": "nats://flag:1"}, environ, "prod"), "server") == ("nats://flag:1", "flag")
    from_environ = resolve({"server": None}, environ, "prod")
    assert from_environ.settings.servers == ("nats://env:1", "nats://env:2")
    assert origin(from_environ, "server")[1] == "env NATS_URL"
    from_context = resolve({}, home, "prod")
    assert origin(from_context, "server") == ("nats://***@prod:4222", "context prod")
    assert from_context.settings.servers == ("nats://u:pw@prod:4222",)
    assert (from_context.settings.js_domain, from_context.settings.tls_first) == ("hub", True)
    assert from_context.settings.creds == "/keys/prod.creds"


def test_context_by_flag_by_environment_or_selected(home: dict[str, str]) -> None:
    (Path(home["XDG_CONFIG_HOME"]) / "nats" / "context.txt").write_text("lab\n")
    assert resolve({}, home, None).context == "lab"
    assert resolve({}, {**home, "NATS_CONTEXT": "prod"}, None).context == "prod"
    assert resolve({}, {**home, "NATS_CONTEXT": "prod"}, "lab").context == "lab"


def test_a_login_given_by_flag_replaces_the_contexts_other_login(home: dict[str, str]) -> None:
    settings = resolve({"token": "t0ken"}, home, "lab").settings
    assert (settings.token, settings.user, settings.password) == ("t0ken", "", "")
    assert resolve({"user": "bob"}, home, "lab").settings.password == "s3cret"


def test_no_secret_is_shown(home: dict[str, str]) -> None:
    flags: dict[str, str | bool | None] = {
        "token": "t0ken",
        "server": "nats://me:pa@ss@a:1,tok@b:2",
        "jwt": "j0t",
        "seed": "SUAX",
    }
    resolved = resolve(flags, home, "lab")
    shown = " ".join(value.value for value in resolved.view) + repr(resolved.settings)
    for secret in ("t0ken", "pa@ss", "ss@", "tok@", "j0t", "SUAX", "s3cret"):
        assert secret not in shown
    assert redact("cannot reach nats://me:pw@host:1 now") == "cannot reach nats://***@host:1 now"
    assert redact("a@b: http://127.0.0.1:80/x?y=1, nats://[::1]:4222") == "***@b: http://127.0.0.1:80/x?y=1, nats://[::1]:4222"


@pytest.mark.parametrize("odd", ["/", ",", "#", "?", '"', " ", "@", "://x"])
def test_no_part_of_a_password_is_shown_whatever_is_in_it(home: dict[str, str], odd: str) -> None:
    url = f"nats://me:first{odd}second@host:4222"
    shown = [redact(url), redact(f"no route to {url}: refused"), *(redact(part) for part in url.split(","))]
    resolved = resolve({"server": url}, home, None)
    shown += [*(value.value for value in resolved.view), repr(resolved.settings)]
    try:
        ServerList(resolved.settings.servers)
    except Unreachable as error:
        shown.append(str(error))
    for text in shown:
        assert not re.search("first|second", text), text
    assert redact(url).endswith("***@host:4222")


def test_what_is_no_url_because_of_its_password_says_how_it_is_written() -> None:
    with pytest.raises(Unreachable, match=r"not a server URL.*%2F"):
        ServerList(["nats://me:first/second@host:4222"])


def test_a_seed_in_the_place_of_its_file_is_not_repeated(home: dict[str, str]) -> None:
    seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
    with pytest.raises(UsageError, match="--nkey is the name of a file") as raised:
        resolve({"nkey": seed}, home, None)
    assert seed not in str(raised.value) + redact(f"no such file: {seed}")


def test_an_unknown_context_lists_the_known_ones(home: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r'unknown NATS context "stage".*known contexts: lab, prod'):
        resolve({}, home, "stage")


@pytest.mark.parametrize("name", ["../prod", "a/b", "a\\b", ".."])
def test_a_context_name_cannot_leave_its_directory(home: dict[str, str], name: str) -> None:
    with pytest.raises(UsageError, match="not a NATS context name"):
        resolve({}, home, name)


@pytest.mark.parametrize(("content", "says"), [("{oops", "is not valid JSON: .*prod.json:1:2"), ("[]", "is not a JSON object")])
def test_a_broken_context_is_named(home: dict[str, str], content: str, says: str) -> None:
    (Path(home["XDG_CONFIG_HOME"]) / "nats" / "context" / "prod.json").write_text(content)
    with pytest.raises(UsageError, match=says):
        resolve({}, home, "prod")


def test_a_proxy_is_refused_rather_than_ignored(home: dict[str, str]) -> None:
    path = Path(home["XDG_CONFIG_HOME"]) / "nats" / "context" / "prod.json"
    path.write_text('{"url": "nats://x:1", "socks_proxy": "socks5://p"}')
    with pytest.raises(UsageError, match="SOCKS proxy"):
        resolve({}, home, "prod")


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("1m", 60.0), ("2", 2.0), ("1.5s", 1.5)])
def test_timeouts(text: str, seconds: float) -> None:
    assert resolve({"timeout": text}, {}, None).settings.timeout == seconds


@pytest.mark.parametrize(
    "flags",
    [{"timeout": "soon"}, {"timeout": "0s"}, {"server": ","}, {"tlscert": "c"}, {"jwt": "j"}],
    ids=lambda flags: next(iter(flags)),
)
def test_what_cannot_work_is_a_usage_error(flags: dict[str, str | bool | None]) -> None:
    with pytest.raises(UsageError):
        resolve(flags, {}, None)
