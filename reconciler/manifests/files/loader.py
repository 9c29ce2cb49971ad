"""The one way in: paths → Desired, or every problem at once.

Invariant: a set of manifests with an error gives no Desired at all; an unchanged one gives the very same object again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests import environment, policy
from reconciler.manifests.build import Inputs, Loaded, build
from reconciler.manifests.compile import Compiled, Context, compile_document, faults_of
from reconciler.manifests.files.generated import Selection, index_files, select
from reconciler.manifests.files.parse import Parser
from reconciler.manifests.files.source import SourceTree, collect
from reconciler.manifests.syntax.document import Document
from reconciler.manifests.syntax.positions import Positions
from reconciler.model.identity import owner_name
from reconciler.model.kinds.documents import SETTINGS
from reconciler.model.sourcing import with_durables

__all__ = ["Loaded", "Loader"]


class Loader:
    """Loads manifests again and again, remembering what has not changed.

    `owner` says whose they are, of the owner that their Policy declares and the environment: it is in the names of what we
    keep for sources (see `model.sourcing`).
    """

    def __init__(self, owner: Callable[[str, str], str] = owner_name) -> None:
        self._owner = owner
        self._parser: Parser[Context, Compiled] = Parser(compile_document, SETTINGS, faults_of=faults_of)
        self._last: tuple[Inputs, Loaded] | None = None
        self._seen: tuple[SourceTree, str | None] | None = None
        """The tree and the environment that `_last` came from: looking at them again would lead to the same."""

    def load(self, paths: Sequence[str], env: str | None = None, stdin: bytes | None = None, *, full: bool = False) -> Loaded:
        """Everything the paths declare; raises InvalidInput with all problems, sorted.

        Args:
            paths: Files and directories; `-` stands for `stdin`.
            env: The environment; required as soon as one is declared.
            stdin: The bytes that `-` stands for.
            full: Read every file, even where name, size and time say that it has not changed.
        """
        return self.load_tree(collect(paths, stdin or b""), env, full=full)

    def load_tree(self, tree: SourceTree, env: str | None = None, *, full: bool = False) -> Loaded:
        """The same for files that were collected before; one that has gone since is a problem."""
        if self._last is not None and self._seen == (tree, env) and not full:
            return self._last[1]
        inputs, selection = self._inputs(tree, env, full=full)
        if self._last is not None and self._last[0] == inputs:
            loaded = self._last[1]
        else:
            loaded = self._with_durables(build(inputs, Positions(selection.files)))
        if loaded.desired.revision != tree.revision:
            loaded = replace(loaded, desired=replace(loaded.desired, revision=tree.revision))
        self._last, self._seen = (inputs, loaded), (tree, env)
        return loaded

    def _with_durables(self, loaded: Loaded) -> Loaded:
        desired = loaded.desired
        return replace(loaded, desired=with_durables(desired, self._owner(desired.governance.owner, desired.environment)))

    def _inputs(self, tree: SourceTree, env: str | None, *, full: bool) -> tuple[Inputs, Selection]:
        self._parser.refresh(tree.files, full=full)
        indexes = _of_kind("AssignmentIndex", self._parser.find_kinds(index_files(tree.files)))
        selection = select(tree.files, indexes, self._parser.sha256)
        settings = self._parser.find_kinds(selection.files)
        policies = _of_kind("Policy", settings)
        context, refusal = _context(_of_kind("Environment", settings), policies, env)
        compiled = self._parser.parse(selection.files, context)
        problems = (*tree.problems, *refusal, *selection.problems, *compiled.problems, *_several(policies))
        return Inputs(compiled.results, problems, context, selection.held_back, selection.whole), selection


def _context(
    environments: Sequence[Document], policies: Sequence[Document], env: str | None
) -> tuple[Context, tuple[Problem, ...]]:
    """What to compile with; a wrong choice of environment is a problem beside the others, not instead of them."""
    rules = policy.read_policy(policies)
    try:
        return Context(environment.choose(environments, env), rules), ()
    except InvalidInput as error:
        return Context(policy=rules), error.problems


def _of_kind(kind: str, documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if document.value.get("kind") == kind]


def _several(policies: Sequence[Document]) -> Iterator[Problem]:
    for other in policies[1:]:
        message = f"a set of manifests has one Policy; another is at {policies[0].location}"
        yield Problem(other.location.file, other.location.line, 1, "several-policies", message)
