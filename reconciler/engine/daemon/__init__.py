"""The process that keeps running: what makes it look, when it tries again, and what it knows meanwhile."""
