"""Strict YAML and JSON: what is read, what is refused, where, and that nothing at all makes the parsers fail or hang."""

from __future__ import annotations

import time

import orjson
import pytest
import yaml as pyyaml
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.errors import Problem
from reconciler.manifests.syntax import events as yaml_events
from reconciler.manifests.syntax.document import MAX_PROBLEMS, Document, Text
from reconciler.manifests.syntax.encoding import MAX_LINE
from reconciler.manifests.syntax.scalars import Ambiguous, OutOfRange, resolve
from reconciler.manifests.syntax.texts import PIECE, cut, parse_text
from reconciler.manifests.syntax.yaml import locate, parse_yaml

MANIFEST = b"""\
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: billing, labels: {team: payments}}
spec:
  stream: PAYMENTS
  filterSubjects: [platform.payments.balance_credited]
  ackWait: 30s
  maxDeliver: 10
  inactiveThreshold: null
  sources:
    - name: "A"
    - name: 'B'   # the second
      startTime: 2024-11-18T10:00:00Z
"""


def read(text: str | bytes, file: str = "f.yaml") -> tuple[list[object], list[Problem]]:
    data = text.encode() if isinstance(text, str) else text
    documents, problems = parse_text(Text(file, data))
    return [document.value for document in documents], list(problems)


def only_document(text: str | bytes, file: str = "f.yaml") -> Document:
    data = text.encode() if isinstance(text, str) else text
    (document,), problems = parse_text(Text(file, data))
    assert not problems
    return document


def value_of(scalar: str) -> object:
    values, problems = read(f"a: {scalar}\n")
    assert not problems
    return values[0]["a"]  # type: ignore[index]


def places(text: str | bytes, file: str = "f.yaml") -> list[tuple[str, int, int]]:
    return [(problem.code, problem.line, problem.column) for problem in read(text, file)[1]]


def test_a_manifest_is_read_as_stock_yaml_reads_it() -> None:
    expected = pyyaml.load(MANIFEST, Loader=pyyaml.BaseLoader)  # noqa: S506 - strings only
    value = only_document(MANIFEST).value
    assert value["spec"]["maxDeliver"] == 10  # type: ignore[index]
    assert value["spec"]["inactiveThreshold"] is None  # type: ignore[index]
    assert value["spec"]["sources"] == expected["spec"]["sources"]  # type: ignore[index]
    assert value["metadata"] == expected["metadata"]


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("30s", "30s"),
        ("64MB", "64MB"),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5),
        ("1.5e+3", 1500.0),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("Null", None),
        ("", None),
        ("2024-11-18T10:00:00Z", "2024-11-18T10:00:00Z"),
        ("2024-11-18", "2024-11-18"),
        ("-", [None]),
        ("1.2.3", "1.2.3"),
        ("nothing", "nothing"),
        ("yesterday", "yesterday"),
        ("'no'", "no"),
        ('"0755"', "0755"),
        ("!!str no", "no"),
        ("!!int 3", 3),
        ("! 4", "4"),
        ("platform.>", "platform.>"),
        ("10.0.0.1:4222", "10.0.0.1:4222"),
    ],
)
def test_scalars_are_those_of_the_core_schema(scalar: str, expected: object) -> None:
    if scalar == "-":
        assert read("a:\n  -\n")[0] == [{"a": expected}]
    else:
        assert value_of(scalar) == expected
        assert type(value_of(scalar)) is type(expected)


AMBIGUOUS = "no NO No yes on Off y N = 0755 0o17 00 08 1:30 12:30:45 1:30.5 1_000 0x1_F -0x1F 0b101 1e3 1.5e3 1_0.5".split()


@pytest.mark.parametrize("scalar", AMBIGUOUS)
def test_what_yaml_versions_read_differently_is_refused_with_a_suggestion(scalar: str) -> None:
    values, [problem] = read(f"a:\n  b: [x, {scalar}]\n")
    assert (values, problem.code, problem.line, problem.column) == ([], "ambiguous-scalar", 2, 10)
    assert problem.field == "a.b[1]"
    assert "write" in problem.message
    assert scalar in problem.message


def test_an_ambiguous_key_is_refused_too() -> None:
    assert places("on: 1\n") == [("ambiguous-scalar", 1, 1)]
    assert read('"on": 1\n')[0] == [{"on": 1}]


@pytest.mark.parametrize(
    "scalar", ["18446744073709551616", "-9223372036854775809", ".inf", "-.INF", ".nan", "9" * 5000, "9" * 400 + ".0"]
)
def test_numbers_without_a_64_bit_value_are_refused(scalar: str) -> None:
    assert places(f"a: {scalar}\n") == [("number-range", 1, 4)]


