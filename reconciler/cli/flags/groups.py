"""The flags that several commands share.

Invariant: one description per flag; names, environment variables and meanings are the contract.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer

_FILES = "RECONCILER_FILE"


def _nats(text: str, *names: str) -> Any:  # noqa: ANN401 - typer's own
    """An option of natscli's; its environment variable is only named here, because contexts have a say, too."""
    return typer.Option(*names, help=text, rich_help_panel="Connection (as natscli)", show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFlags:
    """Where and how to connect: natscli's names, environment and contexts."""

    server: Annotated[str | None, _nats("NATS servers (env NATS_URL, default nats://127.0.0.1:4222)", "--server", "-s")] = None
    user: Annotated[str | None, _nats("User name (env NATS_USER)")] = None
    password: Annotated[str | None, _nats("Password (env NATS_PASSWORD)")] = None
    token: Annotated[str | None, _nats("Token (env NATS_TOKEN)")] = None
    creds: Annotated[str | None, _nats("Credentials file (env NATS_CREDS)")] = None
    nkey: Annotated[str | None, _nats("NKey seed file (env NATS_NKEY)")] = None
    jwt: Annotated[str | None, _nats("User JWT (env NATS_JWT)")] = None
    seed: Annotated[str | None, _nats("User seed (env NATS_SEED)")] = None
    tlscert: Annotated[str | None, _nats("TLS client certificate file (env NATS_CERT)")] = None
    tlskey: Annotated[str | None, _nats("TLS client key file (env NATS_KEY)")] = None
    tlsca: Annotated[str | None, _nats("TLS certificate authority file (env NATS_CA)")] = None
    tlsfirst: Annotated[bool, _nats("TLS handshake before anything else", "--tlsfirst")] = False
    timeout: Annotated[str | None, _nats("Longest wait for one answer (env NATS_TIMEOUT, default 5s)")] = None
    js_domain: Annotated[str | None, _nats("JetStream domain")] = None
    js_api_prefix: Annotated[str | None, _nats("JetStream API prefix")] = None
    js_event_prefix: Annotated[str | None, _nats("JetStream event prefix")] = None
    inbox_prefix: Annotated[str | None, _nats("Prefix of inbox subjects (default _INBOX)")] = None
    context: Annotated[str | None, _nats("natscli context (env NATS_CONTEXT)")] = None

    def settings(self) -> dict[str, str | bool | None]:
        """By natscli's names, as `jetstream.transport.settings.resolve` takes them."""
        names = [name for name in self.__slots__ if name != "context"]
        return {name.replace("_", "-"): getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlags:
    """Which manifests."""

    files: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            envvar=_FILES,
            show_default=False,
            help="File or directory of manifests, - for stdin; repeats",
        ),
    ] = field(default_factory=list)
    env: Annotated[str | None, typer.Option(envvar="RECONCILER_ENV", help="The environment, where manifests declare some")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFlags(SourceFlags):
    """The same, where a path may stand without -f."""

    paths: Annotated[list[str], typer.Argument(metavar="PATH", show_default=False, help="The same as -f PATH")] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        """Paths that are named take the place of those of the environment."""
        if self.paths:
            named = [] if self.files == os.environ.get(_FILES, "").split() else self.files
            object.__setattr__(self, "files", [*named, *self.paths])


PolicyName = Literal["create-only", "upsert-only", "sync"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What a plan may do."""

    target: Annotated[
        list[str], typer.Option(metavar="KEY", show_default=False, help="Only this resource (e.g. Stream/ORDERS); repeats")
    ] = field(default_factory=list)
    policy: Annotated[
        PolicyName | None,
        typer.Option(envvar="RECONCILER_POLICY", show_default=False, help="What may be done (default upsert-only)"),
    ] = None
    prune: Annotated[bool, typer.Option("--prune", help="Delete what is no longer declared: the same as --policy sync")] = False
    adopt: Annotated[bool, typer.Option("--adopt", envvar="RECONCILER_ADOPT", help="Take over what nobody owns")] = False
    take_from: Annotated[
        list[str],
        typer.Option(metavar="OWNER", show_default=False, help="Take over --target from this owner, with --adopt; repeats"),
    ] = field(default_factory=list)
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="WHAT=KEY",
            show_default=False,
            help="Allow recreate, data-loss, position-loss, replicas or delete for one resource; repeats",
        ),
    ] = field(default_factory=list)
    max_change_percent: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            envvar="RECONCILER_MAX_CHANGE_PERCENT",
            show_default=False,
            help="Refuse to change a larger part of what is owned (default 30)",
        ),
    ] = None


FullFlag = Annotated[bool, typer.Option("--full", help="Show every change, also where more than 200 are alike")]

TextOrJson = Annotated[Literal["text", "json"], typer.Option("--format", "-o", help="How to print")]

FENCE = "30s"
FenceFlag = Annotated[
    str,
    typer.Option(
        "--fence",
        metavar="D",
        envvar="RECONCILER_FENCE",
        help="Wait this long for a proof that no change of the leader before can still land",
    ),
]
