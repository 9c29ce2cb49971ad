"""Tables and earlier plans → checked columns."""
