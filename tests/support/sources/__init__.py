"""Streams that copy others: every change of how they do, run under load, and what became of each message."""
