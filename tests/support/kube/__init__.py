"""A real Kubernetes API server on loopback."""
