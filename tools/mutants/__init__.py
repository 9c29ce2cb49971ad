"""Mistakes kept as data, made one at a time in a copy of the checkout, and hunted by its tests."""
