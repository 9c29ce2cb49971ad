"""Where messages come from, by the configuration alone."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.flow import copies, domain_of, filters_of, listened, origins, with_domains
from reconciler.model.identity import Key


@pytest.mark.parametrize(
    ("config", "subjects"),
    [
        ({}, ["S"]),
        ({"subjects": []}, ["S"]),
        ({"subjects": ["a", "b.>"]}, ["a", "b.>"]),
        ({"sources": [{"name": "A"}]}, []),
        ({"sources": [{"name": "A"}], "subjects": ["a"]}, ["a"]),
        ({"mirror": {"name": "A"}}, []),
    ],
)
def test_a_stream_without_sources_listens_at_least_on_its_own_name(config: dict[str, Any], subjects: list[str]) -> None:
    assert listened(config, "S") == subjects


@pytest.mark.parametrize(
    ("config", "filters"),
    [
        ({}, []),
        ({"filter_subject": ""}, []),
        ({"filter_subject": "a"}, ["a"]),
        ({"filter_subjects": ["b", "a"]}, ["b", "a"]),
    ],
)
def test_filters_keep_their_order_and_none_means_all(config: dict[str, Any], filters: list[str]) -> None:
    assert filters_of(config) == filters


def test_an_entry_reads_from_the_domain_its_api_names_else_from_the_one_of_its_stream() -> None:
    assert domain_of({"name": "A"}, "leaf") == "leaf"
    assert domain_of({"name": "A", "external": {"api": "$JS.hub.API"}}, "leaf") == "hub"
    assert domain_of({"name": "A", "external": {"api": "imported.js"}}, "leaf") == "leaf"


def test_origins_are_sources_and_mirror() -> None:
    config = {"sources": [{"name": "A"}, {"name": "B", "external": {"api": "$JS.hub.API"}}]}
    assert origins(config, "") == [Key("Stream", "A"), Key("Stream", "B", "", "hub")]
    assert origins({"mirror": {"name": "C"}}, "leaf") == [Key("Stream", "C", "", "leaf")]
    assert origins({"sources": None, "mirror": None}, "") == []


@pytest.mark.parametrize(("wire", "may"), [(b'{"subjects":["a"]}', False), (b'{"mirror":{}}', True), (b'{"sources":[]}', True)])
def test_the_cheap_look_misses_no_copy(wire: bytes, may: bool) -> None:
    assert copies(wire) is may


@pytest.mark.parametrize(
    ("external", "written"),
    [
        ({"api": "$JS.leaf.API"}, {"domain": "leaf"}),
        ({"api": "$JS.leaf.API", "deliver": "d"}, {"domain": "leaf", "deliver": "d"}),
        ({"api": "JS.import.API"}, {"api": "JS.import.API"}),
        ({"api": "$JS.API"}, {"api": "$JS.API"}),
        ({"api": "$JS.a.b.API"}, {"api": "$JS.a.b.API"}),
        (None, None),
    ],
)
def test_a_domain_is_written_for_the_prefix_that_it_is_short_for(external: object, written: object) -> None:
    entry = {"name": "S", "external": external}
    assert with_domains({"sources": [entry], "mirror": entry}) == {
        "sources": [{"name": "S", "external": written}],
        "mirror": {"name": "S", "external": written},
    }
