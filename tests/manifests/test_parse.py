"""What is read again, what is not, and that processes make no difference to the results."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.errors import InvalidInput, Problem, ReconcilerError
from reconciler.manifests.files import parse, processes
from reconciler.manifests.files.parse import ParsedFiles, Parser
from reconciler.manifests.files.source import SourceFile, collect
from reconciler.manifests.syntax.document import Document, Text

KINDS = frozenset({"Environment", "Policy"})


class Recorder:
    """Compiles a document to (context, file, index, value), and remembers which it was asked for."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, document: Document, context: object) -> tuple[object, str, int, object]:
        """Compiles one document."""
        self.files.append(Path(document.location.file).name)
        return context, Path(document.location.file).name, document.location.index, document.value.get("a")

    def asked(self) -> list[str]:
        """The files it was asked for since the last time."""
        asked, self.files = self.files, []
        return asked


class Tree:
    """A directory, and a parser that has no other knowledge of it than its passes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.recorder = Recorder()
        self.parser: Parser[object, tuple[object, str, int, object]] = Parser(self.recorder, KINDS)

    def write(self, name: str, text: str) -> None:
        """Writes one file."""
        (self.root / name).write_text(text)

    def files(self) -> tuple[SourceFile, ...]:
        """What a walk finds."""
        return collect([str(self.root)]).files

    def run(self, context: object = None, *, full: bool = False) -> ParsedFiles[tuple[object, str, int, object]]:
        """One pass."""
        files = self.files()
        self.parser.refresh(files, full=full)
        return self.parser.parse(files, context)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.write("a.yaml", "a: 1\n---\na: 2\n")
    made.write("b.yaml", "a: 3\n")
    return made


def test_results_come_in_the_order_of_files_and_documents(tree: Tree) -> None:
    assert [result[1:] for result in tree.run().results] == [("a.yaml", 0, 1), ("a.yaml", 1, 2), ("b.yaml", 0, 3)]


def test_what_has_not_changed_is_not_compiled_again(tree: Tree) -> None:
    first = tree.run()
    assert (tree.recorder.asked(), first.parsed) == (["a.yaml", "a.yaml", "b.yaml"], 2)
    tree.write("b.yaml", "a: 4\n")
    second = tree.run()
    assert (tree.recorder.asked(), second.parsed) == (["b.yaml"], 1)
    assert [result[3] for result in second.results] == [1, 2, 4]


def test_unchanged_files_are_not_even_opened(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree.run()
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    assert tree.run().results == before.results


def test_a_file_that_was_only_touched_is_not_compiled_again(tree: Tree) -> None:
    tree.run()
    tree.recorder.asked()
    os.utime(tree.root / "a.yaml", ns=(1, 1))
    assert tree.run().parsed == 0
    assert tree.recorder.asked() == []


def test_a_full_pass_finds_what_the_signature_hides(tree: Tree) -> None:
    tree.run()
    found = (tree.root / "b.yaml").stat()
    with (tree.root / "b.yaml").open("r+b") as same_inode:
        same_inode.write(b"a: 9\n")
    os.utime(tree.root / "b.yaml", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert [result[3] for result in tree.run().results] == [1, 2, 3]
    assert [result[3] for result in tree.run(full=True).results] == [1, 2, 9]


def test_another_context_compiles_everything_again(tree: Tree) -> None:
    tree.run({"env": "dev"})
    assert tree.run({"env": "dev"}).parsed == 0
    other = tree.run({"env": "prod"})
    assert other.parsed == 2
    assert {str(result[0]) for result in other.results} == {"{'env': 'prod'}"}


def test_files_that_go_and_come_back(tree: Tree) -> None:
    tree.run()
    (tree.root / "a.yaml").rename(tree.root / "a.txt")
    assert [result[3] for result in tree.run().results] == [3]
    (tree.root / "a.txt").rename(tree.root / "a.yaml")
    assert [result[3] for result in tree.run().results] == [1, 2, 3]


def test_problems_stay_until_the_file_is_mended(tree: Tree) -> None:
    tree.write("a.yaml", "a: no\n---\na: 2\n")
    for _ in range(2):
        compiled = tree.run()
        assert [(problem.code, problem.line) for problem in compiled.problems] == [("ambiguous-scalar", 1)]
        assert [result[3] for result in compiled.results] == [2, 3]
    tree.write("a.yaml", "a: 1\n")
    assert tree.run().problems == ()


def test_a_file_that_cannot_be_read_is_a_problem_and_not_an_absence(tree: Tree) -> None:
    tree.run()
    files = tree.files()
    (tree.root / "a.yaml").unlink()
    os.mkfifo(tree.root / "a.yaml")
    tree.parser.refresh(files, full=True)
    compiled = tree.parser.parse(files, None)
    assert [(Path(problem.file).name, problem.code) for problem in compiled.problems] == [("a.yaml", "not-a-file")]
    assert tree.parser.sha256(files[0]) is None


def test_a_file_that_changes_between_hashing_and_parsing_is_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an index vouched for by its hash is what is parsed, never a later version."""
    monkeypatch.setattr(parse, "_KEEP_BYTES", 0)
    files = tree.files()
    tree.parser.refresh(files)
    tree.write("b.yaml", "a: 666\n")
    compiled = tree.parser.parse(files, None)
    assert [problem.code for problem in compiled.problems] == ["changed-while-reading"]
    assert [result[3] for result in compiled.results] == [1, 2]
    assert [result[3] for result in tree.run().results] == [1, 2, 666]


