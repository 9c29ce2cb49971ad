"""Subjects that change hands, between streams and between consumers."""
