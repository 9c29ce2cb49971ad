"""The page on graphs shows what its manifests give."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.manifests.files.loader import Loader
from reconciler.render.graph.mermaid import mermaid
from reconciler.sources.graph.views import declared_topology

PAGE = Path(__file__).parents[2] / "docs" / "graph.md"


def test_the_mermaid_block_is_the_graph_of_the_manifests_above_it(tmp_path: Path) -> None:
    blocks = dict(re.findall(r"^```(yaml|mermaid)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    path = tmp_path / "shops.yaml"
    path.write_text(blocks["yaml"], encoding="utf-8")
    loaded = Loader().load([str(path)])
    assert blocks["mermaid"] == mermaid(declared_topology(loaded.desired).sourcing().without_readers())
