"""plan.yaml → the spec, with every fault by file, line and column.

Invariant: the same strictness as every other manifest: unknown fields, double keys and wrong types are errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.envelope import open_envelope
from reconciler.manifests.files.source import collect
from reconciler.manifests.findings import Finding, from_validation, to_problems
from reconciler.manifests.suggest import quoted
from reconciler.manifests.syntax.document import Document
from reconciler.manifests.syntax.texts import cut, parse_text
from reconciler.partitions.families import problems
from reconciler.partitions.spec import PartitionPlanSpec

PLAN_KIND = "PartitionPlan"


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan as it was declared."""

    name: str
    path: Path
    spec: PartitionPlanSpec
    document: Document

    @property
    def directory(self) -> Path:
        """What the paths in it are relative to."""
        return self.path.parent

    def problem(self, code: str, message: str, *path: str | int) -> Problem:
        """A fault that shows only once the plan is carried out, at the field that is to blame."""
        return to_problems(self.document, [Finding(path, code, message)])[0]


def read_plan(path: str) -> PlanFile:
    """The one PartitionPlan of a file; other kinds may stand beside it."""
    tree = collect([path])
    if tree.problems:
        raise InvalidInput(tree.problems)
    if len(tree.files) != 1:
        message = "a directory: name the one file that has the plan"
        raise InvalidInput((Problem(path, 1, 1, "not-a-file", message),))
    file = tree.files[0]
    parsed = [parse_text(text) for text in cut(file.path, file.read())]
    problems = tuple(problem for part in parsed for problem in part.problems)
    plans = [document for part in parsed for document in part.documents if document.value.get("kind") == PLAN_KIND]
    if problems:
        raise InvalidInput(problems)
    if len(plans) != 1:
        message = f"{'no' if not plans else 'more than one'} {PLAN_KIND} here; exactly one is needed"
        raise InvalidInput((Problem(file.path, 1, 1, "one-plan", message),))
    return _opened(Path(file.path), plans[0])


def _opened(path: Path, document: Document) -> PlanFile:
    findings: list[Finding] = []
    envelope = open_envelope(document.value, findings)
    spec: PartitionPlanSpec | None = None
    if envelope is not None:
        try:
            spec = PartitionPlanSpec.model_validate(envelope.spec)
        except ValidationError as error:
            findings += from_validation(error, PartitionPlanSpec, ("spec",))
        else:
            findings += _faults(spec)
    if findings or envelope is None or spec is None:
        raise InvalidInput(to_problems(document, findings))
    return PlanFile(envelope.name, path, spec, document)


def _faults(spec: PartitionPlanSpec) -> list[Finding]:
    found = []
    partitions = spec.partitions
    if partitions.template is not None and partitions.columns.subject is not None:
        found.append(
            Finding(("spec", "partitions", "template"), "bad-value", "give either a template or the column of the subject")
        )
    for place, wrong in problems(spec.families):
        found.append(Finding(("spec", "families", place), "bad-family", f"{quoted(spec.families[place])} {wrong}"))
    if spec.families and not spec.manifests:
        message = "families need manifests, where the other pools of the stream are: nobody else may read what a wildcard takes"
        found.append(Finding(("spec", "families"), "unproven-family", message))
    output = Path(spec.output)
    if output == Path() or output == Path("/") or output.name in ("", ".", "..") or output.name.startswith((".", "_")):
        message = "a directory of its own is needed, whose name does not begin with . or _ (manifests there would be skipped)"
        found.append(Finding(("spec", "output"), "bad-value", message))
    return found
