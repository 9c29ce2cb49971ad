"""Whatever is thrown at the command: a clear message with file and line, soon, in little memory, and never a traceback."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from reconciler.manifests.reference.fields import KINDS, Shape, fields_of, model_in
from tests.support.choice import examples
from tests.support.daemon.command import SECONDS, Command, Ended
from tests.support.values.catalogues import CATALOGUE

CPU_SECONDS = 10.0
RSS_MB = 500
# The peak of a process includes that of the one it was forked from: a small one stands between.
_MEASURE = """
import json, os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024], file)
"""
HEAD = "apiVersion: reconciler/v1\nkind: Stream\nmetadata: {name: S}\nspec: "


@dataclass(frozen=True)
class Cli:
    """The command, with a server named at which nobody listens: whoever connects ends with 6."""

    command: Command

    def __call__(
        self, *arguments: str | Path, stdin: bytes = b"", code: int = 4, environ: Mapping[str, str] | None = None
    ) -> Ended:
        """Run it within the bounds; `code` is what it must exit with."""
        usage = self.command.home / "usage"
        call = [sys.executable, "-m", "reconciler", *map(str, arguments)]
        measured = [sys.executable, "-I", "-S", "-c", _MEASURE, str(usage), *call]
        env = self.command.environ(environ or {})
        done = subprocess.run(
            measured, input=stdin, capture_output=True, check=True, env=env, cwd=self.command.home, timeout=SECONDS
        )
        ended = Ended(json.loads(usage.read_text())[0], done.stdout.decode(), done.stderr.decode())
        _, cpu, rss = json.loads(usage.read_text())
        assert ended.code == code, ended
        assert "Traceback" not in ended.out + ended.err
        assert (cpu < CPU_SECONDS, rss < RSS_MB) == (True, True), (cpu, rss)
        return ended


@pytest.fixture
def cli(offline: Command) -> Iterator[Cli]:
    """The command as above."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Cli(Command(offline.home, f"nats://127.0.0.1:{taken.getsockname()[1]}"))


