"""(Desired, Live) → Plan. Pure: no I/O, no clock, no logging."""
