"""Regular expressions that users write, in the language of RE2: a search takes time in proportion to the text, whatever they say.

Invariant: no expression of a user is given to `re`, where `^(a+)+$` and a name of thirty letters take minutes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


def check_pattern(value: str) -> str:
    """The expression as it is; raises ValueError when it is none, or is more than RE2 can do."""
    _compiled(value)
    return value


def matches(pattern: str, text: str) -> bool:
    """Whether it is found anywhere in the text."""
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    import re2  # noqa: PLC0415 - few manifests have one

    options = re2.Options()
    options.log_errors = False
    try:
        found: re.Pattern[str] = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        msg = f"not a regular expression of RE2, which has neither look-around nor references back: {why}"
        raise ValueError(msg) from None
    return found
