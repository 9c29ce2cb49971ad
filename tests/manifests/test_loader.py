"""Paths in, one Desired out: what is kept between loads, and what generated directories hold back."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import orjson
import pytest

from reconciler.errors import InvalidInput
from reconciler.manifests.files.loader import Loader
from reconciler.model.identity import Key
from tests.support.values.manifests import document, load, refused, warnings, written

STREAM = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>]}"
CONSUMER = "kind: Consumer\nmetadata: {name: c}\nspec: {stream: S}"
POOL = "kind: WorkerPool\nmetadata: {name: p}\nspec: {stream: S}"


def codes_of(paths: list[str]) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        Loader().load(paths)
    return [problem.code for problem in caught.value.problems]


def test_an_existing_empty_directory_declares_nothing(tmp_path: Path) -> None:
    loaded = Loader().load([str(tmp_path)])
    assert (dict(loaded.desired.resources), loaded.warnings) == ({}, ())


def test_a_missing_path_is_not_an_empty_one(tmp_path: Path) -> None:
    assert codes_of([str(tmp_path / "nowhere")]) == ["not-found"]


def test_files_of_several_paths_and_standard_input_count_together(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", STREAM), tmp_path / "two"
    two.mkdir()
    (two / "c.json").write_bytes(
        orjson.dumps({"apiVersion": "reconciler/v1", "kind": "Consumer", "metadata": {"name": "c"}, "spec": {"stream": "S"}})
    )
    extra = document("kind: Consumer\nmetadata: {name: d}\nspec: {stream: S}").encode()
    loaded = Loader().load([str(one), str(two), "-"], stdin=extra)
    assert [str(key) for key in loaded.desired.resources] == ["Stream/S", "Consumer/S/c", "Consumer/S/d"]
    assert loaded.desired.resources[Key("Consumer", "d", "S")].location.file == "<stdin>"


def test_nothing_new_gives_the_same_object(tmp_path: Path) -> None:
    path = written(tmp_path, STREAM, CONSUMER)
    loader = Loader()
    first = loader.load([str(tmp_path)]).desired
    assert loader.load([str(tmp_path)]).desired is first
    os.utime(path)
    assert loader.load([str(tmp_path)]).desired is first
    assert loader.load([str(tmp_path)], full=True).desired is first


def test_a_change_is_seen_and_a_fault_in_between_forgotten(tmp_path: Path) -> None:
    loader = Loader()
    written(tmp_path, STREAM)
    first = loader.load([str(tmp_path)]).desired
    written(tmp_path, STREAM.replace("s.>", "s.>, t"))
    second = loader.load([str(tmp_path)]).desired
    assert second.resources[Key("Stream", "S")].digest != first.resources[Key("Stream", "S")].digest
    written(tmp_path, STREAM.replace("subjects", "subjcts"))
    with pytest.raises(InvalidInput):
        loader.load([str(tmp_path)])
    written(tmp_path, STREAM)
    assert loader.load([str(tmp_path)]).desired == first


def test_a_file_that_is_gone_declares_nothing_any_more(tmp_path: Path) -> None:
    written(tmp_path, STREAM, name="a.yaml")
    path = written(tmp_path, CONSUMER, name="b.yaml")
    loader = Loader()
    assert len(loader.load([str(tmp_path)]).desired.resources) == 2
    path.unlink()
    assert len(loader.load([str(tmp_path)]).desired.resources) == 1


def test_an_environment_in_another_file_recompiles_everything(tmp_path: Path) -> None:
    written(tmp_path, STREAM, name="a.yaml")
    environment = "kind: Environment\nmetadata: {name: e}\nspec: {defaults: {Stream: {replicas: 3}}}"
    written(tmp_path, environment, name="z.yaml")
    loader = Loader()
    assert loader.load([str(tmp_path)], "e").desired.resources[Key("Stream", "S")].config["num_replicas"] == 3
    written(tmp_path, environment.replace("3", "5"), name="z.yaml")
    assert loader.load([str(tmp_path)], "e").desired.resources[Key("Stream", "S")].config["num_replicas"] == 5


def test_the_revision_is_the_commit_that_a_link_points_to(tmp_path: Path) -> None:
    written(tmp_path / "0123abc", STREAM)
    written(tmp_path / "0456def", STREAM)
    link = tmp_path / "current"
    link.symlink_to("0123abc")
    loader = Loader()
    assert loader.load([str(link)]).desired.revision == "0123abc"
    link.unlink()
    link.symlink_to("0456def")
    assert loader.load([str(link)]).desired.revision == "0456def"


def test_problems_are_sorted_by_where_they_stand(tmp_path: Path) -> None:
    wrong = "kind: Stream\nmetadata: {name: A}\nspec: {maxAeg: 1}"
    written(tmp_path, wrong, name="b.yaml")
    written(tmp_path, STREAM, wrong, name="a.yaml")
    with pytest.raises(InvalidInput) as caught:
        Loader().load([str(tmp_path)])
    places = [(Path(problem.file).name, problem.line) for problem in caught.value.problems]
    assert places == [("a.yaml", 9), ("b.yaml", 4)]


def test_a_fault_between_documents_stands_at_its_field(tmp_path: Path) -> None:
    text = "kind: Stream\nmetadata: {name: T}\nspec:\n  subjects:\n  - b\n  - s.x"
    (problem,) = refused(tmp_path, STREAM, text)
    assert (problem.line, problem.column) == (document(STREAM).count("\n") + 1 + 7, 5)


def test_a_document_with_a_fault_is_no_reason_to_miss_it_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path, STREAM.replace("subjects", "subjcts"), CONSUMER)
    assert [problem.code for problem in caught.value.problems] == ["unknown-field"]


def assignment(worker: str, subject: str) -> str:
    spec = f"{{pool: p, worker: {worker}, filterSubjects: [{subject}]}}"
    return f"kind: WorkerAssignment\nmetadata: {{name: p.{worker}}}\nspec: {spec}"


def generated(directory: Path) -> Path:
    """A generated directory of two workers."""
    files = [written(directory, assignment(f"w{n}", f"s.{n}"), name=f"w{n}.yaml") for n in range(2)]
    listed = [{"path": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files]
    entries = "".join(f"\n    - {orjson.dumps(entry).decode()}" for entry in listed)
    index = f"kind: AssignmentIndex\nmetadata: {{name: p}}\nspec:\n  pool: p\n  generation: 7\n  files:{entries}"
    written(directory, index, name="_index.yaml")
    return files[0]


def test_a_complete_generated_directory_fills_its_pool(tmp_path: Path) -> None:
    written(tmp_path, STREAM, POOL)
    generated(tmp_path / "generated")
    loaded = Loader().load([str(tmp_path)])
    assert list(loaded.desired.pools["p"].workers) == ["w0", "w1"]
    assert (dict(loaded.desired.held_back), loaded.warnings) == ({}, ())


def test_an_incomplete_one_holds_back_its_pool_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, STREAM, POOL, POOL.replace("name: p", "name: q"), CONSUMER)
    generated(tmp_path / "generated").unlink()
    loaded = Loader().load([str(tmp_path)])
    assert list(loaded.desired.held_back) == [Key("WorkerPool", "p")]
    assert "w0.yaml" in loaded.desired.held_back[Key("WorkerPool", "p")]
    assert Key("Consumer", "c", "S") in loaded.desired.resources
    assert not loaded.desired.pools["p"].workers
    assert "q" in loaded.desired.pools


def test_a_file_that_the_index_does_not_list_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, STREAM, POOL)
    generated(tmp_path / "generated")
    written(tmp_path / "generated", assignment("w9", "s.9"), name="w9.yaml")
    loaded = Loader().load([str(tmp_path)])
    assert "w9" not in loaded.desired.pools["p"].workers
    assert warnings(loaded) == ["not-in-index"]


def test_a_pool_of_another_domain_has_a_name_of_its_own(tmp_path: Path) -> None:
    loaded = load(tmp_path, STREAM, POOL, POOL.replace("stream: S", "stream: S, domain: leaf"))
    assert list(loaded.desired.pools) == ["p", "leaf:p"]


def test_a_large_set_goes_through_several_processes_and_comes_out_the_same(tmp_path: Path) -> None:
    texts = [STREAM.replace("subjects: [s.>]", "subjects: [s.>], maxConsumers: 100000")]
    texts += [
        f"kind: Consumer\nmetadata: {{name: c{n}}}\nspec: {{stream: S, filterSubject: s.{n}, description: {'x' * 400}}}"
        for n in range(5000)
    ]
    written(tmp_path, *texts)
    loader = Loader()
    desired = loader.load([str(tmp_path)]).desired
    assert len(desired.resources) == 5001
    assert len({id(declared.intent) for declared in desired.resources.values()}) < 200
    assert loader.load([str(tmp_path)], full=True).desired is desired
