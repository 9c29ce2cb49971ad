"""Watches streams that copy, and does something about those that stand still."""
