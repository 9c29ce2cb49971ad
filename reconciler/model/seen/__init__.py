"""What a server showed, kept up by looks and answers."""