def dense(width: int) -> bytes:
    """Aliases that would grow to width ** 9 values."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


# file: what it holds, and the line and code of the first problem
GARBAGE: dict[str, tuple[bytes, str]] = {
    "alias-bomb.yaml": (dense(9), "[0-9]+:[0-9]+: alias-bomb"),
    "binary.json": (random.Random(1).randbytes(100_000), "1:[0-9]+: not-utf8"),
    "binary.yaml": (random.Random(2).randbytes(100_000), "1:[0-9]+: not-utf8"),
    "deep.json": (b'{"a":' * 500 + b"1" + b"}" * 500, "1:[0-9]+: too-deep"),
    "deep.yaml": (b"a: " + b"[" * 100_000, "1:[0-9]+: too-deep"),
    "deepest.json": (b"[" * 1_000_000, "1:[0-9]+: (json-syntax|too-deep)"),
    "duplicate.json": (b'{"apiVersion": "reconciler/v1",\n "kind": "Stream", "kind": "Stream"}', "2:20: duplicate-key"),
    "duplicate.yaml": (HEAD.encode() + b"{\n maxAge: 1s,\n maxAge: 2s}\n", "6:2: duplicate-key"),
    "infinite.json": (b'{"a": 1e999}', "1:7: json-syntax"),
    "latin1.yaml": (b"a: 1\n# \xe9\n", "2:3: not-utf8"),
    "merge.yaml": (HEAD.encode() + b"{<<: {maxAge: 1s}}", "4:8: merge-key"),
    "nan.json": (b'{"a": NaN}', "1:7: json-syntax"),
    "nul.yaml": (b"a: b\nc: \0\n", "2:4: control-character"),
    "tag.yaml": (b"a: !!python/object/apply:os.system [id]\n", "1:4: bad-tag"),
    "truncated.json": (b'{"apiVersion": "reconciler/v1", "kind', "1:[0-9]+: json-syntax"),
    "utf16.yaml": (HEAD.encode("utf-16"), "1:1: not-utf8: .*UTF-16"),
    "yaml11.yaml": (HEAD.encode() + b"{\n denyDelete: no}", "5:14: ambiguous-scalar"),
    "octal.yaml": (HEAD.encode() + b"{maxAge: 0755}", "4:16: ambiguous-scalar"),
    "base60.yaml": (HEAD.encode() + b"{maxAge: 1:30}", "4:16: ambiguous-scalar"),
    "huge.yaml": (HEAD.encode() + b"{maxMsgs: " + b"9" * 30 + b"}", "4:17: number-range"),
    "not-finite.yaml": (HEAD.encode() + b"{maxMsgs: .nan}", "4:17: number-range"),
    "name.yaml": (HEAD.replace("S}", "orders.*}").encode() + b"{}", "3:12: bad-name"),
    "kind.yaml": (HEAD.replace("Stream", "Strem").encode() + b"{}", "2:1: unknown-kind: .*did you mean Stream"),
    "no-kind.yaml": (HEAD.replace("kind: Stream", "kind:").encode() + b"{}", "2:1: missing-field: .*Consumer"),
    "version.yaml": (HEAD.replace("/v1", "/v9").encode() + b"{}", "1:1: unknown-api-version: .*reconciler/v1"),
    "list.yaml": (b"- a\n", "1:1: not-a-mapping"),
    "empty.yaml": (b"", "1:1: empty-file: .*restore it"),
    "blank.yaml": (b" \n\n", "1:1: empty-file"),
    "environment.yaml": (
        HEAD.replace("Stream", "Environment").encode()
        + b"\n  expect: 7\n  defaults: {Stream: {maxAeg: 1s}}\n  patches: [{target: {kind: Strem, name: []}, spec: x}]\n",
        "5:3: wrong-type",
    ),
    "policy.yaml": (HEAD.replace("Stream", "Policy").encode() + b'{consumers: {namePattern: "["}}', "4:[0-9]+: bad-value"),
    "nack.yaml": (
        HEAD.replace("reconciler/v1", "jetstream.nats.io/v1beta2").encode() + b"{name: S, storage: tape, junk: {}, maxAge: [1]}",
        "4:[0-9]+: [a-z-]+",
    ),
}
FINE = {
    "bom.yaml": b"\xef\xbb\xbf" + CATALOGUE.replace("\n", "\r\n").encode(),
    "comments.yml": b"# nothing\n---\n",
}


@pytest.mark.parametrize("command", ["validate", "plan", "diff", "apply --yes"])
def test_every_kind_of_garbage_is_named_with_its_place(cli: Cli, tmp_path: Path, command: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name, data in {**FINE, **{name: data for name, (data, _) in GARBAGE.items()}}.items():
        (tree / name).write_bytes(data)
    (tree / "broken.yaml").symlink_to("nowhere")
    (tree / "loop.yaml").symlink_to("loop.yaml")
    (tree / "directory.yaml").mkdir()
    (tree / "directory.yaml" / "up").symlink_to("..")
    os.mkfifo(tree / "pipe.yaml")
    odd = {
        "broken.yaml": "broken-link",
        "loop.yaml": "broken-link",
        "directory.yaml/up": "directory-twice",
        "pipe.yaml": "not-a-file",
    }
    ended = cli(*command.split(), "-f", tree)
    told = ended.out if command == "validate" else ended.err
    for name, place in {
        **{name: place for name, (_, place) in GARBAGE.items()},
        **{n: f"1:1: {c}" for n, c in odd.items()},
    }.items():
        assert re.search(rf"^{re.escape(str(tree))}/{re.escape(name)}:{place}", told, re.MULTILINE), (name, told)
    assert not any(f"/{name}:" in told for name in FINE)
    assert max(map(len, told.splitlines())) < 500
    assert command == "validate" or ended.out == ""


@contextmanager
def as_nobody() -> Iterator[None]:
    """No rights beyond those of any user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_unreadable_file_or_directory_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "x.yaml").touch(mode=0)
        (Path(directory) / "sub").mkdir(mode=0)
        (Path(directory) / "fine.yaml").write_text(CATALOGUE)
        assert run(["validate", "-f", f"{directory}/fine.yaml"], Terminal({})) == 0  # everything is imported now
        with as_nobody():
            assert run(["validate", "-f", directory], Terminal({})) == 4
        told = capsys.readouterr().out
        for name in ("x.yaml", "sub"):
            assert f"{directory}/{name}:1:1: unreadable: permission denied" in told


BIG = {
    "one-line.yaml": b"x" * 10_000_000,
    "one-line.json": b'{"a": "' + b"x" * 10_000_000 + b'"}',
    "flow.yaml": HEAD.encode() + b"{subjects: [" + b"a," * 5_000_000 + b"]}",
    "mistakes.yaml": b"---\n".join(HEAD.replace("S}", f"S{n}}}").encode() + b"{maxAeg: 1s}\n" for n in range(100_000)),
    "fields.yaml": HEAD.encode() + b"\n" + b"".join(b"  f%d: 1\n" % n for n in range(100_000)),
    "scalars.yaml": b"--- a\n" * 1_000_000,
    "brace.yaml": b"{a: b}\n" + b"---\n{apiVersion: 1, kind: Stream, metadata: {name: 3}, spec: 1, x: y}\n" * 50_000,
}


