"""What a person wants done to one consumer."""
