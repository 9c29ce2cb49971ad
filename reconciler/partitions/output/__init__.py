"""Plan → files, tables, report, commit."""
