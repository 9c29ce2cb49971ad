"""A hundred thousand resources are kept: each must take as little memory as it can."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from reconciler.manifests.files.loader import Loader
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveConsumer, LiveStream
from tests.support.values.build import OLD, consumer, consumer_info, marked, stream, stream_info

MANY = 200
SPARE = 1_000
"""Bytes of an object with its names and digests."""
CONSUMER = consumer_info("S", marked(consumer("S", "c", {"description": "d" * 200})))
STREAM = stream_info(marked(stream("S", {"description": "d" * 200})))


@pytest.mark.parametrize(
    "make",
    [
        lambda: canonical(STREAM),
        lambda: LiveConsumer.seen(CONSUMER),
        lambda: LiveStream.seen(STREAM),
    ],
    ids=["canonical JSON", "a consumer by INFO", "a stream"],
)
def test_what_is_kept_takes_little_more_than_its_length(make: Callable[[], Any]) -> None:
    make()
    tracemalloc.start()
    try:
        kept = [make() for _ in range(MANY)]
        each = tracemalloc.get_traced_memory()[0] / MANY
    finally:
        tracemalloc.stop()
    assert len(kept) == MANY
    assert each < len(orjson.dumps(STREAM)) + SPARE


def test_a_loaded_manifest_takes_little_more_than_its_length(tmp_path: Path) -> None:
    document = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {{name: S{}}}\nspec: {{subjects: [s{}], description: {}}}\n"
    for name in ("warm-up", "measured"):
        texts = (document.format(number, number, "d" * 200) for number in range(MANY))
        (tmp_path / f"{name}.yaml").write_text("---\n".join(texts), encoding="utf-8")
    Loader().load([str(tmp_path / "warm-up.yaml")])
    tracemalloc.start()
    try:
        desired = Loader().load([str(tmp_path / "measured.yaml")]).desired
        each = tracemalloc.get_traced_memory()[0] / MANY
    finally:
        tracemalloc.stop()
    assert len(desired.resources) == MANY
    assert each < max(len(declared.wire) for declared in desired.resources.values()) + 2 * SPARE


def test_two_looks_at_a_consumer_share_what_has_not_changed() -> None:
    names = {"stream_name": "S", "name": "c", "created": OLD, "config": CONSUMER["config"]}
    answer = names | {"delivered": CONSUMER["delivered"], "ack_floor": CONSUMER["ack_floor"]}  # in the servers' order
    first = LiveConsumer.seen(answer)
    again = first.seen_again(orjson.dumps(answer | {"num_pending": 7}))
    assert again is not None
    assert again.head is first.head
    assert len(again.state) < len(again.head)
    assert again.info["num_pending"] == 7
