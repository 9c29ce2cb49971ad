"""Everything that talks to a NATS server; the only room that imports `nats`."""
