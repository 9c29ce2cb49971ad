"""Layered pictures: nothing overlaps, every link arrives, and the same comes out each time."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from reconciler.render.graph.layout import Box, Connector, Layout, Path, Rectangle, layout
from reconciler.render.graph.ranks import components, ranks
from reconciler.render.graph.tops import isotonic

SLACK = 0.01
STEPS = 24


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Connector]]:
    count = draw(st.integers(1, 14))
    sizes = st.floats(20, 200)
    boxes = [Box(draw(sizes), draw(sizes) / 3, draw(st.integers(0, 2))) for _ in range(count)]
    ends = st.integers(0, count - 1)
    links = [
        Connector(draw(ends), draw(ends), draw(st.floats(0, 150)), draw(st.integers(0, 3)))
        for _ in range(draw(st.integers(0, 20)))
    ]
    return boxes, links


def overlap(one: Rectangle, other: Rectangle) -> bool:
    across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return across > SLACK and down > SLACK


def points(path: Path) -> list[tuple[float, float]]:
    """Along the way, as it is drawn."""
    found = []
    for number, ((x, y), (a, b)) in enumerate(itertools.pairwise(path.knots)):
        middle = (x + a) / 2
        for step in range(STEPS + 1):
            t = step / STEPS
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            xs = (x, middle, middle, a) if number % 2 else (x, x + (a - x) / 3, x + 2 * (a - x) / 3, a)
            ys = (y, y, b, b)
            found.append(
                (sum(w * v for w, v in zip(weights, xs, strict=True)), sum(w * v for w, v in zip(weights, ys, strict=True)))
            )
    return found


def within(point: tuple[float, float], place: Rectangle) -> bool:
    return SLACK < point[0] - place.x < place.width - SLACK and SLACK < point[1] - place.y < place.height - SLACK


def arrives(found: Layout, number: int, link: Connector) -> None:
    """A link begins at an edge of its origin and ends at one of its target."""
    path = found.paths[number]
    for (x, y), box in ((path.knots[0], found.boxes[link.origin]), (path.knots[-1], found.boxes[link.target])):
        if link.origin == link.target:
            assert (y, box.x <= x <= box.x + box.width) == (box.y, True)
        else:
            assert min(abs(x - box.x), abs(x - box.x - box.width)) < SLACK
            assert box.y - SLACK <= y <= box.y + box.height + SLACK


@given(graphs())
def test_no_box_overlaps_another_and_no_link_crosses_a_box(graph: tuple[list[Box], list[Connector]]) -> None:
    boxes, links = graph
    found = layout(boxes, links, framed=True)
    assert set(found.boxes) == set(range(len(boxes)))
    assert set(found.paths) == set(range(len(links)))
    for one, other in itertools.combinations(found.boxes.values(), 2):
        assert not overlap(one, other)
    for number, link in enumerate(links):
        arrives(found, number, link)
        if link.origin != link.target:
            assert not [at for at in points(found.paths[number]) for box in found.boxes.values() if within(at, box)]
    for number, box in enumerate(boxes):
        assert (found.boxes[number].width, found.boxes[number].height) >= (box.width, box.height)


@given(graphs())
def test_frames_hold_the_boxes_of_their_lane_and_no_others(graph: tuple[list[Box], list[Connector]]) -> None:
    boxes, links = graph
    found = layout(boxes, links, framed=True)
    for one, other in itertools.combinations([frame for _, frame in found.frames], 2):
        assert not overlap(one, other)
    for number, place in found.boxes.items():
        lanes = [lane for lane, frame in found.frames if overlap(frame, place)]
        assert lanes == [boxes[number].lane]
    for place in (*found.boxes.values(), *(frame for _, frame in found.frames)):
        assert place.x >= -SLACK
        assert place.y >= -SLACK
        assert place.x + place.width <= found.width + SLACK
        assert place.y + place.height <= found.height + SLACK
    assert layout(boxes, links, framed=False).frames == []


@given(graphs())
def test_the_same_graph_is_laid_out_in_the_same_way(graph: tuple[list[Box], list[Connector]]) -> None:
    assert layout(*graph, framed=True) == layout(*graph, framed=True)


@given(graphs())
def test_every_link_leads_to_a_higher_rank_but_those_that_close_a_cycle(graph: tuple[list[Box], list[Connector]]) -> None:
    boxes, links = graph
    pairs = [(link.origin, link.target) for link in links]
    rank, turned = ranks(range(len(boxes)), pairs)
    for one, other in pairs:
        if one != other:
            assert (rank[one] < rank[other]) is ((one, other) not in turned)
    assert set(rank.values()) == set(range(len(set(rank.values()))))


def test_a_graph_without_cycles_is_not_turned_round() -> None:
    pairs = [(one, other) for one in range(30) for other in range(one + 1, 30, 7)]
    assert ranks(range(30), pairs)[1] == set()


def test_a_long_chain_and_a_long_ring_are_no_trouble() -> None:
    size = 3000
    chain = [(number, number + 1) for number in range(size - 1)]
    assert ranks(range(size), chain)[0] == {number: number for number in range(size)}
    assert ranks(range(size), [*chain, (size - 1, 0)])[1] == {(size - 1, 0)}


def test_what_hangs_on_nothing_is_one_group() -> None:
    assert components(6, [(4, 1), (1, 5)]) == [[1, 4, 5], [0, 2, 3]]


def test_many_boxes_around_one_are_no_tower() -> None:
    box = Box(60, 45)
    inward = layout([box] * 301, [Connector(number, 300, 80, 2) for number in range(300)], framed=False)
    outward = layout([box] * 301, [Connector(300, number, 80, 2) for number in range(300)], framed=False)
    alone = layout([box] * 300, [], framed=False)
    for found in (inward, outward, alone):
        assert 1 / 3 < found.width / found.height < 3


def test_a_thousand_streams_are_laid_out_within_seconds() -> None:
    links = [Connector(number, number // 4, 90, 2) for number in range(1, 1000)]
    began = time.process_time()
    found = layout([Box(90, 45, number % 3) for number in range(1000)], links, framed=True)
    assert time.process_time() - began < 10
    assert len(found.paths) == 999


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 5)), min_size=1, max_size=30))
def test_what_is_wanted_is_met_as_well_as_the_order_allows(wanted: list[tuple[float, float]]) -> None:
    values, weights = [value for value, _ in wanted], [weight for _, weight in wanted]
    found = isotonic(values, weights)
    assert all(one <= other + SLACK for one, other in itertools.pairwise(found))
    centre = sum(value * weight for value, weight in wanted) / sum(weights)
    assert abs(sum(value * weight for value, weight in zip(found, weights, strict=True)) / sum(weights) - centre) < SLACK
    if values == sorted(values):
        assert found == values


def test_the_label_lies_at_the_end_with_more_room() -> None:
    found = layout([Box(50, 30)] * 4, [Connector(number, 3, 40, 1) for number in range(3)], framed=False)
    for number in range(3):
        box = found.boxes[number]
        assert box.x + box.width < found.paths[number].label[0] < found.boxes[3].x
        assert found.paths[number].label[1] == found.paths[number].knots[0][1]
