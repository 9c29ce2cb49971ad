"""What stands beside manifests of ours: documents that are somebody else's, and lists, whose items are documents.

Invariant: only what cannot be a document of ours that is misspelled is skipped, and never in silence: what was declared, and is
skipped all at once, would be no longer declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from reconciler.errors import Problem
from reconciler.manifests.envelope import OTHER_KINDS
from reconciler.manifests.findings import Finding, to_problems, warning
from reconciler.manifests.nack.fields import NACK_VERSION
from reconciler.manifests.suggest import quoted, suggest
from reconciler.manifests.syntax.document import Document, Parsed, not_a_mapping
from reconciler.model.identity import API_VERSION, KINDS

_LIST, _ITEMS = ("v1", "List"), "items"
_VERSION = re.compile(r"([a-z0-9.-]+/)?v[0-9]+((alpha|beta)[0-9]+)?")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
_KUSTOMIZE = "kustomize.config.k8s.io/"
_NACK_ACCOUNT = "Account"


def opened(parsed: Parsed) -> Parsed:
    """The same with the items of lists in their place."""
    if not any(map(_is_list, parsed.documents)):
        return parsed
    problems = list(parsed.problems)
    documents = [one for document in parsed.documents for one in _items(document, problems)]
    return Parsed(tuple(documents), tuple(problems))


def _is_list(document: Document) -> bool:
    return (document.value.get("apiVersion"), document.value.get("kind")) == _LIST


def _items(document: Document, problems: list[Problem]) -> Iterator[Document]:
    if not _is_list(document):
        yield document
        return
    items = document.value.get(_ITEMS)
    if not isinstance(items, list):
        problems += to_problems(document, [Finding((_ITEMS,), "wrong-type", "the items of a List are a list of documents")])
        return
    for number, item in enumerate(items):
        if isinstance(item, dict):
            location = replace(document.location, item=number)
            yield replace(document, value=item, location=location)
        else:
            problems += to_problems(document, [Finding((_ITEMS, number), "wrong-type", not_a_mapping(item))])


def skipped(document: Document) -> Finding | None:
    """Why a document is left alone, which is somebody else's; None for one that is ours, or may be meant to be."""
    value = document.value
    version, kind = value.get("apiVersion"), value.get("kind")
    if version is None or str(version).startswith(_KUSTOMIZE):
        name = PurePath(document.location.file).name
        return warning((), "skipped", f"{name} is for kustomize") if name in _KUSTOMIZATIONS else None
    if version == NACK_VERSION and kind == _NACK_ACCOUNT:
        message = "NACK's Account is not used: all resources go over the one connection that the reconciler is given"
        return warning(("kind",), "skipped", message)
    if not _is_foreign(value):
        return None
    return warning(("kind",), "skipped", f"{quoted(kind)} of {quoted(version)} is nothing of ours")


def _is_foreign(value: Mapping[str, object]) -> bool:
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or not _VERSION.fullmatch(version):
        return False
    if kind == _LIST[1]:
        return False  # within another one
    known = (*KINDS, *OTHER_KINDS)
    return kind not in known and not suggest(kind, known) and not suggest(version, (API_VERSION, NACK_VERSION))
