"""Pages of the documentation, followed to the letter."""
