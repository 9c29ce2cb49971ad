"""Prometheus: its programs, our rules, and a server of it that scrapes daemons."""
