"""The manifest language as data: for `explain`, the schema and the generated pages."""
