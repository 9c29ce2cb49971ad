"""Canonical YAML is read back as what was written, also by a strict reader."""

from __future__ import annotations

import pytest

from reconciler.manifests.syntax.document import Text
from reconciler.manifests.syntax.yaml import parse_yaml
from reconciler.render.yaml import dump

TRICKY = ["y", "N", "no", "1e3", "1.5e3", "0755", "1:30", "1_000", "=", "~", "true", ".5", "+1", "-", "2026-01-01", "plain", ""]


@pytest.mark.parametrize("text", TRICKY)
def test_text_stays_text(text: str) -> None:
    parsed = parse_yaml(Text("f", dump({"kind": text, text or "k": [text]}).encode()))
    assert not parsed.problems
    assert parsed.documents[0].value == {"kind": text, text or "k": [text]}
