"""Who is held back by whose failure, and who is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from reconciler.engine.apply.dependencies import Failures
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change

ORDERS, COPY, OTHER = (Key("Stream", name) for name in ("ORDERS", "COPY", "OTHER"))
BILLING = Key("Consumer", "billing", "ORDERS")
SOURCES = {"sources": [{"name": "ORDERS", "consumer": {"name": "feed", "deliver_subject": "d"}}]}


def _change(key: Key, action: Action, config: Mapping[str, Any] | None = None, **more: object) -> Change:
    wire = orjson.dumps(config or {})
    return Change(key=key, action=action, cause=Cause.MANIFEST, config=wire, live_config=wire, **more)  # type: ignore[arg-type]


CREATE, DELETE = Action.CREATE, Action.DELETE
CASES = [
    (_change(ORDERS, CREATE), _change(BILLING, CREATE), True),
    (_change(ORDERS, CREATE), _change(COPY, CREATE, SOURCES), True),
    (_change(ORDERS, CREATE), _change(OTHER, CREATE), False),
    (_change(BILLING, CREATE), _change(ORDERS, CREATE), False),
    (_change(Key("Consumer", "feed", "ORDERS"), CREATE), _change(COPY, CREATE, SOURCES), True),
    (_change(BILLING, CREATE), _change(COPY, CREATE, SOURCES), False),
    (_change(BILLING, DELETE), _change(ORDERS, DELETE), True),
    (_change(COPY, DELETE, SOURCES), _change(ORDERS, DELETE), True),
    (_change(ORDERS, DELETE), _change(BILLING, DELETE), False),
    (_change(BILLING, DELETE), _change(OTHER, DELETE), False),
    (_change(Key("KeyValue", "cfg"), CREATE), _change(COPY, CREATE, {"mirror": {"name": "KV_cfg"}}), True),
    (
        _change(Key("Stream", "ORDERS", "", "leaf"), CREATE),
        _change(COPY, CREATE, {"sources": [{"name": "ORDERS", "external": {"api": "$JS.leaf.API"}}]}),
        True,
    ),
    (_change(ORDERS, CREATE), _change(Key("WorkerPool", "p"), Action.UPDATE, touches=(BILLING,)), True),
    (
        _change(BILLING, Action.BLOCKED, wanted=DELETE),
        _change(ORDERS, DELETE),
        True,
    ),
]


@pytest.mark.parametrize(("failed", "other", "held"), CASES)
def test_a_failure_holds_back_its_dependants_only(failed: Change, other: Change, held: bool) -> None:
    failures = Failures()
    failures.add(failed, "failed")
    assert bool(failures.hold_back(other)) is held
    failures.remove(failed)
    assert failures.hold_back(other) == ""
