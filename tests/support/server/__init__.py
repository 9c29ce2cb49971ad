"""Real `nats-server` processes of any version, and what can stand between them and a client."""
