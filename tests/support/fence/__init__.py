"""A leader that is stopped, killed or cut off, and what of it lands afterwards."""
