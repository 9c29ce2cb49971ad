"""Grafana: whether it understands a dashboard."""
