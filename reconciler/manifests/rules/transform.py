"""Rules for subject transforms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.manifests.findings import Finding, Path
from reconciler.manifests.suggest import quoted

_WILDCARD = re.compile(r"\{\{\s*[wW]ildcard\s*\(\s*(\d{1,9})\s*\)\s*\}\}|^\$(\d{1,9})$")


def check_transform(path: Path, transform: Mapping[str, Any]) -> Iterator[Finding]:
    """The destination may only use the wildcards that the source has."""
    wildcards = transform.get("src", ">").split(".").count("*")
    for token in transform["dest"].split("."):
        for match in _WILDCARD.finditer(token):
            if not 1 <= int(match[1] or match[2]) <= wildcards:
                message = f"{quoted(match[0])} has no counterpart: src has {wildcards} `*`"
                yield Finding((*path, "dest"), "bad-transform", message)


def pattern_of(dest: str) -> str:
    """The subjects that a destination can become, as a subject with wildcards."""
    return ".".join("*" if "{{" in token or token.startswith("$") else token for token in dest.split("."))
