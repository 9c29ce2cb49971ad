"""Mermaid and DOT: whatever is in a name, the text reads as the graph that was meant, and the name comes back as it was.

Each is read with a small strict grammar of its own: what it does not know fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from reconciler.render.graph.dot import dot
from reconciler.render.graph.mermaid import MOST_EDGES, mermaid, too_large
from reconciler.render.graph.words import LONGEST
from reconciler.sources.graph.topology import Topology
from tests.support.values.topologies import NASTY, edge, key, many, nasty, topology


class Read(NamedTuple):
    """A graph as its text says: labels in lines, by id."""

    nodes: dict[str, list[str]]
    groups: dict[str, list[str]]
    edges: list[tuple[str, str, list[str]]]


_LABEL = r'"((?:[A-Za-z0-9 .,>+…→_-]|: |#[0-9]+;|<br/>)*)"'
_MERMAID = {
    "group": re.compile(rf"  subgraph (d\d+)\[{_LABEL}\]"),
    "direction": re.compile(r"    direction LR"),
    "stream": re.compile(rf"  (?:  )?(s\d+)\[{_LABEL}\](?::::absent)?"),
    "consumer": re.compile(rf"  (?:  )?(c\d+)\(\[{_LABEL}\]\):::reader"),
    "end": re.compile(r"  end"),
    "edge": re.compile(rf"  (s\d+) (?:-->|==>)\|{_LABEL}\| (s\d+)"),
    "reads": re.compile(r"  (s\d+) -\.-> (c\d+)"),
    "class": re.compile(r"  classDef (?:absent|reader) stroke-(?:dasharray: 4 3|width: 1px)"),
    "style": re.compile(r"  linkStyle (\d+(?:,\d+)*) stroke: #[0-9a-f]{6}"),
}


def read_mermaid(text: str) -> Read:
    head, *lines = text.splitlines()
    assert (head, text[-1]) == ("flowchart LR", "\n")
    found, depth = Read({}, {}, []), 0
    styled: list[int] = []
    for line in lines:
        kind, match = next((kind, match) for kind, rule in _MERMAID.items() if (match := rule.fullmatch(line)))
        depth += {"group": 1, "end": -1}.get(kind, 0)
        assert depth in (0, 1)
        if kind in ("stream", "consumer"):
            found.nodes[match[1]] = _lines(match[2])
        elif kind == "group":
            found.groups[match[1]] = _lines(match[2])
        elif kind == "edge":
            found.edges.append((match[1], match[3], _lines(match[2])))
        elif kind == "reads":
            found.edges.append((match[1], match[2], []))
        elif kind == "style":
            styled += map(int, match[1].split(","))
    assert depth == 0
    assert len(set(styled)) == len(styled) <= len(found.edges)
    return found


def _lines(label: str) -> list[str]:
    return [re.sub(r"#(\d+);", lambda code: chr(int(code[1])), line) for line in label.split("<br/>")]


_TOKEN = re.compile(
    r'\s*(?:(digraph|subgraph|node|edge)\b|([A-Za-z][A-Za-z0-9_]*)|(-?[0-9]+)|("(?:[^"\\]|\\.)*")|(->)|([{}\[\]=,]))'
)
_STRING = re.compile(r'\\(.)|&(amp);|([^\\&"])', re.DOTALL)


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Keyword, id, number, string (as dot would show it), arrow, sign."""
    at = 0
    kinds = ("keyword", "id", "number", "string", "arrow", "sign")
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        assert match, text[at : at + 60]
        at = match.end()
        kind, value = next((kind, value) for kind, value in zip(kinds, match.groups(), strict=True) if value is not None)
        yield kind, _shown(value[1:-1]) if kind == "string" else value


def _shown(inside: str) -> str:
    assert "".join(match[0] for match in _STRING.finditer(inside)) == inside, inside
    for escape in (match[1] for match in _STRING.finditer(inside) if match[1]):
        assert escape in 'n"\\', f"dot gives a meaning of its own to {escape} after a backslash"
    return _STRING.sub(lambda match: {"n": "\n"}.get(match[1], match[1]) if match[1] else "&" if match[2] else match[3], inside)


def read_dot(text: str) -> Read:
    stream = list(tokens(text))
    assert stream[:3] == [("keyword", "digraph"), ("id", "sourcing"), ("sign", "{")]
    assert stream[-1] == ("sign", "}")
    found, at, group = Read({}, {}, []), 3, ""
    depth = 1
    while at < len(stream) - 1:
        (kind, value), at = stream[at], at + 1
        if (kind, value) == ("keyword", "subgraph"):
            group, at, depth = stream[at][1], at + 2, depth + 1
            assert stream[at - 1] == ("sign", "{")
        elif (kind, value) == ("sign", "}"):
            group, depth = "", depth - 1
        elif kind == "keyword":
            _, at = _attributes(stream, at)
        elif stream[at] == ("sign", "="):
            if value == "label":
                found.groups[group] = [stream[at + 1][1]]
            at += 2
        elif stream[at] == ("arrow", "->"):
            attributes, after = _attributes(stream, at + 2)
            found.edges.append(
                (value, stream[at + 1][1], attributes.get("label", "").split("\n") if "label" in attributes else [])
            )
            at = after
        else:
            assert kind == "id"
            attributes, at = _attributes(stream, at)
            found.nodes[value] = attributes["label"].split("\n")
    assert depth == 1
    return found


