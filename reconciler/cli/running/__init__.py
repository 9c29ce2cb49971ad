"""What `reconciler run` is besides its engine: how it is put together, and what a person at a terminal sees of it."""
