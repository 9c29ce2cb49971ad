"""What differs, how that is shown, and what the server lets an update change."""
