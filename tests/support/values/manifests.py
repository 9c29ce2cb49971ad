"""Documents for tests, loaded the way a user would: from files."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.files.loader import Loaded, Loader

HEADER = "apiVersion: reconciler/v1\n"


def document(text: str) -> str:
    """One document, its apiVersion added."""
    return HEADER + textwrap.dedent(text).strip() + "\n"


def written(directory: Path, *documents: str, name: str = "x.yaml") -> Path:
    """A file of documents."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n".join(document(text) for text in documents))
    return path


def load(directory: Path, *documents: str, env: str | None = None) -> Loaded:
    """What these documents declare together."""
    written(directory, *documents)
    return Loader().load([str(directory)], env)


def refused(directory: Path, *documents: str, env: str | None = None) -> list[Problem]:
    """The errors that these documents are refused with."""
    with pytest.raises(InvalidInput) as caught:
        load(directory, *documents, env=env)
    return [problem for problem in caught.value.problems if problem.severity == "error"]


def codes(problems: list[Problem]) -> list[str]:
    """Their codes."""
    return [problem.code for problem in problems]


def warnings(loaded: Loaded) -> list[str]:
    """The codes of the warnings."""
    return [problem.code for problem in loaded.warnings]
