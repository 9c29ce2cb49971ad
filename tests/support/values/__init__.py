"""Manifests, plans and configurations to test with."""