def _attributes(stream: list[tuple[str, str]], at: int) -> tuple[dict[str, str], int]:
    assert stream[at] == ("sign", "[")
    found, at = {}, at + 1
    while True:
        (_, name), equals, (_, value), sign = stream[at : at + 4]
        assert equals == ("sign", "=")
        found[name], at = value, at + 4
        if sign == ("sign", "]"):
            return found, at
        assert sign == ("sign", ",")


FORMATS: list[tuple[Callable[[Topology], str], Callable[[str], Read]]] = [(mermaid, read_mermaid), (dot, read_dot)]
formats = pytest.mark.parametrize(("draw", "read"), FORMATS, ids=["mermaid", "dot"])


@formats
def test_bad_names_come_back_as_they_were(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    found = read(draw(nasty()))
    assert {lines[0] for id_, lines in found.nodes.items() if id_[0] == "s"} == {*NASTY, "a", "end"}
    assert {lines[0] for id_, lines in found.nodes.items() if id_[0] == "c"} == set(NASTY)
    assert [lines[0] for lines in found.groups.values()] == [
        "domain x];y", 'domain "dom"]', "domain end", "imported from acme.$JS.<x>",
    ]  # fmt: skip
    assert "<a> → |b|" in {line for _, _, lines in found.edges for line in lines}
    filters = {lines[1] for _, _, lines in found.edges if len(lines) > 1}
    assert filters >= set(NASTY)


@formats
def test_every_entry_leads_from_its_origin_to_its_aggregate(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    whole = nasty()
    found = read(draw(whole))
    names = {id_: lines[0] for id_, lines in found.nodes.items()}
    drawn = [(names[one], names[other]) for one, other, _ in found.edges]
    assert drawn[: len(whole.edges)] == [(one.origin.name, one.aggregate.name) for one in whole.edges]
    assert drawn[len(whole.edges) :] == [("end", one.key.name) for one in whole.readers]


@formats
def test_an_empty_graph_and_a_large_one_are_valid(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    assert read(draw(Topology())) == Read({}, {}, [])
    assert len(read(draw(many(300))).nodes) == 301


@formats
def test_a_single_domain_without_a_name_has_no_frame(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    assert read(draw(topology(edge(key("A"), key("B"))))).groups == {}
    assert list(read(draw(topology(edge(key("A"), key("B")), home="hub"))).groups.values()) == [["domain hub"]]
    both = read(draw(topology(edge(key("A"), key("B", "leaf")))))
    assert list(both.groups.values()) == [["this domain"], ["domain leaf"]]


@formats
def test_lines_are_cut_and_what_does_not_print_is_escaped(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    subjects = tuple(f"a.{number}.>" for number in range(20))
    found = read(draw(topology(edge(key("x" * 255), key("a\x1b[31m\nb"), filters=subjects))))
    lines = [line for labels in (*found.nodes.values(), *(lines for _, _, lines in found.edges)) for line in labels]
    assert all(len(line) <= LONGEST and line.isprintable() for line in lines)
    assert "a.0.> +19" in lines
    assert '"a\\x1b[31m\\nb"' in lines


@formats
def test_a_filter_that_leaves_nothing_out_is_not_written(draw: Callable[[Topology], str], read: Callable[[str], Read]) -> None:
    found = read(draw(topology(edge(key("S"), key("A"), durable="c", filters=(">",)))))
    assert [lines for _, _, lines in found.edges] == [["ephemeral: c"]]


def test_colours_are_those_of_the_state() -> None:
    states = ("", "Flowing", "Paused", "Waiting", "Stalled", "Error", "Unknown")
    text = mermaid(topology(*(edge(key(f"S{number}"), key("T"), state=state) for number, state in enumerate(states))))
    styles = dict(re.findall(r"linkStyle (\S+) stroke: (\S+)", text))
    assert set(styles) == {"1", "2", "3", "4,5"}
    assert len(set(styles.values())) == 4


def test_more_than_mermaid_draws_is_known() -> None:
    small = many(300)
    assert not too_large(small, mermaid(small))
    assert too_large(small, "x" * 50_001)
    large = topology(*(edge(key(f"S{number}"), key("T")) for number in range(MOST_EDGES + 1)))
    assert too_large(large, "")