@given(st.text(alphabet="0123456789+-._:xobeEnaNAifIFysYtrue~=", max_size=12))
def test_a_scalar_is_resolved_only_as_yaml_1_1_resolves_it(text: str) -> None:
    """PyYAML is YAML 1.1: what `resolve` accepts must mean the same there, timestamps apart."""
    try:
        value = resolve(text)
    except (Ambiguous, OutOfRange):
        return
    tag = pyyaml.SafeLoader("").resolve(pyyaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    kind = tag.rpartition(":")[2]
    if kind in ("timestamp", "merge"):
        kind = "str"
    assert {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}[type(value)] == kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", [("duplicate-key", 3, 1)]),
        ("a: {b: 1, b: 2}\n", [("duplicate-key", 1, 11)]),
        ("a: 1\n1: b\n", [("key-not-string", 2, 1)]),
        ("true: b\n", [("key-not-string", 1, 1)]),
        ("? [a, b]\n: c\n", [("key-not-string", 1, 3)]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", [("merge-key", 3, 3)]),
        ("a: !!binary aGk=\n", [("bad-tag", 1, 4)]),
        ("a: !!python/object:os.system x\n", [("bad-tag", 1, 4)]),
        ("a: !custom [b]\n", [("bad-tag", 1, 4)]),
        ("a: !!int x\n", [("bad-tag", 1, 4)]),
        ("a: *x\n", [("unknown-alias", 1, 4)]),
        ("a: &x [*x]\n", [("recursive-alias", 1, 8)]),
        ("- a\n", [("not-a-mapping", 1, 1)]),
        ("text\n", [("not-a-mapping", 1, 1)]),
        ("a: [1\n", [("yaml-syntax", 2, 1)]),
        ("a:\n\tb: 1\n", [("yaml-syntax", 2, 1)]),
        ("a: 1\n---\n%TAG ! x\n", [("yaml-syntax", 3, 1)]),
        ("a: b: c\n", [("yaml-syntax", 1, 5)]),
        ("a: no\nb: no\n", [("ambiguous-scalar", 1, 4), ("ambiguous-scalar", 2, 4)]),
    ],
)
def test_what_is_refused_and_where(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert places(text) == expected
    assert read(text)[0] == ([{"a": 1}] if text.startswith("a: 1\n---") and "TAG" not in text else [])


def test_each_broken_document_is_reported_and_the_others_are_read() -> None:
    text = "a: 1\n---\nb: [1\n---\nc: 'x\n---\nd: no\n---\n---\ne: 5\n"
    values, problems = read(text)
    assert values == [{"a": 1}, {"e": 5}]
    assert [(problem.code, problem.line) for problem in problems] == [
        ("yaml-syntax", 4),
        ("yaml-syntax", 6),
        ("ambiguous-scalar", 7),
    ]


def test_documents_know_their_line_and_number() -> None:
    documents, problems = parse_text(
        Text("f.yaml", b"# comment\n---\n\na: 1\n---\n# empty\n--- {b: 2}\n...\n---\nc: [\n---\nd: 4\n")
    )
    assert [problem.line for problem in problems] == [11]
    assert [(d.value, d.location.line, d.location.index) for d in documents] == [
        ({"a": 1}, 4, 0),
        ({"b": 2}, 7, 2),
        ({"d": 4}, 12, 4),
    ]


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n---\n", "~\n"])
@pytest.mark.parametrize("file", ["f.yaml", "f.json"])
def test_empty_documents_are_skipped(text: str, file: str) -> None:
    assert read(text, file) == ([], [])


def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    text = b"\xef\xbb\xbfa: 1\r\n---\r\nb: no\r\n"
    assert read(text)[0] == [{"a": 1}]
    assert places(text) == [("ambiguous-scalar", 3, 4)]
    assert read(b'\xef\xbb\xbf{"a": 1}', "f.json")[0] == [{"a": 1}]


@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"a: 1\nb: \xc3\xa9\xff\n", "not-utf8", 2, 5),
        ("a: é\n".encode("utf-16"), "not-utf8", 1, 1),
        (b"a: 1\nb: x\x00y\n", "control-character", 2, 5),
        (b"a: \x1b[0m\n", "control-character", 1, 4),
        ("a: é\u2028\n".encode(), "control-character", 1, 5),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_their_position(data: bytes, code: str, line: int, column: int) -> None:
    assert places(data) == [(code, line, column)]


