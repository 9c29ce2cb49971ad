"""What a document wants beyond the configuration: annotations and the fields of a spec that never reach the server.

Invariant: equal intents are one object, because 100,000 documents that want nothing special must share it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from reconciler.manifests.findings import Finding
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent, ResourceSpec, State
from reconciler.model.kinds.consumer import ConsumerSpec

_OnMissing = Literal["resume", "policy", "block"]
_PREFIX = "reconciler/"
_FLAGS = ("reconciler/adopt", "reconciler/suspend")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "reconciler/allow": ("recreate", "data-loss", "position-loss", "replicas"),
    "reconciler/prevent": ("update", "delete"),
}


def read_annotations(annotations: Mapping[str, str], findings: list[Finding]) -> Intent:
    """What the annotations ask for; those of others are none of our business."""
    wanted: dict[str, frozenset[str]] = {}
    for name, value in annotations.items():
        path = ("metadata", "annotations", name)
        if name in _FLAGS:
            wanted[name] = frozenset({value})
            if value not in ("true", "false"):
                findings.append(Finding(path, "bad-annotation", f'{quoted(value)} must be "true" or "false"'))
        elif name in _WORDS:
            known = _WORDS[name]
            wanted[name] = frozenset(filter(None, (word.strip() for word in value.split(","))))
            for word in sorted(wanted[name].difference(known)):
                message = f"{quoted(word)} is not one of {', '.join(known)}{suggest(word, known)}"
                findings.append(Finding(path, "bad-annotation", message))
        elif name.startswith(_PREFIX):
            hint = suggest(name, (*_FLAGS, *_WORDS))
            findings.append(Finding(path, "unknown-annotation", f"unknown annotation {quoted(name)}{hint}"))
    return _annotated(tuple(sorted(wanted.items()))) if wanted else DEFAULT_INTENT


@functools.lru_cache(maxsize=1024)
def _annotated(wanted: tuple[tuple[str, frozenset[str]], ...]) -> Intent:
    words = dict(wanted)
    nothing: frozenset[str] = frozenset()
    prevented = words.get("reconciler/prevent", nothing)
    return Intent(
        adopt="true" in words.get("reconciler/adopt", nothing),
        suspend="true" in words.get("reconciler/suspend", nothing),
        allow=words.get("reconciler/allow", nothing),
        prevent_update="update" in prevented,
        prevent_delete="delete" in prevented,
    )


def with_spec(intent: Intent, spec: ResourceSpec) -> Intent:
    """The intent with what the spec adds to the annotations."""
    if isinstance(spec, ConsumerSpec):
        return _extended(intent, spec.state, spec.ignore, spec.pause_until or "", spec.on_missing)
    return _extended(intent, spec.state, spec.ignore, "", "resume")


@functools.lru_cache(maxsize=1024)
def _extended(intent: Intent, state: str, ignore: tuple[str, ...], pause_until: str, on_missing: _OnMissing) -> Intent:
    extended = replace(intent, state=State(state), ignore=ignore, pause_until=pause_until, on_missing=on_missing)
    return intent if extended == intent else extended
