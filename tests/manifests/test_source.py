"""Which files a `-f` argument stands for, and that nothing in a file system can hide a file or hang the walk."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from reconciler.errors import InvalidInput
from reconciler.manifests.files import source
from reconciler.manifests.files.source import SourceFile, SourceTree, collect


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name: {name}\n")


def shown(tree: SourceTree, root: Path) -> list[str]:
    return [file.path.removeprefix(f"{root}/") for file in tree.files]


def codes(tree: SourceTree) -> list[tuple[str, str]]:
    return [(Path(problem.file).name, problem.code) for problem in tree.problems]


def test_a_directory_stands_for_its_manifests_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, "b.yml", "a.yaml", "sub/z.json", "sub/_index.yaml", "c.txt", "README.md", "z.yaml")
    write(tmp_path, ".hidden.yaml", "_part.yaml", "_plan/x.yaml", ".git/x.yaml", "sub/deep/er/x.yaml")
    tree = collect([str(tmp_path)])
    assert shown(tree, tmp_path) == ["a.yaml", "b.yml", "sub/_index.yaml", "sub/deep/er/x.yaml", "sub/z.json", "z.yaml"]
    assert (tree.problems, tree.revision) == ((), "")


def test_a_file_that_is_named_counts_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path, "_part.txt")
    assert shown(collect([str(tmp_path / "_part.txt")]), tmp_path) == ["_part.txt"]


def test_paths_are_shown_as_the_user_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "m/a.yaml")
    monkeypatch.chdir(tmp_path)
    assert [file.path for file in collect(["m"]).files] == ["m/a.yaml"]
    assert [file.path for file in collect(["./m/"]).files] == ["m/a.yaml"]
    assert [file.path for file in collect(["."]).files] == ["m/a.yaml"]


def test_standard_input_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    tree = collect(["-", str(tmp_path)], stdin=b"x: 1\n")
    assert [file.path for file in tree.files] == ["<stdin>", f"{tmp_path}/a.yaml"]
    assert tree.files[0].read() == b"x: 1\n"


def test_an_empty_directory_is_no_error(tmp_path: Path) -> None:
    assert collect([str(tmp_path)]) == SourceTree(())


def test_a_missing_path_is_a_problem(tmp_path: Path) -> None:
    tree = collect([str(tmp_path / "nothing"), str(tmp_path)])
    assert codes(tree) == [("nothing", "not-found")]


def test_a_git_sync_link_is_resolved_once_and_names_the_revision(tmp_path: Path) -> None:
    write(tmp_path, "worktrees/0123abc/deploy/a.yaml", "worktrees/0123abc/b.yaml")
    (tmp_path / "current").symlink_to("worktrees/0123abc")
    tree = collect([str(tmp_path / "current")])
    assert tree.revision == "0123abc"
    assert shown(tree, tmp_path) == ["current/b.yaml", "current/deploy/a.yaml"]
    (tmp_path / "current").unlink()
    assert tree.files[0].read() == b"name: worktrees/0123abc/b.yaml\n"


def test_a_link_above_the_path_names_the_revision_if_it_is_a_commit(tmp_path: Path) -> None:
    write(tmp_path, "worktrees/0123abc/deploy/a.yaml", "data/deploy/a.yaml")
    (tmp_path / "current").symlink_to("worktrees/0123abc")
    (tmp_path / "link").symlink_to("data")
    assert collect([str(tmp_path / "current/deploy")]).revision == "0123abc"
    assert collect([str(tmp_path / "link/deploy")]).revision == ""


def test_a_config_map_is_read_from_one_generation(tmp_path: Path) -> None:
    write(tmp_path, "..2024_11_18/a.yaml", "..2024_11_18/b.yaml")
    (tmp_path / "..data").symlink_to("..2024_11_18")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    tree = collect([str(tmp_path)])
    assert shown(tree, tmp_path) == ["a.yaml", "b.yaml"]
    assert tree.revision == "..2024_11_18"
    write(tmp_path, "..2024_11_19/a.yaml")
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..2024_11_19")
    assert [file.read() for file in tree.files] == [b"name: ..2024_11_18/a.yaml\n", b"name: ..2024_11_18/b.yaml\n"]


def test_links_inside_are_followed_but_no_directory_is_read_twice(tmp_path: Path) -> None:
    write(tmp_path, "a/x.yaml", "elsewhere/y.yaml")
    (tmp_path / "a/file.yaml").symlink_to("../elsewhere/y.yaml")
    (tmp_path / "a/other").symlink_to("../elsewhere")
    (tmp_path / "a/self").symlink_to(".")
    tree = collect([str(tmp_path / "a"), str(tmp_path / "elsewhere")])
    assert shown(tree, tmp_path) == ["a/file.yaml", "a/other/y.yaml", "a/x.yaml"]
    assert codes(tree) == [("self", "directory-twice"), ("elsewhere", "directory-twice")]
    assert f"already read as {tmp_path}/a/other" in tree.problems[1].message


def test_a_diamond_of_links_is_not_read_exponentially(tmp_path: Path) -> None:
    for level in range(40):
        (tmp_path / f"d{level}").mkdir()
        for side in "lr":
            (tmp_path / f"d{level}" / side).symlink_to(f"../d{level + 1}")
    write(tmp_path, "d40/x.yaml")
    tree = collect([str(tmp_path / "d0")])
    assert len(tree.files) == 1
    assert {code for _, code in codes(tree)} == {"directory-twice"}


def test_broken_links_and_link_loops_are_problems(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("nothing")
    (tmp_path / "b.yaml").symlink_to("b.yaml")
    (tmp_path / "directory").symlink_to("gone")
    (tmp_path / "text").symlink_to("/dev/null")
    assert codes(collect([str(tmp_path)])) == [(name, "broken-link") for name in ("a.yaml", "b.yaml", "directory")]
    assert codes(collect([str(tmp_path / "a.yaml")])) == [("a.yaml", "broken-link")]


def test_pipes_devices_and_sockets_are_problems_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            listener.bind("socket.yaml")
        finally:
            os.chdir(here)
        (tmp_path / "zero.yaml").symlink_to("/dev/zero")
        tree = collect([str(tmp_path), str(tmp_path / "pipe.yaml"), "/dev/zero"])
    names = ["pipe.yaml", "socket.yaml", "zero.yaml", "pipe.yaml", "zero"]
    assert codes(tree) == [(name, "not-a-file") for name in names]


def test_a_file_that_became_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (file,) = collect([str(tmp_path)]).files
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(InvalidInput, match="not-a-file"):
        file.read()


def test_a_file_that_went_away_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (file,) = collect([str(tmp_path)]).files
    (tmp_path / "a.yaml").unlink()
    with pytest.raises(InvalidInput, match=r"a\.yaml:1:1: not-found"):
        file.read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "b/c.yaml")
    (tmp_path / "a.yaml").chmod(0)
    (tmp_path / "b").chmod(0)
    tree = collect([str(tmp_path)])
    assert codes(tree) == [("b", "unreadable")]
    with pytest.raises(InvalidInput, match="unreadable"):
        tree.files[0].read()


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.yaml").open("wb") as sparse:
        sparse.truncate(source.MAX_FILE + 1)
    tree = collect([str(tmp_path)])
    assert codes(tree) == [("a.yaml", "file-too-large")]
    monkeypatch.setattr(source, "MAX_FILE", 3)
    assert codes(collect(["-"], stdin=b"1234")) == [("<stdin>", "file-too-large")]


def test_a_file_that_grew_is_refused_once_it_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.yaml")
    (file,) = collect([str(tmp_path)]).files
    monkeypatch.setattr(source, "MAX_FILE", 3)
    with pytest.raises(InvalidInput, match="file-too-large"):
        file.read()


def test_directories_deeper_than_anyone_writes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "d/" * 70 + "a.yaml")
    tree = collect([str(tmp_path)])
    assert (tree.files, [code for _, code in codes(tree)]) == ((), ["too-deep"])


def test_names_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml")).write_bytes(b"a: 1\n")
    (file,) = collect([str(tmp_path)]).files
    assert file.path.encode() == f"{tmp_path}/\\xff.yaml".encode()
    assert file.read() == b"a: 1\n"


def test_the_signature_moves_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (before,) = collect([str(tmp_path)]).files
    assert collect([str(tmp_path)]).files == (before,)
    write(tmp_path, "new")
    (tmp_path / "new").rename(tmp_path / "a.yaml")
    (after,) = collect([str(tmp_path)]).files
    assert isinstance(after, SourceFile)
    assert after.signature != before.signature
