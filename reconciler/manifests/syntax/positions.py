"""From a document and a field path to line and column, reading again only the documents that are at fault.

Invariant: finding positions is a courtesy with a budget; past it a problem stands at the first line of its document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.files.source import SourceFile
from reconciler.manifests.findings import Fault, to_problems
from reconciler.manifests.syntax.document import Document
from reconciler.manifests.syntax.texts import cut, parse_text
from reconciler.model.identity import Location

_READ_AGAIN = 200
"""Documents."""


class Positions:
    """Finds documents again, by where they were read from."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = {file.path: file for file in files}
        self._left = _READ_AGAIN

    def resolve(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Each fault as a problem."""
        ordered = sorted(
            faults, key=lambda fault: (fault.location.file, fault.location.line, fault.location.index, fault.location.item or 0)
        )
        for location, group in groupby(ordered, key=lambda fault: fault.location):
            yield from to_problems(self._document(location), (fault.finding for fault in group))

    def _document(self, location: Location) -> Document:
        self._left -= 1
        file = self._files.get(location.file)
        if self._left >= 0 and file is not None:
            try:
                pieces = cut(location.file, file.read())
            except InvalidInput:  # gone since; the next pass reports that
                pieces = []
            for piece in reversed([piece for piece in pieces if piece.index <= location.index]):
                found = next((document for document in parse_text(piece).documents if document.location == location), None)
                if found:
                    return found
                break
        return Document({}, location)
