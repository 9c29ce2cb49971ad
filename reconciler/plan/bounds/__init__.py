"""How much of a plan may be done: what it is about, by which policy, within what a server takes, and when it is too much."""
