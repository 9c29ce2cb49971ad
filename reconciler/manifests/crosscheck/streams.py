"""Checks between streams: no subject is stored twice, and references lead somewhere."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.crosscheck.declarations import Declarations, Stream
from reconciler.manifests.findings import Fault, Finding
from reconciler.manifests.suggest import quoted
from reconciler.model.flow import listened
from reconciler.model.subjects import SubjectIndex


def listened_subjects(stream: Stream) -> list[str]:
    """What a stream takes from publishers, as far as the manifest says it."""
    return listened(stream.config, stream.declared.key.stream_name) if stream.known else []


def check_streams(declarations: Declarations) -> Iterator[Fault]:
    """Subjects of two streams must not overlap within a domain."""
    indexes: dict[str, SubjectIndex[Stream]] = {}
    for stream in declarations.streams.values():
        key = stream.declared.key
        index = indexes.setdefault(key.domain, SubjectIndex())
        subjects = listened_subjects(stream)
        for number, subject in enumerate(subjects):
            hit = next(index.overlapping(subject), None)
            if hit:
                other = hit[1].declared
                message = f"{quoted(subject)} overlaps {quoted(hit[0])} of {other.key} ({other.location})"
                yield Fault(stream.declared.location, Finding(("spec", "subjects", number), "subject-overlap", message))
        for subject in subjects:
            index.add(subject, stream)
