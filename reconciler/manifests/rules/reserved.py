"""Names and subjects that are kept for ourselves and for the server, where a manifest may not use them."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.findings import Finding, Path
from reconciler.manifests.suggest import quoted
from reconciler.model.sourcing import PLACEHOLDER
from reconciler.procedures.holds import HOLD_PREFIX

_SUBJECTS = (PLACEHOLDER, "_reconciler.")
_DURABLES = (HOLD_PREFIX, "JS_SRC_", "JS_MIRROR_")


def check_subject(path: Path, subject: str) -> Iterator[Finding]:
    """No subject of a manifest begins like those that migrations of sources use."""
    if subject.startswith(_SUBJECTS):
        begin = subject.split(".", 1)[0] + "."
        message = f"{quoted(subject)}: subjects that begin with {begin} are kept for the reconciler's own use; choose another"
        yield Finding(path, "reserved-subject", message)


def check_durable(path: Path, name: str) -> Iterator[Finding]:
    """No durable that we keep is named like those that others keep."""
    if name.startswith(_DURABLES):
        whose = "the reconciler's own use" if name.startswith(HOLD_PREFIX) else "what the server makes for itself"
        yield Finding(path, "reserved-name", f"{quoted(name)} is a name for {whose}; choose another")
