"""Files cut into texts that can be parsed apart from each other, and the choice of the parser for each.

Invariant: parsing the pieces gives the documents, lines and numbers that parsing the whole file gives.
"""

from __future__ import annotations

import re

from reconciler.manifests.files.foreign import opened
from reconciler.manifests.syntax.document import Parsed, Text
from reconciler.manifests.syntax.encoding import BOM, document_marks
from reconciler.manifests.syntax.json import looks_like_json, parse_json
from reconciler.manifests.syntax.yaml import parse_yaml

# Small enough that locating one field in a piece is cheap, large enough that sending it to another process is.
PIECE = 64 * 1024
_CONTENT = re.compile(rb"^[ \t]*[^\s#]", re.MULTILINE)


def parse_text(text: Text) -> Parsed:
    """The documents of a text. JSON is YAML, and ten times faster to read as what it is, whatever the file is called."""
    if looks_like_json(text.data):
        parsed = parse_json(text)
        if text.file.endswith(".json") or not any(problem.code == "json-syntax" for problem in parsed.problems):
            return opened(parsed)
    return opened(parse_yaml(text))


def cut(file: str, data: bytes) -> list[Text]:
    """Pieces of about PIECE bytes, each of whole documents."""
    data = data.removeprefix(BOM)
    if len(data) <= PIECE or _json(file, data) or not _cuttable(data):
        return [Text(file, data)]
    pieces: list[Text] = []
    begin, line, index = 0, 1, 0
    documents = 0
    for end in document_marks(data):
        if documents == 0 and _CONTENT.search(data, 0, end):
            documents = 1
        if end - begin >= PIECE:
            pieces.append(Text(file, data[begin:end], line, index))
            line += data.count(b"\n", begin, end)
            begin, index = end, documents
        documents += 1
    pieces.append(Text(file, data[begin:], line, index))
    return pieces


def _json(file: str, data: bytes) -> bool:
    """Whether only a JSON parser should see the whole; YAML may begin with a brace, too, but no JSON has such a line."""
    return looks_like_json(data) and (file.endswith(".json") or b"\n---" not in data)


def _cuttable(data: bytes) -> bool:
    """False with directives or explicit document ends, where only a parser can tell how many documents there are."""
    return not (data.startswith((b"%", b"...")) or b"\n%" in data or b"\n..." in data)