def test_anchors_work_and_give_separate_values() -> None:
    value = only_document("a: &x {b: [1]}\nc: *x\n").value
    assert value == {"a": {"b": [1]}, "c": {"b": [1]}}
    value["a"]["b"].append(2)  # type: ignore[index]
    assert value["c"] == {"b": [1]}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "alias-bomb": BOMB.encode(),
    "alias-bomb of long strings": b"a: &a " + b"x" * 500_000 + b"\nb: [" + b"*a," * 20_000 + b"]\n",
    "too-deep": b"[" * 100_000,
    "too-deep mappings": b"{a: " * 100_000,
    "too-deep sequences": b"- " * 100_000,
    "too-deep json": b'{"a":' * 500 + b"1" + b"}" * 500,
    "line-too-long": b"a: " + b"x" * 10_000_000,
    "document-too-long": b"a:\n" + b"- x\n" * 2_500_000,
    "not-utf8": bytes(range(128, 256)) * 40_000,
    "control-character": b"\0" * 10_000_000,
    "yaml-syntax": b"a: " * 300_000,
    "yaml-syntax directives": b"".join(b"%%TAG !a%d! b\n" % number for number in range(100_000)) + b"--- a",
    "number-range": b"a: " + b"9" * 900_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_quickly_in_a_problem(name: str) -> None:
    start = time.process_time()
    values, problems = read(HOSTILE[name])
    assert time.process_time() - start < 2
    assert values == []
    assert problems[0].code == name.split(maxsplit=1)[0]
    assert all(len(str(problem)) < 1000 for problem in problems)


@pytest.mark.parametrize("scalar", ["1" + "_1" * 200_000 + "x", "1:" * 200_000 + "x", "1." * 200_000, "1" * 400_000 + "e"])
def test_long_scalars_are_resolved_in_linear_time(scalar: str) -> None:
    start = time.process_time()
    assert resolve(scalar) == scalar
    assert time.process_time() - start < 1


def test_an_alias_bomb_spread_over_documents_meets_the_same_budget() -> None:
    one = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("ab", "bc", strict=True)
    )
    values, problems = read("---\n".join([one] * 40))
    assert len(values) < 20
    assert problems[0].code == "alias-bomb"


def test_depth_counts_through_aliases() -> None:
    nested = "[" * 40 + "]" * 40
    assert places(f"a: &a {nested}\nb: {'[' * 40}*a{']' * 40}\n") == [("too-deep", 2, 44)]


def test_problems_of_one_text_are_bounded() -> None:
    _, problems = read("".join(f"k{number}: no\n" for number in range(1000)))
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].code == "too-many-problems"


def test_a_line_at_the_limit_is_read() -> None:
    assert read(b"a: " + b"x" * (MAX_LINE - 3) + b"\nb: 1\n")[1] == []
    assert places(b"b: 1\na: " + b"x" * (MAX_LINE - 2) + b"\n") == [("line-too-long", 2, 1)]


# JSON


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "a": 2}', [("duplicate-key", 2, 2)]),
        ('{"a": {"b":1,"b" : 2}}', [("duplicate-key", 1, 14)]),
        ('{"a": 1,\n "\\u0061": 2}', [("duplicate-key", 2, 2)]),
        ('{"a": "\\ud83d\\ude00", "b": 1, "b": 2}', [("duplicate-key", 1, 1)]),
        ('{"a": 1,\n}', [("json-syntax", 1, 8)]),
        ('{"a": 1,\n b}', [("json-syntax", 2, 2)]),
        ('{"a": 1} x', [("json-syntax", 1, 10)]),
        ('["a"]', [("not-a-mapping", 1, 1)]),
        ('{"a": 18446744073709551616}', [("number-range", 1, 1)]),
        ('{"a": NaN}', [("json-syntax", 1, 7)]),
    ],
)
def test_what_is_refused_in_json_and_where(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert places(text, "f.json") == expected


def test_bad_utf8_in_json_has_its_position() -> None:
    assert places(b'{"a":\n "\xff"}', "f.json") == [("not-utf8", 2, 3)]


def test_a_string_that_looks_like_a_key_is_no_duplicate() -> None:
    assert read('{"a": "\\":", "b": "\\" :"}', "f.json")[0] == [{"a": '":', "b": '" :'}]


def test_flow_yaml_that_is_no_json_is_read_as_yaml() -> None:
    assert read("{a: 1}\n---\n{b: 2}\n") == ([{"a": 1}, {"b": 2}], [])
    assert places("{a: 1}\n", "f.json") == [("json-syntax", 1, 2)]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5).filter(str.isascii), values, max_size=5))
def test_json_reads_back_whatever_was_written(value: dict[str, object]) -> None:
    assert read(orjson.dumps(value), "f.json") == ([value], [])


@given(st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), values, max_size=5))
def test_yaml_reads_back_whatever_a_yaml_1_1_writer_wrote(value: dict[str, object]) -> None:
    text = pyyaml.safe_dump(value, allow_unicode=False)
    documents, problems = parse_yaml(Text("f.yaml", text.encode()))
    if problems:  # such a writer leaves 08 and 1e3 without quotes
        assert {problem.code for problem in problems} == {"ambiguous-scalar"}
    else:
        assert documents[0].value == value


