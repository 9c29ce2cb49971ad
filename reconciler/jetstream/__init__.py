"""Everything that talks to a NATS server; the only room that imports `nats`.

nats-py loads aiohttp for websockets, which takes longer than all the rest of it: here that is left to whoever opens one
(`wire.with_websockets`).
"""

import sys

if "nats" not in sys.modules and "aiohttp" not in sys.modules:
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # as where it is not installed
    try:
        import nats.aio.transport  # noqa: F401 - for what it does not load
    finally:
        del sys.modules["aiohttp"]
