"""The one way for every write."""
