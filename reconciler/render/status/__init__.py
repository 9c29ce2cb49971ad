"""The state of everything, for people and programs."""
