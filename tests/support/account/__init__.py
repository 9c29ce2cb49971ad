"""Whoever else is on a server: a raw client, workers and publishers, somebody who meddles."""
