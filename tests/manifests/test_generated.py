"""Generated directories: the index decides what counts, and an incomplete pool is held back alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from reconciler.manifests.files.generated import INDEX_KIND, HeldBack, Selection, index_files, select
from reconciler.manifests.files.parse import ParsedFiles, Parser
from reconciler.manifests.files.source import collect


class Generated:
    """A tree with one generated directory for each pool, as the planner writes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.parser: Parser[str, object] = Parser(getattr, {INDEX_KIND})

    def worker(self, name: str, subject: str = "a") -> None:
        """Writes the assignment of one worker."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"kind: WorkerAssignment\nspec: {{worker: {path.stem}, filterSubjects: [{subject}]}}\n")

    def entry(self, directory: str, path: str) -> dict[str, str]:
        """What an index says of a file."""
        return {"path": path, "sha256": hashlib.sha256((self.root / directory / path).read_bytes()).hexdigest()}

    def index(self, directory: str, pool: str, *files: object, generation: int = 1) -> None:
        """Writes an index; files may be given as ready entries."""
        entries = [self.entry(directory, file) if isinstance(file, str) else file for file in files]
        spec = {"pool": pool, "generation": generation, "files": entries}
        (self.root / directory).mkdir(exist_ok=True)
        (self.root / directory / "_index.yaml").write_bytes(orjson.dumps({"kind": INDEX_KIND, "spec": spec}))

    def select(self) -> Selection:
        """One pass."""
        tree = collect([str(self.root)])
        assert tree.problems == ()
        self.parser.refresh(tree.files)
        indexes = self.parser.find_kinds(index_files(tree.files))
        return select(tree.files, indexes, self.parser.sha256)

    def counted(self) -> list[str]:
        """The names of the files that count."""
        return self.names(self.select())

    def names(self, selection: Selection) -> list[str]:
        """Their paths below the root."""
        return [file.path.removeprefix(f"{self.root}/") for file in selection.files]


@pytest.fixture
def tree(tmp_path: Path) -> Generated:
    made = Generated(tmp_path)
    made.worker("hand.yaml")
    for pool in ("p", "q"):
        made.worker(f"{pool}/3f/worker-0.yaml")
        made.worker(f"{pool}/a0/worker-1.yaml")
        made.index(pool, pool, "3f/worker-0.yaml", "a0/worker-1.yaml")
    return made


ALL = ["hand.yaml", *(f"{pool}/{file}" for pool in "pq" for file in ("3f/worker-0.yaml", "_index.yaml", "a0/worker-1.yaml"))]
WITHOUT_P = [name for name in ALL if name == "p/_index.yaml" or not name.startswith("p/")]


def test_a_complete_pool_counts(tree: Generated) -> None:
    selection = tree.select()
    assert tree.names(selection) == sorted(ALL, key=lambda name: name.split("/"))
    assert (selection.held_back, selection.problems) == ((), ())
    assert [whole.pool for whole in selection.whole] == ["p", "q"]


def test_a_tree_without_an_index_is_left_alone(tmp_path: Path) -> None:
    tree = Generated(tmp_path)
    tree.worker("x/a.yaml")
    assert tree.counted() == ["x/a.yaml"]


def test_a_file_that_is_not_listed_does_not_count_and_warns(tree: Generated) -> None:
    tree.worker("p/3f/stale.yaml")
    tree.worker("p/_plan/part.yaml")
    selection = tree.select()
    assert "p/3f/stale.yaml" not in tree.names(selection)
    (problem,) = selection.problems
    assert (Path(problem.file).name, problem.code, problem.severity) == ("stale.yaml", "not-in-index", "warning")
    assert problem.message.endswith("p/_index.yaml does not list it")
    assert selection.held_back == ()


def test_a_missing_file_holds_back_its_pool_only(tree: Generated) -> None:
    (tree.root / "p/3f/worker-0.yaml").unlink()
    selection = tree.select()
    assert selection.held_back == (HeldBack("p", f"{tree.root}/p/3f/worker-0.yaml: missing"),)
    assert [whole.pool for whole in selection.whole] == ["q"]
    assert sorted(tree.names(selection)) == sorted(WITHOUT_P)
    assert selection.problems == ()


def test_a_wrong_hash_holds_back_its_pool_only(tree: Generated) -> None:
    tree.worker("p/3f/worker-0.yaml", "b")
    tree.worker("p/a0/worker-1.yaml", "b")
    selection = tree.select()
    (held,) = selection.held_back
    assert (held.pool, "worker-0.yaml and 1 more: not what the index says" in held.reason) == ("p", True)
    assert sorted(tree.names(selection)) == sorted(WITHOUT_P)


def test_a_file_that_is_listed_but_skipped_by_its_name_is_missing(tree: Generated) -> None:
    tree.worker("p/_w.yaml")
    tree.index("p", "p", "_w.yaml")
    assert [held.pool for held in tree.select().held_back] == ["p"]


def test_a_pool_is_released_when_it_is_complete_again(tree: Generated) -> None:
    tree.worker("p/3f/worker-0.yaml", "b")
    assert [held.pool for held in tree.select().held_back] == ["p"]
    tree.index("p", "p", "3f/worker-0.yaml", "a0/worker-1.yaml", generation=2)
    assert tree.select().held_back == ()


def test_only_what_a_generation_changed_is_parsed(tree: Generated) -> None:
    first = tree.select()
    tree.parser.parse(first.files, "value")
    tree.worker("p/3f/worker-0.yaml", "b")
    tree.index("p", "p", "3f/worker-0.yaml", "a0/worker-1.yaml", generation=2)
    second: ParsedFiles[object] = tree.parser.parse(tree.select().files, "value")
    assert second.parsed == 2


def test_an_empty_index_empties_the_pool(tree: Generated) -> None:
    tree.index("p", "p")
    selection = tree.select()
    assert sorted(tree.names(selection)) == sorted(WITHOUT_P)
    assert {problem.code for problem in selection.problems} == {"not-in-index"}


def test_the_nearest_index_decides(tree: Generated) -> None:
    tree.worker("p/inner/w.yaml")
    tree.index("p/inner", "inner", "w.yaml")
    assert "p/inner/w.yaml" in tree.counted()
    tree.index("p/inner", "inner")
    assert "p/inner/w.yaml" not in tree.counted()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "../hand.yaml", "sha256": "0" * 64}, "leads out"),
        ({"path": "3f/../../hand.yaml", "sha256": "0" * 64}, "leads out"),
        ({"path": "/etc/passwd", "sha256": "0" * 64}, "leads out"),
        ({"path": "", "sha256": "0" * 64}, "path is missing"),
        ({"path": 7, "sha256": "0" * 64}, "path is missing"),
        ({"path": "3f/worker-0.yaml"}, "needs its sha256"),
        ({"path": "3f/worker-0.yaml", "sha256": "ABC"}, "needs its sha256"),
        (["3f/worker-0.yaml"], "path is missing"),
    ],
)
def test_a_wrong_entry_is_an_error_and_nothing_of_the_directory_counts(tree: Generated, entry: object, message: str) -> None:
    tree.index("p", "p", "a0/worker-1.yaml", entry)
    selection = tree.select()
    errors = [problem for problem in selection.problems if problem.severity == "error"]
    assert [(problem.code, problem.field) for problem in errors] == [("bad-index", "spec.files[1]")]
    assert message in errors[0].message
    assert errors[0].column > 1
    assert sorted(tree.names(selection)) == sorted(WITHOUT_P)


def test_a_file_that_is_listed_twice_is_an_error(tree: Generated) -> None:
    tree.index("p", "p", "a0/worker-1.yaml", {**tree.entry("p", "a0/worker-1.yaml"), "path": "./a0/worker-1.yaml"})
    assert ["listed twice" in problem.message for problem in tree.select().problems if problem.severity == "error"] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "kind: AssignmentIndex\n",
        "kind: AssignmentIndex\nspec: {pool: p}\n",
        "kind: AssignmentIndex\nspec: {files: []}\n",
        "kind: Stream\n",
        "",
    ],
)
def test_an_index_that_says_nothing_is_an_error(tree: Generated, text: str) -> None:
    (tree.root / "p/_index.yaml").write_text(text)
    selection = tree.select()
    assert [problem.code for problem in selection.problems if problem.severity == "error"] == ["bad-index"]
    assert sorted(tree.names(selection)) == sorted(WITHOUT_P)


def test_an_index_that_cannot_be_parsed_is_an_error_of_the_whole_load(tree: Generated) -> None:
    (tree.root / "p/_index.yaml").write_text("kind: AssignmentIndex\nspec: [\n")
    selection = tree.select()
    compiled: ParsedFiles[object] = tree.parser.parse(selection.files, "value")
    assert [problem.code for problem in (*selection.problems, *compiled.problems)] == ["bad-index", "yaml-syntax"]
