"""Connections of the product, as tests of its transport open them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reconciler.jetstream.transport.connection import Connection

Connect = Callable[..., Awaitable[Connection]]
"""Opens one from URLs and the fields of ConnectionSettings."""
