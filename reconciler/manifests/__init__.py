"""Files → Desired: sources, strict YAML with positions, environments, policies."""
