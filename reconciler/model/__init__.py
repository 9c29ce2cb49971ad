"""What can be declared and what can be seen. Pure: no I/O, no clock, no logging."""
