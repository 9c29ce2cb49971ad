"""What somebody does who was shown a way out: takes the flags out of it, or writes the annotation that it names."""

from __future__ import annotations

import re
import shlex

from tests.support.account.guarded import Guarded
from tests.support.account.wire import Wire
from tests.support.values.manifests import written


def quoted(way_out: str) -> list[str]:
    """What stands between backticks, to be copied."""
    found = re.findall(r"`([^`]+)`", way_out)
    assert found, way_out
    return found


def flags(way_out: str) -> list[str]:
    """The flags it names first, as a shell takes them."""
    return shlex.split(next(text for text in quoted(way_out) if text.startswith("--")))


def annotated(document: str, notes: str) -> str:
    """The document with annotations: `notes` is as after `annotations:`, without braces."""
    metadata, spec = document.split("}\nspec:", 1)
    return f"{metadata}, annotations: {{{notes}}}}}\nspec:{spec}"


def left_as_it_is(guarded: Guarded, key: str, *documents: str) -> str:
    """What the status tells whoever asks why a resource that is no longer declared is still there."""
    rows = guarded.cli("status", "-f", written(guarded.directory, *documents), "--format", "json").json["resources"]
    message = next(str(row["message"]) for row in rows if row["key"] == key)
    return message.partition(" (")[2].removesuffix(")")


async def streams(wire: Wire) -> set[str]:
    """The streams there are, but for buckets."""
    return {name for name in (await wire.expect("STREAM.NAMES"))["streams"] or () if not name.startswith("KV_")}
