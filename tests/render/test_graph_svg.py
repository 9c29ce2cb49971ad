"""The picture: well-formed whatever is in a name, everything in its place, and the same bytes each time."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from reconciler.model.identity import Key
from reconciler.render.graph.svg import svg
from reconciler.render.graph.widths import text_width
from reconciler.sources.graph.topology import Mode, Reader, Topology
from tests.support.values.topologies import NASTY, edge, key, many, nasty, topology

SVG = "{http://www.w3.org/2000/svg}"


def parsed(topology_: Topology) -> ET.Element:
    return ET.fromstring(svg(topology_))  # noqa: S314 - our own


def texts(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def test_bad_names_are_text_and_nothing_else() -> None:
    root = parsed(nasty())
    assert set(NASTY) <= set(texts(root))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "style", "defs", "marker", "path", "rect", "text", "g",
    }  # fmt: skip
    names = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in names if name.startswith("on") or "href" in name}
    assert root.find(f"{SVG}style") is not None
    assert "url(" not in (root.findtext(f"{SVG}style") or "")


@pytest.mark.parametrize("whole", [many(3), many(30), many(300), nasty(), Topology()], ids=["3", "30", "300", "nasty", "empty"])
def test_every_text_lies_within_the_picture(whole: Topology) -> None:
    root = parsed(whole)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for one in root.iter(f"{SVG}text"):
        size = 12 if one.get("class") == "name" else 10
        x, y = float(one.attrib["x"]), float(one.attrib["y"])
        assert left <= x <= left + width - text_width("".join(one.itertext()), size)
        assert top + size <= y <= top + height


def test_a_name_fits_into_its_box_and_is_whole_in_the_tooltip() -> None:
    long = "W" * 255
    root = parsed(topology(edge(key(long), key("B"), filters=("subject." * 20,))))
    for group in root.iter(f"{SVG}g"):
        box, shown = group.find(f"{SVG}rect"), group.findall(f"{SVG}text")
        if box is None:
            continue
        right = float(box.attrib["x"]) + float(box.attrib["width"])
        for line, size in zip(shown, (12, 10), strict=True):
            assert float(line.attrib["x"]) + text_width(line.text or "", size) <= right
    titles = [one.text or "" for one in root.iter(f"{SVG}title")]
    assert any(f"stream {long}" in title for title in titles)
    assert any("subject." * 20 in title for title in titles)


def test_the_legend_explains_what_there_is_and_nothing_else() -> None:
    shown = " ".join(texts(parsed(topology(edge(key("A"), key("B"), Mode.MANAGED, durable="d")))))
    assert "managed: through" in shown
    assert not [word for word in ("ephemeral", "unmanaged", "mirror", "stalled", "flowing", "consumer") if f" {word}" in shown]
    reader = Reader(Key("Consumer", "c", "A"))
    mirrored = topology(edge(key("A"), key("B"), mirror=True, state="Stalled", cause="domain"), readers=(reader,))
    assert {"mirror: an exact copy", "stalled", "read by an ordinary consumer"} <= set(texts(parsed(mirrored)))


def test_a_picture_of_nothing_says_so() -> None:
    assert texts(parsed(Topology())) == ["nothing is copied here: no stream has a source or a mirror"]


def test_the_ends_of_links_have_heads_that_are_there() -> None:
    root = parsed(nasty())
    heads = {f"url(#{marker.get('id')})" for marker in root.iter(f"{SVG}marker")}
    used = {path.get("marker-end") for path in root.iter(f"{SVG}path")} - {None}
    assert used <= heads
    assert len(used) == 5


def test_a_state_has_a_colour_and_its_cause_is_written_down() -> None:
    root = parsed(topology(edge(key("A"), key("B"), state="Stalled", cause="not-bound", message="nobody listens")))
    assert "stalled: not-bound" in texts(root)
    assert any("Stalled: nobody listens" in (one.text or "") for one in root.iter(f"{SVG}title"))
    coloured = [path for path in root.iter(f"{SVG}path") if path.get("marker-end") and path.get("style")]
    assert len(coloured) == 1


def test_the_same_topology_is_the_same_file_with_numbers_everybody_reads() -> None:
    text = svg(many(60))
    assert text == svg(many(60))
    assert not re.search(r"\d[eE][+-]?\d|nan|inf", re.sub(r"<(text|title)[^>]*>[^<]*", "", text.partition("</style>")[2]))


def test_wide_characters_are_wider() -> None:
    assert text_width("日本", 10) > text_width("ab", 10) > text_width("il", 10)
    assert text_width("e\u0301", 10) == text_width("e", 10)
