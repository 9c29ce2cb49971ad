"""What only shows when all documents are looked at together: overlaps, cycles, references, shared consumers.

Invariant: every check is close to linear in the number of documents; 100,000 consumers take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from reconciler.manifests.crosscheck.consumers import check_consumers
from reconciler.manifests.crosscheck.declarations import Declarations
from reconciler.manifests.crosscheck.durables import check_durables
from reconciler.manifests.crosscheck.pools import check_pools
from reconciler.manifests.crosscheck.sourcing import check_sourcing
from reconciler.manifests.crosscheck.streams import check_streams
from reconciler.manifests.findings import Fault

__all__ = ["Declarations", "crosscheck"]


def crosscheck(declarations: Declarations) -> Iterator[Fault]:
    """Every fault between documents."""
    checks = (check_streams, check_sourcing, check_durables, check_consumers, check_pools)
    return chain.from_iterable(check(declarations) for check in checks)
