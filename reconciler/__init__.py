"""reconciler: a GitOps reconciler for NATS JetStream that never loses a message while it changes things."""

__version__ = "0.1.0"
