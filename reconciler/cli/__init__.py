"""The command line: one small file per command, and what they share."""
