"""The state of every resource, and of the process."""