@pytest.mark.parametrize("name", BIG)
def test_a_flood_is_answered_soon_and_readably(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(BIG[name])
    lines = cli("validate", "-f", tmp_path / name).out.splitlines()
    assert 1 <= len(lines) <= 1001
    assert all(line.startswith((f"{tmp_path / name}:", "and ")) for line in lines)


WRONG: Mapping[str, object] = {
    "text": 7,
    "integer": "seven",
    "number": "seven",
    "boolean": "perhaps",
    "duration": "soon",
    "size": "big",
    "timestamp": "never",
    "subject": "a..b",
    "literal": "a.*",
    "enum": "perhaps",
    "list": 7,
    "mapping": 7,
    "object": 7,
}
Path_ = tuple[str | int, ...]


def wrong_values(model: type[BaseModel], seen: tuple[type[BaseModel], ...] = ()) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """For each field at any depth: its path, and a spec in which it alone is wrong."""
    for name, field in fields_of(model).items():
        if field.shape.name in WRONG:
            yield (name,), {name: WRONG[field.shape.name]}
        if field.shape.item and field.shape.item.name in WRONG:
            listed = field.shape.name == "list"
            value = WRONG[field.shape.item.name]
            yield (name, 0 if listed else "k"), {name: [value] if listed else {"k": value}}
        inner = model_in(field.shape)
        if inner and inner not in seen:
            for path, spec in wrong_values(inner, (*seen, model)):
                yield (name, *_within(field.shape), *path), {name: [spec] if field.shape.name == "list" else spec}


def _within(shape: Shape) -> Path_:
    return (0,) if shape.name == "list" else ()


def test_every_field_of_every_kind_is_checked_and_all_mistakes_are_told_at_once(cli: Cli, tmp_path: Path) -> None:
    cases = [(kind, path, spec) for kind, model in KINDS.items() for path, spec in wrong_values(model)]
    documents = []
    for number, (kind, _, spec) in enumerate(cases):
        base = {"stream": "S"} if "stream" in fields_of(KINDS[kind]) else {}
        document = {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": f"n{number}"}, "spec": {**base, **spec}}
        documents.append(f"---\n{json.dumps(document)}\n")
    (tmp_path / "all.yaml").write_text("".join(documents))
    told = cli("validate", "-f", tmp_path / "all.yaml", "--format", "json").json["problems"]
    assert len(cases) > 200
    lines = "".join(documents).splitlines()
    found = {(problem["line"], problem["field"]): problem for problem in told}
    for number, (kind, path, _) in enumerate(cases):
        field = "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        problem = found.get((2 * number + 2, field))
        assert problem, (kind, field)
        named = next(step for step in reversed(path) if isinstance(step, str))
        at = lines[problem["line"] - 1][problem["column"] - 1 :]
        assert at.startswith(f'"{named}"') or isinstance(path[-1], int), (kind, field, problem)


def plan_file(**changed: object) -> bytes:
    """A plan file with a part of it replaced, whose digest is right."""
    inputs = changed.pop("inputs", {})
    plain = json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()
    whole = {"apiVersion": "reconciler/v1", "kind": "Plan", "fingerprint": "sha256:0", "inputs": inputs}
    return json.dumps(whole | {"inputsDigest": f"sha256:{hashlib.sha256(plain).hexdigest()}"} | changed).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\xff",
        plan_file()[:-20],
        b"[" * 100_000,
        b'"Plan"',
        plan_file(apiVersion="reconciler/v2"),
        plan_file(kind="List"),
        plan_file(inputs=None),
        plan_file(inputsDigest="sha256:0"),
        plan_file(inputs={"desired": [], "rules": 7}),
        plan_file(inputs={"desired": {"resources": [7]}, "rules": {}}),
        CATALOGUE.encode(),
    ],
    ids=["empty", "binary", "cut", "deep", "text", "version", "kind", "printed", "changed", "types", "rows", "manifests"],
)
def test_a_bad_plan_file_is_refused_before_connecting(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    (tmp_path / "plan.json").write_bytes(data)
    assert run(["apply", str(tmp_path / "plan.json"), "--yes"], Terminal({})) == 4
    assert re.match(rf"{re.escape(str(tmp_path))}/plan\.json:\d+:\d+: plan-file: ", capsys.readouterr().err)


def test_a_plan_file_that_is_no_file_does_not_hang(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    assert "plan.json:1:1: not-a-file" in cli("apply", tmp_path / "plan.json", "--yes").err


def test_line_100_is_not_turned_into_an_emoji(cli: Cli) -> None:
    bad = b"#\n" * 99 + b"a: no\n"
    assert cli("validate", "-f", "-", stdin=bad).out.startswith("<stdin>:100:4: ambiguous-scalar")
    assert cli("plan", "-f", "-", stdin=bad).err.startswith("<stdin>:100:4: ambiguous-scalar")


def test_garbage_on_stdin(cli: Cli) -> None:
    assert "<stdin>:1:1: not-utf8" in cli("plan", "-f", "-", stdin=b"\xff\xfe\0").err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--file=", "-f"),
        ("-f x --env=nowhere", "x:1:1: not-found"),
        (f"-f {'x' * 5000}", "file name too long"),
        ("-f x --target Stream/", "--target"),
        ("-f x --target Strem/A", "--target"),
        ("-f x --allow recreate", "--allow"),
        ("-f x --allow recreate=Stream", "--allow"),
        ("-f x --max-change-percent 101", "--max-change-percent"),
        ("-f x --max-change-percent 1e3", "--max-change-percent"),
        ("-f x --timeout 5parsecs --yes", "--timeout"),
        ("-f x --timeout -1s --yes", "--timeout"),
        ("-f x --timeout 99999999999999999999w --yes", "--timeout"),
    ],
)
def test_garbage_on_the_command_line_names_its_flag(arguments: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["apply" if "--timeout" in arguments else "plan", *arguments.split()], Terminal({}))
    assert code == (64 if named.startswith("-") else 4)
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"RECONCILER_POLICY": "sometimes"}, 64),
        ({"RECONCILER_MAX_CHANGE_PERCENT": "many"}, 64),
        ({"RECONCILER_ADOPT": "perhaps"}, 64),
        ({"RECONCILER_ENV": "nowhere"}, 4),
        ({"RECONCILER_OWNER": "a b\n*"}, 64),
        ({"NATS_CONTEXT": "../../etc/passwd"}, 64),
        ({"NATS_CONTEXT": "junk"}, 64),
        ({"NATS_TIMEOUT": "soon"}, 64),
        ({"NATS_URL": ","}, 64),
        ({"NATS_URL": "http://[::1"}, 6),
        ({"NATS_URL": "nats://127.0.0.1:99999"}, 6),
    ],
    ids=str,
)
def test_garbage_in_the_environment(
    environ: dict[str, str], code: int, catalogue: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = catalogue.parent / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "junk.json").write_bytes(b'{"url": \xff')
    for name, value in {"XDG_CONFIG_HOME": str(catalogue.parent), **environ}.items():
        monkeypatch.setenv(name, value)
    assert run(["plan", "-f", str(catalogue)], Terminal({})) == code
    err = capsys.readouterr().err
    assert "error: " in err
    assert "bug in reconciler" not in err


