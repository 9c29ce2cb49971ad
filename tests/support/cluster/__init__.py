"""Three servers as one, and what they report together."""
