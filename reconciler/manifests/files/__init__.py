"""Which files there are, what is in them, and which of it is ours."""
