"""A topology as a picture or as text."""
