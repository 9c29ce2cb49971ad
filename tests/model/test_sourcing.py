"""Source entries: what the server knows them by, and where their durables deliver."""

from __future__ import annotations

import itertools

from reconciler.model.identity import Key
from reconciler.model.sourcing import deliver_subject, fresh_ephemeral, identity_of


def test_an_ephemeral_entry_has_another_identity_for_every_origin_and_every_start() -> None:
    made = [fresh_ephemeral({"name": "S"}, start, ("s.>",), seed) for start in (5, 6) for seed in ("one", "other")]
    assert len({identity_of(entry or {}) for entry in [*made, {"name": "S"}]}) == 5
    assert [entry and entry["opt_start_seq"] for entry in made] == [5, 5, 6, 6]
    assert fresh_ephemeral({"name": "S"}, 5, (">",), "one") is None, "everything leaves no room for another one"


def test_no_two_durables_deliver_to_one_subject() -> None:
    owners, names = ("default", "shop"), ("c", "d")
    streams = [Key("Stream", name, "", domain) for name in ("A", "B") for domain in ("", "leaf")]
    everything = list(itertools.product(owners, streams, streams, names))
    assert len({deliver_subject(*one) for one in everything}) == len(everything)
    assert deliver_subject(*everything[0]) == deliver_subject(*everything[0])
