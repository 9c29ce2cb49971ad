"""Permissions as a piece of nats-server configuration, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reconciler.model.identity import API_VERSION
from reconciler.plan.permissions import Grant, Grants


def permissions_conf(grants: Grants, title: str) -> Iterator[str]:
    """To be pasted into the block of a user; each subject with its reason."""
    yield f"# {title}"
    yield "permissions: {"
    yield from _side("publish", grants.publish)
    yield from _side("subscribe", grants.subscribe)
    yield "}"


def permissions_document(grants: Grants, owner: str, modes: list[str]) -> dict[str, Any]:
    """The same for programs."""
    sides = {"publish": grants.publish, "subscribe": grants.subscribe}
    return {
        "apiVersion": API_VERSION,
        "kind": "Permissions",
        "owner": owner,
        "modes": modes,
        "permissions": {side: {"allow": [grant.subject for grant in found]} for side, found in sides.items()},
        "grants": [
            {"operation": side, "subject": grant.subject, "why": grant.why, "reread": grant.reread, "proof": grant.proof}
            for side, found in sides.items()
            for grant in found
        ],
    }


def _side(name: str, grants: tuple[Grant, ...]) -> Iterator[str]:
    yield f"  {name}: {{"
    yield "    allow: ["
    width = max((len(json.dumps(grant.subject)) for grant in grants), default=0)
    for grant in grants:
        yield f"      {json.dumps(grant.subject):<{width}}  # {grant.why}"
    yield "    ]"
    yield "  }"
