"""Streams that copy from others: how entries read, what has to change about them and in which steps, and how they fare. Pure."""
