"""Changes that need more than one request, as pure step machines: no I/O, no clock."""
