"""Time in the hands of the test, and waiting for what happens in its own time."""
