"""Live state as manifests."""