POOL = HEAD.replace("Stream", "WorkerPool").replace("S}", "p}") + "{stream: PAYMENTS}\n"
INDEX = (
    HEAD.replace("Stream", "AssignmentIndex").replace("S}", "p}") + "{pool: p, generation: 1, files: [{path: %s, sha256: %s}]}\n"
)


@pytest.mark.parametrize(
    ("index", "code", "told"),
    [
        (INDEX % ("w.json", "ab" * 32), 0, ""),
        (INDEX % ("missing.json", "ab" * 32), 0, ""),
        (INDEX % ("../../escape.json", "ab" * 32), 4, "4:[0-9]+: bad-index: .*leads out"),
        (INDEX % ("/etc/passwd", "ab" * 32), 4, "4:[0-9]+: bad-index: .*leads out"),
        (INDEX % ("w.json", "sha"), 4, "4:[0-9]+: bad-(index|value)"),
        (INDEX % ("[]", "7"), 4, "4:[0-9]+: "),
        ("junk: [", 4, "1:[0-9]+: "),
        ("", 4, "1:1: bad-index"),
    ],
    ids=["hash", "missing", "escape", "absolute", "no hash", "types", "junk", "empty"],
)
def test_a_bad_index(index: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all.yaml").write_text(f"{CATALOGUE}---\n{POOL}")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "_index.yaml").write_text(index)
    (tmp_path / "made" / "w.json").write_text("{")
    assert run(["validate", "-f", str(tmp_path)], Terminal({})) == code
    assert re.search(f"_index.yaml:{told}" if told else "all valid", capsys.readouterr().out)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, len(CATALOGUE)),
    st.integers(0, 40),
    st.one_of(st.binary(max_size=12), st.text("{}[]:-&*!|>'\"%@#,\n \t.0n~", max_size=8)),
)
def test_mutated_manifests_are_valid_or_invalid_but_never_a_crash(at: int, cut: int, put: bytes | str) -> None:
    whole = CATALOGUE.encode()
    mutated = whole[:at] + (put if isinstance(put, bytes) else put.encode()) + whole[at + cut :]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "x.yaml").write_bytes(mutated)
        assert run(["validate", "-f", directory], Terminal({})) in (0, 4)
