"""The JetStream API as such: where it is reached, and its newest level."""

from __future__ import annotations

JETSTREAM_API = "$JS.API"
JETSTREAM_EVENTS = "$JS.EVENT"
LATEST_LEVEL = 5
"""The newest API level whose fields can all be declared."""


def api_prefix(domain: str, home: str = JETSTREAM_API) -> str:
    """Where the API of a domain is reached; `home` is the prefix for the domain we are connected to."""
    return f"$JS.{domain}.API" if domain else home
