"""How wide a text is drawn, by the widths of Helvetica (which Arial and Liberation Sans share), in parts of the font's size."""

from __future__ import annotations

import unicodedata

_BY_WIDTH = {
    0.222: "ijl'",
    0.278: " !,./:;I[\\]ft|",
    0.333: "()-`r",
    0.389: "*",
    0.5: "Jckstvxyz",
    0.556: "#$0123456789?L_abdeghnopqu",
    0.584: "+<=>~",
    0.611: "FTZ",
    0.667: "&ABEKPSVXY",
    0.722: "CDHNRUw",
    0.778: "GOQ",
    0.833: "Mm",
    0.889: "%",
    0.944: "W",
    1.015: "@",
}
_WIDTHS = {character: width for width, characters in _BY_WIDTH.items() for character in characters}
_OTHER = 0.75
_WIDE = 1.05
_SPARE = 1.04
"""Where none of these fonts is there, another one is taken."""


def text_width(text: str, size: float) -> float:
    """An upper bound in practice."""
    return sum(map(_width, text)) * size * _SPARE


def _width(character: str) -> float:
    known = _WIDTHS.get(character)
    if known is not None:
        return known
    if unicodedata.combining(character):
        return 0.0
    return _WIDE if unicodedata.east_asian_width(character) in "WF" else _OTHER
