"""Resources as canonical YAML: one text per meaning.

Invariant: keys come in the order of the field tables, values in canonical units; equal resources give equal text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from reconciler.model.identity import API_VERSION, Key
from reconciler.model.kinds.fields import table
from reconciler.plan.comparing.display import spec_model


class _Dumper(yaml.SafeDumper):
    """Block style, lists indented under their key, no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002 - as PyYAML has it
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - as PyYAML has it
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    """Plain, unless a strict reader would take it for something else than text."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="'" if _AMBIGUOUS.fullmatch(value) else None)


_AMBIGUOUS = re.compile(r"[yYnN=]|[+-]?\.?\d[\d_.eE+:-]*")
_Dumper.add_representer(str, _text)


def resource(key: Key, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest document of a resource; `spec` has YAML names."""
    where = {"stream": key.stream, "domain": key.domain}
    return {
        "apiVersion": API_VERSION,
        "kind": key.kind,
        "metadata": {"name": key.name},
        "spec": {name: value for name, value in where.items() if value} | in_order(key, spec),
    }


def in_order(key: Key, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec in the order of the field table; what is not in it comes last."""
    ranks = {column.name: rank for rank, column in enumerate(table(spec_model(key.kind)).values())}
    return {name: spec[name] for name in sorted(spec, key=lambda name: (ranks.get(name, len(ranks)), name))}


def dump(document: Mapping[str, Any]) -> str:
    """One document as text."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)
    return text
