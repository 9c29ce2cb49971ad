"""What can be declared: one table of fields for each kind."""
