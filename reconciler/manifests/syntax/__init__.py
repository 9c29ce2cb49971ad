"""Text as documents, with positions: strict YAML and JSON."""