# Positions


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), (1, 1)),
        (("kind",), (2, 1)),
        (("metadata", "labels", "team"), (3, 36)),
        (("spec", "filterSubjects", 0), (6, 20)),
        (("spec", "sources", 1, "name"), (12, 7)),
        (("spec", "sources", 7, "name"), (10, 3)),
        (("spec", "unknown", "deeper"), (4, 1)),
        (("kind", "below a scalar"), (2, 1)),
    ],
)
def test_locate_finds_the_field_or_what_is_around_it(path: tuple[str | int, ...], expected: tuple[int, int]) -> None:
    documents, _ = parse_text(Text("f.yaml", b"a: 1\n---\n" + MANIFEST + b"---\nb: [\n"))
    line, column = locate(documents[1], path)
    assert (line - 2, column) == expected


def test_locate_works_in_json_and_falls_back_to_the_start() -> None:
    assert locate(only_document('{"a": 1,\n  "b": [true,\n false]}', "f.json"), ("b", 1)) == (3, 2)
    assert locate(only_document('\n{"a": "\\ud83d\\ude00"}', "f.json"), ("a",)) == (2, 1)


# Cutting


@given(
    st.lists(
        st.sampled_from(["---\n", "--- # c\n", "a: 1\n", "# c\n", "\n", "b: |\n  ---\n   x\n", "---x: 1\n", "c: 'y\n\n  z'\n"]),
        max_size=40,
    ),
    st.booleans(),
)
@example(["# c\n", "---\n", "a: 1\n", "---\n", "a: 1\n"], False)
def test_pieces_give_what_the_whole_file_gives(lines: list[str], bom: bool) -> None:
    padding = "# " + "x" * (PIECE // 3) + "\n"
    data = ("\ufeff" if bom else "").encode() + "".join(line + padding * line.startswith("---") for line in lines).encode()
    pieces = [parse_text(piece) for piece in cut("f.yaml", data)]
    whole = parse_text(Text("f.yaml", data))
    assert [(d.value, d.location) for piece in pieces for d in piece.documents] == [
        (d.value, d.location) for d in whole.documents
    ]
    assert [problem for piece in pieces for problem in piece.problems] == list(whole.problems)


# Whatever comes


def check_anything(data: bytes, file: str) -> None:
    documents, problems = parse_text(Text(file, data))
    for problem in problems:
        assert problem.file == file
        assert 1 <= problem.line <= data.count(b"\n") + data.count(b"\r") + 2  # the end of the text may be a line of its own
        assert problem.column >= 1
        str(problem).encode()
    for document in documents:
        assert isinstance(document.value, dict)
        locate(document, ("spec", 0))
        orjson.dumps(document.value)


@given(st.binary(max_size=300), st.sampled_from(["f.yaml", "f.json"]))
def test_no_bytes_raise(data: bytes, file: str) -> None:
    check_anything(data, file)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?,<~ \t\r\n0_.\\u\ufeff\x85é", max_size=60), st.sampled_from(["f.yaml", "f.json"]))
def test_no_punctuation_raises(text: str, file: str) -> None:
    check_anything(text.encode(), file)


@given(st.data())
def test_no_mutation_of_a_manifest_raises(data: st.DataObject) -> None:
    mutated = bytearray(MANIFEST + b"---\n" + MANIFEST)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n---\n", b"*a", b"&a ", b"- ", b"{"])
        )
    check_anything(bytes(mutated), "f.yaml")


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#?,~ \n0", max_size=40))
def test_without_libyaml_the_same_is_accepted(text: str) -> None:
    """PyYAML's own parser differs in corner cases of the grammar; what both accept they read alike."""
    data = Text("f.yaml", text.encode())
    fast = parse_yaml(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.manifests.syntax.yaml.open_parser", yaml_events.PurePythonParser)
        slow = parse_yaml(data)
    if not fast.problems and not slow.problems:
        assert fast.documents == slow.documents


@pytest.mark.parametrize("text", ["a: no\n", "a: 1\na: 2\n", "a: &x [*x]\n", "a: !x y\n", "a: [\n", "1: a\n", "a: '\n", BOMB])
def test_without_libyaml_the_same_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [problem.code for problem in parse_yaml(Text("f.yaml", text.encode())).problems]
    monkeypatch.setattr("reconciler.manifests.syntax.yaml.open_parser", yaml_events.PurePythonParser)
    assert [problem.code for problem in parse_yaml(Text("f.yaml", text.encode())).problems] == expected
    assert parse_yaml(Text("f.yaml", MANIFEST)).documents == (only_document(MANIFEST),)
