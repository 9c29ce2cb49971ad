"""The algorithm. Nothing here reads, writes or knows the time."""
