"""What servers publish unasked: hints of what somebody may have changed."""