def test_files_are_opened_once_in_a_pass(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = SourceFile.read

    def counting(file: SourceFile) -> bytes:
        opened.append(Path(file.path).name)
        return read(file)

    monkeypatch.setattr(SourceFile, "read", counting)
    files = tree.files()
    tree.parser.refresh(files, full=True)
    tree.parser.find_kinds(files)
    assert tree.parser.sha256(files[0]) is not None
    tree.parser.parse(files, None)
    assert opened == ["a.yaml", "b.yaml"]


def test_a_file_that_failed_once_fails_the_whole_pass(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a policy could be missed by `find_kinds`, and nothing would say so."""
    tree.write("p.yaml", "kind: Policy\n")
    files = tree.files()
    tree.parser.refresh(files[:2])
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        assert tree.parser.find_kinds(files) == ()
    assert [problem.code for problem in tree.parser.parse(files, None).problems] == ["unreadable"]
    assert tree.run().problems == ()


def test_progress_is_told_file_by_file(tree: Tree) -> None:
    told: list[tuple[int, int]] = []
    parser: Parser[str, object] = Parser(getattr, progress=lambda done, total: told.append((done, total)))
    files = tree.files()
    parser.parse(files, "value")
    parser.parse(files, "value")
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "kind: Policy\n",
        "kind:   'Policy'  # c\n",
        '"kind": "Policy"\n',
        '{"kind":"Policy"}',
        '"kind": "\\x50olicy"\n',
        '{"kind": "\\u0050olicy"}',
        'kind: "Pol\\\n  icy"\n',
        "kind: !!str Policy\n",
        "? kind\n: Policy\n",
        "kind: >-\n  Policy\n",
        "x: &k Policy\nkind: *k\n",
        "a: b\n---\nkind: Policy\n",
        "kind: Policy",
    ],
)
def test_a_kind_is_found_however_it_is_written(tmp_path: Path, text: str) -> None:
    tree = Tree(tmp_path)
    tree.write("p.yaml", text)
    (found,) = tree.parser.find_kinds(tree.files())
    assert found.value["kind"] == "Policy"


def test_files_without_the_kind_are_not_parsed_for_it(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("c.yaml", "kind: Consumer\nspec: {ackPolicy: none, pattern: 'a\\.b'}\n")
    tree.write("d.yaml", "kind: PolicyReport\n")
    monkeypatch.setattr(parse, "parse_text", lambda text: pytest.fail(f"parsed {text}"))
    assert tree.parser.find_kinds(tree.files()) == ()


def test_kinds_are_remembered_until_their_file_changes(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("p.yaml", "kind: Policy\n---\nkind: Environment\n---\nkind: Stream\n")
    found = tree.parser.find_kinds(tree.files())
    assert [document.value["kind"] for document in found] == ["Policy", "Environment"]
    with monkeypatch.context() as patch:
        patch.setattr(parse, "parse_text", lambda text: pytest.fail(f"parsed {text}"))
        assert tree.parser.find_kinds(tree.files()) == found
    tree.write("p.yaml", "kind: Policy\nspec: 1\n")
    assert [document.value.get("spec") for document in tree.parser.find_kinds(tree.files())] == [1]


def test_broken_files_are_left_to_parse(tree: Tree) -> None:
    tree.write("p.yaml", "kind: Policy\nx: [\n---\nkind: Policy\n")
    files = tree.files()
    assert [document.location.line for document in tree.parser.find_kinds(files)] == [4]
    assert [problem.code for problem in tree.parser.parse(files, None).problems] == ["yaml-syntax"]


def many(count: int, filler: int) -> str:
    broken = {count // 3: "a: no\n", count // 2: "a: [\n"}
    return "---\n".join(broken.get(number, f"a: {number}\nb: {'x' * filler}\n") for number in range(count))


def test_processes_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    for number in range(3):
        tree.write(f"{number}.yaml", many(400, 2500))
    tree.write("small.json", '{"a": 1}')
    files = tree.files()
    assert sum(file.signature[1] for file in files) > parse._POOL_FROM_BYTES
    monkeypatch.setattr(parse, "compile_here", lambda *_: pytest.fail("not spread over processes"))
    apart: ParsedFiles[object] = Parser(getattr).parse(files, "location")
    monkeypatch.undo()
    monkeypatch.setattr(parse, "_POOL_FROM_BYTES", 2**40)
    here: ParsedFiles[object] = Parser(getattr).parse(files, "location")
    assert apart == here
    assert len(here.results) == 3 * 398 + 1
    assert [problem.code for problem in here.problems] == ["ambiguous-scalar", "yaml-syntax"] * 3


def test_a_fault_in_a_process_is_raised_and_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    tree.write("a.yaml", many(4, 10))
    monkeypatch.setattr(parse, "_POOL_FROM_BYTES", 0)
    parser: Parser[str, object] = Parser(getattr)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        parser.parse(tree.files(), "no_such_attribute")
    assert len(parser.parse(tree.files(), "value").results) == 2


def die(_document: Document, _context: object) -> None:
    os._exit(9)


def test_a_process_that_is_killed_is_an_error_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    tree.write("a.yaml", "a: 1\n")
    monkeypatch.setattr(parse, "_POOL_FROM_BYTES", 0)
    parser: Parser[object, None] = Parser(die)
    with pytest.raises(ReconcilerError, match="was killed"):
        parser.parse(tree.files(), None)


def test_standard_input_is_parsed_like_a_file() -> None:
    files = collect(["-"], stdin=b"a: 1\n---\na: no\n").files
    compiled: ParsedFiles[object] = Parser(getattr).parse(files, "value")
    assert compiled.results == ({"a": 1},)
    assert [str(problem).partition(" ")[0] for problem in compiled.problems] == ["<stdin>:3:4:"]


def test_texts_are_compiled_in_order() -> None:
    texts = [Text("f", b"a: %d\n" % number) for number in range(3)]
    outcomes = processes.compile_here(processes.Compiler(getattr, lambda _result: 0, "value"), texts)
    assert [outcome.results for outcome in outcomes] == [({"a": 0},), ({"a": 1},), ({"a": 2},)]


def test_a_problem_of_reading_is_one_problem() -> None:
    with pytest.raises(InvalidInput) as caught:
        SourceFile("shown.yaml", "/nonexistent/file.yaml", (0, 0, 0)).read()
    assert caught.value.problems == (Problem("shown.yaml", 1, 1, "not-found", "no such file or directory"),)
