"""The table of a chart's values, from the comments in its `values.yaml`.

Invariant: every value is in the table once: with its group, if the group is what is explained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "reconciler"
BEGIN, END = "<!-- values.yaml, written by `make docs` -->", "<!-- end of values.yaml -->"
_MARK = "# -- "


def readme() -> str:
    """The chart's README with its table as `values.yaml` says."""
    before, _, rest = (CHART / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *_table(CHART / "values.yaml"), END + after])


def _table(values: Path) -> Iterator[str]:
    text = values.read_text(encoding="utf-8")
    yield from ("", "| value | default | |", "|---|---|---|")
    for path, default, meaning in _rows(yaml.compose(text, yaml.SafeLoader), text.splitlines(), ""):
        yield f"| `{path}` | `{json.dumps(default, ensure_ascii=False)}` | {meaning.replace('|', chr(92) + '|')} |"
    yield ""


def _rows(group: Any, lines: list[str], above: str) -> Iterator[tuple[str, Any, str]]:  # noqa: ANN401 - a node has no public type
    for key, value in group.value:
        path = f"{above}{key.value}"
        comment = lines[key.start_mark.line - 1].strip()
        if comment.startswith(_MARK):
            yield path, yaml.SafeLoader("").construct_document(value), comment.removeprefix(_MARK)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _rows(value, lines, f"{path}.")
        else:
            msg = f"values.yaml:{key.start_mark.line + 1}: {path} needs a comment that begins with {_MARK!r}"
            raise ValueError(msg)
