"""What is there: everything in bulk, a few keys again, and single answers."""
